package lifecycle

import (
	"encoding/json"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// An Event is a change of a task. The set is closed.
//
//sumtype:decl
type Event interface {
	// Action returns the name of the event.
	Action() action.Name

	// cause returns the actor and the reason for [task.Transition]. Events that never
	// change a task's state have none.
	cause() (by, reason string)

	// apply changes t or returns an error. The caller has checked that the event is
	// legal in t's state and in time. t is a shallow copy: values that it points to
	// must be replaced, not changed.
	apply(t *task.Task, now time.Time) *task.Error
}

// Events that change a task's state. By is the actor.
type (
	// Admit lets a task run without an approval: [task.Working] becomes [task.Approved].
	Admit struct {
		By, Reason string

		// A gateway also names the standing approval that lets the call run, and the
		// approvals with which it was given.
		Grant     gatetask.GrantID
		Approvals []gatetask.Decision
	}

	// Claim makes one executor run the call: [task.Approved] becomes [task.Executing]. It is
	// refused with [ErrDigestMismatch] if the call differs from the approved one.
	Claim struct {
		By         string
		Executor   string // the name of the run, or empty: see [task.Execution]
		LeaseUntil time.Time
	}

	// Complete ends a run with a result: [task.Executing] becomes [task.Completed]. Only
	// the executor can do it.
	Complete struct {
		By       string
		Executor string // the executor that claimed the task; By if empty
		Result   task.Result
	}

	// Fail ends a task without a result: any pending state becomes [task.Failed]. Ran may be
	// empty. Before a task executes it is always no, and later an empty value means unknown. A
	// call that may have run is never retriable.
	Fail struct {
		By       string
		Executor string     // if not empty, the required executor; for another one the error is [ErrNotExecutor]
		Detached bool       // if true, the error is [ErrNotExecutor] while an executor holds a lease
		From     task.State // if not empty, the required state; in another state the error is [task.ErrConcurrentModification]
		Failure  task.Failure
		Message  string       // the upstream's message about its task, for the owner only, or empty
		Result   *task.Result // the JSON-RPC error that the upstream sent to the executor, or nil; the executor is By if Executor is empty
	}

	// Lapse ends a run whose executor has not renewed its lease: [task.Executing] becomes
	// [task.Failed], and it is unknown whether the tool ran. A run with an upstream task cannot
	// lapse.
	Lapse struct {
		By   string
		Dead bool // the executor is known to have died, although its lease has not ended
	}

	// Cancel withdraws a task: any pending state becomes [task.Cancelled].
	Cancel struct{ By, Reason string }

	// Expire ends a task whose deadline has passed: any pending state becomes [task.Expired].
	Expire struct{ By string }
)

// Events that leave a task's state as it is.
type (
	// SetVariables sets variables; see [task.VariableChange].
	SetVariables task.VariableChange

	// ExtendTTL extends the TTL of a task to TTL from its creation, or to Max if that is less.
	// It never shortens the TTL, and does not change the deadline of an approval.
	ExtendTTL struct {
		By       string // the actor; may be empty
		TTL, Max time.Duration
	}

	// RenewLease records that the executor is alive.
	RenewLease struct {
		By    string
		Until time.Time
	}

	// Progress records the status of a run and its questions to the client. If an
	// upstream does the work, it also records the upstream's task, which never changes
	// afterwards. Only the executor can record it. If By is empty, another process has
	// polled the upstream; the event is then legal if no executor is alive.
	Progress struct {
		By            string
		UpstreamTask  string
		Upstream      gatetask.UpstreamState // UpstreamAsks is implied if InputRequests are given
		Message       string
		PollInterval  time.Duration
		InputRequests json.RawMessage // a JSON object; an empty object asks for another call, nil asks nothing
		RequestState  string

		// Release detaches the run from its executor, so that it needs no process. It requires
		// an upstream task, or questions to the client.
		Release bool
	}

	// Describe sets the status message of a run. Only the executor can set it.
	Describe struct{ By, Message string }

	// Ask adds questions to a run without an upstream task, by keys that name the same question
	// in every run of the task. A question that has an answer is not asked again. Only the
	// executor can ask.
	Ask struct {
		By        string
		Questions json.RawMessage // a JSON object
	}

	// Answer adds the client's answers to the questions of an [Ask], or of a [Progress] without
	// an upstream task, by the keys of the questions. Other answers are ignored. When all
	// questions are answered, the run continues. If it is detached, By becomes its executor,
	// or if By is empty, it can be resumed.
	Answer struct {
		Responses  map[string]json.RawMessage
		By         string
		LeaseUntil time.Time
	}

	// Restart takes over a run whose executor has died, and repeats it. Questions and answers
	// stay. Use it only for work that may be repeated. It is refused with [task.ErrNotReady]
	// while the executor may be alive.
	Restart struct {
		By         string
		LeaseUntil time.Time
		Dead       bool // the executor is known to have died, although its lease has not ended
	}
)

// Action implements [Event].
func (Admit) Action() action.Name { return action.Admit }

// Action implements [Event].
func (Claim) Action() action.Name { return action.Claim }

// Action implements [Event].
func (Complete) Action() action.Name { return action.Complete }

// Action implements [Event].
func (Fail) Action() action.Name { return action.Fail }

// Action implements [Event].
func (Lapse) Action() action.Name { return action.Lapse }

// Action implements [Event].
func (Cancel) Action() action.Name { return action.Cancel }

// Action implements [Event].
func (Expire) Action() action.Name { return action.Expire }

// Action implements [Event].
func (SetVariables) Action() action.Name { return action.SetVariables }

// Action implements [Event].
func (ExtendTTL) Action() action.Name { return action.ExtendTTL }

// Action implements [Event].
func (RenewLease) Action() action.Name { return action.RenewLease }

// Action implements [Event].
func (Progress) Action() action.Name { return action.Progress }

// Action implements [Event].
func (Ask) Action() action.Name { return action.Ask }

// Action implements [Event].
func (Answer) Action() action.Name { return action.Answer }

// Action implements [Event].
func (Describe) Action() action.Name { return action.Describe }

// Action implements [Event].
func (Restart) Action() action.Name { return action.Restart }

func (e Submit) cause() (by, reason string) { return e.By, "" }

func (e Admit) cause() (by, reason string) { return e.By, e.Reason }

func (e Approve) cause() (by, reason string) { return e.By, e.Reason }

func (e Reject) cause() (by, reason string) { return e.By, e.Reason }

func (e Claim) cause() (by, reason string) { return e.By, "" }

func (e Complete) cause() (by, reason string) { return e.By, "" }

func (e Fail) cause() (by, reason string) { return e.By, e.Failure.Reason }

func (e Lapse) cause() (by, reason string) { return e.By, leaseLapsed }

func (e Cancel) cause() (by, reason string) { return e.By, e.Reason }

func (e Expire) cause() (by, reason string) { return e.By, timeOver }

func (Contact) cause() (by, reason string) { return "", "" }

func (SetVariables) cause() (by, reason string) { return "", "" }

func (e ExtendTTL) cause() (by, reason string) { return e.By, "" }

func (RenewLease) cause() (by, reason string) { return "", "" }

func (Progress) cause() (by, reason string) { return "", "" }

func (Ask) cause() (by, reason string) { return "", "" }

func (Answer) cause() (by, reason string) { return "", "" }

func (Resume) cause() (by, reason string) { return "", "" }

func (Describe) cause() (by, reason string) { return "", "" }

func (Restart) cause() (by, reason string) { return "", "" }

func (Deliver) cause() (by, reason string) { return "", "" }

func (e CancelUpstream) cause() (by, reason string) { return e.By, "" }

func (e SettleUpstream) cause() (by, reason string) { return e.By, "" }
