package approval

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A Sender reaches the upstream of a held call with the credentials of one client. When ctx ends,
// its methods must return soon, and the Body of an Outcome must fail soon. A [*SendError] says
// what is known about a failed call; after any other error nothing is known.
type Sender interface {
	// Call makes the call of the claimed task t with m. If t.Execution has Answers, the upstream
	// has asked for them, and this call continues the one before.
	Call(ctx context.Context, t task.Task, m UpstreamRequest) (Outcome, error)

	// Poll asks the upstream for the status of its task.
	Poll(ctx context.Context, t task.Task) (Report, error)

	// Fetch returns the result of the upstream task, once it has ended. Questions of the upstream
	// go to the client if it is present.
	Fetch(ctx context.Context, t task.Task) (Outcome, error)

	// Answer sends the client's answers, a JSON object, to the upstream task.
	Answer(ctx context.Context, t task.Task, responses json.RawMessage) error

	// Cancel cancels the call, or its upstream task.
	Cancel(ctx context.Context, t task.Task) error
}

// A Revocable is a [Sender] whose client may lose its access. A revoked sender starts no calls.
type Revocable interface {
	Revoked() bool
}

// A Definer is a [Sender] that knows the upstream's tool definitions.
type Definer interface {
	// Definitions returns the digests of the current definitions of the tools in m: one for a
	// call, one per message for a batch. The digest is empty for a message that calls no tool, and
	// if it does not become known soon.
	Definitions(ctx context.Context, m UpstreamRequest) []string
}

// An Outcome is an upstream's answer to a call. Either Body or Report is set.
type Outcome struct {
	Body  io.Reader // the result or the error object; closed after use if it is an [io.Closer], not validated again if it is [Checked]
	Error bool      // Body is a JSON-RPC error object

	// Report is set if there is no result yet: the call became an upstream task, or the upstream
	// asks the client for input.
	Report *Report
}

func (o Outcome) close() {
	if c, ok := o.Body.(io.Closer); ok {
		_ = c.Close() // the body was read as far as possible
	}
}

// A Report is what an upstream reports about a call that it has accepted.
type Report struct {
	Task         string // the id of the upstream task, if there is one
	State        gatetask.UpstreamState
	Message      string // the upstream's own words
	PollInterval time.Duration

	// InputRequests is a JSON object with questions for the client. RequestState must be returned
	// to the upstream with the answers.
	InputRequests json.RawMessage
	RequestState  string

	Cancelled bool     // the task was canceled by another party than the gate; there is no result
	Outcome   *Outcome // the result of the task, if the report has it
}

// A SendError is the error of a call without an answer.
type SendError struct {
	Stage task.Stage // one of the upstream stages
	Ran   task.Ran   // whether the call reached the tool
	Err   error

	Refusal *Refusal // set if the upstream refused the session or the credentials of the client
}

// A Refusal is the answer of an upstream that refuses the session or the credentials of a client.
// The client can start a session, or sign in, and try again.
type Refusal struct {
	Status    int      // the HTTP status: 404 for a session, 401 for credentials, 403 for their scopes
	Reason    string   // for the client
	Challenge []string // the WWW-Authenticate headers
	Cause     error    // why the gate has no token to send; nil if the upstream has answered
}

// Error implements error.
func (e *SendError) Error() string { return string(e.Stage) + ": " + e.Err.Error() }

// reason returns what the client is told about a refusal.
func (e *SendError) reason() string {
	if e.Refusal == nil {
		return ""
	}
	return e.Refusal.Reason
}

// Unwrap returns the cause of e.
func (e *SendError) Unwrap() error { return e.Err }

// Unreachable is the [Sender] for an upstream that cannot be reached, because of Err.
type Unreachable struct{ Err error }

func (u Unreachable) fail() error {
	return &SendError{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Err: u.Err}
}

// Call implements [Sender].
func (u Unreachable) Call(context.Context, task.Task, UpstreamRequest) (Outcome, error) {
	return Outcome{}, u.fail()
}

// Poll implements [Sender].
func (u Unreachable) Poll(context.Context, task.Task) (Report, error) { return Report{}, u.fail() }

// Fetch implements [Sender].
func (u Unreachable) Fetch(context.Context, task.Task) (Outcome, error) { return Outcome{}, u.fail() }

// Answer implements [Sender].
func (u Unreachable) Answer(context.Context, task.Task, json.RawMessage) error { return u.fail() }

// Cancel implements [Sender].
func (u Unreachable) Cancel(context.Context, task.Task) error { return u.fail() }
