package approval

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A canceller cancels calls at their upstreams when their tasks are canceled or expire while they
// run. The end of the task also stores that a cancellation is owed; see [gatetask.Cancellation].
// The first of these that can sends it:
//
//   - the replica that ends the task, at once, with the credentials of a present owner;
//   - the executor of a call without an upstream task, which interrupts the call;
//   - housekeeping of any replica, later, with the gate's configured credentials;
//   - any replica that the owner asks about the task, with the owner's credentials.
//
// Credentials of owners are not stored. If the upstream requires them and the process that had
// them is gone, the cancellation waits until the owner asks again or until it expires.
type canceller struct {
	env        *env
	leases     *leases
	background *background
	contacts   *contacts
}

// scanEvery is the number of rounds between two scans of the store for owed cancellations.
const scanEvery = 6

// parallelCancellations is how many cancellations are sent in parallel.
const parallelCancellations = 16

// run sends owed cancellations until ctx ends. It scans the store at the start and then every
// scanEvery rounds.
func (c *canceller) run(ctx context.Context) {
	tick := time.NewTicker(c.env.settings().Sweep)
	defer tick.Stop()
	var owed []task.ID
	for round := 0; ctx.Err() == nil; round++ {
		var err error
		if round%scanEvery == 0 {
			owed, err = c.owed(ctx)
		}
		var sending errgroup.Group
		sending.SetLimit(parallelCancellations)
		for _, id := range owed {
			sending.Go(func() error { return c.cancelIfDue(ctx, id) })
		}
		c.env.report(ctx, errors.Join(err, sending.Wait()))
		select {
		case <-ctx.Done():
		case <-tick.C:
			tick.Reset(c.env.settings().Sweep) // the setting may have changed
		}
	}
}

// owed returns the tasks that owe a cancellation.
func (c *canceller) owed(ctx context.Context) (owed []task.ID, err error) {
	q := task.Query{Scope: task.AnyOwner(), OwesCancellation: true, Limit: sweepBatch, Outlines: true}
	for t, err := range storekit.Each(ctx, c.env.store, q) {
		if err != nil {
			return owed, err
		}
		if t.OwesCancellation() {
			owed = append(owed, t.ID)
		}
	}
	return owed, nil
}

// cancelIfDue sends the cancellation that a task owes, if it is due.
func (c *canceller) cancelIfDue(ctx context.Context, id task.ID) error {
	t, err := c.env.store.Get(ctx, task.AnyOwner().Ref(id))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return nil
	case err != nil || !t.OwesCancellation():
		return err
	case c.env.now().After(t.Execution.Cancellation.Until):
		c.env.log.WarnContext(LogContext(ctx, t), "cancellation never sent to the upstream", "tries", t.Execution.Cancellation.Tries)
		return c.settle(ctx, t.ID, gatetask.CancellationGivenUp)
	}
	send := c.contacts.anySender(t)
	if send == nil {
		return nil
	}
	return c.cancel(ctx, t, send, lifecycle.CancelUpstream{By: c.env.name})
}

// cancel stores the attempt e, cancels the call of t at the upstream, and stores the outcome. It
// does nothing if another replica does so or has done so.
func (c *canceller) cancel(ctx context.Context, t task.Task, send Sender, e lifecycle.CancelUpstream) error {
	if c.leases.isOwn(t.Execution.Executor) {
		e.By = t.Execution.Executor
	}
	after, err := lifecycle.Advance(ctx, c.env.store, task.AnyOwner().Ref(t.ID), e, c.env.now())
	switch {
	case errors.Is(err, task.ErrNotReady), errors.Is(err, task.ErrInvalidTransition), errors.Is(err, task.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	//mutate:swap "WithTimeout(LogContext(ctx, t), c.env.settings().Cancel)" "WithCancel(LogContext(ctx, t))" TestCancelTimeout the gate waits forever for the answer to a cancellation
	sending, stop := context.WithTimeout(LogContext(ctx, t), c.env.settings().Cancel)
	defer stop()
	err = send.Cancel(sending, after)
	failed, _ := errors.AsType[*SendError](err)
	switch {
	case err == nil:
		c.env.log.InfoContext(LogContext(ctx, t), "cancellation sent to the upstream")
		return c.settle(ctx, t.ID, gatetask.CancellationSent)
	case failed != nil && failed.Stage == lifecycle.StageUpstreamGone:
		c.env.log.InfoContext(LogContext(ctx, t), "the upstream has nothing to cancel")
		return c.settle(ctx, t.ID, gatetask.CancellationRefused)
	default: // it is tried again later
		c.env.log.WarnContext(LogContext(ctx, t), "cancellation not sent to the upstream", "err", err)
		return nil
	}
}

// settle stores the outcome of a cancellation.
func (c *canceller) settle(ctx context.Context, id task.ID, outcome gatetask.CancellationResult) error {
	_, err := c.env.updater.Advance(ctx, task.AnyOwner().Ref(id), lifecycle.SettleUpstream{By: c.env.name, Outcome: outcome}, c.env.now())
	if errors.Is(err, task.ErrInvalidTransition) || errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrAlreadyTerminal) {
		return nil // another replica came first, or nothing was owed
	}
	return err
}

// cancelSoon cancels the call of the ended task t in the background, with send, with the sender of
// an owner that polled recently, or with the gate's configured credentials. The executor interrupts
// a call that is still being made.
func (c *canceller) cancelSoon(ctx context.Context, t task.Task, send Sender) {
	if !t.OwesCancellation() || t.Execution.UpstreamTask == "" && c.leases.busy(t) {
		return
	}
	if send == nil {
		send = c.contacts.anySender(t)
	}
	if send == nil || !c.background.enter() {
		return
	}
	own := context.WithoutCancel(ctx)
	//mutate:swap "go " "" internal/mcphttp.TestExpiryCancelsUpstream a stuck upstream blocks housekeeping
	go func() {
		defer c.background.running.Done()
		c.logUnsettled(own, t, c.cancel(own, t, send, lifecycle.CancelUpstream{By: c.env.name, OwnerPresent: true}))
	}()
}

// logUnsettled logs that the outcome of a cancellation could not be stored. The cancellation is
// sent again later, which is safe.
func (c *canceller) logUnsettled(ctx context.Context, t task.Task, err error) {
	if err != nil {
		c.env.log.ErrorContext(LogContext(ctx, t), "cannot store that a cancellation was sent", "err", err)
	}
}

// cancelRun cancels the interrupted call of t. The upstream may have made a task of it.
func (c *canceller) cancelRun(ctx context.Context, t task.Task, send Sender, upstreamTask string) {
	stored, err := c.env.store.Get(ctx, task.AnyOwner().Ref(t.ID))
	if err == nil && stored.OwesCancellation() {
		e := lifecycle.CancelUpstream{By: c.env.name, OwnerPresent: true, UpstreamTask: upstreamTask}
		c.logUnsettled(ctx, t, c.cancel(ctx, stored, send, e))
		return
	}
	// It has ended in another way: nothing is owed, but the upstream should stop.
	if upstreamTask != "" {
		t = t.Clone()
		t.Execution.UpstreamTask = upstreamTask
	}
	c.cancelOnce(ctx, t, send)
}

// cancelOnce sends one cancellation to the upstream of t.
func (c *canceller) cancelOnce(ctx context.Context, t task.Task, send Sender) {
	ctx, stop := context.WithTimeout(LogContext(ctx, t), c.env.settings().Cancel)
	defer stop()
	if err := send.Cancel(ctx, t); err != nil {
		c.env.log.WarnContext(ctx, "cancellation not sent to the upstream", "err", err)
		return
	}
	c.env.log.InfoContext(ctx, "cancellation sent to the upstream")
}

// cancelAll asks the upstreams to cancel all upstream tasks that still run. It is called when the gate
// stops and its store is not durable: they could not be cancelled later.
func (c *canceller) cancelAll(ctx context.Context) {
	if c.env.send == nil {
		return
	}
	var sending errgroup.Group
	sending.SetLimit(parallelCancellations)
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.Executing}, Limit: sweepBatch}
	for t, err := range storekit.Each(ctx, c.env.store, q) {
		if err == nil && nested(t) && !t.Execution.Upstream.Ended() {
			sending.Go(func() error {
				c.cancelOnce(ctx, t, c.env.send(t))
				return nil
			})
		}
	}
	_ = sending.Wait() // its functions return no errors
}
