package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A housekeeper ends overdue tasks, deletes old ones, and starts approved calls for owners that
// are present.
type housekeeper struct {
	env       *env
	workflows *workflows
	contacts  *contacts
	tasks     *tasks
	runner    *runner
	rates     *ownerRates

	workflowOf map[task.ID]string // the workflows of the pending tasks at the last count
}

// dispatchPause is how long approvals by other replicas are collected before they are looked up.
// Approvals by this replica have started by then.
const dispatchPause = 50 * time.Millisecond

// Run does housekeeping until ctx ends: it ends overdue tasks, deletes old ones, cancels abandoned
// upstream calls, and starts calls that another replica approved for an owner that was here
// recently. Several replicas can do so at the same time.
func (s *Service) Run(ctx context.Context) error {
	changes := storekit.WatchChanges(ctx, s.env.store, s.env.settings().Sweep, task.AnyOwner().Ref(""))
	defer changes.Close()
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	cancelling.Go(func() { s.canceller.run(ctx) })
	var last journalHead
	for {
		s.housekeeper.sweep(ctx)
		last = s.housekeeper.logHead(ctx, last)
		again := s.env.now().Add(s.env.settings().Sweep)
		looked, next := s.housekeeper.nextExpiry(ctx, again)
		for s.env.now().Before(again) {
			changes.PollIn(next.Sub(s.env.now()))
			reason, err := changes.Next(ctx, nil, nil)
			if err != nil {
				return nil // ctx has ended
			}
			if reason == storekit.Changed {
				pause.For(ctx, dispatchPause)
				s.env.report(ctx, s.housekeeper.dispatch(ctx))
				next = earliest(next, looked.Add(expiryPrecision)) // the changed task may expire soon
			}
			if now := s.env.now(); !now.Before(next) && now.Before(again) {
				s.env.report(ctx, s.housekeeper.expire(ctx))
				looked, next = s.housekeeper.nextExpiry(ctx, again)
			}
		}
	}
}

// expiryPrecision is how late a task may expire while the store is available.
const expiryPrecision = time.Second

// nextExpiry returns the current time, and when to look for overdue tasks: at the first deadline,
// at most once per expiryPrecision, and no later than the next sweep.
func (h *housekeeper) nextExpiry(ctx context.Context, sweep time.Time) (now, next time.Time) {
	now = h.env.now()
	first, err := h.env.store.Overdue(ctx, sweep, 1)
	if err != nil || len(first) == 0 {
		return now, sweep // the sweep reports the error
	}
	soonest := now.Add(expiryPrecision)
	if due := first[0].Due().Add(time.Microsecond); due.After(soonest) {
		soonest = due
	}
	return now, earliest(soonest, sweep)
}

// expire ends overdue tasks and counts the remaining ones.
func (h *housekeeper) expire(ctx context.Context) error {
	return errors.Join(h.settleOverdue(ctx), h.count(ctx))
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sweepBatch is how many tasks or records are read or deleted at a time.
const sweepBatch = 100

// sweep does all housekeeping once. A failing step does not prevent the others: in a full store
// tasks may be unable to end until others are deleted.
func (h *housekeeper) sweep(ctx context.Context) {
	for _, step := range []func(context.Context) error{
		//mutate:swap "h.indexTools, " "" TestChangedSinceEarlierVersion definitions approved through an earlier version are forgotten
		h.settleOverdue, h.sweepTasks, h.sweepRecords, h.count, h.startApproved, h.indexTools, h.trim,
	} {
		h.env.report(ctx, step(ctx))
	}
}

// startApproved starts approved tasks that this replica can start, and ends those whose approval
// is too old.
func (h *housekeeper) startApproved(ctx context.Context) error {
	return h.eachApproved(ctx, false, func(t task.Task) error {
		if !h.workflows.stale(t, h.env.now()) {
			return h.dispatchOne(ctx, t)
		}
		why := task.Failure{Stage: lifecycle.StageUncollected, Reason: tooOld, Retriable: true}
		after, err := h.runner.refuse(ctx, t, why, policy.Verdict{})
		if err == nil {
			h.tasks.uncollected(ctx, after)
		}
		return err
	})
}

// settleOverdue ends overdue tasks.
func (h *housekeeper) settleOverdue(ctx context.Context) error {
	for {
		ended, err := h.env.updater.SettleOverdue(ctx, h.env.name, h.env.now())
		for _, t := range ended {
			h.tasks.overdue(ctx, t)
		}
		if len(ended) == 0 { // some may be unreadable and remain
			return err
		}
	}
}

// sweepTasks deletes tasks that are no longer kept.
func (h *housekeeper) sweepTasks(ctx context.Context) error {
	return inBatches(sweepBatch, func(limit int) (int, error) {
		n, err := h.env.store.Sweep(ctx, h.env.now().Add(-h.env.settings().Keep), limit)
		if n > 0 {
			h.env.observe(ctx, Event{Step: Deleted, Count: n})
		}
		return n, err
	})
}

// sweepRecords deletes expired records, in memory and in the store.
func (h *housekeeper) sweepRecords(ctx context.Context) error {
	h.rates.prune(h.env.now())
	h.contacts.prune()
	return inBatches(sweepBatch, func(limit int) (int, error) {
		return h.env.store.SweepRecords(ctx, h.env.now(), limit)
	})
}

// inBatches calls remove, which returns how many things it removed, until it removes fewer than
// limit.
func inBatches(limit int, remove func(limit int) (int, error)) error {
	for {
		n, err := remove(limit)
		if err != nil || n < limit {
			return err
		}
	}
}

// count reports the number of pending tasks in each state.
func (h *housekeeper) count(ctx context.Context) error {
	if h.env.observer == nil {
		return nil
	}
	pending, oldest := make(map[task.State]int), time.Time{}
	asked := newWorkflowCount(h.workflowOf)
	for _, s := range task.Pending() {
		pending[s] = 0
	}
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: sweepBatch, Heads: true}
	for t, err := range storekit.Each(ctx, h.env.store, q) {
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
	if err := asked.readMissing(ctx, h.env.store); err != nil {
		return err
	}
	h.workflowOf = asked.known
	h.env.observe(ctx, Event{Step: Counted, Pending: pending, Oldest: oldest, PendingByWorkflow: asked.counts()})
	return nil
}

// dispatch starts approved tasks that this replica can start.
func (h *housekeeper) dispatch(ctx context.Context) error {
	if h.contacts.none() && h.env.settings().Start != StartOnApproval {
		return nil
	}
	heads := h.env.settings().Start == StartOnContact
	return h.eachApproved(ctx, heads, func(t task.Task) error {
		if !heads {
			return h.dispatchOne(ctx, t)
		}
		if h.contacts.recentSender(t.ID) == nil {
			return nil
		}
		t, err := h.env.store.Get(ctx, task.AnyOwner().Ref(t.ID))
		if err != nil {
			return err
		}
		return h.dispatchOne(ctx, t)
	})
}

func (h *housekeeper) dispatchOne(ctx context.Context, t task.Task) error {
	send := h.contacts.senderFor(t)
	if send == nil {
		return nil
	}
	_, err := h.runner.launch(ctx, t, send)
	return err
}

func (h *housekeeper) eachApproved(ctx context.Context, heads bool, do func(task.Task) error) error {
	//mutate:swap "Approved" "Approved, task.Executing" TestUpstreamTaskNeedsNoWork housekeeping reads calls that run as upstream tasks
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.Approved}, Limit: sweepBatch, Heads: heads}
	var failed error
	for t, err := range storekit.Each(ctx, h.env.store, q) {
		if err == nil {
			err = do(t)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// indexBatch is how many journal entries are read at a time to index approved tools.
const indexBatch = 10_000

// indexTools records tool definitions approved by earlier versions of the gate, or in an imported
// journal.
func (h *housekeeper) indexTools(ctx context.Context) error {
	return toolhistory.Store{Records: h.env.store}.Index(ctx, h.env.store, indexBatch)
}

// trimBatch is how many journal entries are deleted at a time.
const trimBatch = 500

// trim deletes journal entries after their retention.
func (h *housekeeper) trim(ctx context.Context) error {
	if h.env.settings().Retention <= 0 {
		return nil
	}
	return inBatches(trimBatch, func(limit int) (int, error) {
		return h.env.store.Trim(ctx, h.env.now().Add(-h.env.settings().Retention), limit)
	})
}

// headEvery is the interval at which the head of the journal is logged.
const headEvery = time.Hour

// A journalHead is the last logged head of the journal.
type journalHead struct {
	at  time.Time
	seq int64
}

// logHead logs the head of the journal periodically. Logs are usually kept elsewhere, so an
// attacker who rewrites the chain in the store cannot reproduce a logged head.
func (h *housekeeper) logHead(ctx context.Context, last journalHead) journalHead {
	now := h.env.now()
	if now.Before(last.at.Add(headEvery)) {
		return last
	}
	ends, err := h.env.store.Ends(ctx)
	if err != nil || ends.Head.Seq == last.seq {
		h.env.report(ctx, err)
		return last
	}
	h.env.log.InfoContext(ctx, "audit head", "head", ends.Head.String(), "anchor", ends.Anchor.String())
	return journalHead{now, ends.Head.Seq}
}

// A workflowCount counts pending tasks by workflow. It reads only the tasks that were not known at
// the last count.
type workflowCount struct {
	previous map[task.ID]string
	known    map[task.ID]string
	missing  map[task.ID]bool
}

func newWorkflowCount(before map[task.ID]string) *workflowCount {
	return &workflowCount{previous: before, known: make(map[task.ID]string, len(before)), missing: map[task.ID]bool{}}
}

func (c *workflowCount) add(id task.ID) {
	if workflow, ok := c.previous[id]; ok {
		c.known[id] = workflow
		return
	}
	c.missing[id] = true
}

// readMissing reads the missing workflows. The newest tasks are listed first.
func (c *workflowCount) readMissing(ctx context.Context, store task.Store) error {
	if len(c.missing) == 0 {
		return nil
	}
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.InputRequired}, Limit: sweepBatch, Outlines: true}
	for t, err := range storekit.Each(ctx, store, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue
		}
		if err != nil {
			return err
		}
		if c.missing[t.ID] {
			c.known[t.ID] = t.Workflow
			delete(c.missing, t.ID)
		}
		if len(c.missing) == 0 {
			return nil
		}
	}
	return nil
}

func (c *workflowCount) counts() map[string]int {
	n := map[string]int{}
	for _, workflow := range c.known {
		n[workflow]++
	}
	return n
}
