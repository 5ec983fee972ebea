package bridge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
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
func (c *conversation) greeted() (_ *http.Response, begun bool, err error) {
	defer c.close()
	text, err := c.final()
	if err != nil {
		return nil, false, err
	}
	m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
	return answer(text), err == nil && m.Result.Present(), nil
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
		principal, initialize, err := b.remembered(ctx, id)
		if err != nil || initialize == nil || principal != by.Principal {
			return nil, err
		}
		p, err = b.start(ctx, newProcess{key: keySession + id, principal: principal, room: roomOf(by), initialize: initialize})
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
	b.forget(r.Context(), id)
	b.mu.Lock()
	if b.processes[p.key] == p {
		delete(b.processes, p.key)
	}
	b.mu.Unlock()
	p.end()
	return respond(http.StatusOK, "", http.NoBody), nil
}

// forget forgets a session.
func (b *Bridge) forget(ctx context.Context, id string) {
	if err := b.cfg.Records().DeleteRecord(ctx, b.recordName(id)); err != nil {
		b.cfg.Log.WarnContext(ctx, "the session is remembered until it expires", "upstream", b.cfg.Server.Name, "err", err)
	}
}

// recordName returns the name of what is remembered of a session. Nobody who reads
// the store can use the session.
func (b *Bridge) recordName(id string) string {
	sum := sha256.Sum256([]byte(b.cfg.Server.Name + "\x00" + id))
	return "stdio/" + hex.EncodeToString(sum[:])
}

// keep remembers a session, so that its client finds it again after its process has
// ended. A session that cannot be kept ends with its process.
func (b *Bridge) keep(ctx context.Context, p *process, id string, initialize []byte) {
	value := append(strconv.AppendQuote(nil, p.principal), '\n')
	value = append(value, initialize...)
	if len(value) > task.MaxRecordValue {
		return
	}
	now := time.Now()
	err := b.cfg.Records().PutRecord(ctx, task.Record{Name: b.recordName(id), Version: 1, Value: value, Expires: now.Add(sessionLife)})
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "the session cannot be kept: it ends with its server process", "upstream", b.cfg.Server.Name, "err", err)
		return
	}
	p.kept.Store(&now)
}

// renew has a session in use remembered for longer.
func (b *Bridge) renew(ctx context.Context, p *process, id string) {
	if kept := p.kept.Load(); kept != nil && time.Since(*kept) < sessionLife/4 {
		return
	}
	now := time.Now()
	found, err := b.cfg.Records().GetRecord(ctx, b.recordName(id))
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

// remembered returns whose session it is, and how its client began. Initialize is nil
// if there is no such session.
func (b *Bridge) remembered(ctx context.Context, id string) (principal string, initialize []byte, err error) {
	found, err := b.cfg.Records().GetRecord(ctx, b.recordName(id))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return "", nil, nil
	case err != nil:
		return "", nil, &wire.Problem{Type: wire.StoreUnavailable, Cause: err}
	case time.Now().After(found.Expires):
		return "", nil, nil
	}
	quoted, rest, _ := bytes.Cut(found.Value, []byte("\n"))
	if principal, err = strconv.Unquote(string(quoted)); err != nil {
		return "", nil, err
	}
	return principal, rest, nil
}
