package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"sort"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// sessionLife is how long a session is remembered that nobody uses. Its process may
// have ended long before, or the gate may have been started again.
const sessionLife = 24 * time.Hour

// begin begins a session: it starts a process and gives it the client's initialize.
func (b *Bridge) begin(r *request) (*http.Response, error) {
	ctx, id := r.http.Context(), newSessionID()
	p, err := b.start(ctx, newProcess{key: keySession + id, principal: r.by.Principal, room: roomOf(r.by)})
	if err != nil {
		return nil, err
	}
	c, err := p.converse(r)
	if err != nil {
		b.leave(p)
		p.end()
		return nil, err
	}
	c.leave = func() { b.leave(p) }
	resp, begun, err := c.greeted()
	if !begun {
		p.end()
		return resp, err
	}
	resp.Header.Set("Mcp-Session-Id", id)
	b.keep(ctx, p, id, r.body)
	return resp, nil
}

// greeted waits for the answer to initialize, and reports whether a session begins
// with it.
func (c *pendingAnswer) greeted() (_ *http.Response, begun bool, err error) {
	defer c.close()
	text, err := c.final()
	if err != nil {
		return nil, false, err
	}
	m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
	return c.memory.whole(text), err == nil && m.Result.Present(), nil
}

// inSession serves what the client of a session posts.
func (b *Bridge) inSession(r *request, id string) (*http.Response, error) {
	p, err := b.session(r.http.Context(), r.by, id)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return noSession(), nil
	}
	b.renew(r.http.Context(), p, id)
	return b.serve(p, r)
}

// session returns the process of a session, which may have to be started again. It
// returns nil if the client has no such session. The caller must leave it.
func (b *Bridge) session(ctx context.Context, by httpclient.Peer, id string) (*process, error) {
	p := b.find(keySession + id)
	if p == nil {
		initialize, err := b.remembered(ctx, by.Principal, id)
		if err != nil || initialize == nil {
			return nil, err
		}
		p, err = b.start(ctx, newProcess{key: keySession + id, principal: by.Principal, room: roomOf(by), initialize: initialize})
		if err != nil {
			return nil, err
		}
	}
	if p.principal != by.Principal {
		b.leave(p)
		return nil, nil //nolint:nilnil // there is no such session for this client
	}
	return p, nil
}

// delete ends a session.
func (b *Bridge) delete(r *http.Request, by httpclient.Peer, id string) (*http.Response, error) {
	p, err := b.session(r.Context(), by, id)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return noSession(), nil
	}
	defer b.leave(p)
	b.forget(r.Context(), p.principal, id)
	b.mu.Lock()
	if b.processes[p.key] == p {
		delete(b.processes, p.key)
	}
	b.mu.Unlock()
	p.end()
	return respond(http.StatusOK, "", http.NoBody), nil
}

// forget forgets a session.
func (b *Bridge) forget(ctx context.Context, principal, id string) {
	if err := b.cfg.Records().DeleteRecord(ctx, b.recordName(principal, id)); err != nil {
		b.cfg.Log.WarnContext(ctx, "the session is remembered until it expires", "upstream", b.cfg.Server.Name, "err", err)
	}
}

// recordName returns the name of what is remembered of a session of a principal. Nobody
// who reads the store can use the session.
func (b *Bridge) recordName(principal, id string) string {
	sum := sha256.Sum256([]byte(id))
	return b.recordsOf(principal) + hex.EncodeToString(sum[:])
}

// recordsOf returns how the names of all sessions of a principal begin.
func (b *Bridge) recordsOf(principal string) string {
	sum := sha256.Sum256([]byte(b.cfg.Server.Name + "\x00" + principal))
	return "stdio/" + hex.EncodeToString(sum[:16]) + "/"
}

// Sessions of one principal that are remembered, and after how many new ones it is
// looked whether there are more.
const (
	maxSessions    = 1000
	sessionsAtOnce = 100
)

// tidy forgets the sessions of a principal that expire first, if there are too many. A
// client that only begins sessions cannot fill the store.
func (b *Bridge) tidy(ctx context.Context, principal string) {
	if b.kept.Add(1)%sessionsAtOnce != 0 {
		return
	}
	found, err := b.cfg.Records().ListRecords(ctx, task.RecordQuery{Prefix: b.recordsOf(principal), Limit: maxSessions + 10*sessionsAtOnce})
	if err != nil || len(found) <= maxSessions {
		return
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Expires.Before(found[j].Expires) }) // slices.SortFunc would be compiled for this large type alone
	for _, r := range found[:len(found)-maxSessions] {
		_ = b.cfg.Records().DeleteRecord(ctx, r.Name) // it is tried again
	}
}

// keep remembers a session, so that its client finds it again after its process has
// ended. A session that cannot be kept ends with its process.
func (b *Bridge) keep(ctx context.Context, p *process, id string, initialize []byte) {
	if len(initialize) > task.MaxRecordValue {
		return
	}
	now := time.Now()
	err := b.cfg.Records().PutRecord(ctx, task.Record{Name: b.recordName(p.principal, id), Version: 1, Value: initialize, Expires: now.Add(sessionLife)})
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "the session cannot be kept: it ends with its server process", "upstream", b.cfg.Server.Name, "err", err)
		return
	}
	p.kept.Store(&now)
	b.tidy(ctx, p.principal)
}

// renew has a session in use remembered for longer.
func (b *Bridge) renew(ctx context.Context, p *process, id string) {
	if kept := p.kept.Load(); kept != nil && time.Since(*kept) < sessionLife/4 {
		return
	}
	now := time.Now()
	found, err := b.cfg.Records().GetRecord(ctx, b.recordName(p.principal, id))
	if err != nil { // it ends with its process
		p.kept.Store(&now)
		return
	}
	found.Version++
	found.Expires = now.Add(sessionLife)
	if err := b.cfg.Records().PutRecord(ctx, found); err == nil || errors.Is(err, task.ErrConcurrentModification) {
		p.kept.Store(&now)
	}
}

// remembered returns how the client of a session began. It returns nil if the principal
// has no such session.
func (b *Bridge) remembered(ctx context.Context, principal, id string) (initialize []byte, err error) {
	found, err := b.cfg.Records().GetRecord(ctx, b.recordName(principal, id))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, &wire.Problem{Type: wire.StoreUnavailable, Cause: err}
	case time.Now().After(found.Expires):
		return nil, nil //nolint:nilnil // there was one
	}
	return found.Value, nil
}
