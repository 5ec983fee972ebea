package conversation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An agent host on the user's own machine that has no identity is known by its name:
// if it is started again, it has another session, and the calls that it repeats
// attach to those of before. The name comes with initialize. The gate keeps the
// name in the store as soon as a call of the session is held, because the session
// may be older than the gate.

const (
	// hostRecords begins the names of the records that say which host a session
	// belongs to, and hostKept is how long they are kept.
	hostRecords = "local-host/"
	hostKept    = 30 * 24 * time.Hour
)

// sessionHosts are names of hosts as the store has them, by peer. They are empty
// for sessions of which the store has none.
type sessionHosts struct {
	mu    sync.Mutex
	known map[string]string
}

func (s *sessionHosts) get(peer string) (name string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, known = s.known[peer]
	return name, known
}

func (s *sessionHosts) set(peer, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxCounted {
		s.known = make(map[string]string)
	}
	s.known[peer] = name
}

// owner returns whose tasks those of this client are; see [gate.Client.Owner]. The
// sessions of a host on the user's own machine have one owner.
func (s *sender) owner() (owner string, shared bool) {
	from := s.client.From()
	if name := s.localHost(); name != "" {
		from.Key = gate.ClientKey(from.Principal, "", gate.LocalHost(name))
	}
	return from.Owner()
}

// ownsBySession reports whether nothing but its session shows whose tasks those of
// this client are.
func (s *sender) ownsBySession() bool {
	_, session := gate.SessionIn(s.client.From().Key)
	return session && s.client.From().Principal.Anonymous && s.localHost() == ""
}

// localHost returns the name of the host that has this session, if it runs on the
// user's own machine and has no identity.
func (s *sender) localHost() string {
	from := s.client.From()
	if _, session := gate.SessionIn(from.Key); !session || !from.Principal.Anonymous || !s.hub.Holds() || !s.client.Local() {
		return ""
	}
	if name := s.hub.cfg.Gate.About(from).Session.Client; name != "" {
		return name
	}
	if name, known := s.hub.hosts.get(s.peer()); known || s.hub.cfg.Records == nil {
		return name
	}
	found, err := s.hub.cfg.Records.GetRecord(s.reply.Context(), hostRecord(s.peer()))
	if err == nil || errors.Is(err, task.ErrNotFound) {
		s.hub.hosts.set(s.peer(), string(found.Value))
	}
	return string(found.Value)
}

// rememberHost has the store keep which host has this session, before it keeps the
// first of the host's calls.
func (s *sender) rememberHost(ctx context.Context) {
	name := s.localHost()
	if stored, _ := s.hub.hosts.get(s.peer()); name == "" || stored == name || s.hub.cfg.Records == nil {
		return
	}
	err := s.hub.cfg.Records.PutRecord(ctx, task.Record{
		Name: hostRecord(s.peer()), Version: 1, Value: []byte(name), Expires: time.Now().Add(hostKept),
	})
	if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // which means that it is there
		s.hub.cfg.Log.WarnContext(ctx, "if the gate is restarted, it will not know this host's calls again", "cause", err)
		return
	}
	s.hub.hosts.set(s.peer(), name)
}

// hostRecord returns the name of the record that says which host a session
// belongs to.
func hostRecord(peer string) string {
	sum := sha256.Sum256([]byte(peer))
	return hostRecords + hex.EncodeToString(sum[:])
}
