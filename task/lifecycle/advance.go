package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// An Updater changes the tasks of a store. Only an Updater reads, changes and writes back
// tasks. To cancel, set variables or extend the TTL, call Advance with the event of that name.
// Each change is atomic, because it is one swap.
type Updater struct {
	Store task.Store

	// Notes returns the notes for the journal when e has changed before to after. It may be
	// called several times for one event, when the task is changed concurrently. If it is nil,
	// no notes are written.
	Notes func(before, after task.Task, e Event) []task.Note

	// Alive reports whether the executor of a task is known to be alive, although its lease has
	// ended. Nil means never.
	Alive func(task.Task) bool
}

// Advance is [Updater.Advance] without a journal.
func Advance(ctx context.Context, s task.Store, ref task.Ref, e Event, now time.Time) (task.Task, error) {
	return Updater{Store: s}.Advance(ctx, ref, e, now)
}

// Advance applies e, at time now, to the task that ref names, stores the new task
// together with the notes for the journal, and returns it.
//
// If the task is changed concurrently, Advance starts over. But an event that changes the
// state applies only to the state that Advance has read first: if the state has changed,
// the error is [task.ErrConcurrentModification] with both states. [Cancel], [Expire] and
// [Lapse] mean the same in every state, and are applied nevertheless.
func (u Updater) Advance(ctx context.Context, ref task.Ref, e Event, now time.Time) (task.Task, error) {
	return u.advance(ctx, ref, "", e, now)
}

// AdvanceFrom is [Updater.Advance] for a task that the caller has already read. It only reads
// the task again if it has changed since, or if e is illegal for the version that the caller
// read.
func (u Updater) AdvanceFrom(ctx context.Context, before task.Task, e Event, now time.Time) (task.Task, error) {
	if after, err := Apply(before, e, now); err == nil {
		err = u.Store.Swap(ctx, after, u.notes(before, after, e)...)
		switch {
		case err == nil:
			return after, nil
		case !errors.Is(err, task.ErrConcurrentModification):
			return before, err
		}
	}
	return u.advance(ctx, task.OwnedBy(before.Owner).Ref(before.ID), before.State, e, now)
}

// advance is Advance for a task in the expected state, if that is known.
func (u Updater) advance(ctx context.Context, ref task.Ref, expected task.State, e Event, now time.Time) (task.Task, error) {
	for {
		before, err := u.Store.Get(ctx, ref)
		if err != nil {
			return task.Task{}, err
		}
		if expected == "" {
			expected = before.State
		}
		if before.State != expected && !appliesInEveryState(e) {
			return before, before.Refuse(stateChanged(expected, before.State), e.Action())
		}
		after, err := Apply(before, e, now)
		if err != nil {
			return before, err
		}
		if err = u.Store.Swap(ctx, after, u.notes(before, after, e)...); err == nil {
			return after, nil
		}
		if !errors.Is(err, task.ErrConcurrentModification) {
			return before, err
		}
	}
}

// AdvanceAll applies events that do not change the state of a task, one after the other, and stores
// what they change with one swap. It begins with before, which the caller has read or stored, and
// reads the task only if it has changed since, or if an event is illegal for before. It returns
// the new task, and for each event nil or the error for which the event has changed nothing.
func AdvanceAll(ctx context.Context, s task.Store, before task.Task, events []Event, now time.Time) (task.Task, []error) {
	ref := task.OwnedBy(before.Owner).Ref(before.ID)
	for fresh := false; ; fresh = true {
		after, errs := applyAll(before, events, now)
		err := errors.Join(errs...)
		switch {
		case err != nil && !fresh: // before may be outdated
		case after.Version == before.Version:
			return before, errs
		default:
			if err = s.Swap(ctx, after); err == nil {
				return after, errs
			}
			if !errors.Is(err, task.ErrConcurrentModification) {
				return before, slices.Repeat([]error{err}, len(events))
			}
		}
		current, err := s.Get(ctx, ref)
		if err != nil {
			return before, slices.Repeat([]error{err}, len(events))
		}
		before = current
	}
}

// applyAll applies events as one change of t.
func applyAll(t task.Task, events []Event, now time.Time) (task.Task, []error) {
	version := t.Version
	errs := make([]error, len(events))
	for i, e := range events {
		if t, errs[i] = Apply(t, e, now); errs[i] == nil {
			t.Version = version // one swap makes one version
		}
	}
	if slices.Contains(errs, nil) {
		t.Version++
	}
	return t, errs
}

func (u Updater) notes(before, after task.Task, e Event) []task.Note {
	if u.Notes == nil {
		return nil
	}
	return u.Notes(before, after, e)
}

// stateChanged returns the error of an event that comes after a concurrent change of state.
func stateChanged(expected, actual task.State) *task.Error {
	return &task.Error{Kind: task.ErrConcurrentModification, Expected: expected, Actual: actual}
}

// appliesInEveryState reports whether e means the same in every state.
func appliesInEveryState(e Event) bool {
	switch e.Action() {
	case action.Submit, action.Admit, action.Approve, action.Reject, action.Claim, action.Complete, action.Fail:
		return false
	default:
		return true
	}
}

// CompleteWithResult ends a run with an answer. State and result change together or not at all.
// A JSON-RPC error makes the task [task.Failed], every other answer [task.Completed].
func CompleteWithResult(ctx context.Context, s task.Store, ref task.Ref, c Complete, now time.Time) (task.Task, error) {
	return Advance(ctx, s, ref, c.event(), now)
}

// CompleteFrom is [CompleteWithResult] for a task that the caller has read or stored.
func CompleteFrom(ctx context.Context, s task.Store, before task.Task, c Complete, now time.Time) (task.Task, error) {
	return Updater{Store: s}.AdvanceFrom(ctx, before, c.event(), now)
}

// event returns the event that ends a run with the answer of c.
func (e Complete) event() Event {
	if e.Result.Kind != task.ResultRPCError {
		return e
	}
	failure := task.Failure{Stage: StageUpstreamError, Reason: "the upstream answered with an error", Ran: task.RanYes}
	return Fail{By: e.By, Executor: e.Executor, Failure: failure, Result: &e.Result}
}

// batch is the number of tasks that housekeeping settles in one call.
const batch = 100

// SettleOverdue ends the tasks that are overdue at time now. It expires tasks whose deadline
// has passed, and fails tasks whose lease has ended, with an unknown outcome. Several replicas
// may call it at the same time: one of them settles each task and returns it. It settles one
// batch, so call it until it returns no tasks. If some tasks cannot be read, it settles the
// others and also returns [task.ErrUnreadable].
func (u Updater) SettleOverdue(ctx context.Context, by string, now time.Time) ([]task.Task, error) {
	overdue, unreadable := u.Store.Overdue(ctx, precise(now), batch)
	if unreadable != nil && !errors.Is(unreadable, task.ErrUnreadable) {
		return nil, unreadable
	}
	settled := overdue[:0]
	for _, t := range overdue {
		after, ended, err := u.Settle(ctx, t, by, now)
		if ended {
			settled = append(settled, after)
		} else if err != nil && !errors.Is(err, task.ErrNotFound) {
			return settled, errors.Join(unreadable, err)
		}
	}
	return settled, unreadable
}

// Settle ends t if it is overdue at time now, as [Updater.SettleOverdue] does, and reports
// whether it did. Otherwise it returns t, or the current task if another process has ended it
// or has given it more time.
func (u Updater) Settle(ctx context.Context, t task.Task, by string, now time.Time) (task.Task, bool, error) {
	var e Event = Expire{By: by}
	switch {
	case t.State.Terminal() || !precise(now).After(t.Due()):
		return t, false, nil
	case t.Lost(now) && u.Alive != nil && u.Alive(t):
		return t, false, nil
	case t.Lost(now):
		e = Lapse{By: by}
	}
	// Read again: all replicas find t at the same time, and a read costs less than a refused
	// write.
	after, err := u.Advance(ctx, task.AnyOwner().Ref(t.ID), e, now)
	switch {
	case err == nil:
		return after, true, nil
	case errors.Is(err, task.ErrAlreadyTerminal), errors.Is(err, task.ErrNotReady), errors.Is(err, task.ErrInvalidTransition):
		return after, false, nil // the last if the upstream has taken the call by now
	default:
		return t, false, err
	}
}

// settledElsewhere reports whether err means that the task needs no more work: it has ended, or
// has got more time.
func settledElsewhere(err error) bool {
	return errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrNotReady)
}

// FailPending fails every pending task and returns the number of tasks. It is for a store that
// ends with the process, before the process ends. If some tasks cannot be read, it ends the
// others and returns [task.ErrUnreadable].
func (u Updater) FailPending(ctx context.Context, by string, now time.Time) (int, error) {
	ended := 0
	var unreadable error
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: batch}
	for t, err := range storekit.Each(ctx, u.Store, q) {
		if err == nil {
			err = u.abandon(ctx, t.ID, by, now)
		}
		switch {
		case err == nil:
			ended++
		case errors.Is(err, task.ErrUnreadable):
			unreadable = errors.Join(unreadable, err)
		case !settledElsewhere(err):
			return ended, errors.Join(unreadable, err)
		}
	}
	return ended, unreadable
}

// abandon fails a task in any state, or expires it if its deadline has passed.
func (u Updater) abandon(ctx context.Context, id task.ID, by string, now time.Time) error {
	fail := Fail{By: by, Failure: task.Failure{Stage: StageShutdown, Reason: "the gate was shut down", Retriable: true}}
	for {
		_, err := u.Advance(ctx, task.AnyOwner().Ref(id), fail, now)
		if errors.Is(err, task.ErrExpired) {
			_, err = u.Advance(ctx, task.AnyOwner().Ref(id), Expire{By: by}, now)
		}
		if !errors.Is(err, task.ErrConcurrentModification) {
			return err
		}
	}
}
