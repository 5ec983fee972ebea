package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// storedVersion is the version of the stored form. It is raised whenever a
// program of an earlier version would lose something by reading a task and
// writing it back.
const storedVersion = 1

// A document is a task in its stored form.
type document struct {
	Format int `json:"format"`
	Task

	// Arguments is where in the message the arguments stand, as offset and
	// length, so that they are not stored twice.
	Arguments []int `json:"argumentsAt,omitempty"`
}

// Encode returns t as one JSON document, for stores that keep it as such.
func Encode(t Task) ([]byte, error) {
	d := document{Format: storedVersion, Task: t}
	if args := t.Call.Arguments; args != "" {
		if at := strings.Index(t.Call.Message, args); at >= 0 {
			d.Call.Arguments, d.Arguments = "", []int{at, len(args)}
		}
	}
	return json.Marshal(&d, json.WithMarshalers(json.MarshalToFunc(encodeDuration)), json.Deterministic(true))
}

// Decode returns the task that data is the stored form of. If it cannot be
// read, the error is [ErrUnreadable].
func Decode(data []byte) (Task, error) {
	t, err := decode(data)
	if err != nil {
		return Task{}, &Error{Kind: KindUnreadable, ID: t.ID, Err: err}
	}
	return t, nil
}

// decode returns, with an error, what it knows of the task.
func decode(data []byte) (Task, error) {
	var d document
	err := json.Unmarshal(data, &d,
		json.WithUnmarshalers(json.UnmarshalFromFunc(decodeDuration)), json.RejectUnknownMembers(true))
	switch {
	case d.Format > storedVersion:
		return d.Task, fmt.Errorf("format %d is newer than %d", d.Format, storedVersion)
	case err != nil:
		return d.Task, err
	case d.Format < 1:
		return d.Task, errors.New("no format")
	case !slices.Contains(States(), d.State):
		return d.Task, fmt.Errorf("unknown state %q", d.State)
	}
	if len(d.Arguments) == 0 {
		return d.Task, nil
	}
	args, ok := part(d.Call.Message, d.Arguments)
	if !ok {
		return d.Task, errors.New("arguments lie outside of the message")
	}
	d.Call.Arguments = args
	return d.Task, nil
}

// part returns the part of s that span, an offset and a length, stands for.
func part(s string, span []int) (string, bool) {
	if len(span) != 2 {
		return "", false
	}
	at, size := span[0], span[1]
	if at < 0 || at > len(s) || size < 0 || size > len(s)-at {
		return "", false
	}
	return s[at:][:size], true
}

// Durations are stored in whole microseconds, like times.
func encodeDuration(e *jsontext.Encoder, d time.Duration) error {
	return e.WriteToken(jsontext.Int(d.Microseconds()))
}

func decodeDuration(d *jsontext.Decoder, to *time.Duration) error {
	var micro int64
	if err := json.UnmarshalDecode(d, &micro); err != nil {
		return err
	}
	*to = time.Duration(micro) * time.Microsecond
	return nil
}
