package task

import (
	"context"
	"sync"
)

// A Hub is the half of [Watcher] that is the same in every store: it wakes the
// watchers in this process. A store calls [Hub.Notify] for each change that it
// makes or hears of. The zero Hub is ready for use.
type Hub struct {
	mu       sync.RWMutex
	closed   bool
	watchers map[Ref]map[*watch]struct{} // by what they watch
}

type watch struct {
	wake    chan struct{} // holds one wake-up, so that telling never waits
	release func() bool   // lets go of the context
}

func (w *watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it has been woken and has not looked yet
	}
}

// Watch implements [Watcher].
func (h *Hub) Watch(ctx context.Context, ref Ref) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, &Error{Kind: KindClosed, ID: ref.ID, Action: ActionWatch}
	}
	w := &watch{wake: make(chan struct{}, 1)}
	if h.watchers == nil {
		h.watchers = make(map[Ref]map[*watch]struct{})
	}
	if h.watchers[ref] == nil {
		h.watchers[ref] = make(map[*watch]struct{})
	}
	h.watchers[ref][w] = struct{}{}
	w.release = context.AfterFunc(ctx, func() { h.remove(ref, w) })
	return w.wake, nil
}

func (h *Hub) remove(ref Ref, w *watch) {
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

// Notify wakes all who watch the task with the given ID and owner.
func (h *Hub) Notify(id ID, owner string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.watchers) == 0 {
		return
	}
	mine, all := OwnedBy(owner), AnyOwner()
	for _, ref := range [...]Ref{mine.Ref(id), all.Ref(id), mine.Ref(""), all.Ref("")} {
		for w := range h.watchers[ref] {
			w.notify()
		}
	}
}

// NotifyAll wakes everybody who watches: nobody knows what has changed.
func (h *Hub) NotifyAll() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, watches := range h.watchers {
		for w := range watches {
			w.notify()
		}
	}
}

// Close ends every watch. A second call does nothing.
func (h *Hub) Close() {
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
