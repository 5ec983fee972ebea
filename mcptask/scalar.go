package mcptask

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Millis is a whole number of milliseconds. It is written as a plain integer
// and read from any JSON number that is one, so 60000, 60000.0 and 6e4 are the
// same.
type Millis int64

// MillisOf returns d in milliseconds, rounded down.
func MillisOf(d time.Duration) Millis { return Millis(d.Milliseconds()) }

// Duration returns m as a duration, or the longest or shortest there is when m
// lies beyond it.
func (m Millis) Duration() time.Duration {
	const limit = Millis(math.MaxInt64 / int64(time.Millisecond))
	return time.Duration(max(-limit, min(m, limit))) * time.Millisecond
}

// maxExact is the largest integer that every JSON reader keeps exactly.
const maxExact = 1<<53 - 1

// UnmarshalJSON implements [encoding/json.Unmarshaler]. It reads a JSON number
// without a fraction.
func (m *Millis) UnmarshalJSON(text []byte) error {
	if kind := jsontext.Value(text).Kind(); kind != jsontext.KindNumber {
		return fmt.Errorf("want a number of milliseconds, have a JSON %s", kind)
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		*m = Millis(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExact {
		return fmt.Errorf("%s is not a whole number of milliseconds", text)
	}
	*m = Millis(f)
	return nil
}

// A Timestamp is a point in time in the notation of RFC 3339. It stays the
// text it came as until [Timestamp.Time] is asked.
type Timestamp string

// At returns t as a timestamp in UTC: to the second, and with exactly three
// more digits where t has milliseconds.
func At(t time.Time) Timestamp {
	t = t.UTC().Truncate(time.Millisecond)
	if t.Nanosecond() == 0 {
		return Timestamp(t.Format("2006-01-02T15:04:05Z"))
	}
	return Timestamp(t.Format("2006-01-02T15:04:05.000Z"))
}

// Time returns the time that s means.
func (s Timestamp) Time() (time.Time, error) {
	// RFC 3339 allows t and z, the time package only T and Z.
	return time.Parse(time.RFC3339, strings.ToUpper(string(s)))
}
