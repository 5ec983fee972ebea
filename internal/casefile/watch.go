package casefile

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// watchPause is how long changes may gather before they are reported, and
// watchPoll how long they rely on being woken.
const (
	watchPause = 100 * time.Millisecond
	watchPoll  = 5 * time.Second
)

// Watch returns the held calls that wait for a decision, and then each of them
// again whenever its approvals change or its agent comes or goes, and once more when it no longer waits.
// Changes in quick succession are reported once. It ends, with an error unless
// it is the context's, when ctx ends, the gate shuts down or the store fails.
func (v *Viewer) Watch(ctx context.Context) iter.Seq2[Approval, error] {
	return func(yield func(Approval, error) bool) {
		changes := task.WatchChanges(ctx, v.cfg.Store, watchPoll, task.AnyOwner().Ref(""))
		defer changes.Close()
		w := watcher{viewer: v, known: make(map[task.ID]standing)}
		var err error
		for err == nil {
			if err = w.look(ctx, yield); err == nil {
				err = v.awaitChange(ctx, changes)
			}
		}
		if ctx.Err() == nil && !errors.Is(err, errEnough) {
			yield(Approval{}, err)
		}
	}
}

// errEnough ends what has gone far enough, such as a watch that nobody listens
// to any more.
var errEnough = errors.New("enough")

// awaitChange waits for a change, and then for others that follow it closely.
func (v *Viewer) awaitChange(ctx context.Context, changes *task.Changes) error {
	gather := time.NewTimer(watchPause)
	defer gather.Stop()
	select {
	case <-ctx.Done():
	case <-v.cfg.Closing:
	case <-gather.C:
	}
	reason, err := changes.Next(ctx, nil, v.cfg.Closing)
	if reason == task.Ended {
		err = &task.Error{Kind: task.KindClosed, Action: task.ActionWatch, Suggest: "try again in a moment"}
	}
	return err
}

// A watcher knows what it has reported of each pending call.
type watcher struct {
	viewer *Viewer
	known  map[task.ID]standing
}

// A standing is what of a pending call is reported again when it changes.
type standing struct {
	approvals int
	presence  task.Presence
}

// look reports everything that has changed since the last look.
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
			continue // swept since, which is long after it was decided
		}
		if err != nil {
			return err
		}
		if !yield(w.viewer.View(t), nil) {
			return errEnough
		}
	}
	return nil
}

// pending reports calls that are new or stand otherwise than reported, and returns
// all that are pending.
func (w *watcher) pending(ctx context.Context, yield func(Approval, error) bool) (map[task.ID]bool, error) {
	pending := make(map[task.ID]bool)
	q := task.Query{Scope: task.AnyOwner(), States: waiting, Limit: listSize, Outlines: true}
	for t, err := range task.Each(ctx, w.viewer.cfg.Store, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue // lists log it
		}
		if err != nil {
			return nil, err
		}
		pending[t.ID] = true
		now := standing{len(t.Approval.Approvals), t.Presence(w.viewer.cfg.Now())}
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
			return nil, errEnough
		}
	}
	return pending, nil
}
