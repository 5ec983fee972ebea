package task

import (
	"context"
	"errors"
	"time"
)

// A Clerk makes events happen to the tasks of a store. It is the one place
// where a task is read, changed and written back. Cancelling, writing
// variables, extending the time to live and so on are all an Advance with the
// event of that name; each is atomic because it is one swap.
type Clerk struct {
	Tasks Tasks

	// Tell returns what the journal is to be told when e has made after of
	// before. It may be called more than once for one event, when others get
	// in between. Nil tells nothing.
	Tell func(before, after Task, e Event) []Note

	// Alive reports whether the executor of a task is known to be alive,
	// although its lease has lapsed by the clock. Nil knows of none.
	Alive func(Task) bool
}

// Advance is [Clerk.Advance] without anything told.
func Advance(ctx context.Context, s Tasks, ref Ref, e Event, now time.Time) (Task, error) {
	return Clerk{Tasks: s}.Advance(ctx, ref, e, now)
}

// Advance makes e happen, at time now, to the task that ref names, and stores
// the outcome, which it returns, together with what is told of it.
//
// If others change the task in between, Advance starts over and e still
// happens if it can. But an event that was to take the task out of one state
// does not take it out of another: if the state has changed, it is answered
// with [ErrConcurrentModification] and both states. Only [Cancel], [Expire]
// and [Lapse] mean the same in every state, and go on.
func (c Clerk) Advance(ctx context.Context, ref Ref, e Event, now time.Time) (Task, error) {
	var expected State
	for {
		before, err := c.Tasks.Get(ctx, ref)
		if err != nil {
			return Task{}, err
		}
		if expected == "" {
			expected = before.State
		}
		if before.State != expected && !insists(e) {
			return before, before.refuse(lost(expected, before.State), e.Action())
		}
		after, err := before.Apply(e, now)
		if err != nil {
			return before, err
		}
		if err = c.Tasks.Swap(ctx, after, c.notes(before, after, e)...); err == nil {
			return after, nil
		}
		if !errors.Is(err, ErrConcurrentModification) {
			return before, err
		}
	}
}

func (c Clerk) notes(before, after Task, e Event) []Note {
	if c.Tell == nil {
		return nil
	}
	return c.Tell(before, after, e)
}

// lost is the error of a change that came second.
func lost(expected, actual State) *Error {
	return &Error{Kind: KindConcurrentModification, Expected: expected, Actual: actual}
}

// insists reports whether e means the same in every state, or changes none.
func insists(e Event) bool {
	switch e.Action() {
	case ActionSubmit, ActionAdmit, ActionApprove, ActionReject, ActionClaim, ActionComplete, ActionFail:
		return false
	default:
		return true
	}
}

// CompleteWithResult ends a run with what the upstream answered: state and
// result change together or not at all. A JSON-RPC error makes the task
// [Failed], anything else [Completed].
func CompleteWithResult(ctx context.Context, s Tasks, ref Ref, c Complete, now time.Time) (Task, error) {
	if c.Result.Kind != ResultRPCError {
		return Advance(ctx, s, ref, c, now)
	}
	failure := Failure{Stage: StageUpstreamError, Reason: "the upstream answered with an error", Ran: RanYes}
	return Advance(ctx, s, ref, Fail{By: c.By, Failure: failure, Result: &c.Result}, now)
}

// batch is how many tasks housekeeping takes at a time.
const batch = 100

// SettleOverdue is [Clerk.SettleOverdue] without anything told.
func SettleOverdue(ctx context.Context, s Tasks, by string, now time.Time) ([]Task, error) {
	return Clerk{Tasks: s}.SettleOverdue(ctx, by, now)
}

// SettleOverdue ends tasks whose time is over at time now: it expires those
// past their deadline and fails those whose executor's lease has lapsed, the
// outcome unknown. Any number of replicas may do it at the same time; each
// task is settled, and returned, by one of them. Tasks are taken in batches:
// call it again as long as it returns any.
func (c Clerk) SettleOverdue(ctx context.Context, by string, now time.Time) ([]Task, error) {
	overdue, err := c.Tasks.Overdue(ctx, precise(now), batch)
	if err != nil {
		return nil, err
	}
	settled := overdue[:0]
	for _, t := range overdue {
		after, ended, err := c.Settle(ctx, t, by, now)
		if ended {
			settled = append(settled, after)
		} else if err != nil {
			return settled, err
		}
	}
	return settled, nil
}

// Settle ends t if its time is over at time now, as [Clerk.SettleOverdue] does,
// and reports whether it did. Otherwise it returns t.
func (c Clerk) Settle(ctx context.Context, t Task, by string, now time.Time) (Task, bool, error) {
	var e Event = Expire{By: by}
	switch {
	case t.State.Terminal() || !precise(now).After(t.Due()):
		return t, false, nil
	case t.Lost(now) && c.Alive != nil && c.Alive(t):
		return t, false, nil
	case t.Lost(now):
		e = Lapse{By: by}
	}
	after, err := c.Advance(ctx, AnyOwner().Ref(t.ID), e, now)
	switch {
	case err == nil:
		return after, true, nil
	case settledElsewhere(err):
		return t, false, nil
	default:
		return t, false, err
	}
}

// settledElsewhere reports whether err means that there is nothing left to do:
// the task has ended, or has got more time.
func settledElsewhere(err error) bool {
	return errors.Is(err, ErrAlreadyTerminal) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotReady)
}

// FailPending is [Clerk.FailPending] without anything told.
func FailPending(ctx context.Context, s Tasks, by string, now time.Time) (int, error) {
	return Clerk{Tasks: s}.FailPending(ctx, by, now)
}

// FailPending ends every task that is pending, because a store that does not
// outlive the process is about to go, and reports how many.
func (c Clerk) FailPending(ctx context.Context, by string, now time.Time) (int, error) {
	ended := 0
	q := Query{Scope: AnyOwner(), States: Pending(), Limit: batch}
	for t, err := range Each(ctx, c.Tasks, q) {
		if err == nil {
			err = c.abandon(ctx, t.ID, by, now)
		}
		switch {
		case err == nil:
			ended++
		case !settledElsewhere(err):
			return ended, err
		}
	}
	return ended, nil
}

// abandon fails a task in whatever state it is, or expires it if it is too
// late for that.
func (c Clerk) abandon(ctx context.Context, id ID, by string, now time.Time) error {
	fail := Fail{By: by, Failure: Failure{Stage: StageShutdown, Reason: "the gate was shut down", Retriable: true}}
	for {
		_, err := c.Advance(ctx, AnyOwner().Ref(id), fail, now)
		if errors.Is(err, ErrExpired) {
			_, err = c.Advance(ctx, AnyOwner().Ref(id), Expire{By: by}, now)
		}
		if !errors.Is(err, ErrConcurrentModification) {
			return err
		}
	}
}
