package mcphttp

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
)

const (
	// sessionsKept is how many sessions are remembered. A forgotten one can be
	// proven again.
	sessionsKept = 100_000
	// proofTime is how long an upstream may take to say whether it knows a session.
	proofTime = 5 * time.Second
)

// sessions are those that upstreams gave to clients, by peer.
type sessions struct {
	mu    sync.Mutex
	known map[string]struct{}
}

func (s *sessions) add(peer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string]struct{})
	}
	for old := range s.known {
		if len(s.known) < sessionsKept {
			break
		}
		delete(s.known, old)
	}
	s.known[peer] = struct{}{}
}

func (s *sessions) has(peer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[peer]
	return ok
}

// identify says in c whose call it is, and how far that is known.
func (x *exchange) identify(c *approval.Call) {
	c.Owner, c.Alone = x.owner()
	c.Peer, c.Principal = x.from().Key, x.from().Principal
	if !x.agent.Principal.Anonymous {
		return
	}
	c.Room = x.guest.Network()
	session, has := gate.SessionIn(c.Peer)
	switch {
	case has && x.h.sessions.has(x.peer()):
		c.Standing = approval.Proven
	case has:
		c.Standing = approval.Unknown
		c.Prove = func(ctx context.Context) bool { return x.proves(ctx, session) }
	case c.Peer != "":
		c.Standing = approval.Claimed
	default:
		c.Standing = approval.Unknown
	}
}

// proves reports whether the upstream knows a session that the gate has not seen
// it give: one that is older than this process, or comes from another replica.
// An upstream that takes a made-up session for its own proves nothing.
func (x *exchange) proves(ctx context.Context, session string) bool {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	if caller := x.caller(); !caller.Ping(ctx, session) || caller.Ping(ctx, "tg-"+rand.Text()) {
		return false
	}
	x.h.sessions.add(x.peer())
	return true
}
