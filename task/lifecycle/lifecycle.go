package lifecycle

import (
	"iter"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// transitions has every legal change of state. A task that executes can never be approved or
// claimed again, so a call is made at most once: tool calls may not be idempotent. Only the
// server of the tool can repeat it, with [Restart].
var transitions = map[task.State]map[action.Name]task.State{
	task.Working: {
		action.Submit: task.InputRequired, action.Admit: task.Approved,
		action.Fail: task.Failed, action.Cancel: task.Cancelled, action.Expire: task.Expired,
	},
	task.InputRequired: {
		action.Approve: task.Approved, action.Reject: task.Rejected,
		action.Fail: task.Failed, action.Cancel: task.Cancelled, action.Expire: task.Expired,
	},
	task.Approved: {
		action.Claim: task.Executing,
		action.Fail:  task.Failed, action.Cancel: task.Cancelled, action.Expire: task.Expired,
	},
	task.Executing: {
		action.Complete: task.Completed, action.Lapse: task.Failed,
		//mutate:swap "action.Cancel: task.Cancelled, " "" task.TestEdgeCases a running call cannot be cancelled
		action.Fail: task.Failed, action.Cancel: task.Cancelled, action.Expire: task.Expired,
	},
}

// Transitions returns every legal change of state, as the states before and after it.
func Transitions() iter.Seq2[task.State, task.State] {
	return func(yield func(from, to task.State) bool) {
		for from, actions := range transitions {
			for _, to := range actions {
				if !yield(from, to) {
					return
				}
			}
		}
	}
}

// annotations has the events that are legal in a state and do not change it.
var annotations = map[task.State][]action.Name{
	task.Working:       {action.Contact, action.SetVariables, action.ExtendTTL},
	task.InputRequired: {action.Contact, action.SetVariables, action.ExtendTTL},
	task.Approved:      {action.Contact, action.SetVariables, action.ExtendTTL},
	task.Executing: {
		action.Contact, action.SetVariables, action.ExtendTTL,
		action.RenewLease, action.Progress, action.Describe, action.Ask, action.Answer, action.Resume, action.Restart,
	},
	task.Completed: {action.Deliver},
	task.Failed:    {action.Deliver},
	task.Rejected:  {action.Deliver},
	task.Cancelled: {action.Deliver, action.CancelUpstream, action.SettleUpstream},
	task.Expired:   {action.Deliver, action.CancelUpstream, action.SettleUpstream},
}

// Apply returns t after the event e at time now. If e is illegal for t, it returns t unchanged
// and a [task.Error].
//
// Every event increases Version by one. An event that changes State also adds to Transitions;
// no event leads from a state to itself. The times of a task never decrease: if now is before
// the last change, because a clock was set back or the clocks of two replicas differ, Apply
// uses the time of that change. It moves the times in e by the same amount, so that a lease or
// a deadline keeps its length.
//
// A task loses its message if it ends without a run and without a decision of an approver, so
// that withdrawn calls do not fill a store. Its digest stays.
//
// The returned task shares unchanged fields with t. A caller that changes one of them directly
// must [task.Task.Clone] it first.
func Apply(t task.Task, e Event, now time.Time) (task.Task, error) {
	read := precise(now)
	now = latest(read, t.UpdatedAt)
	e = shifted(e, now.Sub(read))
	a := e.Action()
	to, refused := nextState(&t, a, now)
	if refused != nil {
		return t, t.Refuse(refused, a)
	}
	by, reason := e.cause()
	if to != t.State && by == "" || !utf8.ValidString(by) || !utf8.ValidString(reason) {
		return t, t.Refuse(&task.Error{Kind: task.ErrInvalid, Detail: "actor and reason must be valid UTF-8, and a change of state needs an actor"}, a)
	}
	after := t
	if refused := e.apply(&after, now); refused != nil {
		return t, t.Refuse(refused, a)
	}

	after.Version++
	if !invisible(a) {
		after.UpdatedAt = now
	}
	if to == t.State || needsMore(&after, a) {
		return after, nil
	}
	after.State = to
	//mutate:false task.TestUndecidedCallLosesItsMessage a withdrawn call keeps its message
	if after.Undecided() {
		after.Call.Message, after.Call.Arguments, after.Call.Also = "", "", ""
	}
	after.Transitions = append(slices.Clip(t.Transitions), task.Transition{From: t.State, To: to, At: now, By: by, Reason: reason})
	return after, nil
}

// shifted returns e with its times moved by the given amount.
func shifted(e Event, by time.Duration) Event {
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
	case Answer:
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

// nextState returns the state after a. It is the present state if a does not change it.
func nextState(t *task.Task, a action.Name, now time.Time) (task.State, *task.Error) {
	to, moves := transitions[t.State][a]
	switch {
	case !moves && !slices.Contains(annotations[t.State], a):
		return "", illegal(t, a)
	case late(t, a, now):
		return "", &task.Error{Kind: task.ErrExpired, Detail: "the deadline was " + t.Deadline().Format(time.RFC3339)}
	case moves:
		return to, nil
	default:
		return t.State, nil
	}
}

// illegal returns the error of an action that is illegal in t's state.
func illegal(t *task.Task, a action.Name) *task.Error {
	switch {
	case t.State.Terminal():
		return &task.Error{Kind: task.ErrAlreadyTerminal}
	case a == action.Deliver:
		return &task.Error{Kind: task.ErrNotReady}
	default:
		return &task.Error{Kind: task.ErrInvalidTransition}
	}
}

// late reports whether a comes after t's deadline. Only expiry itself, the end
// of a run that began in time, and the delivery of an outcome may be late.
func late(t *task.Task, a action.Name, now time.Time) bool {
	//mutate:true task.TestOnlySomeEventsMayBeLate an expired task continues
	if !now.After(t.Deadline()) {
		return false
	}
	switch a {
	case action.Expire, action.Deliver, action.CancelUpstream, action.SettleUpstream:
		return false
	case action.Complete, action.Fail, action.Lapse:
		return t.State != task.Executing
	default:
		return true
	}
}

// needsMore reports whether a was an approval and the quorum is not reached.
func needsMore(t *task.Task, a action.Name) bool {
	//mutate:false task.TestQuorum one approval is a quorum
	return a == action.Approve && len(t.Approval.Approvals) < t.Approval.Quorum
}

// invisible reports whether a changes only fields that a client cannot see.
func invisible(a action.Name) bool {
	switch a {
	case action.Contact, action.RenewLease, action.Resume, action.Deliver, action.CancelUpstream, action.SettleUpstream:
		return true
	default:
		return false
	}
}
