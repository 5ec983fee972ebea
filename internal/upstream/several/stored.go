package several

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A storedSession is what the store has of a session, so that the session survives the gate and other
// replicas serve it. It is sealed with the id, which only the client has: it names sessions of servers.
type storedSession struct {
	Initialize string                  `json:"initialize"`
	Members    map[string]storedMember `json:"members"` // by server
}

type storedMember struct {
	ID      string `json:"id"`
	Version string `json:"version"`
}

// derive returns a secret of a session for one purpose.
func derive(id, purpose string) []byte {
	sum := sha256.Sum256([]byte(purpose + "\x00" + id))
	return sum[:]
}

// secretOf returns the part of ids of questions that servers cannot know.
func secretOf(id string) string { return hex.EncodeToString(derive(id, "questions")[:16]) }

func sealer(id string) cipher.AEAD {
	block, err := aes.NewCipher(derive(id, "store"))
	if err != nil {
		panic(err) // the key has the right size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func (e *Endpoint) key(owner, id string) upstream.Session {
	return upstream.Session{Upstream: "endpoint " + e.path, Principal: owner, ID: id}
}

// Save stores a session after its begin, and forgets the handshakes of its servers.
func (e *Endpoint) Save(ctx context.Context, s *Session) {
	s.saving.Lock()
	defer s.saving.Unlock()
	stored := storedSession{Initialize: string(s.Initialize), Members: make(map[string]storedMember)}
	s.mu.Lock()
	s.begun = true
	for server, m := range s.members {
		m.Result = jsonrpc.Value{}
		stored.Members[server.Name()] = storedMember{m.ID, m.Version}
	}
	s.mu.Unlock()
	text, err := json.Marshal(stored)
	sealed := sealer(s.ID).Seal(nil, nil, text, nil)
	if err != nil || len(sealed) > gatestore.MaxRecordValue {
		e.log.WarnContext(ctx, "a session of the endpoint is too large for the store: it ends with this process", "err", err)
		return
	}
	e.stored.Begin(ctx, e.key(s.Owner, s.ID), sealed)
	s.mu.Lock()
	s.stored = e.stored != nil
	s.mu.Unlock()
}

// load returns what the store has of a session, or nil if it has nothing.
func (e *Endpoint) load(ctx context.Context, owner, id string) (*storedSession, error) {
	value, err := e.stored.Value(ctx, e.key(owner, id))
	if err != nil || value == nil {
		return nil, err
	}
	stored := new(storedSession)
	text, err := sealer(id).Open(nil, nil, value, nil)
	if err == nil {
		err = json.Unmarshal(text, stored)
	}
	return stored, err
}

// restore returns a session that this process does not have, or nil.
func (e *Endpoint) restore(ctx context.Context, owner, id string) (*Session, error) {
	stored, err := e.load(ctx, owner, id)
	if err != nil || stored == nil {
		return nil, err
	}
	s := newSession(id, owner, []byte(stored.Initialize))
	s.begun, s.stored, s.initialized = true, true, true
	for _, server := range e.Servers {
		if m, ok := stored.Members[server.Name()]; ok {
			s.members[server] = &Membership{ID: m.ID, Version: m.Version}
		}
	}
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	if other := e.sessions.byID[id]; other != nil { // another request was faster
		return other, nil
	}
	e.add(s)
	return s, nil
}

// Rejoin returns the session with a server that another replica has begun since this one was
// [Session.Left], or nil. Ended reports whether another replica has ended the whole session.
func (e *Endpoint) Rejoin(ctx context.Context, s *Session, server *Server) (m *Membership, ended bool) {
	s.mu.Lock()
	isStored, left := s.stored, s.left[server]
	s.mu.Unlock()
	if !isStored {
		return nil, false
	}
	stored, err := e.load(ctx, s.Owner, s.ID)
	if err != nil {
		return nil, false
	}
	if stored == nil {
		e.sessions.mu.Lock()
		e.drop(s)
		e.sessions.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = true
		return nil, true
	}
	if m, ok := stored.Members[server.Name()]; ok && m.ID != left {
		return &Membership{ID: m.ID, Version: m.Version}, false
	}
	return nil, false
}

// Ended reports whether another replica has ended the session.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// newSession returns a session without servers.
func newSession(id, owner string, initialize []byte) *Session {
	return &Session{
		ID: id, secret: secretOf(id), Owner: owner, Initialize: initialize, used: time.Now(),
		members: make(map[*Server]*Membership), requests: make(map[string]*Server), left: make(map[*Server]string),
		joining: make(map[*Server]chan struct{}), refused: make(map[*Server]refusal),
	}
}
