package bridge

import (
	"context"
	"errors"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// beginSession starts a process and sends it the client's initialize request.
func (b *Bridge) beginSession(r *request) (*http.Response, error) {
	ctx, id := r.http.Context(), newSessionID()
	p, err := b.start(ctx, processSpec{key: keySession + id, principal: r.by.Principal, share: shareOf(r.by)})
	if err != nil {
		return nil, err
	}
	c, err := p.ask(r)
	if err != nil {
		b.release(p)
		p.end()
		return nil, err
	}
	c.release = func() { b.release(p) }
	resp, begun, err := c.initializeResponse()
	if !begun {
		p.end()
		return resp, err
	}
	resp.Header.Set("Mcp-Session-Id", id)
	b.cfg.Sessions.Begin(ctx, b.session(r.by.Principal, id), r.body)
	return resp, nil
}

// initializeResponse waits for the answer to initialize, and reports whether a session begins with
// it.
func (c *pendingAnswer) initializeResponse() (_ *http.Response, begun bool, err error) {
	defer c.close()
	text, err := c.final()
	if err != nil {
		return nil, false, err
	}
	m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
	return c.memory.response(text), err == nil && m.Result.Present(), nil
}

// inSession serves a POST in a session.
func (b *Bridge) inSession(r *request, id string) (*http.Response, error) {
	p, err := b.sessionProcess(r.http.Context(), r.by, id)
	if err != nil {
		return nil, err
	}
	return b.serve(p, r)
}

// errNoSession reports a session that the principal does not have.
var errNoSession = errors.New("there is no such session: begin with initialize")

// sessionProcess returns the process of a session, and restarts it if necessary. The error may be
// errNoSession. The caller must release the process.
func (b *Bridge) sessionProcess(ctx context.Context, by httpclient.Peer, id string) (*process, error) {
	p := b.find(keySession + id)
	if p == nil {
		initialize, err := b.cfg.Sessions.Value(ctx, b.session(by.Principal, id))
		if err != nil {
			return nil, err
		}
		if initialize == nil {
			return nil, errNoSession
		}
		p, err = b.start(ctx, processSpec{key: keySession + id, principal: by.Principal, share: shareOf(by), initialize: initialize})
		if err != nil {
			return nil, err
		}
	}
	if p.principal != by.Principal {
		b.release(p)
		return nil, errNoSession // it belongs to another principal
	}
	_, _ = b.cfg.Sessions.Owned(ctx, b.session(by.Principal, id)) // extends the record; the process decides whether the session exists
	return p, nil
}

// endSession ends a session.
func (b *Bridge) endSession(r *http.Request, by httpclient.Peer, id string) (*http.Response, error) {
	p, err := b.sessionProcess(r.Context(), by, id)
	if err != nil {
		return nil, err
	}
	defer b.release(p)
	b.cfg.Sessions.End(r.Context(), b.session(p.principal, id))
	b.retire(p)
	return newResponse(http.StatusOK, "", http.NoBody), nil
}

// session returns the session of a principal with an id.
func (b *Bridge) session(principal, id string) upstream.Session {
	return upstream.Session{Upstream: b.cfg.Server.Name, Principal: principal, ID: id}
}
