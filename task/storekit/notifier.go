package storekit

import (
	"context"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// A Notifier implements [task.Watcher] within one process. A store calls
// [Notifier.Notify] for each change that it makes or learns of. The zero Notifier is ready
// for use.
type Notifier struct {
	mu       sync.RWMutex
	closed   bool
	watchers map[task.Ref]map[*watch]struct{} // by the watched task or scope
}

type watch struct {
	wake    chan struct{} // buffered, so that notify never blocks
	release func() bool   // detaches the watch from its context
}

func (w *watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // a notification is pending
	}
}

// Watch implements [task.Watcher].
func (h *Notifier) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, &task.Error{Kind: task.ErrClosed, ID: ref.ID, Action: action.Watch}
	}
	w := &watch{wake: make(chan struct{}, 1)}
	if h.watchers == nil {
		h.watchers = make(map[task.Ref]map[*watch]struct{})
	}
	if h.watchers[ref] == nil {
		h.watchers[ref] = make(map[*watch]struct{})
	}
	h.watchers[ref][w] = struct{}{}
	w.release = context.AfterFunc(ctx, func() { h.remove(ref, w) })
	return w.wake, nil
}

func (h *Notifier) remove(ref task.Ref, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.watchers[ref][w]; !there {
		return
	}
	delete(h.watchers[ref], w)
	if len(h.watchers[ref]) == 0 {
		delete(h.watchers, ref)
	}
	close(w.wake)
}

// Notify notifies all watches of the task with the given ID and owner.
func (h *Notifier) Notify(id task.ID, owner string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.watchers) == 0 {
		return
	}
	mine, all := task.OwnedBy(owner), task.AnyOwner()
	for _, ref := range [...]task.Ref{mine.Ref(id), all.Ref(id), mine.Ref(""), all.Ref("")} {
		for w := range h.watchers[ref] {
			w.notify()
		}
	}
}

// NotifyAll notifies all watches. It is for changes of unknown tasks.
func (h *Notifier) NotifyAll() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, watches := range h.watchers {
		for w := range watches {
			w.notify()
		}
	}
}

// Close ends every watch. A second call does nothing.
func (h *Notifier) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, watches := range h.watchers {
		for w := range watches {
			w.release()
			close(w.wake)
		}
	}
	h.watchers, h.closed = nil, true
}
