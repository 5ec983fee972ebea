package task

import (
	"iter"
	"slices"
	"time"
	"unicode/utf8"
)

// transitions holds every legal change of state. A pair that is absent is
// illegal. A task that has begun to execute can never be approved or claimed
// again: a tool call is not known to be idempotent, so it is made at most once,
// unless somebody who knows better says [Restart].
var transitions = map[State]map[Action]State{
	Working: {
		ActionSubmit: InputRequired, ActionAdmit: Approved,
		ActionFail: Failed, ActionCancel: Cancelled, ActionExpire: Expired,
	},
	InputRequired: {
		ActionApprove: Approved, ActionReject: Rejected,
		ActionFail: Failed, ActionCancel: Cancelled, ActionExpire: Expired,
	},
	Approved: {
		ActionClaim: Executing,
		ActionFail:  Failed, ActionCancel: Cancelled, ActionExpire: Expired,
	},
	Executing: {
		ActionComplete: Completed, ActionLapse: Failed,
		ActionFail: Failed, ActionCancel: Cancelled, ActionExpire: Expired,
	},
}

// Transitions returns every legal change of state, as the state before and the
// one after.
func Transitions() iter.Seq2[State, State] {
	return func(yield func(from, to State) bool) {
		for from, actions := range transitions {
			for _, to := range actions {
				if !yield(from, to) {
					return
				}
			}
		}
	}
}

// annotations holds what can happen to a task without changing its state.
var annotations = map[State][]Action{
	Working:       {ActionContact, ActionSetVariables, ActionExtendTTL},
	InputRequired: {ActionContact, ActionSetVariables, ActionExtendTTL},
	Approved:      {ActionContact, ActionSetVariables, ActionExtendTTL},
	Executing: {
		ActionContact, ActionSetVariables, ActionExtendTTL,
		ActionRenewLease, ActionProgress, ActionDescribe, ActionAnswer, ActionResume, ActionRestart,
	},
	Completed: {ActionDeliver},
	Failed:    {ActionDeliver},
	Rejected:  {ActionDeliver},
	Cancelled: {ActionDeliver, ActionCancelUpstream, ActionSettleUpstream},
	Expired:   {ActionDeliver, ActionCancelUpstream, ActionSettleUpstream},
}

// A Draft is what a new task is made of.
type Draft struct {
	ID           ID // see [NewID]
	Owner        string
	Call         Call
	TTL          time.Duration // see [TTLRules]
	PollInterval time.Duration // see [Polling]

	// Variables are written with the task: all of them, or there is no task.
	Variables []SetVariables

	// The rest is for gateways; see [HeldCall]. Same is what identical calls have in
	// common, or zero if that is the digest of Call. Waits says that the owner waits
	// in the request that makes the call.
	Room     string
	Same     Digest
	Workflow string
	Verdict  Verdict
	Waits    bool
}

// New returns a task that is made at time now, in state [Working]. It returns
// [ErrInvalid] if d lacks something or holds what cannot be stored as it is, and
// the error of [SetVariables] if the variables are refused.
func New(d Draft, now time.Time) (Task, error) {
	now = precise(now)
	digest, err := d.Call.Digest()
	if err != nil {
		return Task{}, &Error{Kind: KindInvalid, ID: d.ID, Action: ActionCreate, Err: err}
	}
	if wrong := d.check(); wrong != "" {
		return Task{}, &Error{Kind: KindInvalid, ID: d.ID, Action: ActionCreate, Detail: wrong}
	}
	t := Task{
		ID: d.ID, Version: 1, State: Working,
		Owner: d.Owner, Call: d.Call, Digest: digest,
		CreatedAt: now, UpdatedAt: now,
		ExpiresAt: precise(now.Add(d.TTL)), PollInterval: d.PollInterval.Truncate(time.Microsecond),
		HeldCall: HeldCall{Room: d.Room, Workflow: d.Workflow, Verdict: d.Verdict, ContactAt: now},
	}
	if (d.Same != Digest{}) && d.Same != digest {
		t.Digest, t.Whole = d.Same, &digest
	}
	if d.Waits {
		t.WaitsUntil = now.Add(2 * t.PollInterval)
	}
	for _, set := range d.Variables {
		if refused := set.apply(&t, now); refused != nil {
			return Task{}, (&Task{ID: d.ID}).refuse(refused, ActionCreate)
		}
	}
	return t, nil
}

func (d Draft) check() string {
	switch {
	case d.ID == "":
		return "no id"
	case d.Owner == "":
		return "no owner"
	case d.TTL < time.Microsecond:
		return "no time to live"
	case d.PollInterval < 0:
		return "negative poll interval"
	}
	for _, text := range []string{
		string(d.ID), d.Owner, d.Room, d.Workflow, d.Call.Upstream, d.Call.Method, d.Call.Name, d.Call.Message, d.Call.Also,
		d.Verdict.Reason, d.Verdict.Snapshot, d.Verdict.ToolDigest, d.Verdict.Facts,
	} {
		if !utf8.ValidString(text) {
			return "invalid UTF-8"
		}
	}
	return ""
}

// Apply returns t as it is after e has happened at time now. It returns an
// [Error], and t unchanged, if e cannot happen to t.
//
// Every event that happens raises Version by one. One that changes State adds
// to Transitions; no event leads from a state to itself. Time does not run
// backwards for a task: if now lies before the last change, because a clock was
// set back or the clocks of two replicas differ, that change's time is taken
// instead. The times that e carries come from the same clock as now, so they are
// moved by as much: a lease or a deadline keeps its length.
//
// The two tasks share what the event did not change. A caller that changes parts
// of one by hand must [Task.Clone] it first.
func (t Task) Apply(e Event, now time.Time) (Task, error) {
	read := precise(now)
	now = latest(read, t.UpdatedAt)
	e = postponed(e, now.Sub(read))
	action := e.Action()
	to, refused := t.next(action, now)
	if refused != nil {
		return t, t.refuse(refused, action)
	}
	by, reason := e.cause()
	if to != t.State && by == "" || !utf8.ValidString(by) || !utf8.ValidString(reason) {
		return t, t.refuse(&Error{Kind: KindInvalid, Detail: "who did it, and why, must be told in valid UTF-8"}, action)
	}
	after := t
	if refused := e.apply(&after, now); refused != nil {
		return t, t.refuse(refused, action)
	}

	after.Version++
	if !quiet(action) {
		after.UpdatedAt = now
	}
	if to == t.State || after.undecided(action) {
		return after, nil
	}
	after.State = to
	after.Transitions = append(slices.Clip(t.Transitions), Transition{From: t.State, To: to, At: now, By: by, Reason: reason})
	return after, nil
}

// postponed returns e with every time that it carries moved by the given amount.
func postponed(e Event, by time.Duration) Event {
	switch e := e.(type) {
	case Submit:
		e.Deadline = e.Deadline.Add(by)
		return e
	case Claim:
		e.LeaseUntil = e.LeaseUntil.Add(by)
		return e
	case RenewLease:
		e.Until = e.Until.Add(by)
		return e
	case Resume:
		e.LeaseUntil = e.LeaseUntil.Add(by)
		return e
	case Restart:
		e.LeaseUntil = e.LeaseUntil.Add(by)
		return e
	case Contact:
		if !e.WaitsUntil.IsZero() {
			e.WaitsUntil = e.WaitsUntil.Add(by)
		}
		return e
	default:
		return e
	}
}

// next returns the state that a leads to, which is the present one if a does
// not change it.
func (t *Task) next(a Action, now time.Time) (State, *Error) {
	to, moves := transitions[t.State][a]
	switch {
	case !moves && !slices.Contains(annotations[t.State], a):
		return "", t.illegal(a)
	case t.late(a, now):
		return "", &Error{Kind: KindExpired, Detail: "its time ended at " + t.deadline().Format(time.RFC3339)}
	case moves:
		return to, nil
	default:
		return t.State, nil
	}
}

// illegal returns why a cannot happen in t's state.
func (t *Task) illegal(a Action) *Error {
	switch {
	case t.State.Terminal():
		return &Error{Kind: KindAlreadyTerminal}
	case a == ActionDeliver:
		return &Error{Kind: KindNotReady}
	default:
		return &Error{Kind: KindInvalidTransition}
	}
}

// late reports whether a comes after t's deadline. Only expiry itself, the end
// of a run that began in time, and the delivery of an outcome may be late.
func (t *Task) late(a Action, now time.Time) bool {
	if !now.After(t.deadline()) {
		return false
	}
	switch a {
	case ActionExpire, ActionDeliver, ActionCancelUpstream, ActionSettleUpstream:
		return false
	case ActionComplete, ActionFail, ActionLapse:
		return t.State != Executing
	default:
		return true
	}
}

// undecided reports whether a was an approval after which more are needed.
func (t *Task) undecided(a Action) bool {
	return a == ActionApprove && len(t.Approval.Approvals) < t.Approval.Quorum
}

// quiet reports whether a changes nothing that a client can see.
func quiet(a Action) bool {
	switch a {
	case ActionContact, ActionRenewLease, ActionResume, ActionDeliver, ActionCancelUpstream, ActionSettleUpstream:
		return true
	default:
		return false
	}
}

// refuse completes e, the reason why a cannot happen to t.
func (t *Task) refuse(e *Error, a Action) *Error {
	e.ID, e.State, e.Action = t.ID, t.State, a
	if e.Suggest == "" {
		e.Suggest = suggestions[e.Kind]
	}
	return e
}
