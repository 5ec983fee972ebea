package approval

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Tasks are the held calls as they stand: a task whose time is over ends when
// somebody looks at it.
type tasks struct {
	*core

	contacts  *contacts
	canceller *canceller
}

// get returns a task as it stands.
func (ts *tasks) get(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := ts.cfg.Store.Get(ctx, ref)
	if err != nil {
		return t, err
	}
	return ts.settled(ctx, t)
}

// settled ends t if its time is over: nobody should see a task as pending that
// cannot go on.
func (ts *tasks) settled(ctx context.Context, t task.Task) (task.Task, error) {
	now := ts.cfg.Now().Truncate(time.Microsecond) // as precise as tasks are
	for !t.State.Terminal() && now.After(t.Due()) && (!t.Lost(now) || !ts.alive(t)) {
		var e task.Event = task.Expire{By: ts.cfg.Name}
		if t.Lost(now) {
			e = task.Lapse{By: ts.cfg.Name}
		}
		after, err := ts.updater().Advance(ctx, task.AnyOwner().Ref(t.ID), e, now)
		switch {
		case err == nil:
			ts.overdue(ctx, after)
		case !overtaken(err) && !errors.Is(err, task.ErrNotReady):
			return t, err
		}
		t = after
	}
	return t, nil
}

// overdue reports a task whose time is over.
func (ts *tasks) overdue(ctx context.Context, t task.Task) {
	ts.canceller.cancelSoon(ctx, t, nil)
	ts.contacts.forget(t.ID)
	age := t.UpdatedAt.Sub(t.CreatedAt)
	from, to := lastMove(t)
	ts.cfg.Log.WarnContext(About(ctx, t), "task overdue",
		"from", from, "to", to, "age_seconds", age.Seconds(), "upstream_task_id", upstreamTask(t))
	ts.observe(ctx, Event{Step: Overdue, Task: t})
	ts.uncollected(ctx, t)
}

// uncollected reports a task that was not run because its owner did not come
// back, unless that was reported when it was approved.
func (ts *tasks) uncollected(ctx context.Context, t task.Task) {
	if t.Failure != nil && t.Failure.Stage == task.StageUncollected && t.InContact(t.Approval.DecidedAt()) {
		ts.abandon(ctx, t)
	}
}

func (ts *tasks) abandon(ctx context.Context, t task.Task) {
	ts.cfg.Log.WarnContext(About(ctx, t), "approved call not run: its owner is not present", "state", t.State)
	ts.observe(ctx, Event{Step: Abandoned, Task: t})
}

// upstreamTask returns which task the upstream made of the call of t, if it did.
func upstreamTask(t task.Task) string {
	if t.Execution == nil {
		return ""
	}
	return t.Execution.UpstreamTask
}
