package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A countedStore counts the requests to a store, which may be down.
type countedStore struct {
	gatestore.Records

	asked int
	down  bool
}

var errDown = errors.New("the store is down")

func (s *countedStore) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	if s.asked++; s.down {
		return gatestore.Record{}, errDown
	}
	return s.Records.GetRecord(ctx, name)
}

func (s *countedStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	if s.asked++; s.down {
		return errDown
	}
	return s.Records.PutRecord(ctx, r)
}

func (s *countedStore) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	if s.asked++; s.down {
		return nil, errDown
	}
	return s.Records.ListRecords(ctx, q)
}

func newCountedStore() *countedStore {
	return &countedStore{Records: memstore.New(memstore.Options{})}
}

// replica returns the sessions of one replica over s.
func (s *countedStore) replica() *Sessions {
	return NewSessions(func() gatestore.Records { return s }, slog.New(slog.DiscardHandler))
}

func wantOwned(t *testing.T, ss *Sessions, s Session, want bool) {
	t.Helper()
	if got, err := ss.Owned(t.Context(), s); err != nil || got != want {
		t.Errorf("%v is owned: %t, %v; want %t", s, got, err, want)
	}
}

var annsSession = Session{Upstream: "files", Principal: "ann", ID: "s"}

func TestSessionHasOneOwnerAtOneUpstream(t *testing.T) {
	store := newCountedStore()
	begun, other := store.replica(), store.replica()
	begun.Begin(t.Context(), annsSession, []byte("x"))
	for _, ss := range []*Sessions{begun, other} {
		wantOwned(t, ss, annsSession, true)
		wantOwned(t, ss, Session{Upstream: "files", Principal: "bob", ID: "s"}, false)
		wantOwned(t, ss, Session{Upstream: "mail", Principal: "ann", ID: "s"}, false)
		wantOwned(t, ss, Session{Upstream: "files", Principal: "ann", ID: "t"}, false)
		if free, err := ss.Unclaimed(t.Context(), "files", "s"); err != nil || free {
			t.Errorf("an anonymous client can use the session: %t, %v", free, err)
		}
		if free, err := ss.Unclaimed(t.Context(), "files", "t"); err != nil || !free {
			t.Errorf("an anonymous client can use another one: %t, %v", free, err)
		}
	}
}

// Several principals may have the same session id, because some servers give one id to all clients.
func TestServerGivesOneSessionToSeveralPrincipals(t *testing.T) {
	store := newCountedStore()
	ss := store.replica()
	bobs, anonymous := annsSession, annsSession
	bobs.Principal, anonymous.Principal = "bob", ""
	for _, s := range []Session{annsSession, bobs, anonymous} {
		ss.Begin(t.Context(), s, []byte("x"))
	}
	wantOwned(t, store.replica(), annsSession, true)
	wantOwned(t, store.replica(), bobs, true)
	if free, err := store.replica().Unclaimed(t.Context(), "files", "s"); err != nil || !free {
		t.Errorf("the anonymous client with the session can use it: %t, %v", free, err)
	}
	ss.End(t.Context(), annsSession)
	wantOwned(t, store.replica(), annsSession, false)
	wantOwned(t, store.replica(), bobs, true)
}

func TestUsedSessionsAreCached(t *testing.T) {
	store := newCountedStore()
	ss := store.replica()
	ss.Begin(t.Context(), annsSession, []byte("x"))
	store.replica().Begin(t.Context(), Session{Upstream: "files", ID: "free"}, []byte("x"))
	if free, err := ss.Unclaimed(t.Context(), "files", "free"); err != nil || !free {
		t.Fatal(free, err)
	}
	before := store.asked
	for range 100 {
		wantOwned(t, ss, annsSession, true)
		if free, err := ss.Unclaimed(t.Context(), "files", "free"); err != nil || !free {
			t.Fatal(free, err)
		}
	}
	if store.asked != before {
		t.Errorf("the store was asked %d times", store.asked-before)
	}
}

// Servers may choose ids that can be guessed. An anonymous client that has tried an id cannot use
// it once the session belongs to a principal, on any replica.
func TestGuessedSessionIDStaysUnusable(t *testing.T) {
	store := newCountedStore()
	begun, other := store.replica(), store.replica()
	for _, when := range []string{"before", "after"} {
		for name, ss := range map[string]*Sessions{"the replica that began it": begun, "another replica": other} {
			if free, err := ss.Unclaimed(t.Context(), "files", "s"); err != nil || free != (when == "before") {
				t.Errorf("an anonymous client can use the session on %s, %s it begins: %t, %v", name, when, free, err)
			}
		}
		begun.Begin(t.Context(), annsSession, []byte("x"))
	}
}

// A session that is not in the store yet belongs to its principal.
func TestSessionWithoutRecordIsClaimed(t *testing.T) {
	store := newCountedStore()
	ss := store.replica()
	store.down = true
	ss.Begin(t.Context(), annsSession, []byte("x"))
	store.down = false
	if free, err := ss.Unclaimed(t.Context(), "files", "s"); err != nil || free {
		t.Errorf("an anonymous client can use the session: %t, %v", free, err)
	}
}

func TestSessionBegunWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountedStore()
		ss, other := store.replica(), store.replica()
		store.down = true
		ss.Begin(t.Context(), annsSession, []byte("x"))
		wantOwned(t, ss, annsSession, true)
		if owned, err := ss.Confirmed(t.Context(), annsSession); err != nil || !owned {
			t.Errorf("before a call is held: %t, %v", owned, err)
		}
		var problem *mcp.Problem
		if _, err := other.Owned(t.Context(), annsSession); !errors.As(err, &problem) || problem.Type != mcp.StoreUnavailable {
			t.Errorf("another replica: %v", err)
		}
		before := store.asked
		wantOwned(t, ss, annsSession, true)
		if store.asked != before {
			t.Error("each request asks a store that is down")
		}
		store.down = false
		time.Sleep(sessionRetry)
		wantOwned(t, ss, annsSession, true)
		wantOwned(t, other, annsSession, true)
	})
}

func TestUnusedSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountedStore()
		ss := store.replica()
		ss.Begin(t.Context(), annsSession, []byte("x"))
		for range 10 {
			time.Sleep(sessionTTL / 2)
			wantOwned(t, ss, annsSession, true)
			wantOwned(t, store.replica(), annsSession, true)
		}
		time.Sleep(sessionTTL + time.Second)
		wantOwned(t, ss, annsSession, false)
		wantOwned(t, store.replica(), annsSession, false)
	})
}

// If another replica ends a session, this one notices before it holds a call, and when it renews
// the record.
func TestSessionEndsOnOtherReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountedStore()
		for _, find := range []func(ss *Sessions) (bool, error){
			func(ss *Sessions) (bool, error) { return ss.Confirmed(t.Context(), annsSession) },
			func(ss *Sessions) (bool, error) {
				time.Sleep(sessionTTL / 2)
				return ss.Owned(t.Context(), annsSession)
			},
		} {
			ss := store.replica()
			ss.Begin(t.Context(), annsSession, []byte("x"))
			store.replica().End(t.Context(), annsSession)
			if owned, err := find(ss); err != nil || owned {
				t.Errorf("the session is owned: %t, %v", owned, err)
			}
		}
	})
}

// A principal that begins too many sessions keeps the latest of them, and other principals keep
// theirs.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountedStore()
		ss := store.replica()
		ss.Begin(t.Context(), annsSession, []byte("x"))
		const many = maxSessionsPerPrincipal + 2*sessionsPerEviction
		for i := range many {
			time.Sleep(time.Second)
			ss.Begin(t.Context(), Session{Upstream: fmt.Sprint("u", i%3), Principal: "bob", ID: fmt.Sprint(i)}, []byte("x"))
		}
		kept, err := store.Records.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: sessionRecords, Limit: 2 * many})
		if err != nil || len(kept) > maxSessionsPerPrincipal+sessionsPerEviction+1 {
			t.Errorf("%d sessions are remembered, %v", len(kept), err)
		}
		wantOwned(t, ss, annsSession, true)
		wantOwned(t, ss, Session{Upstream: "u0", Principal: "bob", ID: "0"}, false)
		wantOwned(t, ss, Session{Upstream: fmt.Sprint("u", (many-1)%3), Principal: "bob", ID: fmt.Sprint(many - 1)}, true)
	})
}

// Expired refusals are removed, so that requests need not look for them.
func TestExpiredRefusalsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ss := newCountedStore().replica()
		ss.refusals.add(clientDigest{1}, refusal{until: time.Now().Add(challengeTTL)})
		if ss.refusals.get(clientDigest{2}); !ss.AnyRefused() {
			t.Error("a refusal was forgotten before its time")
		}
		time.Sleep(2 * challengeTTL)
		if ss.refusals.get(clientDigest{2}); ss.AnyRefused() {
			t.Error("a refusal is remembered after its time")
		}
	})
}

// A pausedStore calls before ahead of each write.
type pausedStore struct {
	*countedStore

	before func()
}

func (s pausedStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	s.before()
	return s.countedStore.PutRecord(ctx, r)
}

// A session that changes while it is stored for the first time keeps the change.
func TestSessionChangesWhileItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pausedStore{newCountedStore(), func() {}}
		ss := NewSessions(func() gatestore.Records { return store }, slog.New(slog.DiscardHandler))
		store.down = true
		ss.Begin(t.Context(), annsSession, []byte("old"))
		store.down = false
		time.Sleep(sessionRetry)
		once := true
		store.before = func() {
			if !once {
				return
			}
			once = false
			if err := ss.Change(t.Context(), annsSession, func([]byte) []byte { return []byte("new") }); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			wantOwned(t, ss, annsSession, true)
			if value, err := ss.Value(t.Context(), annsSession); string(value) != "new" || err != nil {
				t.Errorf("the session is %q, %v; want the change", value, err)
			}
		}
		if value, err := store.replica().Value(t.Context(), annsSession); string(value) != "new" || err != nil {
			t.Errorf("the store has %q, %v; want the change", value, err)
		}
	})
}
