// Package task models MCP tasks: calls that run longer than a request, in any server.
//
// A [Task] is a plain value. It has an owner, a state, a time to live, variables and, in
// the end, a result or a failure. It changes only through [lifecycle.Apply], a pure function
// of the task, an [lifecycle.Event] and a time: the rules are written once, in one table, and not
// once in every store. A [Store] keeps tasks, compares versions and knows nothing of
// states. [lifecycle.Advance] reads a task, applies an event and writes the task back.
//
// Most servers use this package through mcptask.Server or gosdktask, and meet it as
// Store, Task, [Limits], [Polling] and [Draft]. The package knows no protocol, no
// transport, no database and no clock; package mcptask puts tasks on the wire.
//
// In a server, a task goes from [Working] over [Approved] to [Executing] without an
// approval ([lifecycle.Admit], [lifecycle.Claim]), and ends as [Completed], [Failed], [Cancelled] or
// [Expired].
//
// # Owners
//
// Every task has an owner. A caller names the owner it acts for with a [Scope];
// the task of another owner is answered with [ErrOwnerMismatch], which a server
// shows exactly as it shows [ErrNotFound].
//
// # Time
//
// Times are kept in UTC and in whole microseconds, the coarsest precision of
// the databases that stores are built on. When the time to live of a task has passed, the
// task can only expire, or end the run that began in time.
//
// # Held calls
//
// A gateway makes a task of a call that people must approve before it runs. Such a task
// waits in [InputRequired] for [lifecycle.Approve] or [lifecycle.Reject], until the deadline of its approval.
// Its upstream is the server behind the gateway, which makes the call. [gatetask.HeldCall] has the
// fields for that, [gatestore.Store] the methods, and [auditlog.Journal] an audit log whose entries are
// chained by hashes, so that a later change of an entry is detected. Servers
// that run their own tasks do not need these parts: their upstream is their own tool.
package task

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A State is the stage of its life that a task is in.
type State string

// The states of a task. The last five are terminal.
const (
	Working       State = "working"        // new
	InputRequired State = "input_required" // a held call waits for its approvers
	Approved      State = "approved"       // may run, but does not run yet
	Executing     State = "executing"      // one executor runs it
	Completed     State = "completed"      // it has a result
	Failed        State = "failed"         // the call returned a JSON-RPC error, or could not be run
	Rejected      State = "rejected"       // an approver rejected it
	Cancelled     State = "cancelled"      // its owner cancelled it
	Expired       State = "expired"        // its time ran out
)

// Terminal reports whether no transition leaves s.
func (s State) Terminal() bool {
	switch s {
	case Completed, Failed, Rejected, Cancelled, Expired:
		return true
	default:
		return false
	}
}

// States returns every state, in the order a task passes through them.
func States() []State {
	return []State{Working, InputRequired, Approved, Executing, Completed, Failed, Rejected, Cancelled, Expired}
}

// Pending returns the states that are not terminal. Tasks in them count against [Limits].
func Pending() []State { return []State{Working, InputRequired, Approved, Executing} }

// A Task is a call with its state and its result. Make one with [New] and change it with
// [lifecycle.Apply]. ID, Owner, Call, Digest and CreatedAt never change.
type Task struct {
	ID        ID        `json:"id"`
	Version   int64     `json:"version"` // 1 when new, and one more with every change
	State     State     `json:"state"`
	Owner     string    `json:"owner"` // the principal on whose behalf the call was made
	Call      Call      `json:"call"`
	Digest    Digest    `json:"digest"` // identical calls have the same; see [Draft]
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"` // when something that a client can see last changed
	ExpiresAt time.Time `json:"expiresAt"` // the end of the whole time to live

	PollInterval time.Duration `json:"pollInterval"` // how often the owner is asked to poll

	Variables   Variables    `json:"variables,omitempty"`
	Transitions []Transition `json:"transitions,omitempty"` // every change of State, oldest first
	Execution   *Execution   `json:"execution,omitzero"`    // the run; nil until it begins
	Result      *Result      `json:"result,omitzero"`       // the answer, if there is one
	Failure     *Failure     `json:"failure,omitzero"`      // set in every terminal state but Completed

	gatetask.HeldCall // for gateways; zero in the tasks of a server

	FullDigest *Digest `json:"whole,omitzero"` // for gateways: see [Task.CallDigest]; nil if it is Digest
}

// A Transition is one change of a task's state.
type Transition struct {
	From   State     `json:"from"`
	To     State     `json:"to"`
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitzero"` // text of By: sanitise it before a model reads it
}

// An Execution is the run of a task. In a server it has one form:
//
//   - A process, the Executor, does the work and renews its lease. If the lease lapses,
//     the process has died, and the outcome of the call is unknown.
//
// A process that may run the same task more than once gives every run its own name as the
// Executor. Late changes by an earlier run are then refused.
//
// A gateway also has runs without a process:
//
//   - The upstream has made a task of the call, UpstreamTask. The gateway asks the
//     upstream when its client polls. A process that fetches the outcome is the
//     Executor meanwhile, so that only one process fetches it; if it dies, another can.
//   - The upstream has answered with questions, and waits to be called again with the
//     client's answers.
type Execution struct {
	Executor     string    `json:"executor,omitzero"` // the process, or its run, that does the work now
	StartedAt    time.Time `json:"startedAt"`
	LeaseUntil   time.Time `json:"leaseUntil,omitzero"`   // an executor that does not renew it has died
	UpstreamTask string    `json:"upstreamTask,omitzero"` // the id of the upstream's own task, if it made one

	// State, message and poll interval as the upstream last reported them. The
	// message is foreign text: sanitise it before a model reads it.
	Upstream     gatetask.UpstreamState `json:"upstream,omitzero"`
	Message      string                 `json:"message,omitzero"`
	PollInterval time.Duration          `json:"pollInterval,omitzero"`

	// InputRequests are the questions to the client, a JSON object, or nil if there
	// are none. Answers, a JSON object as well, are the answers so far. RequestState
	// goes back to the upstream together with the answers.
	InputRequests json.RawMessage `json:"inputRequests,omitzero"`
	RequestState  string          `json:"requestState,omitzero"`
	Answers       json.RawMessage `json:"answers,omitzero"`

	// Cancellation is the cancellation that the upstream is sent if the task ends
	// while the call runs.
	Cancellation *gatetask.Cancellation `json:"cancellation,omitzero"`
}

// Detached reports whether the run needs no process.
func (x *Execution) Detached() bool { return x.LeaseUntil.IsZero() }

// Answered reports whether the client has answered all questions, so that the upstream
// must be called again.
func (x *Execution) Answered() bool {
	return x.UpstreamTask == "" && x.Detached() && x.Upstream != gatetask.UpstreamAsks
}

// lost reports whether the outcome of the run stays unknown: the executor has died, and
// the upstream has made no task that could be asked.
func (x *Execution) lost(now time.Time) bool {
	return x.UpstreamTask == "" && !x.Detached() && now.After(x.LeaseUntil)
}

// A Failure is the reason for which a task ended without a result.
type Failure struct {
	Stage     Stage  `json:"stage"`
	Reason    string `json:"reason,omitzero"`
	Ran       Ran    `json:"ran"`                // whether the call reached the tool
	Retriable bool   `json:"retriable,omitzero"` // whether the same call may succeed later
}

// A Stage is the point at which a task ended.
type Stage string

// Ran is whether a call reached the tool.
type Ran string

// The values of Ran.
const (
	RanNo      Ran = "no"
	RanYes     Ran = "yes"
	RanUnknown Ran = "unknown" // it was sent, and its outcome is unknown
)

// A Result refers to the answer to the call. Small answers are kept in the
// task itself, larger ones as a blob in the store; see [storekit.WriteResult].
type Result struct {
	Kind   ResultKind `json:"kind"`
	Size   int64      `json:"size"`            // of the whole answer, in bytes
	Inline []byte     `json:"inline,omitzero"` // the answer, if Chunks is zero
	Chunks int        `json:"chunks,omitzero"` // how many chunks the blob has, if it is one
	Sum    uint32     `json:"sum,omitzero"`    // CRC-32C of the blob; zero if it is not known
}

// A ResultKind is the kind of an answer.
type ResultKind string

// The kinds of answers.
const (
	ResultOK        ResultKind = "ok"         // a result
	ResultToolError ResultKind = "tool_error" // a result with isError true
	ResultRPCError  ResultKind = "rpc_error"  // a JSON-RPC error object
)

// TTL returns the whole time to live of t, counted from its creation.
func (t Task) TTL() time.Duration { return t.ExpiresAt.Sub(t.CreatedAt) }

// Remaining returns how much of the time to live is left, at least zero.
func (t Task) Remaining(now time.Time) time.Duration { return max(0, t.ExpiresAt.Sub(now)) }

// Due returns the time after which housekeeping must handle t. A pending
// task must then be expired or, when its executor's lease lapsed, failed; see
// [lifecycle.Updater.SettleOverdue]. A terminal task may then be deleted; see [Store.Sweep].
func (t Task) Due() time.Time {
	switch {
	case t.State.Terminal():
		return latest(t.ExpiresAt, t.UpdatedAt)
	case t.State == Executing && t.Execution != nil && t.Execution.UpstreamTask == "" && !t.Execution.Detached():
		return earliest(t.ExpiresAt, t.Execution.LeaseUntil)
	default:
		return t.Deadline()
	}
}

// AwaitsInput reports whether a running task waits for answers of the client.
func (t Task) AwaitsInput() bool {
	return t.State == Executing && t.Execution != nil && t.Execution.Upstream == gatetask.UpstreamAsks
}

// Lost reports whether the executor of a running task has died, so that the outcome of
// the call is unknown. Such a task can only [lifecycle.Lapse], or be started again with [lifecycle.Restart].
func (t Task) Lost(now time.Time) bool {
	return t.State == Executing && t.Execution != nil && t.Execution.lost(now)
}

// Deadline returns the time after which t can only expire.
func (t *Task) Deadline() time.Time {
	if t.State == InputRequired && t.Approval != nil {
		return earliest(t.ExpiresAt, t.Approval.Deadline)
	}
	return t.ExpiresAt
}

// Clone returns a copy of t that shares no memory with it.
func (t Task) Clone() Task {
	t.Variables = t.Variables.Clone()
	t.Transitions = slices.Clone(t.Transitions)
	t.Approval = t.Approval.Clone()
	t.Execution = t.Execution.Clone()
	t.Failure, t.FullDigest = copied(t.Failure), copied(t.FullDigest)
	if t.Result != nil {
		r := *t.Result
		r.Inline = slices.Clone(r.Inline)
		t.Result = &r
	}
	return t
}

// Clone returns a copy of x that shares no memory with it. It is safe to call on nil.
func (x *Execution) Clone() *Execution {
	if x == nil {
		return nil
	}
	c := *x
	c.InputRequests, c.Answers = slices.Clone(x.InputRequests), slices.Clone(x.Answers)
	c.Cancellation = copied(x.Cancellation)
	return &c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// precise returns t as it is stored: in UTC and in whole microseconds.
func precise(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
