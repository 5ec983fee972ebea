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
func (r *Request) owner() (owner string, shared bool) {
	from := r.client.From()
	if name := r.localHost(); name != "" {
		from.Key = gate.ClientKey(from.Principal, "", gate.LocalHost(name))
	}
	return from.Owner()
}

// ownsBySession reports whether nothing but its session tells whose tasks those of
// this client are.
func (r *Request) ownsBySession() bool {
	_, session := gate.SessionIn(r.client.From().Key)
	return session && r.client.From().Principal.Anonymous && r.localHost() == ""
}

// localHost returns the name of the host that has this session, if it runs on the
// user's own machine and has no identity.
func (r *Request) localHost() string {
	from := r.client.From()
	if _, session := gate.SessionIn(from.Key); !session || !from.Principal.Anonymous || !r.hub.Holds() || !r.client.Local() {
		return ""
	}
	if name := r.hub.cfg.Gate.About(from).Session.Client; name != "" {
		return name
	}
	if name, known := r.hub.hosts.get(r.peer()); known || r.hub.cfg.Records == nil {
		return name
	}
	found, err := r.hub.cfg.Records.GetRecord(r.reply.Context(), hostRecord(r.peer()))
	if err == nil || errors.Is(err, task.ErrNotFound) {
		r.hub.hosts.set(r.peer(), string(found.Value))
	}
	return string(found.Value)
}

// rememberHost has the store keep which host has this session, before it keeps the
// first of the host's calls.
func (r *Request) rememberHost(ctx context.Context) {
	name := r.localHost()
	if stored, _ := r.hub.hosts.get(r.peer()); name == "" || stored == name || r.hub.cfg.Records == nil {
		return
	}
	err := r.hub.cfg.Records.PutRecord(ctx, task.Record{
		Name: hostRecord(r.peer()), Version: 1, Value: []byte(name), Expires: time.Now().Add(hostKept),
	})
	if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // which means that it is there
		r.hub.cfg.Log.WarnContext(ctx, "if the gate is restarted, it will not know this host's calls again", "cause", err)
		return
	}
	r.hub.hosts.set(r.peer(), name)
}

// hostRecord returns the name of the record that says which host a session
// belongs to.
func hostRecord(peer string) string {
	sum := sha256.Sum256([]byte(peer))
	return hostRecords + hex.EncodeToString(sum[:])
}
