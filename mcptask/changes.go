package mcptask

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A writer makes the changes that a run makes to its task, in their order. While one is being
// stored, the next ones wait, and are then stored together. A status message also waits a moment for
// other changes.
type writer struct {
	server *Server

	mu      sync.Mutex
	task    task.Task // as last read or stored
	waiting []*change
	storing chan struct{} // closed when changes are stored no more; nil if none is being stored
	late    *time.Timer   // stores a status message that waits alone
	ended   bool
	failed  error // the error of the last status message
}

// A change is one event of a task.
type change struct {
	event lifecycle.Event
	done  chan struct{} // closed when the other fields can be read
	after task.Task
	err   error
}

// add begins to make a change. A status message replaces one that waits.
func (w *writer) add(ctx context.Context, e lifecycle.Event) *change {
	c := &change{event: e, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, renewal := e.(lifecycle.RenewLease); w.ended && !renewal { // a run renews its lease until its end is stored
		c.after, c.err = w.task, errOver
		close(c.done)
		return c
	}
	if isStatus(e) {
		w.forgetStatus()
	}
	w.waiting = append(w.waiting, c)
	switch {
	case w.storing != nil:
	case isStatus(e) && len(w.waiting) == 1:
		w.storeLater(context.WithoutCancel(ctx))
	case !isStatus(e):
		w.begin(context.WithoutCancel(ctx))
	}
	return c
}

// statusPause is how long a status message waits for other changes.
const statusPause = 100 * time.Millisecond

// storeLater stores a status message that waits alone, unless a change before takes it along.
func (w *writer) storeLater(ctx context.Context) {
	if w.late != nil {
		return
	}
	w.late = time.AfterFunc(statusPause, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late = nil
		if w.storing == nil && len(w.waiting) > 0 {
			w.begin(ctx)
		}
	})
}

// begin begins to store all changes that wait.
func (w *writer) begin(ctx context.Context) {
	w.storing = make(chan struct{})
	go w.storeAll(ctx)
}

func isStatus(e lifecycle.Event) bool {
	_, ok := e.(lifecycle.Describe)
	return ok
}

// storeAll stores the changes that wait, until there are none.
func (w *writer) storeAll(ctx context.Context) {
	for before, batch := w.take(); len(batch) > 0; before, batch = w.takeMore(ctx) {
		now := w.server.Now()
		events := make([]lifecycle.Event, len(batch), len(batch)+1)
		for i, c := range batch {
			events[i] = c.event
		}
		// This process is alive.
		if until := now.Add(w.server.lease()); before.Execution != nil && until.Sub(before.Execution.LeaseUntil) > w.server.lease()/leaseParts/2 {
			events = append(events, lifecycle.RenewLease{By: w.server.runner(), Until: until})
		}
		after, errs := lifecycle.AdvanceAll(ctx, w.server.Store, before, events, now)
		w.stored(batch, after, errs)
	}
}

// take returns the changes that wait, and the task before them. If there are none, nothing is being
// stored any more.
func (w *writer) take() (task.Task, []*change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.waiting
	w.waiting = nil
	if len(batch) == 0 {
		w.pause()
	}
	return w.task, batch
}

// takeMore is take after other changes were stored. A status message that waits alone may wait
// longer, unless the run ends.
func (w *writer) takeMore(ctx context.Context) (task.Task, []*change) {
	w.mu.Lock()
	if len(w.waiting) == 1 && isStatus(w.waiting[0].event) && !w.ended {
		defer w.mu.Unlock()
		w.pause()
		w.storeLater(ctx)
		return w.task, nil
	}
	w.mu.Unlock()
	return w.take()
}

func (w *writer) pause() {
	close(w.storing)
	w.storing = nil
}

func (w *writer) stored(batch []*change, after task.Task, errs []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.task = after
	for i, c := range batch {
		if c.after, c.err = after, errs[i]; isStatus(c.event) {
			w.failed = c.err
		}
		close(c.done)
	}
}

// make makes a change, and returns when it is stored.
func (w *writer) make(ctx context.Context, e lifecycle.Event) (task.Task, error) {
	if ctx.Err() != nil {
		return task.Task{}, context.Cause(ctx)
	}
	c := w.add(ctx, e)
	select {
	case <-c.done:
		return c.after, c.err
	case <-ctx.Done():
		return task.Task{}, context.Cause(ctx)
	}
}

// status begins to set the status message. It returns the error of an earlier one.
func (w *writer) status(ctx context.Context, e lifecycle.Describe) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.add(ctx, e)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// last returns the task as this process has last read or stored it.
func (w *writer) last() task.Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.task
}

// dropStatus forgets a status message that waits, because the task is about to end.
func (w *writer) dropStatus() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetStatus()
}

func (w *writer) forgetStatus() {
	if last := len(w.waiting) - 1; last >= 0 && isStatus(w.waiting[last].event) {
		w.waiting = w.waiting[:last]
	}
}

// end waits until all changes are stored, and returns the task. Later changes, except renewals of
// the lease, are refused.
func (w *writer) end(ctx context.Context) task.Task {
	w.mu.Lock()
	w.ended = true
	if w.storing == nil && len(w.waiting) > 0 {
		w.begin(context.WithoutCancel(ctx))
	}
	storing := w.storing
	w.mu.Unlock()
	if storing != nil {
		<-storing
	}
	return w.last()
}
