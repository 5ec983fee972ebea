package approval

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Get returns a task as it stands. It does not count as contact.
func (d *Desk) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := d.tasks.get(ctx, ref)
	return d.withInterval(t), err
}

// List returns a page of an owner's tasks, newest first.
func (d *Desk) List(ctx context.Context, owner, cursor string, limit int) (task.Page, error) {
	page, err := d.cfg.Store.List(ctx, task.Query{Scope: task.OwnedBy(owner), Cursor: cursor, Limit: limit})
	for i, t := range page.Tasks {
		page.Tasks[i] = d.withInterval(t)
	}
	return page, err
}

// Unstarted returns the tasks of an owner that neither run nor have ended.
func (d *Desk) Unstarted(ctx context.Context, owner string) iter.Seq2[task.Task, error] {
	return task.Each(ctx, d.cfg.Store, task.Query{
		Scope: task.OwnedBy(owner), States: []task.State{task.Working, task.InputRequired, task.Approved}, Heads: true,
	})
}

// MadeBy returns the task of the call that one of its owner's clients made in the
// request with the given id. It returns none if the call has ended.
func (d *Desk) MadeBy(ctx context.Context, owner, peer string, request []byte) (task.Task, error) {
	if len(request) == 0 || len(request) > maxRequestID {
		return task.Task{}, nil
	}
	q := task.Query{Scope: task.OwnedBy(owner), States: task.Pending(), Limit: sweepBatch, Outlines: true}
	for t, err := range task.Each(ctx, d.cfg.Store, q) {
		if err != nil {
			return task.Task{}, err
		}
		if f := casefile.ReadFacts(t); f.Peer == peer && f.Request == string(request) {
			return t, nil
		}
	}
	return task.Task{}, nil
}

// Left notes in the journal that the client of a task no longer waits for it, and
// why. The task stays pending.
func (d *Desk) Left(ctx context.Context, ref task.Ref, reason string) error {
	now := d.cfg.Now()
	clerk := d.updater()
	clerk.Notes = func(_, after task.Task, _ task.Event) []task.Note {
		n := note(after, Left, now)
		n.Actor, n.Reason = n.Requester, plain.Text(reason, casefile.MaxReason)
		return []task.Note{n}
	}
	_, err := clerk.Advance(ctx, ref, task.Contact{PollInterval: noPolls, WaitsUntil: now}, now)
	return err
}

// UpstreamTasks returns which tasks the upstream made of calls of an owner's, and
// by which ids the owner knows them.
func (d *Desk) UpstreamTasks(ctx context.Context, owner string) (map[string]task.ID, error) {
	ids := make(map[string]task.ID)
	q := task.Query{Scope: task.OwnedBy(owner), Limit: sweepBatch, Outlines: true}
	for t, err := range task.Each(ctx, d.cfg.Store, q) {
		if err != nil {
			return nil, err
		}
		if upstream := upstreamTask(t); upstream != "" {
			ids[upstream] = t.ID
		}
	}
	return ids, nil
}

// Cancel withdraws a task on behalf of its owner. A call that runs is
// interrupted; whether it ran is then unknown. Cancel has the call cancelled at the
// upstream with the sender of w, which may be nil, and does not wait for that.
func (d *Desk) Cancel(ctx context.Context, ref task.Ref, w Withdrawal) (task.Task, error) {
	cancel := task.Cancel{By: w.By, Reason: plain.Text(w.Reason, casefile.MaxReason)}
	t, err := d.updater().Advance(ctx, ref, cancel, d.cfg.Now())
	if errors.Is(err, task.ErrAlreadyTerminal) {
		d.canceller.cancelSoon(ctx, t, w.Send) // in case that the cancellation could not be sent before
	}
	if err != nil {
		return d.withInterval(t), err
	}
	d.observe(ctx, Event{Step: Cancelled, Task: t})
	d.canceller.cancelSoon(ctx, t, w.Send)
	d.contacts.forget(t.ID)
	return d.withInterval(t), nil
}

// A Withdrawal says who withdraws a task, and why.
type Withdrawal struct {
	By, Reason string
	Send       Sender // reaches the upstream in the name of who withdraws; may be nil
}

// SetVariables writes what the owner wants noted on a task.
func (d *Desk) SetVariables(ctx context.Context, ref task.Ref, values task.Variables) (task.Task, error) {
	set := task.SetVariables{Side: task.ClientSide, Values: values, Limits: d.settings().Variables}
	t, err := task.Advance(ctx, d.cfg.Store, ref, set, d.cfg.Now())
	return d.withInterval(t), err
}

// Open returns a reader of the answer to a task that has ended, to be read
// before the delivery is noted. There is nothing to read if it has none. Of an
// answer that is still arriving, the reader reads what there is and waits for
// the rest, and fails if that does not come.
func (d *Desk) Open(ctx context.Context, t task.Task) io.Reader {
	switch {
	case t.State.Terminal() && t.Result == nil:
		return strings.NewReader("")
	case t.Result != nil && t.Result.Size == arriving:
		return d.runner.openArriving(ctx, t)
	}
	return task.OpenResult(ctx, d.cfg.Store, t)
}

// Delivered notes that the outcome of a task has reached its owner.
func (d *Desk) Delivered(ctx context.Context, ref task.Ref) error {
	t, err := d.updater().Advance(ctx, ref, task.Deliver{}, d.cfg.Now())
	if errors.Is(err, task.ErrAlreadyDelivered) {
		return nil
	}
	if err == nil {
		d.observe(ctx, Event{Step: Delivered, Task: t})
	}
	return err
}
