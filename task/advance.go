package task

import (
	"context"
	"errors"
	"time"
)

// An Updater changes the tasks of a store. It is the one place where a task is read,
// changed and written back. Cancelling, writing variables, extending the time to live
// and so on are all an Advance with the event of that name; each is atomic because it
// is one swap.
type Updater struct {
	Store Store

	// Notes returns what the journal records when e has made after of before. It
	// may be called more than once for one event, when others change the task in
	// between. If it is nil, the journal records nothing.
	Notes func(before, after Task, e Event) []Note

	// Alive reports whether the executor of a task is known to be alive,
	// although its lease has lapsed by the clock. Nil knows of none.
	Alive func(Task) bool
}

// Advance is [Updater.Advance] without a journal.
func Advance(ctx context.Context, s Store, ref Ref, e Event, now time.Time) (Task, error) {
	return Updater{Store: s}.Advance(ctx, ref, e, now)
}

// Advance applies e, at time now, to the task that ref names, stores the new task
// together with the notes for the journal, and returns it.
//
// If others change the task in between, Advance starts over and e still
// happens if it can. But an event that was to take the task out of one state
// does not take it out of another: if the state has changed, it is answered
// with [ErrConcurrentModification] and both states. Only [Cancel], [Expire]
// and [Lapse] mean the same in every state, and go on.
func (u Updater) Advance(ctx context.Context, ref Ref, e Event, now time.Time) (Task, error) {
	var expected State
	for {
		before, err := u.Store.Get(ctx, ref)
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
		if err = u.Store.Swap(ctx, after, u.notes(before, after, e)...); err == nil {
			return after, nil
		}
		if !errors.Is(err, ErrConcurrentModification) {
			return before, err
		}
	}
}

func (u Updater) notes(before, after Task, e Event) []Note {
	if u.Notes == nil {
		return nil
	}
	return u.Notes(before, after, e)
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

// CompleteWithResult ends a run with an answer: state and result change together or not
// at all. A JSON-RPC error makes the task
// [Failed], anything else [Completed].
func CompleteWithResult(ctx context.Context, s Store, ref Ref, c Complete, now time.Time) (Task, error) {
	if c.Result.Kind != ResultRPCError {
		return Advance(ctx, s, ref, c, now)
	}
	failure := Failure{Stage: StageUpstreamError, Reason: "the upstream answered with an error", Ran: RanYes}
	return Advance(ctx, s, ref, Fail{By: c.By, Executor: c.Executor, Failure: failure, Result: &c.Result}, now)
}

// batch is how many tasks housekeeping takes at a time.
const batch = 100

// SettleOverdue is [Updater.SettleOverdue] without a journal.
func SettleOverdue(ctx context.Context, s Store, by string, now time.Time) ([]Task, error) {
	return Updater{Store: s}.SettleOverdue(ctx, by, now)
}

// SettleOverdue ends tasks whose time is over at time now: it expires those
// past their deadline and fails those whose executor's lease has lapsed, the
// outcome unknown. Any number of replicas may do it at the same time; each
// task is settled, and returned, by one of them. Tasks are taken in batches:
// call it again as long as it returns any. If some of a batch cannot be read, it
// settles the others, and returns [ErrUnreadable] too.
func (u Updater) SettleOverdue(ctx context.Context, by string, now time.Time) ([]Task, error) {
	overdue, unreadable := u.Store.Overdue(ctx, precise(now), batch)
	if unreadable != nil && !errors.Is(unreadable, ErrUnreadable) {
		return nil, unreadable
	}
	settled := overdue[:0]
	for _, t := range overdue {
		after, ended, err := u.Settle(ctx, t, by, now)
		if ended {
			settled = append(settled, after)
		} else if err != nil {
			return settled, errors.Join(unreadable, err)
		}
	}
	return settled, unreadable
}

// Settle ends t if its time is over at time now, as [Updater.SettleOverdue] does,
// and reports whether it did. Otherwise it returns t.
func (u Updater) Settle(ctx context.Context, t Task, by string, now time.Time) (Task, bool, error) {
	var e Event = Expire{By: by}
	switch {
	case t.State.Terminal() || !precise(now).After(t.Due()):
		return t, false, nil
	case t.Lost(now) && u.Alive != nil && u.Alive(t):
		return t, false, nil
	case t.Lost(now):
		e = Lapse{By: by}
	}
	after, err := u.Advance(ctx, AnyOwner().Ref(t.ID), e, now)
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

// FailPending is [Updater.FailPending] without a journal.
func FailPending(ctx context.Context, s Store, by string, now time.Time) (int, error) {
	return Updater{Store: s}.FailPending(ctx, by, now)
}

// FailPending ends every task that is pending, because a store that does not
// outlive the process is about to go, and reports how many. It returns
// [ErrUnreadable] if some cannot be read, after it has ended the others.
func (u Updater) FailPending(ctx context.Context, by string, now time.Time) (int, error) {
	ended := 0
	var unreadable error
	q := Query{Scope: AnyOwner(), States: Pending(), Limit: batch}
	for t, err := range Each(ctx, u.Store, q) {
		if err == nil {
			err = u.abandon(ctx, t.ID, by, now)
		}
		switch {
		case err == nil:
			ended++
		case errors.Is(err, ErrUnreadable):
			unreadable = errors.Join(unreadable, err)
		case !settledElsewhere(err):
			return ended, errors.Join(unreadable, err)
		}
	}
	return ended, unreadable
}

// abandon fails a task in whatever state it is, or expires it if it is too
// late for that.
func (u Updater) abandon(ctx context.Context, id ID, by string, now time.Time) error {
	fail := Fail{By: by, Failure: Failure{Stage: StageShutdown, Reason: "the gate was shut down", Retriable: true}}
	for {
		_, err := u.Advance(ctx, AnyOwner().Ref(id), fail, now)
		if errors.Is(err, ErrExpired) {
			_, err = u.Advance(ctx, AnyOwner().Ref(id), Expire{By: by}, now)
		}
		if !errors.Is(err, ErrConcurrentModification) {
			return err
		}
	}
}
