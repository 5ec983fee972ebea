package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// dispatchPause is how long approvals by other replicas may gather before they
// are looked for.
const dispatchPause = 50 * time.Millisecond

// Run keeps house until ctx ends: it ends tasks whose time is over, deletes
// those that nobody needs, tells upstreams of calls that nobody waits for any
// more, and starts what another replica approved for an owner that was here a
// moment ago. Every replica may do it at the same time.
func (d *Desk) Run(ctx context.Context) error {
	changes := task.WatchChanges(ctx, d.cfg.Store, d.settings().Sweep, task.AnyOwner().Ref(""))
	defer changes.Close()
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	cancelling.Go(func() { d.payDebts(ctx) })
	var last loggedHead
	for {
		d.report(ctx, d.sweep(ctx))
		d.report(ctx, d.trim(ctx))
		last = d.logHead(ctx, last)
		changes.PollIn(d.settings().Sweep) // it may have been changed
		for reason := task.Changed; reason != task.Polled; {
			var err error
			if reason, err = changes.Next(ctx, nil, nil); err != nil {
				return nil // the end of ctx
			}
			if reason == task.Changed {
				d.report(ctx, d.dispatch(ctx))
				pause(ctx, dispatchPause)
			}
		}
	}
}

// report logs why housekeeping was not done, unless everybody knows: of a store
// that is in trouble others tell.
func (d *Desk) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, task.ErrUnavailable) {
		d.cfg.Log.ErrorContext(ctx, "housekeeping", "error", err)
	}
}

func pause(ctx context.Context, long time.Duration) {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// sweepBatch is how many tasks are deleted at a time.
const sweepBatch = 100

// sweep does all the housekeeping once.
func (d *Desk) sweep(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.settleOverdue, d.sweepTasks, d.sweepRecords, d.count} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.eachApproved(ctx, func(t task.Task) error {
		if !d.stale(t, d.cfg.Now()) {
			return d.dispatchOne(ctx, t)
		}
		why := task.Failure{Stage: task.StageUncollected, Reason: tooOld, Retriable: true}
		after, err := d.refuse(ctx, task.AnyOwner().Ref(t.ID), why, policy.Verdict{})
		if err == nil {
			d.uncollected(ctx, after)
		}
		return err
	})
}

// settleOverdue ends the tasks whose time is over.
func (d *Desk) settleOverdue(ctx context.Context) error {
	for {
		ended, err := d.clerk().SettleOverdue(ctx, d.cfg.Name, d.cfg.Now())
		for _, t := range ended {
			d.overdue(ctx, t)
		}
		if err != nil {
			return err
		}
		if len(ended) == 0 {
			return nil
		}
	}
}

// sweepTasks deletes the tasks that are no longer kept.
func (d *Desk) sweepTasks(ctx context.Context) error {
	for {
		n, err := d.cfg.Store.Sweep(ctx, d.cfg.Now().Add(-d.settings().Keep), sweepBatch)
		if n > 0 {
			d.tell(ctx, Event{Step: SweptAway, Count: n})
		}
		if err != nil {
			return err
		}
		if n < sweepBatch {
			return nil
		}
	}
}

// sweepRecords deletes the records that have expired, in the store and in memory.
func (d *Desk) sweepRecords(ctx context.Context) error {
	if _, err := d.cfg.Store.SweepRecords(ctx, d.cfg.Now(), sweepBatch); err != nil {
		return err
	}
	d.prune()
	return nil
}

// count tells how many tasks there are in each state that does not end them.
func (d *Desk) count(ctx context.Context) error {
	if d.cfg.Observe == nil {
		return nil
	}
	pending, oldest := make(map[task.State]int), time.Time{}
	for _, s := range task.Pending() {
		pending[s] = 0
	}
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: sweepBatch, Heads: true}
	for t, err := range task.Each(ctx, d.cfg.Store, q) {
		if err != nil {
			return err
		}
		pending[t.State]++
		if t.State == task.InputRequired && (oldest.IsZero() || t.CreatedAt.Before(oldest)) {
			oldest = t.CreatedAt
		}
	}
	d.tell(ctx, Event{Step: Counted, Pending: pending, Oldest: oldest})
	return nil
}

// overdue tells of a task whose time is over.
func (d *Desk) overdue(ctx context.Context, t task.Task) {
	d.stopUpstream(ctx, t, nil)
	d.forget(t.ID)
	age := t.UpdatedAt.Sub(t.CreatedAt)
	from, to := lastMove(t)
	d.cfg.Log.WarnContext(About(ctx, t), "task overdue",
		"from", from, "to", to, "age_seconds", age.Seconds(), "upstream_task_id", upstreamTask(t))
	d.tell(ctx, Event{Step: Overdue, Task: t})
	d.uncollected(ctx, t)
}

// upstreamTask returns which task the upstream made of the call of t, if it did.
func upstreamTask(t task.Task) string {
	if t.Execution == nil {
		return ""
	}
	return t.Execution.UpstreamTask
}

// uncollected tells of a task that was not run because its owner did not come
// back, unless that was told when it was approved.
func (d *Desk) uncollected(ctx context.Context, t task.Task) {
	if t.Failure != nil && t.Failure.Stage == task.StageUncollected && t.InContact(t.Approval.DecidedAt()) {
		d.abandon(ctx, t)
	}
}

// prune forgets owners that have not come back.
func (d *Desk) prune() {
	now := d.cfg.Now()
	d.pace.prune(now)
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, p := range d.present {
		if now.After(p.until) {
			delete(d.present, id)
		}
	}
}

// dispatch starts approved tasks that this desk can start.
func (d *Desk) dispatch(ctx context.Context) error {
	d.mu.Lock()
	idle := len(d.present) == 0 && d.settings().Start != StartOnApproval
	d.mu.Unlock()
	if idle {
		return nil
	}
	return d.eachApproved(ctx, func(t task.Task) error { return d.dispatchOne(ctx, t) })
}

func (d *Desk) dispatchOne(ctx context.Context, t task.Task) error {
	send := d.senderFor(t)
	if send == nil {
		return nil
	}
	_, err := d.launch(ctx, task.AnyOwner().Ref(t.ID), send)
	return err
}

func (d *Desk) eachApproved(ctx context.Context, do func(task.Task) error) error {
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.Approved}, Limit: sweepBatch}
	var failed error
	for t, err := range task.Each(ctx, d.cfg.Store, q) {
		if err == nil {
			err = do(t)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// trimBatch is how many entries of the journal are removed at a time.
const trimBatch = 500

// trim removes what has been in the journal for long enough.
func (d *Desk) trim(ctx context.Context) error {
	if d.settings().Retention <= 0 {
		return nil
	}
	for {
		n, err := d.cfg.Store.Trim(ctx, d.cfg.Now().Add(-d.settings().Retention), trimBatch)
		if err != nil || n < trimBatch {
			return err
		}
	}
}

// headEvery is how often the head of the journal is logged.
const headEvery = time.Hour

// A loggedHead is where the journal ended when that was last logged.
type loggedHead struct {
	at  time.Time
	seq int64
}

// logHead writes where the journal ends into the log, now and then if it goes
// on. Logs are kept elsewhere: whoever can write to the store can make a new
// chain, but not one with a head that somebody else has seen.
func (d *Desk) logHead(ctx context.Context, last loggedHead) loggedHead {
	now := d.cfg.Now()
	if now.Before(last.at.Add(headEvery)) {
		return last
	}
	ends, err := d.cfg.Store.Ends(ctx)
	if err != nil || ends.Head.Seq == last.seq {
		d.report(ctx, err)
		return last
	}
	d.cfg.Log.InfoContext(ctx, "audit head", "head", ends.Head.String(), "anchor", ends.Anchor.String())
	return loggedHead{now, ends.Head.Seq}
}

// lastWords is how long a run that is interrupted has to record its end.
const lastWords = time.Second

// Close ends the desk's work. Requests that wait are released at once and
// nothing new begins. Calls that run are waited for until ctx ends, and then
// interrupted. With a store that does not outlive the process every pending
// task then fails, for its owner to try again elsewhere; with a durable one
// they stay as they are, and so do tasks that upstreams made of them: another
// process goes on with those. [Desk.Run] is ended by its own context.
func (d *Desk) Close(ctx context.Context) error {
	d.mu.Lock()
	first := !d.closed
	d.closed = true
	clear(d.present)
	d.mu.Unlock()
	if !first {
		return nil
	}
	close(d.closing)
	err := d.drain(ctx)
	if d.cfg.Durable {
		brief, stop := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer stop()
		d.logHead(brief, loggedHead{})
		return err
	}
	own, stop := context.WithTimeout(context.WithoutCancel(ctx), maxSilence+d.settings().Cancel)
	defer stop()
	d.cancelAll(own)
	n, failed := d.clerk().FailPending(own, d.cfg.Name, d.cfg.Now())
	if n > 0 {
		d.tell(ctx, Event{Step: ShutDown, Count: n})
	}
	return errors.Join(err, failed)
}

// drain waits for the calls that run.
func (d *Desk) drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() { // ends with the last run, each of which ends soon after it is interrupted
		d.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	close(d.kill)
	late := time.NewTimer(lastWords + d.settings().Cancel) // the upstream is told as well
	defer late.Stop()
	select {
	case <-done:
		return ctx.Err()
	case <-late.C:
		return errors.Join(ctx.Err(), errors.New("approval: a call does not end"))
	}
}
