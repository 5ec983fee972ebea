package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/precedent"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A housekeeper ends tasks whose time is over, deletes what nobody needs any more,
// and starts approved calls for owners that are present.
type housekeeper struct {
	*core

	contacts *contacts
	tasks    *tasks
	runner   *runner
	pace     *pace

	workflows map[task.ID]string // of the tasks that awaited a decision when they were counted last
}

// dispatchPause is how long approvals by other replicas may gather before they
// are looked for.
const dispatchPause = 50 * time.Millisecond

// Run does the housekeeping until ctx ends: it ends tasks whose time is over, deletes
// those that nobody needs, cancels calls at upstreams that nobody waits for any
// more, and starts what another replica approved for an owner that was here a
// moment ago. Every replica may do it at the same time.
func (d *Desk) Run(ctx context.Context) error {
	changes := task.WatchChanges(ctx, d.cfg.Store, d.settings().Sweep, task.AnyOwner().Ref(""))
	defer changes.Close()
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	cancelling.Go(func() { d.canceller.run(ctx) })
	var last loggedHead
	for {
		d.housekeeper.sweep(ctx)
		last = d.housekeeper.logHead(ctx, last)
		changes.PollIn(d.settings().Sweep) // it may have been changed
		for reason := task.Changed; reason != task.Polled; {
			var err error
			if reason, err = changes.Next(ctx, nil, nil); err != nil {
				return nil // the end of ctx
			}
			if reason == task.Changed {
				d.report(ctx, d.housekeeper.dispatch(ctx))
				pause.For(ctx, dispatchPause)
			}
		}
	}
}

// sweepBatch is how many tasks or records are deleted at a time.
const sweepBatch = 100

// sweep does all the housekeeping once. A step that fails keeps no other from being
// taken: in a full store tasks may be unable to end until others are deleted.
func (h *housekeeper) sweep(ctx context.Context) {
	for _, step := range []func(context.Context) error{
		h.settleOverdue, h.sweepTasks, h.sweepRecords, h.count, h.startApproved, h.indexTools, h.trim,
	} {
		h.report(ctx, step(ctx))
	}
}

// startApproved starts approved tasks that this desk can start, and ends those whose
// approval is too old.
func (h *housekeeper) startApproved(ctx context.Context) error {
	return h.eachApproved(ctx, func(t task.Task) error {
		if !h.stale(t, h.cfg.Now()) {
			return h.dispatchOne(ctx, t)
		}
		why := task.Failure{Stage: task.StageUncollected, Reason: tooOld, Retriable: true}
		after, err := h.runner.refuse(ctx, task.AnyOwner().Ref(t.ID), why, policy.Verdict{})
		if err == nil {
			h.tasks.uncollected(ctx, after)
		}
		return err
	})
}

// settleOverdue ends the tasks whose time is over.
func (h *housekeeper) settleOverdue(ctx context.Context) error {
	for {
		ended, err := h.updater().SettleOverdue(ctx, h.cfg.Name, h.cfg.Now())
		for _, t := range ended {
			h.tasks.overdue(ctx, t)
		}
		if len(ended) == 0 { // some may be left that cannot be read
			return err
		}
	}
}

// sweepTasks deletes the tasks that are no longer kept.
func (h *housekeeper) sweepTasks(ctx context.Context) error {
	return inBatches(sweepBatch, func(limit int) (int, error) {
		n, err := h.cfg.Store.Sweep(ctx, h.cfg.Now().Add(-h.settings().Keep), limit)
		if n > 0 {
			h.observe(ctx, Event{Step: SweptAway, Count: n})
		}
		return n, err
	})
}

// sweepRecords deletes the records that have expired, in memory and in the store.
func (h *housekeeper) sweepRecords(ctx context.Context) error {
	h.pace.prune(h.cfg.Now())
	h.contacts.prune()
	return inBatches(sweepBatch, func(limit int) (int, error) {
		return h.cfg.Store.SweepRecords(ctx, h.cfg.Now(), limit)
	})
}

// inBatches calls remove, which returns how many things it has removed, until it finds
// fewer than it may remove at a time.
func inBatches(limit int, remove func(limit int) (int, error)) error {
	for {
		n, err := remove(limit)
		if err != nil || n < limit {
			return err
		}
	}
}

// count reports how many tasks there are in each state that does not end them.
func (h *housekeeper) count(ctx context.Context) error {
	if h.cfg.Observe == nil {
		return nil
	}
	pending, oldest := make(map[task.State]int), time.Time{}
	asked := newCensus(h.workflows)
	for _, s := range task.Pending() {
		pending[s] = 0
	}
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: sweepBatch, Heads: true}
	for t, err := range task.Each(ctx, h.cfg.Store, q) {
		if err != nil {
			return err
		}
		pending[t.State]++
		if t.State == task.InputRequired {
			asked.add(t.ID)
		}
		if t.State == task.InputRequired && (oldest.IsZero() || t.CreatedAt.Before(oldest)) {
			oldest = t.CreatedAt
		}
	}
	if err := asked.find(ctx, h.cfg.Store); err != nil {
		return err
	}
	h.workflows = asked.known
	h.observe(ctx, Event{Step: Counted, Pending: pending, Oldest: oldest, Asked: asked.count()})
	return nil
}

// dispatch starts approved tasks that this desk can start.
func (h *housekeeper) dispatch(ctx context.Context) error {
	if h.contacts.none() && h.settings().Start != StartOnApproval {
		return nil
	}
	return h.eachApproved(ctx, func(t task.Task) error { return h.dispatchOne(ctx, t) })
}

func (h *housekeeper) dispatchOne(ctx context.Context, t task.Task) error {
	send := h.contacts.senderFor(t)
	if send == nil {
		return nil
	}
	_, err := h.runner.launch(ctx, task.AnyOwner().Ref(t.ID), send)
	return err
}

func (h *housekeeper) eachApproved(ctx context.Context, do func(task.Task) error) error {
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.Approved}, Limit: sweepBatch}
	var failed error
	for t, err := range task.Each(ctx, h.cfg.Store, q) {
		if err == nil {
			err = do(t)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// indexBatch is how many entries of a journal are read at a time for approved tools that
// have no record.
const indexBatch = 10_000

// indexTools keeps how tools were defined that were approved before this version of the
// gate, or in a store from which the journal comes.
func (h *housekeeper) indexTools(ctx context.Context) error {
	return precedent.Store{Records: h.cfg.Store}.Index(ctx, h.cfg.Store, indexBatch)
}

// trimBatch is how many entries of the journal are removed at a time.
const trimBatch = 500

// trim removes what has been in the journal for long enough.
func (h *housekeeper) trim(ctx context.Context) error {
	if h.settings().Retention <= 0 {
		return nil
	}
	return inBatches(trimBatch, func(limit int) (int, error) {
		return h.cfg.Store.Trim(ctx, h.cfg.Now().Add(-h.settings().Retention), limit)
	})
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
func (h *housekeeper) logHead(ctx context.Context, last loggedHead) loggedHead {
	now := h.cfg.Now()
	if now.Before(last.at.Add(headEvery)) {
		return last
	}
	ends, err := h.cfg.Store.Ends(ctx)
	if err != nil || ends.Head.Seq == last.seq {
		h.report(ctx, err)
		return last
	}
	h.cfg.Log.InfoContext(ctx, "audit head", "head", ends.Head.String(), "anchor", ends.Anchor.String())
	return loggedHead{now, ends.Head.Seq}
}
