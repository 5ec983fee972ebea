package approval

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A canceller cancels calls at their upstreams: a call that runs when its task is
// cancelled or expires. That this is owed is stored with the end of the task; see
// [task.Cancellation]. The first of these that can sends the cancellation:
//
//   - the replica that ends the task, at once, in the name of the owner that is
//     present;
//   - the executor of a call without an upstream task, which interrupts it;
//   - the housekeeping of any replica, later, with the gate's own credentials;
//   - any replica that the owner asks about the task, with the owner's.
//
// The credentials of owners are not stored. If the upstream wants them, and the
// process that had them has died, the cancellation is owed until the owner asks
// again, or until it is given up.
type canceller struct {
	*core

	contacts *contacts
}

// scanEvery is how many times housekeeping is done before the store is asked
// for cancellations that other replicas owe and could not send.
const scanEvery = 6

// cancelAtOnce is how many cancellations are sent at the same time.
const cancelAtOnce = 16

// run sends the cancellations that are owed, until ctx ends. It asks the store
// for them at first, and then from time to time.
func (c *canceller) run(ctx context.Context) {
	tick := time.NewTicker(c.settings().Sweep)
	defer tick.Stop()
	var owed []task.ID
	for round := 0; ctx.Err() == nil; round++ {
		var err error
		if round%scanEvery == 0 {
			owed, err = c.owed(ctx)
		}
		var sending errgroup.Group
		sending.SetLimit(cancelAtOnce)
		for _, id := range owed {
			sending.Go(func() error { return c.cancelIfDue(ctx, id) })
		}
		c.report(ctx, errors.Join(err, sending.Wait()))
		select {
		case <-ctx.Done():
		case <-tick.C:
			tick.Reset(c.settings().Sweep) // it may have been changed
		}
	}
}

// owed returns the tasks that owe their upstream a cancellation.
func (c *canceller) owed(ctx context.Context) (owed []task.ID, err error) {
	q := task.Query{Scope: task.AnyOwner(), Owing: true, Limit: sweepBatch, Outlines: true}
	for t, err := range task.Each(ctx, c.cfg.Store, q) {
		if err != nil {
			return owed, err
		}
		if t.Owes() {
			owed = append(owed, t.ID)
		}
	}
	return owed, nil
}

// cancelIfDue sends the cancellation that a task owes, if it is time to.
func (c *canceller) cancelIfDue(ctx context.Context, id task.ID) error {
	t, err := c.cfg.Store.Get(ctx, task.AnyOwner().Ref(id))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return nil
	case err != nil || !t.Owes():
		return err
	case c.cfg.Now().After(t.Execution.Cancellation.Until):
		c.cfg.Log.WarnContext(About(ctx, t), "cancellation never sent to the upstream", "tries", t.Execution.Cancellation.Tries)
		return c.settle(ctx, t.ID, task.CancellationGivenUp)
	}
	send := c.contacts.anySender(t)
	if send == nil {
		return nil
	}
	return c.cancel(ctx, t, send, task.CancelUpstream{By: c.cfg.Name})
}

// cancel stores with e that the call of t is being cancelled, cancels it at the
// upstream, and stores the outcome. It does nothing if another replica is doing
// so, or has done it.
func (c *canceller) cancel(ctx context.Context, t task.Task, send Sender, e task.CancelUpstream) error {
	if c.runs(t.Execution.Executor) {
		e.By = t.Execution.Executor
	}
	after, err := task.Advance(ctx, c.cfg.Store, task.AnyOwner().Ref(t.ID), e, c.cfg.Now())
	switch {
	case errors.Is(err, task.ErrNotReady), errors.Is(err, task.ErrInvalidTransition), errors.Is(err, task.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	sending, stop := context.WithTimeout(About(ctx, t), c.settings().Cancel)
	defer stop()
	err = send.Cancel(sending, after)
	failed, _ := errors.AsType[*SendError](err)
	switch {
	case err == nil:
		c.cfg.Log.InfoContext(About(ctx, t), "cancellation sent to the upstream")
		return c.settle(ctx, t.ID, task.CancellationSent)
	case failed != nil && failed.Stage == task.StageUpstreamGone:
		c.cfg.Log.InfoContext(About(ctx, t), "the upstream has nothing to cancel")
		return c.settle(ctx, t.ID, task.CancellationRefused)
	default: // it is tried again, by whoever comes next
		c.cfg.Log.WarnContext(About(ctx, t), "cancellation not sent to the upstream", "error", err)
		return nil
	}
}

// settle stores what became of a cancellation.
func (c *canceller) settle(ctx context.Context, id task.ID, outcome task.CancellationResult) error {
	_, err := c.updater().Advance(ctx, task.AnyOwner().Ref(id), task.SettleUpstream{By: c.cfg.Name, Outcome: outcome}, c.cfg.Now())
	if errors.Is(err, task.ErrInvalidTransition) || errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrAlreadyTerminal) {
		return nil // another was faster, or nothing was owed
	}
	return err
}

// cancelSoon has the call of t, which has ended, cancelled in the background: in
// the name of send, of an owner that asked a moment ago, or of the gate itself. A
// call that is being made is interrupted by its executor.
func (c *canceller) cancelSoon(ctx context.Context, t task.Task, send Sender) {
	if !t.Owes() || t.Execution.UpstreamTask == "" && c.busy(t) {
		return
	}
	if send == nil {
		send = c.contacts.anySender(t)
	}
	if send == nil || !c.work.enter() {
		return
	}
	own := context.WithoutCancel(ctx)
	go func() {
		defer c.work.running.Done()
		c.logUnsettled(own, t, c.cancel(own, t, send, task.CancelUpstream{By: c.cfg.Name, Now: true}))
	}()
}

// logUnsettled logs that the outcome of a cancellation could not be stored. It is
// then sent again later: a second cancellation does no harm.
func (c *canceller) logUnsettled(ctx context.Context, t task.Task, err error) {
	if err != nil {
		c.cfg.Log.ErrorContext(About(ctx, t), "cannot store that a cancellation was sent", "error", err)
	}
}

// cancelRun cancels the call of t, which this desk has made and which was
// interrupted. The upstream may have made a task of it.
func (c *canceller) cancelRun(ctx context.Context, t task.Task, send Sender, upstreamTask string) {
	stored, err := c.cfg.Store.Get(ctx, task.AnyOwner().Ref(t.ID))
	if err == nil && stored.Owes() {
		e := task.CancelUpstream{By: c.cfg.Name, Now: true, UpstreamTask: upstreamTask}
		c.logUnsettled(ctx, t, c.cancel(ctx, stored, send, e))
		return
	}
	// It has ended in another way: nothing is owed, but the upstream should know.
	if upstreamTask != "" {
		t = t.Clone()
		t.Execution.UpstreamTask = upstreamTask
	}
	c.cancelOnce(ctx, t, send)
}

// cancelOnce sends the upstream of t one cancellation.
func (c *canceller) cancelOnce(ctx context.Context, t task.Task, send Sender) {
	ctx, stop := context.WithTimeout(About(ctx, t), c.settings().Cancel)
	defer stop()
	if err := send.Cancel(ctx, t); err != nil {
		c.cfg.Log.WarnContext(ctx, "cancellation not sent to the upstream", "error", err)
		return
	}
	c.cfg.Log.InfoContext(ctx, "cancellation sent to the upstream")
}

// cancelAll cancels the tasks that upstreams made of calls, because the store that
// has them is about to go.
func (c *canceller) cancelAll(ctx context.Context) {
	if c.cfg.Send == nil {
		return
	}
	var sending errgroup.Group
	sending.SetLimit(cancelAtOnce)
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.Executing}, Limit: sweepBatch}
	for t, err := range task.Each(ctx, c.cfg.Store, q) {
		if err == nil && nested(t) && !t.Execution.Upstream.Ended() {
			sending.Go(func() error {
				c.cancelOnce(ctx, t, c.cfg.Send(t))
				return nil
			})
		}
	}
	_ = sending.Wait() // none fails
}
