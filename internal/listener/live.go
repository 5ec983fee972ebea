package listener

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A liveHandler is a handler that can be replaced while requests are served, and that
// knows when none is served any more.
type liveHandler struct {
	current atomic.Pointer[http.Handler]
	streams streams
	bodies  time.Duration // within which a body is to arrive before its request is served; zero leaves that to the handler

	mu      sync.Mutex
	serving int
	idle    chan struct{} // closed when serving becomes 0; nil if nobody waits for that
}

func (l *liveHandler) set(h http.Handler) { l.current.Store(&h) }

// ServeHTTP implements [http.Handler].
func (l *liveHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.serving++
	l.mu.Unlock()
	if l.takeOver(w, r) {
		return
	}
	defer l.served()
	if l.bodies > 0 && r.ContentLength != 0 && !readFirst(w, r, l.bodies) {
		panic(http.ErrAbortHandler)
	}
	(*l.current.Load()).ServeHTTP(w, r)
}

func (l *liveHandler) served() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serving--; l.serving == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// wait waits until no request is served. It returns an error if ctx ends before.
func (l *liveHandler) wait(ctx context.Context) error {
	l.mu.Lock()
	if l.serving == 0 {
		l.mu.Unlock()
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
