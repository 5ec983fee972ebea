package task

import (
	"encoding/json"
	"time"
)

// An Action names what was done, or attempted, with a task.
type Action string

// The actions: those of events, and those of stores.
const (
	ActionSubmit       Action = "submit"
	ActionAdmit        Action = "admit"
	ActionApprove      Action = "approve"
	ActionReject       Action = "reject"
	ActionClaim        Action = "claim"
	ActionComplete     Action = "complete"
	ActionFail         Action = "fail"
	ActionLapse        Action = "lapse"
	ActionCancel       Action = "cancel"
	ActionExpire       Action = "expire"
	ActionContact      Action = "contact"
	ActionSetVariables Action = "set variables"
	ActionExtendTTL    Action = "extend ttl"
	ActionRenewLease   Action = "renew lease"
	ActionProgress     Action = "progress"
	ActionAnswer       Action = "answer"
	ActionResume       Action = "resume"
	ActionRestart      Action = "restart"
	ActionDescribe     Action = "describe"
	ActionDeliver      Action = "deliver"

	ActionCancelUpstream Action = "tell upstream"
	ActionSettleUpstream Action = "settle upstream"

	ActionCreate     Action = "create"
	ActionGet        Action = "get"
	ActionSwap       Action = "swap"
	ActionList       Action = "list"
	ActionSweep      Action = "sweep"
	ActionWatch      Action = "watch"
	ActionReadChunk  Action = "read chunk"
	ActionWriteChunk Action = "write chunk"
	ActionAppend     Action = "append to the journal"
	ActionRead       Action = "read the journal"
	ActionTrim       Action = "trim the journal"

	ActionPutRecord    Action = "put record"
	ActionGetRecord    Action = "get record"
	ActionDeleteRecord Action = "delete record"
	ActionListRecords  Action = "list records"
	ActionSweepRecords Action = "sweep records"
)

// An Event is something that happens to a task. The set is closed.
//
//sumtype:decl
type Event interface {
	// Action names what the event does.
	Action() Action

	// cause returns who did it and why, for the trail. Events that never
	// change a task's state have none.
	cause() (by, reason string)

	// apply changes t or says why it cannot. That the event is legal in t's
	// state and in time has been checked before. t is a shallow copy: what it
	// refers to must be replaced, not changed.
	apply(t *Task, now time.Time) *Error
}

// Events that change a task's state. By is who did it.
type (
	// Admit lets a task run without asking anybody: [Working] becomes [Approved].
	Admit struct {
		By, Reason string

		// A gateway also names the standing approval that lets the call run, and the
		// approvals of those who gave it.
		Grant     GrantID
		Approvals []Decision
	}

	// Claim is taken by the one executor that makes the call: [Approved]
	// becomes [Executing]. It is refused with [ErrDigestMismatch] if the call
	// is not the one that was approved.
	Claim struct {
		By         string
		Executor   string // the name of the run, if it has one: see [Execution]
		LeaseUntil time.Time
	}

	// Complete ends a run with a result: [Executing] becomes [Completed]. Only
	// the executor can do it.
	Complete struct {
		By       string
		Executor string // the one that claimed the task; By if empty
		Result   Result
	}

	// Fail ends a task that cannot have a result: any pending state becomes
	// [Failed]. Ran may be left empty; before a task executes it is always no,
	// and afterwards unknown is assumed. A call that may have run is never retriable.
	Fail struct {
		By       string
		Executor string // if not empty, the only executor whose run it ends; any other is [ErrNotExecutor]
		Detached bool   // it ends no run that an executor is at work on, which is [ErrNotExecutor]
		From     State  // if not empty, the only state that it ends; any other is [ErrConcurrentModification]
		Failure  Failure
		Message  string  // the words of the upstream about its task, for the owner alone, if there are any
		Result   *Result // the JSON-RPC error that the upstream gave the executor, if it did; the executor is By if Executor is empty
	}

	// Lapse ends a run whose executor has not renewed its lease: [Executing]
	// becomes [Failed], and whether the tool ran is unknown. A run that the
	// upstream keeps a task of cannot lapse.
	Lapse struct{ By string }

	// Cancel withdraws a task: any pending state becomes [Cancelled].
	Cancel struct{ By, Reason string }

	// Expire ends a task whose time is over: any pending state becomes [Expired].
	Expire struct{ By string }
)

// Events that leave a task's state as it is.
type (
	// SetVariables writes variables, all of them or none. A null deletes.
	SetVariables struct {
		Side   Side
		Values Variables
		Limits VariableLimits
	}

	// ExtendTTL prolongs a task's life to TTL from its creation, or to Max if
	// that is less. It never shortens it, and it gives the approvers no more
	// time than they were given.
	ExtendTTL struct {
		By       string // who wants it; may be empty
		TTL, Max time.Duration
	}

	// RenewLease shows that the executor is alive.
	RenewLease struct {
		By    string
		Until time.Time
	}

	// Progress records how far a run is, in the words of the one that does the
	// work, and what it asks of the client. If an upstream does the work, it is
	// also the task that the upstream has made of the call, which stays the same
	// ever after. Only the executor can do it. If By is empty, it is what somebody
	// else was told by the upstream, which counts if no executor is alive.
	Progress struct {
		By            string
		UpstreamTask  string
		Upstream      UpstreamState // UpstreamAsks is implied if InputRequests are given
		Message       string
		PollInterval  time.Duration
		InputRequests json.RawMessage // a JSON object; one without members asks to be called again, nil for nothing
		RequestState  string

		// Release ends the executor's part: from now on the run needs no process.
		// There must be an upstream's task, or questions to the client.
		Release bool
	}

	// Describe says how far a run is, in words, and changes nothing else. Only the
	// executor can do it.
	Describe struct{ By, Message string }

	// Answer adds the client's answers to what was asked in a [Progress] without
	// an upstream's task, by the keys of the questions. Others are ignored. With
	// the last question answered the run goes on: if it needed no process
	// meanwhile, it can be resumed.
	Answer struct{ Responses map[string]json.RawMessage }

	// Restart takes over a run whose executor has died, to do all of it once more.
	// It is for work that may be done twice. It is
	// refused with [ErrNotReady] while the executor may be alive.
	Restart struct {
		By         string
		LeaseUntil time.Time
	}
)

// Action implements [Event].
func (Admit) Action() Action { return ActionAdmit }

// Action implements [Event].
func (Claim) Action() Action { return ActionClaim }

// Action implements [Event].
func (Complete) Action() Action { return ActionComplete }

// Action implements [Event].
func (Fail) Action() Action { return ActionFail }

// Action implements [Event].
func (Lapse) Action() Action { return ActionLapse }

// Action implements [Event].
func (Cancel) Action() Action { return ActionCancel }

// Action implements [Event].
func (Expire) Action() Action { return ActionExpire }

// Action implements [Event].
func (SetVariables) Action() Action { return ActionSetVariables }

// Action implements [Event].
func (ExtendTTL) Action() Action { return ActionExtendTTL }

// Action implements [Event].
func (RenewLease) Action() Action { return ActionRenewLease }

// Action implements [Event].
func (Progress) Action() Action { return ActionProgress }

// Action implements [Event].
func (Answer) Action() Action { return ActionAnswer }

// Action implements [Event].
func (Describe) Action() Action { return ActionDescribe }

// Action implements [Event].
func (Restart) Action() Action { return ActionRestart }

func (e Submit) cause() (by, reason string)     { return e.By, "" }
func (e Admit) cause() (by, reason string)      { return e.By, e.Reason }
func (e Approve) cause() (by, reason string)    { return e.By, e.Reason }
func (e Reject) cause() (by, reason string)     { return e.By, e.Reason }
func (e Claim) cause() (by, reason string)      { return e.By, "" }
func (e Complete) cause() (by, reason string)   { return e.By, "" }
func (e Fail) cause() (by, reason string)       { return e.By, e.Failure.Reason }
func (e Lapse) cause() (by, reason string)      { return e.By, leaseLapsed }
func (e Cancel) cause() (by, reason string)     { return e.By, e.Reason }
func (e Expire) cause() (by, reason string)     { return e.By, timeOver }
func (Contact) cause() (by, reason string)      { return "", "" }
func (SetVariables) cause() (by, reason string) { return "", "" }
func (e ExtendTTL) cause() (by, reason string)  { return e.By, "" }
func (RenewLease) cause() (by, reason string)   { return "", "" }
func (Progress) cause() (by, reason string)     { return "", "" }
func (Answer) cause() (by, reason string)       { return "", "" }
func (Resume) cause() (by, reason string)       { return "", "" }
func (Describe) cause() (by, reason string)     { return "", "" }
func (Restart) cause() (by, reason string)      { return "", "" }
func (Deliver) cause() (by, reason string)      { return "", "" }

func (e CancelUpstream) cause() (by, reason string) { return e.By, "" }
func (e SettleUpstream) cause() (by, reason string) { return e.By, "" }
