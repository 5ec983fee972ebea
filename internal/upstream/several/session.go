package several

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// MaxInitialize is the largest initialize request of a client in bytes. A session keeps it, for
// servers that join later.
const MaxInitialize = 16 << 10

// Limits of the sessions of one endpoint.
const (
	maxSessions         = 10_000
	maxSessionsPerOwner = 1000
	sessionIdle         = 24 * time.Hour
)

// A Session is the session of a legacy client with an endpoint. Under it the client has a session with each
// server, which begins when the server is first needed.
type Session struct {
	ID         string
	Owner      string // the principal of the client; empty for an anonymous client
	Initialize []byte // the request of the client

	saving      sync.Mutex
	secret      string // in the ids of requests of servers
	mu          sync.Mutex
	used        time.Time
	initialized bool
	joining     map[*Server]chan struct{}
	refused     map[*Server]refusal
	members     map[*Server]*Membership
	requests    map[string]*Server // by the ids of the latest requests
	recent      []string           // their ids
	changed     broadcast
	begun       bool // the client has got the answer to initialize
	ended       bool // by another replica
	stored      bool
	left        map[*Server]string // the ids of sessions that servers have ended
}

// A refusal is why a server has not begun a session.
type refusal struct {
	why   string
	until time.Time // when to ask again
}

// refusalPause is how long a server that did not begin a session is not asked again to.
const refusalPause = 10 * time.Second

// A Membership is the session of a client with one server.
type Membership struct {
	ID      string        // of the server's session; may be empty
	Version string        // of the protocol
	Result  jsonrpc.Value // of initialize, until [Endpoint.Save]
}

// sessions are the sessions of one endpoint.
type sessions struct {
	mu   sync.Mutex
	byID map[string]*Session
}

// Begin begins a session.
func (e *Endpoint) Begin(owner string, initialize []byte) *Session {
	s := newSession(rand.Text()+rand.Text(), owner, initialize)
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	e.add(s)
	return s
}

// add adds a session. The caller holds the lock.
func (e *Endpoint) add(s *Session) {
	if e.sessions.byID == nil {
		e.sessions.byID = make(map[string]*Session)
	}
	e.evict(s.Owner)
	e.sessions.byID[s.ID] = s
}

// evict prepares for another session of an owner, by ending the session that was unused for
// longest. Anonymous clients, who may begin any number, end those of each other first. The caller holds
// the lock.
func (e *Endpoint) evict(owner string) {
	all, own := len(e.sessions.byID), 0
	if all < maxSessionsPerOwner {
		return
	}
	var oldest, oldestOwn *Session
	for _, s := range e.sessions.byID {
		oldest = older(oldest, s)
		if s.Owner == owner {
			own++
			oldestOwn = older(oldestOwn, s)
		}
	}
	switch {
	case own >= maxSessionsPerOwner && (owner != "" || all >= maxSessions):
		e.drop(oldestOwn)
	case all >= maxSessions, oldest != nil && time.Since(oldest.lastUsed()) > sessionIdle:
		e.drop(oldest)
	}
}

func older(a, b *Session) *Session {
	if a == nil || b.lastUsed().Before(a.lastUsed()) {
		return b
	}
	return a
}

func (s *Session) lastUsed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// drop removes a session. The caller holds the lock.
func (e *Endpoint) drop(s *Session) {
	delete(e.sessions.byID, s.ID)
	e.uris.forget(s.ID)
	e.templates.forget(s.ID)
	e.tasks.forget(s.ID)
}

// Session returns the session of an owner, or nil. This process may not have it since its begin.
func (e *Endpoint) Session(ctx context.Context, owner, id string) (*Session, error) {
	e.sessions.mu.Lock()
	s := e.sessions.byID[id]
	e.sessions.mu.Unlock()
	if s == nil {
		var err error
		if s, err = e.restore(ctx, owner, id); s == nil {
			return nil, err
		}
	}
	if s.Owner != owner {
		return nil, nil
	}
	_, _ = e.stored.Owned(ctx, e.key(owner, id)) // extends the record
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	return s, nil
}

// End ends a session, and returns the sessions with the servers.
func (e *Endpoint) End(ctx context.Context, s *Session) map[*Server]*Membership {
	e.sessions.mu.Lock()
	e.drop(s)
	e.sessions.mu.Unlock()
	e.stored.End(ctx, e.key(s.Owner, s.ID))
	return s.Members()
}

// Members returns the sessions with servers that have begun.
func (s *Session) Members() map[*Server]*Membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.members)
}

// Member returns the session with a server, or nil.
func (s *Session) Member(server *Server) *Membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[server]
}

// Joining returns a channel that is closed when the attempt to begin a session with a server has
// ended. If first is true, the caller must make this attempt and call [Session.Join].
func (s *Session) Joining(server *Server) (ended <-chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.joining[server]; c != nil {
		return c, false
	}
	c := make(chan struct{})
	if s.members[server] != nil || time.Now().Before(s.refused[server].until) {
		close(c)
		return c, false
	}
	s.joining[server] = c
	return c, true
}

// Join ends the attempt to begin a session with a server, which [Session.Joined] has noted if it
// succeeded. Otherwise why says why not.
func (s *Session) Join(server *Server, m *Membership, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, server)
	if m == nil {
		s.refused[server] = refusal{why, time.Now().Add(refusalPause)}
		if server.IsDown() { // which decides when to ask again
			s.refused[server] = refusal{why: why}
		}
	}
	close(s.joining[server])
	delete(s.joining, server)
}

// MemberOrReason returns the session with a server, or why there is none.
func (s *Session) MemberOrReason(server *Server) (*Membership, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[server]; m != nil {
		return m, ""
	}
	return nil, cmp.Or(s.refused[server].why, "the server is unavailable")
}

// Joined adds the session with a server. It reports whether the client has the answer to initialize, so
// that the session must be saved again, and whether it has already sent notifications/initialized, which
// the server must then get.
func (s *Session) Joined(server *Server, m *Membership) (begun, initialized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[server] = m
	s.changed.send()
	return s.begun, s.initialized
}

// Left removes the session with a server, if it is still m.
func (s *Session) Left(server *Server, m *Membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m != nil && s.members[server] == m {
		delete(s.members, server)
		s.left[server] = m.ID
	}
}

// Initialized notes that the client has sent notifications/initialized, and returns the sessions
// that it is for.
func (s *Session) Initialized() map[*Server]*Membership {
	s.mu.Lock()
	s.initialized = true
	s.mu.Unlock()
	return s.Members()
}

// Changed returns a channel that is closed when a server joins.
func (s *Session) Changed() <-chan struct{} { return s.changed.next() }

const (
	maxRecent   = 256
	maxRecentID = 128
)

// NoteRequest remembers the server of a request, which the client may cancel.
func (s *Session) NoteRequest(id []byte, server *Server) {
	if len(id) > maxRecentID {
		return
	}
	key := jsonrpc.IDKey(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.requests[key]; !again {
		s.recent = append(s.recent, key)
	}
	s.requests[key] = server
	if len(s.recent) > maxRecent {
		delete(s.requests, s.recent[0])
		s.recent = s.recent[1:]
	}
}

// RequestServer returns the server of a recent request, or nil.
func (s *Session) RequestServer(id []byte) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[jsonrpc.IDKey(id)]
}

// JoinLimit bounds how long a server may take to begin a session, as after its program was started.
const JoinLimit = time.Minute

// ListLimit returns how long a server may take for its part in an answer of all.
func (e *Endpoint) ListLimit() time.Duration { return e.listLimit }

// Wait waits until ctx ends or a channel is closed, and reports the latter.
func Wait(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}
