package approval

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// watchPause is how long changes may gather before watchers are told, and
// watchPoll how long they rely on being woken.
const (
	watchPause = 100 * time.Millisecond
	watchPoll  = 5 * time.Second
)

// Watch returns the held calls that wait for a decision, and then each of them
// again whenever its approvals change and once more when it no longer waits.
// Changes in quick succession are told of once. It ends, with an error unless
// it is the context's, when ctx ends, the desk is closed or the store fails.
func (d *Desk) Watch(ctx context.Context) iter.Seq2[Approval, error] {
	return func(yield func(Approval, error) bool) {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		changed, err := d.cfg.Store.Watch(watching, task.AnyOwner().Ref(""))
		w := watcher{desk: d, known: make(map[task.ID]int)}
		for err == nil {
			if err = w.look(ctx, yield); err == nil {
				pause(ctx, watchPause)
				err = d.awaitChange(ctx, changed)
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

func (d *Desk) awaitChange(ctx context.Context, changed <-chan struct{}) error {
	poll := time.NewTimer(watchPoll)
	defer poll.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return closedError("", task.ActionWatch)
	case _, open := <-changed:
		if !open {
			return closedError("", task.ActionWatch)
		}
	case <-poll.C:
	}
	return nil
}

// A watcher knows what it has told of: how many approvals each pending call had.
type watcher struct {
	desk  *Desk
	known map[task.ID]int
}

// look tells of everything that has changed since the last look.
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
		t, err := w.desk.get(ctx, task.AnyOwner().Ref(id))
		if errors.Is(err, task.ErrNotFound) {
			continue // swept since, which is long after it was decided
		}
		if err != nil {
			return err
		}
		if !yield(w.desk.View(t), nil) {
			return errEnough
		}
	}
	return nil
}

// pending tells of calls that are new, or have got another approval, and
// returns all that are pending.
func (w *watcher) pending(ctx context.Context, yield func(Approval, error) bool) (map[task.ID]bool, error) {
	pending := make(map[task.ID]bool)
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.InputRequired}, Limit: sweepBatch}
	for {
		page, err := w.desk.cfg.Store.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tasks {
			pending[t.ID] = true
			if n, told := w.known[t.ID]; told && n == len(t.Approval.Approvals) {
				continue
			}
			w.known[t.ID] = len(t.Approval.Approvals)
			if !yield(w.desk.View(t), nil) {
				return nil, errEnough
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return pending, nil
		}
	}
}
