package conversation

import (
	"bytes"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// resumable are the ids of the requests that an upstream has begun to answer with a
// stream of events, by client. A client that loses such a stream can take it up
// again, and then gets the answer on another one. The upstream may answer nothing
// else there: no other request was sent to it, or its answer does not come late.
type resumable struct {
	mu    sync.Mutex
	ids   map[string][][]byte // the newest last
	count int
}

// Bounds of what is remembered. If there is more for one client, the oldest is
// forgotten; if there is more for all, everything is.
const (
	maxResumable   = 512
	maxResumables  = 50_000
	maxResumableID = 128 // bytes
)

// add takes ids in.
func (s *resumable) add(peer string, ids [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil || s.count+len(ids) > maxResumables {
		s.ids, s.count = make(map[string][][]byte), 0
	}
	known := s.ids[peer]
	s.count -= len(known)
	for _, id := range ids {
		if len(id) <= maxResumableID {
			known = append(known, bytes.Clone(id))
		}
	}
	if extra := len(known) - maxResumable; extra > 0 {
		known = slices.Clone(known[extra:])
	}
	s.set(peer, known)
}

// remove takes ids out.
func (s *resumable) remove(peer string, ids [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.ids[peer]
	s.count -= len(known)
	for _, id := range ids {
		if i := slices.IndexFunc(known, func(other []byte) bool { return bytes.Equal(id, other) }); i >= 0 {
			known = slices.Delete(known, i, i+1)
		}
	}
	s.set(peer, known)
}

// forget takes all ids of a client out.
func (s *resumable) forget(peer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count -= len(s.ids[peer])
	delete(s.ids, peer)
}

// set replaces the ids of a client, which are not counted. The caller holds the lock.
func (s *resumable) set(peer string, ids [][]byte) {
	s.count += len(ids)
	if len(ids) == 0 {
		delete(s.ids, peer)
	} else {
		s.ids[peer] = ids
	}
}

// has reports whether a client has a request with an id.
func (s *resumable) has(peer string, id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.ids[peer], func(other []byte) bool { return jsonrpc.SameID(id, other) })
}

// BeginEvents notes that the upstream answers the request with a stream of events,
// which the client may take up again if it loses it. The transport calls what it
// returns when the stream has ended without any place to take it up from.
func (r *Request) BeginEvents() (forget func()) {
	if r.unasked || len(r.ids) == 0 || r.era != wire.Legacy || !r.hub.Governs() {
		return func() {}
	}
	peer := r.peer()
	r.hub.resumable.add(peer, r.ids)
	return func() { r.hub.resumable.remove(peer, r.ids) }
}
