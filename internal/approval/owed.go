package approval

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A call that runs when its task is cancelled or expires is cancelled at the
// upstream too. That this is owed is noted with the end of the task; see
// [task.Cancellation]. It is told by the first who can:
//
//   - whoever ends the task, at once, in the name of the owner that is there;
//   - the executor of a call without an upstream task, which interrupts it;
//   - any replica's housekeeping, later, with the gate's own credentials;
//   - any replica that the owner asks about the task, with the owner's.
//
// The credentials of owners are not stored. If the upstream wants them, and the
// process that had them has died, the cancellation is owed until the owner asks
// again, or until it is given up.

// scanEvery is how many times housekeeping is done before the store is asked
// for what other replicas owe and did not get to tell.
const scanEvery = 6

// cancelAtOnce is how many upstreams are told at the same time.
const cancelAtOnce = 16

// payDebts tells upstreams what they are owed, until ctx ends. It asks the store
// at first, and then now and then.
func (d *Desk) payDebts(ctx context.Context) {
	tick := time.NewTicker(d.settings().Sweep)
	defer tick.Stop()
	var owed []task.ID
	for round := 0; ctx.Err() == nil; round++ {
		var err error
		if round%scanEvery == 0 {
			owed, err = d.debts(ctx)
		}
		var telling errgroup.Group
		telling.SetLimit(cancelAtOnce)
		for _, id := range owed {
			telling.Go(func() error { return d.payDebt(ctx, id) })
		}
		d.report(ctx, errors.Join(err, telling.Wait()))
		select {
		case <-ctx.Done():
		case <-tick.C:
			tick.Reset(d.settings().Sweep) // it may have been changed
		}
	}
}

// debts returns the tasks that owe their upstream something.
func (d *Desk) debts(ctx context.Context) (owed []task.ID, err error) {
	const few = 10 // at a time: each may hold large arguments
	q := task.Query{Scope: task.AnyOwner(), Owing: true, Limit: few}
	for t, err := range task.Each(ctx, d.cfg.Store, q) {
		if err != nil {
			return owed, err
		}
		if t.Owes() {
			owed = append(owed, t.ID)
		}
	}
	return owed, nil
}

// payDebt tells the upstream of a task what it is owed, if it is time to.
func (d *Desk) payDebt(ctx context.Context, id task.ID) error {
	t, err := d.cfg.Store.Get(ctx, task.AnyOwner().Ref(id))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return nil
	case err != nil || !t.Owes():
		return err
	case d.cfg.Now().After(t.Execution.Cancellation.Until):
		d.cfg.Log.WarnContext(About(ctx, t), "cancellation never sent to the upstream", "tries", t.Execution.Cancellation.Tries)
		return d.settleUpstream(ctx, t.ID, task.CancellationGivenUp)
	}
	send := d.recentSender(id)
	if send == nil && d.cfg.Send != nil {
		send = d.cfg.Send(t)
	}
	if send == nil {
		return nil
	}
	return d.tellUpstream(ctx, t, send, task.TellUpstream{By: d.cfg.Name})
}

// tellUpstream tells the upstream that nobody waits for t, as e notes before,
// unless another is at it or has done it. What comes of it is noted.
func (d *Desk) tellUpstream(ctx context.Context, t task.Task, send Sender, e task.TellUpstream) error {
	after, err := task.Advance(ctx, d.cfg.Store, task.AnyOwner().Ref(t.ID), e, d.cfg.Now())
	switch {
	case errors.Is(err, task.ErrNotReady), errors.Is(err, task.ErrInvalidTransition), errors.Is(err, task.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	telling, stop := context.WithTimeout(About(ctx, t), d.settings().Cancel)
	defer stop()
	err = send.Cancel(telling, after)
	failed, _ := errors.AsType[*SendError](err)
	switch {
	case err == nil:
		d.cfg.Log.InfoContext(About(ctx, t), "cancellation sent to the upstream")
		return d.settleUpstream(ctx, t.ID, task.CancellationTold)
	case failed != nil && failed.Stage == task.StageUpstreamGone:
		d.cfg.Log.InfoContext(About(ctx, t), "the upstream has nothing to cancel")
		return d.settleUpstream(ctx, t.ID, task.CancellationRefused)
	default: // it is tried again, by whoever comes next
		d.cfg.Log.WarnContext(About(ctx, t), "cancellation not sent to the upstream", "error", err)
		return nil
	}
}

// settleUpstream notes what became of a cancellation.
func (d *Desk) settleUpstream(ctx context.Context, id task.ID, outcome task.CancellationResult) error {
	_, err := d.clerk().Advance(ctx, task.AnyOwner().Ref(id), task.SettleUpstream{By: d.cfg.Name, Outcome: outcome}, d.cfg.Now())
	if errors.Is(err, task.ErrInvalidTransition) || errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrAlreadyTerminal) {
		return nil // another was faster, or nothing was owed
	}
	return err
}

// stopUpstream has the upstream told, by and by, that nobody waits any more for
// t, which has ended, by somebody who is there: send, an owner that asked a
// moment ago, or the gate itself. A call that is being made is interrupted by
// whoever makes it.
func (d *Desk) stopUpstream(ctx context.Context, t task.Task, send Sender) {
	if !t.Owes() || t.Execution.UpstreamTask == "" && d.busy(t) {
		return
	}
	if send == nil {
		send = d.recentSender(t.ID)
	}
	if send == nil && d.cfg.Send != nil {
		send = d.cfg.Send(t)
	}
	if send == nil || !d.enter() {
		return
	}
	own := context.WithoutCancel(ctx)
	go func() {
		defer d.running.Done()
		d.logDebt(own, t, d.tellUpstream(own, t, send, task.TellUpstream{By: d.cfg.Name, Now: true}))
	}()
}

// logDebt logs that it could not be noted what became of a cancellation. It is
// then tried again later: telling it twice does no harm.
func (d *Desk) logDebt(ctx context.Context, t task.Task, err error) {
	if err != nil {
		d.cfg.Log.ErrorContext(About(ctx, t), "cannot store that a cancellation was sent", "error", err)
	}
}

// stopRun tells the upstream that nobody waits for the call of t, which this desk
// has made and which was interrupted. The upstream may have made a task of it.
func (d *Desk) stopRun(ctx context.Context, t task.Task, send Sender, upstreamTask string) {
	stored, err := d.cfg.Store.Get(ctx, task.AnyOwner().Ref(t.ID))
	if err == nil && stored.Owes() {
		e := task.TellUpstream{By: d.cfg.Name, Now: true, UpstreamTask: upstreamTask}
		d.logDebt(ctx, t, d.tellUpstream(ctx, stored, send, e))
		return
	}
	// It has ended in another way: nothing is owed, but the upstream should know.
	if upstreamTask != "" {
		t = t.Clone()
		t.Execution.UpstreamTask = upstreamTask
	}
	d.cancelUpstream(ctx, t, send)
}
