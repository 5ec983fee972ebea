package schema

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Millis is a whole number of milliseconds. It is written as a plain integer. Every JSON number
// without a fraction is accepted, so 60000, 60000.0 and 6e4 are equal.
type Millis int64

// MillisOf returns d in milliseconds, rounded down.
func MillisOf(d time.Duration) Millis { return Millis(d.Milliseconds()) }

// Duration returns m as a duration. Values out of range become the longest or the shortest
// duration.
func (m Millis) Duration() time.Duration {
	const limit = Millis(math.MaxInt64 / int64(time.Millisecond))
	return time.Duration(max(-limit, min(m, limit))) * time.Millisecond
}

// maxExact is the largest integer that every JSON reader represents exactly.
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

// A Timestamp is a time in the format of RFC 3339. It keeps its original text; [Timestamp.Time]
// parses it.
type Timestamp string

// At returns t as a timestamp in UTC, with whole seconds, or with exactly three decimals if t
// has milliseconds.
func At(t time.Time) Timestamp {
	t = t.UTC().Truncate(time.Millisecond)
	if t.Nanosecond() == 0 {
		return Timestamp(t.Format("2006-01-02T15:04:05Z"))
	}
	return Timestamp(t.Format("2006-01-02T15:04:05.000Z"))
}

// Time parses s.
func (s Timestamp) Time() (time.Time, error) {
	// RFC 3339 allows t and z, but the time package only T and Z.
	return time.Parse(time.RFC3339, strings.ToUpper(string(s)))
}
