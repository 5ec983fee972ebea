package conversation

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
func (s *sender) identify(c *approval.Call) {
	c.Owner, c.Alone = s.owner()
	c.Peer, c.Principal = s.client.From().Key, s.client.From().Principal
	if !s.client.From().Principal.Anonymous {
		return
	}
	c.Room = s.client.Network()
	session, has := gate.SessionIn(c.Peer)
	switch {
	case has && s.hub.sessions.has(s.peer()):
		c.Assurance = approval.Proven
	case has:
		c.Assurance = approval.Unknown
		c.Prove = func(ctx context.Context) bool { return s.proves(ctx, session) }
	case c.Peer != "":
		c.Assurance = approval.Claimed
	default:
		c.Assurance = approval.Unknown
	}
}

// proves reports whether the upstream knows a session that the gate has not seen
// it give: one that is older than this process, or comes from another replica.
// An upstream that takes a made-up session for its own proves nothing.
func (s *sender) proves(ctx context.Context, session string) bool {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	if caller := s.client.Caller(); !caller.Ping(ctx, session) || caller.Ping(ctx, "tg-"+rand.Text()) {
		return false
	}
	s.hub.sessions.add(s.peer())
	return true
}
