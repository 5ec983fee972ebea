package several

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Pauses between attempts to use a server that has failed.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// ListLimit is how long a server may take at most for its part of an answer of all.
const ListLimit = 10 * time.Second

// RetryLimit bounds how long a request waits for a server that has failed before.
const RetryLimit = 2 * time.Second

// reachLimit bounds one attempt to reach a server that has failed.
const reachLimit = 5 * time.Second

// How list changes are spread over time; see [Endpoint.Spread].
const (
	spread    = 10 * time.Millisecond
	maxSpread = 5 * time.Second
)

// A health keeps requests from a server that has failed. After a pause, which doubles with each
// failure, one request may try the server again, while all others still fail at once.
type health struct {
	mu       sync.Mutex
	failures int
	until    time.Time // the end of the pause
	trying   time.Time // until when a request tries the server
	watched  bool
	since    time.Time // of the first failure
	why      string    // the reason of the last one; empty if the server can be reached again
}

// Unreachable is the reason of a server that cannot be reached.
const Unreachable = "it cannot be reached"

// A Missing is a server that cannot be used.
type Missing struct {
	Server string
	Why    string
	Since  time.Time
}

// Missing returns the servers that cannot be used, as far as requests have shown.
func (e *Endpoint) Missing() (all []Missing) {
	for _, s := range e.Servers {
		s.health.mu.Lock()
		if s.health.failures > 0 && s.health.why != "" {
			all = append(all, Missing{s.Name(), s.health.why, s.health.since})
		}
		s.health.mu.Unlock()
	}
	return all
}

// Admit reports whether a request may use the server. If it has failed before, only one request at a time may.
func (s *Server) Admit() bool {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == 0 {
		return true
	}
	now := time.Now()
	if now.Before(h.until) || now.Before(h.trying) {
		return false
	}
	h.trying = now.Add(ListLimit) // it may be a call that lasts
	return true
}

// IsDown reports whether the server has failed and not been used since.
func (s *Server) IsDown() bool {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.failures > 0
}

// Succeeded notes that the server has answered.
func (e *Endpoint) Succeeded(s *Server) {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures > 0 {
		e.log.Info("a server of the endpoint is available again", "upstream", s.Name())
		defer e.returned.send() // while it was tried, other clients got a list without it
	}
	h.failures, h.trying = 0, time.Time{}
}

// Untried notes that an admitted request did not use the server, as one that policy has denied. So the next
// one may.
func (s *Server) Untried() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.trying = time.Time{}
}

// Failed notes that the server cannot be used. It is watched until it can be reached again.
func (e *Endpoint) Failed(s *Server, why string) {
	if s.health.failed(why, func() {
		e.log.Warn("a server of the endpoint is unavailable", "upstream", s.Name(), "reason", why)
	}) {
		e.Go(context.Background(), 24*time.Hour, func(ctx context.Context) { e.watch(ctx, s) })
	}
}

// failed notes a failure. It calls first if it is the first one, and reports whether the server must be watched.
func (h *health) failed(why string, first func()) (watch bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.failures == 0 {
		first()
	}
	if h.failures == 0 || h.why == "" {
		h.since = now
	}
	h.why = why
	if !now.Before(h.until) { // requests that failed together count once
		h.failures++
		pause := min(maxPause, minPause<<min(h.failures-1, 10))
		h.until = now.Add(pause/2 + rand.N(pause/2))
	}
	h.trying = time.Time{}
	watch = !h.watched
	h.watched = true
	return watch
}

// reached notes that the server can be reached. One that did not answer in time is missing until a request
// has shown more.
func (h *health) reached() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == Unreachable {
		h.why = ""
	}
}

// watch waits until a server can be reached, and tells clients that its lists may have changed.
func (e *Endpoint) watch(ctx context.Context, s *Server) {
	defer func() {
		s.health.mu.Lock()
		s.health.watched = false
		s.health.mu.Unlock()
	}()
	for {
		s.health.mu.Lock()
		pause := max(minPause/4, time.Until(s.health.until))
		s.health.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if !s.IsDown() {
			return
		}
		trying, cancel := context.WithTimeout(ctx, reachLimit)
		err := s.Client.Reach(trying)
		cancel()
		if err == nil {
			s.health.reached()
			e.returned.send()
			return
		}
	}
}

// Spread returns a random time to wait before a client is told that a server is back. The more clients there
// are, the longer it is, so that they do not all use the server at once.
func (e *Endpoint) Spread() time.Duration {
	e.sessions.mu.Lock()
	clients := len(e.sessions.byID)
	e.sessions.mu.Unlock()
	return rand.N(min(maxSpread, time.Duration(clients+1)*spread))
}

// Returned returns a channel that is closed when a server can be reached, or has answered, again.
func (e *Endpoint) Returned() <-chan struct{} { return e.returned.next() }

// A broadcast wakes all that wait for it.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
