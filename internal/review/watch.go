package review

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// watchPause is how long changes are collected before they are reported. watchPoll is the longest
// time that a watch relies on notifications of the store.
const (
	watchPause = 100 * time.Millisecond
	watchPoll  = 5 * time.Second
)

// Watch returns the pending calls, then each call again when its approvals or the presence of its
// agent change, and once more when it is no longer pending. Quick successive changes are reported
// once. It ends when ctx ends, and with an error when the gate shuts down or the store fails.
func (v *Viewer) Watch(ctx context.Context) iter.Seq2[Approval, error] {
	return func(yield func(Approval, error) bool) {
		changes := storekit.WatchChanges(ctx, v.cfg.Store, watchPoll, task.AnyOwner().Ref(""))
		defer changes.Close()
		w := watcher{viewer: v, known: make(map[task.ID]reportedState)}
		var err error
		for err == nil {
			if err = w.look(ctx, yield); err == nil {
				err = v.awaitChange(ctx, changes)
			}
		}
		if ctx.Err() == nil && !errors.Is(err, errStopped) {
			yield(Approval{}, err)
		}
	}
}

// errStopped ends an iteration that its caller has stopped.
var errStopped = errors.New("enough")

// awaitChange waits for a change, after a pause that collects changes.
func (v *Viewer) awaitChange(ctx context.Context, changes *storekit.Changes) error {
	gather := time.NewTimer(watchPause)
	defer gather.Stop()
	select {
	case <-ctx.Done():
	case <-v.cfg.Closing:
	case <-gather.C:
	}
	reason, err := changes.Next(ctx, nil, v.cfg.Closing)
	if reason == storekit.Ended {
		err = &task.Error{Kind: task.ErrClosed, Action: action.Watch, Suggest: "try again in a moment"}
	}
	return err
}

// A watcher keeps what it has reported of each pending call.
type watcher struct {
	viewer *Viewer
	known  map[task.ID]reportedState
}

// A reportedState has the parts of a pending call whose changes are reported.
type reportedState struct {
	approvals int
	presence  gatetask.Presence
}

// look reports everything that has changed since the last call.
func (w *watcher) look(ctx context.Context, yield func(Approval, error) bool) error {
	pending, err := w.pending(ctx, yield)
	if err != nil {
		return err
	}
	for id := range w.known {
		if pending[id] {
			continue
		}
		delete(w.known, id)
		t, err := w.viewer.cfg.Get(ctx, task.AnyOwner().Ref(id))
		if errors.Is(err, task.ErrNotFound) {
			continue // it was deleted, long after its decision
		}
		if err != nil {
			return err
		}
		if !yield(w.viewer.View(t), nil) {
			return errStopped
		}
	}
	return nil
}

// pending reports new and changed calls, and returns the ids of all pending calls.
func (w *watcher) pending(ctx context.Context, yield func(Approval, error) bool) (map[task.ID]bool, error) {
	pending := make(map[task.ID]bool)
	q := task.Query{Scope: task.AnyOwner(), States: pendingStates, Limit: listSize, Outlines: true}
	for t, err := range storekit.Each(ctx, w.viewer.cfg.Store, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue // lists log it
		}
		if err != nil {
			return nil, err
		}
		pending[t.ID] = true
		now := reportedState{len(t.Approval.Approvals), t.Presence(w.viewer.cfg.Now())}
		if before, known := w.known[t.ID]; known && before == now {
			continue
		}
		one, err := w.viewer.item(ctx, t)
		if err != nil {
			return nil, err
		}
		if one == nil {
			continue
		}
		w.known[t.ID] = now
		if !yield(one.Approval, nil) {
			return nil, errStopped
		}
	}
	return pending, nil
}
