package task

import (
	"context"
	"sync"
	"time"
)

// Changes says when to look at tasks again: when the store notifies of a change, and
// from time to time, because a store that is in trouble does not notify. A store that cannot be watched is asked again every second.
type Changes struct {
	watcher Watcher
	refs    []Ref
	ctx     context.Context //nolint:containedctx // of the watch, which lasts until Close
	stop    context.CancelFunc
	changed <-chan struct{} // nil while the store cannot be watched

	// Several watches are merged into one channel. Those that could not begin yet
	// are unwatched.
	merged    chan struct{}
	unwatched []Ref
	poll      *time.Ticker
	merging   sync.WaitGroup
}

// A Reason says why [Changes.Next] has returned.
type Reason int

// The reasons to look at tasks again, and the one not to.
const (
	Changed Reason = iota // the store has notified of a change
	Polled                // it is time to look without a notification
	Woken                 // the caller's own channel
	Ended                 // the caller's other channel: there is no use in looking
)

// rewatch is how long to wait before a store that could not be watched is asked
// once more.
const rewatch = time.Second

// WatchChanges begins to watch what refs name. The caller looks first, and then
// each time that Next returns; a change in between is not missed. The context
// is that of the watch. Close must be called.
func WatchChanges(ctx context.Context, w Watcher, poll time.Duration, refs ...Ref) *Changes {
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

// PollIn has Next return after the given time, and then each time that it has
// passed again, if nothing else is a reason to look before.
func (c *Changes) PollIn(d time.Duration) { c.poll.Reset(max(d, time.Millisecond)) }

// watch reports whether everything is watched now and was not before.
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
				default: // the caller has been woken and has not looked yet
				}
			}
		})
	}
	c.changed = c.merged
	return true
}

// Next returns when there is a reason to look, or with the error of ctx when
// that ends. It also returns when wake or end, which may be nil, receives or is
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
				return Changed, nil // something may have, meanwhile
			}
		}
	}
}

// How long [Wait] relies on being woken before it looks for itself, and how long it
// waits before it looks again at a store that wakes nobody.
const (
	waitPoll   = 5 * time.Second
	unwokePoll = 200 * time.Millisecond
)

// unwatched is a store that cannot be watched.
type unwatched struct{}

// Watch implements [Watcher].
func (unwatched) Watch(_ context.Context, ref Ref) (<-chan struct{}, error) {
	return nil, &Error{Kind: KindUnavailable, ID: ref.ID, Action: ActionWatch, Detail: "the store cannot be watched"}
}

// Wait returns the task that ref names as soon as until reports true for it. If ctx
// ends before, it returns the task as it was last seen and [ErrNotReady],
// which wraps the context's error.
func Wait(ctx context.Context, s Store, ref Ref, until func(Task) bool) (Task, error) {
	var watcher Watcher = unwatched{}
	poll := unwokePoll
	if w, ok := s.(Watcher); ok {
		watcher, poll = w, waitPoll
	}
	changes := WatchChanges(ctx, watcher, poll, ref)
	defer changes.Close()
	var last Task
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
			return last, last.refuse(&Error{Kind: KindNotReady, Err: err, RetryAfter: last.PollInterval}, ActionWatch)
		case err != nil:
			return Task{}, err
		}
	}
}
