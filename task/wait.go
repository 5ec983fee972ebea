package task

import (
	"context"
	"time"
)

// Changes tells when to look at tasks again: when the store says that they may
// have changed, and from time to time, because a store that is in trouble says
// nothing. While it cannot say anything it is asked to each time.
type Changes struct {
	watcher Watcher
	ref     Ref
	ctx     context.Context //nolint:containedctx // of the watch, which lasts until Close
	stop    context.CancelFunc
	changed <-chan struct{} // nil while the store does not say anything
	poll    *time.Ticker
}

// A Reason says why [Changes.Next] has returned.
type Reason int

// The reasons to look at tasks again.
const (
	Changed Reason = iota // the store says that they may have changed
	Polled                // it is time to look without having been told
	Woken                 // the caller's own channel
)

// WatchChanges begins to watch what ref names. The caller looks first, and then
// each time that Next returns; a change in between is not missed. The context
// is that of the watch. Close must be called.
func WatchChanges(ctx context.Context, w Watcher, ref Ref, poll time.Duration) *Changes {
	c := &Changes{watcher: w, ref: ref, poll: time.NewTicker(poll)}
	c.ctx, c.stop = context.WithCancel(ctx)
	c.watch()
	return c
}

// Close ends the watch.
func (c *Changes) Close() {
	c.stop()
	c.poll.Stop()
}

func (c *Changes) watch() {
	if c.changed != nil {
		return
	}
	if changed, err := c.watcher.Watch(c.ctx, c.ref); err == nil {
		c.changed = changed
	}
}

// Next returns when there is a reason to look, or with the error of ctx when
// that ends. It also returns when wake, which may be nil, receives or is closed.
func (c *Changes) Next(ctx context.Context, wake <-chan struct{}) (Reason, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case _, open := <-c.changed:
		if !open {
			c.changed = nil // the store or its watch has ended; polling goes on
		}
		return Changed, nil
	case <-wake:
		return Woken, nil
	case <-c.poll.C:
		c.watch()
		return Polled, nil
	}
}

// waitPoll is how long [Wait] relies on being woken before it looks for itself.
const waitPoll = 5 * time.Second

// Wait returns the task that ref names as soon as until says so of it. If ctx
// ends before, it returns the task as it was last seen and [ErrNotReady],
// which wraps the context's error.
func Wait(ctx context.Context, s Store, ref Ref, until func(Task) bool) (Task, error) {
	changes := WatchChanges(ctx, s, ref, waitPoll)
	defer changes.Close()
	var last Task
	for {
		t, err := s.Get(ctx, ref)
		if err == nil {
			last = t
			if until(t) {
				return t, nil
			}
			_, err = changes.Next(ctx, nil)
		}
		switch {
		case err != nil && ctx.Err() != nil && last.ID != "":
			return last, last.refuse(&Error{Kind: KindNotReady, Err: err, RetryAfter: last.PollInterval}, ActionWatch)
		case err != nil:
			return Task{}, err
		}
	}
}
