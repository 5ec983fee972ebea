package mcptask

import (
	"context"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A writer makes the changes that a run makes to its task, in their order. While one is being
// stored, the next ones wait, and are then stored together.
type writer struct {
	server *Server

	mu      sync.Mutex
	task    task.Task // as last read or stored
	waiting []*change
	storing chan struct{} // closed when no change waits any more; nil if none is being stored
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
	if w.storing == nil {
		w.storing = make(chan struct{})
		go w.storeAll(context.WithoutCancel(ctx))
	}
	return c
}

func isStatus(e lifecycle.Event) bool {
	_, ok := e.(lifecycle.Describe)
	return ok
}

// storeAll stores the changes that wait, until there are none.
func (w *writer) storeAll(ctx context.Context) {
	for before, batch := w.next(); len(batch) > 0; before, batch = w.next() {
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

// next returns the changes to store. If there are none, nothing is being stored.
func (w *writer) next() (task.Task, []*change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.waiting
	w.waiting = nil
	if len(batch) == 0 {
		close(w.storing)
		w.storing = nil
	}
	return w.task, batch
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
func (w *writer) end() task.Task {
	w.mu.Lock()
	w.ended = true
	storing := w.storing
	w.mu.Unlock()
	if storing != nil {
		<-storing
	}
	return w.last()
}
