package storekit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// storedVersion is the version of the stored form. Raise it when an earlier program would lose
// data if it read a task and wrote it back.
const storedVersion = 1

// A document is a task in its stored form.
type document struct {
	Format int `json:"format"`
	task.Task

	// Arguments is the offset and the length of the arguments in the message, so that
	// they are not stored twice.
	Arguments []int `json:"argumentsAt,omitempty"`
}

// The options are created once, because they cache how each type is encoded.
var (
	encoding = json.JoinOptions(json.WithMarshalers(json.MarshalToFunc(encodeDuration)), json.Deterministic(true))
	decoding = json.JoinOptions(json.WithUnmarshalers(json.UnmarshalFromFunc(decodeDuration)), json.RejectUnknownMembers(true))
)

// Encode returns t as one JSON document, the stored form.
func Encode(t task.Task) ([]byte, error) {
	d := document{Format: storedVersion, Task: t}
	if args := t.Call.Arguments; args != "" {
		if at := strings.Index(t.Call.Message, args); at >= 0 {
			d.Call.Arguments, d.Arguments = "", []int{at, len(args)}
		}
	}
	return json.Marshal(&d, encoding)
}

// Decode reads a task in its stored form. If that fails, the error is
// [task.ErrUnreadable].
func Decode(data []byte) (task.Task, error) {
	t, err := decode(data)
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.ErrUnreadable, ID: t.ID, Err: err}
	}
	return t, nil
}

// DecodeAs is Decode for a document that is stored under the given ID. It refuses the
// document of another task.
func DecodeAs(id task.ID, data []byte) (task.Task, error) {
	t, err := Decode(data)
	//mutate:false internal/storage.TestCheckReportsEveryProblem a task is read under the id of another
	if err == nil && t.ID != id {
		return task.Task{}, &task.Error{Kind: task.ErrUnreadable, ID: id, Err: errors.New("the document belongs to another task")}
	}
	return t, err
}

// DecodeFor is DecodeAs for the task that ref names, which must have its owner.
func DecodeFor(ref task.Ref, data []byte) (task.Task, error) {
	t, err := DecodeAs(ref.ID, data)
	if err == nil {
		err = ref.Check(t.Owner, action.Get)
	}
	if err != nil {
		return task.Task{}, err
	}
	return t, nil
}

// decode returns the fields that it has read, also with an error.
func decode(data []byte) (task.Task, error) {
	var d document
	err := json.Unmarshal(data, &d, decoding)
	switch {
	case d.Format > storedVersion:
		return d.Task, fmt.Errorf("format %d is newer than %d", d.Format, storedVersion)
	case err != nil:
		return d.Task, err
	case d.Format < 1:
		return d.Task, errors.New("no format")
	case !slices.Contains(task.States(), d.State):
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

// part returns the part of s at span, an offset and a length.
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
