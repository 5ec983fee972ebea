package upstream

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
)

// refusals remember the clients that a server has refused: with 404, because their session has
// ended, or with 401 or 403. The next request of a client that was not informed is refused in the same
// way. Later requests are forwarded again, and the server refuses them itself; but no call is held
// in a session that has ended.
type refusals struct {
	nonEmpty atomic.Bool // lets most requests skip the lock
	mu       sync.Mutex
	byClient map[clientDigest]refusal

	nextSweep time.Time // when to remove expired entries next
}

// A clientDigest identifies a client as a server knows it: by its session, credentials and
// principal.
type clientDigest [sha256.Size]byte

type refusal struct {
	answer   approval.Refusal
	reported bool // the client has been informed
	until    time.Time
}

const (
	maxRefusals = 10_000
	// challengeTTL is how long a 401 or 403 is remembered.
	challengeTTL = time.Minute
)

// clientDigest returns a digest of the principal, session and credentials of the client. It returns
// false if there are none.
func (c *Caller) clientDigest() (d clientDigest, known bool) {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q %q\n", c.upstream.cfg.Name, c.credentials.Principal)
	known = c.credentials.Principal != ""
	for _, name := range slices.Sorted(maps.Keys(c.credentials.Header)) {
		if name != "Mcp-Protocol-Version" {
			known = true
			_, _ = fmt.Fprintf(hash, "%q %q\n", name, c.credentials.Header[name])
		}
	}
	return clientDigest(hash.Sum(nil)), known
}

// session returns the session of the client. Its ID is empty if the client has none.
func (c *Caller) session() Session {
	return Session{Upstream: c.upstream.cfg.Name, Principal: c.credentials.Principal, ID: c.credentials.Header.Get("Mcp-Session-Id")}
}

// NoteSessionGone notes that the upstream does not know the session, and that the client has been
// told.
func (c *Caller) NoteSessionGone(ctx context.Context) {
	c.noteRefusal(ctx, &approval.Refusal{Status: http.StatusNotFound})
	_ = c.Refusal() // mark it as reported
}

// noteRefusal notes that the upstream has refused the client, unless r is nil.
func (c *Caller) noteRefusal(ctx context.Context, r *approval.Refusal) {
	ss := c.upstream.cfg.Sessions
	if r == nil || ss == nil {
		return
	}
	life := challengeTTL
	if r.Status == http.StatusNotFound {
		life = sessionTTL
		if s := c.session(); s.Principal != "" {
			ss.End(ctx, s)
		}
	}
	if d, known := c.clientDigest(); known {
		ss.refusals.add(d, refusal{answer: *r, until: time.Now().Add(life)})
	}
}

// Refusal returns how to refuse the next request of the client, or nil. Each refusal is returned
// once.
func (c *Caller) Refusal() *approval.Refusal {
	ss := c.upstream.cfg.Sessions
	if !ss.AnyRefused() {
		return nil
	}
	d, _ := c.clientDigest()
	return ss.refusals.report(d)
}

// SessionGone reports whether the session of the client is known to have ended.
func (c *Caller) SessionGone() bool { return c.refusedWith(http.StatusNotFound) }

// refusedWith reports whether the server has refused the client with this status.
func (c *Caller) refusedWith(status int) bool {
	ss := c.upstream.cfg.Sessions
	if !ss.AnyRefused() {
		return false
	}
	d, _ := c.clientDigest()
	r := ss.refusals.get(d)
	return r != nil && r.Status == status
}

// NoteAccepted notes that the upstream accepts the credentials of the client, or that the client
// was told that it does not.
func (c *Caller) NoteAccepted() {
	if c.refusedWith(http.StatusUnauthorized) || c.refusedWith(http.StatusForbidden) {
		d, _ := c.clientDigest()
		c.upstream.cfg.Sessions.refusals.remove(d)
	}
}

// NoteSession notes that the upstream has begun a session for the client. Its id may be that of a
// session that has ended.
func (c *Caller) NoteSession(session string) {
	joined := *c
	joined.credentials.Header = c.credentials.Header.Clone()
	joined.credentials.Header.Set("Mcp-Session-Id", session)
	d, _ := joined.clientDigest()
	c.upstream.cfg.Sessions.refusals.remove(d)
}

// AnyRefused reports whether any client is refused.
func (ss *Sessions) AnyRefused() bool { return ss != nil && ss.refusals.nonEmpty.Load() }

func (rs *refusals) add(d clientDigest, r refusal) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.byClient == nil {
		rs.byClient = make(map[clientDigest]refusal)
	}
	rs.sweep(time.Now())
	for old := range rs.byClient {
		if len(rs.byClient) < maxRefusals {
			break
		}
		delete(rs.byClient, old)
	}
	rs.byClient[d] = r
	rs.nonEmpty.Store(true)
}

func (rs *refusals) get(d clientDigest) *approval.Refusal {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	rs.sweep(now)
	r, ok := rs.byClient[d]
	if !ok || now.After(r.until) {
		return nil
	}
	return &r.answer
}

// report returns the refusal of a client once, and nil after that.
func (rs *refusals) report(d clientDigest) *approval.Refusal {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, ok := rs.byClient[d]
	if !ok || r.reported || time.Now().After(r.until) {
		return nil
	}
	if r.answer.Status != http.StatusNotFound {
		delete(rs.byClient, d)
		rs.nonEmpty.Store(len(rs.byClient) > 0)
	} else {
		r.reported = true
		rs.byClient[d] = r
	}
	return &r.answer
}

// sweep removes the expired entries, once in challengeTTL at most: clients can be refused at any
// rate. The caller holds the lock.
func (rs *refusals) sweep(now time.Time) {
	if now.Before(rs.nextSweep) {
		return
	}
	rs.nextSweep = now.Add(challengeTTL)
	maps.DeleteFunc(rs.byClient, func(_ clientDigest, old refusal) bool { return now.After(old.until) })
	rs.nonEmpty.Store(len(rs.byClient) > 0)
}

func (rs *refusals) remove(d clientDigest) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.byClient, d)
	rs.nonEmpty.Store(len(rs.byClient) > 0)
}
