package storekit

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// Changes signals when to read tasks again: after a notification of the store, and at an
// interval, because a failing store does not notify. A failed watch is tried again every
// second.
type Changes struct {
	watcher task.Watcher
	refs    []task.Ref
	ctx     context.Context // of the watch, which lasts until Close
	stop    context.CancelFunc
	changed <-chan struct{} // nil while the store cannot be watched

	// Several watches are merged into one channel. Unwatched are the tasks whose watch could
	// not start yet.
	merged    chan struct{}
	unwatched []task.Ref
	poll      *time.Ticker
	merging   sync.WaitGroup
}

// A Reason is the reason for which [Changes.Next] has returned.
type Reason int

// The reasons. All but Ended are reasons to read the tasks again.
const (
	Changed Reason = iota // the store has notified of a change
	Polled                // the poll interval has passed
	Woken                 // the channel wake has received
	Ended                 // the channel end has received
)

// rewatch is the pause before a watch that failed is tried again.
const rewatch = time.Second

// WatchChanges watches the tasks that refs name. Read them after it returns, and again each
// time that Next returns. Then no change is missed. The watch ends with ctx. The caller must
// call Close.
func WatchChanges(ctx context.Context, w task.Watcher, poll time.Duration, refs ...task.Ref) *Changes {
	c := &Changes{watcher: w, refs: refs, unwatched: refs, poll: time.NewTicker(poll)}
	if len(refs) != 1 {
		c.merged = make(chan struct{}, 1)
	}
	c.ctx, c.stop = context.WithCancel(ctx)
	c.watch()
	return c
}

// Close ends the watch.
func (c *Changes) Close() {
	c.stop()
	c.poll.Stop()
	c.merging.Wait()
}

// PollIn sets the interval at which Next returns without a notification.
func (c *Changes) PollIn(d time.Duration) { c.poll.Reset(max(d, time.Millisecond)) }

// watch starts the missing watches. It reports whether it has started the last one.
func (c *Changes) watch() bool {
	if c.changed != nil {
		return false
	}
	for ; len(c.unwatched) > 0; c.unwatched = c.unwatched[1:] {
		one, err := c.watcher.Watch(c.ctx, c.unwatched[0])
		if err != nil {
			return false
		}
		if len(c.refs) == 1 {
			c.changed = one
			return true
		}
		c.merging.Go(func() {
			for range one {
				select {
				case c.merged <- struct{}{}:
				default: // a notification is pending
				}
			}
		})
	}
	c.changed = c.merged
	return true
}

// Next returns when there is a reason to read the tasks again, or with the error of ctx
// when that ends. It also returns when wake or end, which may be nil, receives or is
// closed.
func (c *Changes) Next(ctx context.Context, wake, end <-chan struct{}) (Reason, error) {
	for {
		var again <-chan time.Time
		if c.changed == nil {
			again = time.NewTimer(rewatch).C
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-end:
			return Ended, nil
		case _, open := <-c.changed:
			if !open {
				c.changed, c.unwatched = nil, c.refs // the store or its watch has ended; polling goes on
			}
			return Changed, nil
		case <-wake:
			return Woken, nil
		case <-c.poll.C:
			return Polled, nil
		case <-again:
			if c.watch() {
				return Changed, nil // a change in between may have been missed
			}
		}
	}
}

// The poll intervals of [Wait], for a store that notifies and for one that does not.
const (
	waitPoll   = 5 * time.Second
	unwokePoll = 200 * time.Millisecond
)

// unwatched is a store that cannot be watched.
type unwatched struct{}

// Watch implements [task.Watcher].
func (unwatched) Watch(_ context.Context, ref task.Ref) (<-chan struct{}, error) {
	return nil, &task.Error{Kind: task.ErrUnavailable, ID: ref.ID, Action: action.Watch, Detail: "the store cannot be watched"}
}

// Wait returns the task that ref names as soon as until reports true for it. If ctx ends
// before, it returns the last known version of the task and [task.ErrNotReady], which wraps the
// context's error.
func Wait(ctx context.Context, s task.Store, ref task.Ref, until func(task.Task) bool) (task.Task, error) {
	var watcher task.Watcher = unwatched{}
	poll := unwokePoll
	if w, ok := s.(task.Watcher); ok {
		watcher, poll = w, waitPoll
	}
	changes := WatchChanges(ctx, watcher, poll, ref)
	defer changes.Close()
	var last task.Task
	for {
		t, err := s.Get(ctx, ref)
		if err == nil {
			last = t
			if until(t) {
				return t, nil
			}
			_, err = changes.Next(ctx, nil, nil)
		}
		switch {
		case err != nil && ctx.Err() != nil && last.ID != "":
			return last, last.Refuse(&task.Error{Kind: task.ErrNotReady, Err: err, RetryAfter: last.PollInterval}, action.Watch)
		case err != nil:
			return task.Task{}, err
		}
	}
}
