package approval

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Sender reaches the upstream of a held call in the name, and with the
// credentials, of whoever provided it. Its methods must return, and the Body of
// what they return must fail, soon after ctx has ended. An error that is a
// [*SendError] says what went wrong; after any other one that is unknown.
type Sender interface {
	// Call makes the call of t, which was claimed for that. If t.Execution has
	// Answers, the upstream has asked for them, and this call goes on where the
	// one before ended.
	Call(ctx context.Context, t task.Task) (Outcome, error)

	// Poll asks how the task stands that the upstream made of the call.
	Poll(ctx context.Context, t task.Task) (Report, error)

	// Fetch returns the outcome of the task that the upstream made of the call,
	// once there is one. Questions of the upstream meanwhile go to the client, if
	// it is present.
	Fetch(ctx context.Context, t task.Task) (Outcome, error)

	// Answer hands the client's answers, a JSON object, to the task that the
	// upstream made of the call.
	Answer(ctx context.Context, t task.Task, responses json.RawMessage) error

	// Cancel cancels the call at the upstream, or the task that it made of it.
	Cancel(ctx context.Context, t task.Task) error
}

// A Revocable is a [Sender] whose client may lose the right to be served. The
// desk makes no call of an owner who is known only by such a sender.
type Revocable interface {
	Revoked() bool
}

// A Definer is a [Sender] that knows what the upstream says of its tools.
type Definer interface {
	// Definitions returns the digests of the definitions that the tools of t have
	// now: of a call one, and of a batch as many as there are messages in it. A
	// digest that is not known soon, and that of a message which calls no tool,
	// is empty.
	Definitions(ctx context.Context, t task.Task) []string
}

// An Outcome is an upstream's answer to a call. Either Body or Report is set.
type Outcome struct {
	Body  io.Reader // the result, or the error object, as JSON; closed after use if it is an [io.Closer], not checked again if it is [Checked]
	Error bool      // Body is a JSON-RPC error object

	// Report says that there is no outcome yet: the call has become a task of
	// the upstream's, or the upstream asks something before it goes on.
	Report *Report
}

func (o Outcome) close() {
	if c, ok := o.Body.(io.Closer); ok {
		_ = c.Close() // what could be read has been
	}
}

// A Report is what an upstream says of a call that it has taken.
type Report struct {
	Task         string // the id of the upstream's task; empty if it made none
	State        task.UpstreamState
	Message      string // in its own words
	PollInterval time.Duration

	// InputRequests is what the client is asked, a JSON object, and RequestState
	// what the upstream wants back with the answers.
	InputRequests json.RawMessage
	RequestState  string

	Cancelled bool     // its task was cancelled, by somebody else than the gate; there is no outcome
	Outcome   *Outcome // of its task, if the upstream reports it at once
}

// A SendError says how far a call got that has no answer.
type SendError struct {
	Stage task.Stage // one of the upstream stages
	Ran   task.Ran   // whether the call reached the tool
	Err   error
}

// Error implements error.
func (e *SendError) Error() string { return string(e.Stage) + ": " + e.Err.Error() }

// Unwrap returns the cause of e.
func (e *SendError) Unwrap() error { return e.Err }

// Unreachable is the [Sender] to an upstream that cannot be reached, because of
// Err.
type Unreachable struct{ Err error }

func (u Unreachable) fail() error {
	return &SendError{Stage: task.StageUpstreamUnreachable, Ran: task.RanNo, Err: u.Err}
}

// Call implements [Sender].
func (u Unreachable) Call(context.Context, task.Task) (Outcome, error) { return Outcome{}, u.fail() }

// Poll implements [Sender].
func (u Unreachable) Poll(context.Context, task.Task) (Report, error) { return Report{}, u.fail() }

// Fetch implements [Sender].
func (u Unreachable) Fetch(context.Context, task.Task) (Outcome, error) { return Outcome{}, u.fail() }

// Answer implements [Sender].
func (u Unreachable) Answer(context.Context, task.Task, json.RawMessage) error { return u.fail() }

// Cancel implements [Sender].
func (u Unreachable) Cancel(context.Context, task.Task) error { return u.fail() }
