package bridge

import (
	"context"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// post takes what a client posts to its process.
func (b *Bridge) post(r *http.Request, by httpclient.Peer) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	line := upstream.ReadLine(body, b.cfg.Server.Depth)
	if line.Err != nil {
		return nil, &wire.Problem{Type: wire.InvalidRequest, Cause: line.Err}
	}
	req := &request{http: r, by: by, packet: line.Packet, body: body}
	greets := !line.Packet.Batch && req.first().Kind == jsonrpc.Request && req.first().Method == methodInitialize
	switch id := r.Header.Get("Mcp-Session-Id"); {
	case req.isModern():
		return b.modern(req)
	case b.cfg.Shared && greets:
		return b.greetShared(req)
	case b.cfg.Shared:
		return b.shared(req)
	case greets:
		return b.begin(req)
	case id == "":
		return refused(http.StatusBadRequest, "the Mcp-Session-Id header is missing: begin with initialize"), nil
	default:
		return b.inSession(req, id)
	}
}

// modern serves a request that stands for itself.
func (b *Bridge) modern(r *request) (*http.Response, error) {
	n := newProcess{key: keyModern}
	if !b.cfg.Shared {
		n = newProcess{key: keyClient + r.by.Principal, principal: r.by.Principal, room: roomOf(r.by)}
	}
	p, err := b.start(r.http.Context(), n)
	if err != nil {
		return nil, err
	}
	return b.serve(p, r)
}

// shared serves a legacy client of the process that all share. A notification
// or an answer concerns the session of the client with the server, and it has none.
func (b *Bridge) shared(r *request) (*http.Response, error) {
	if !r.asks() {
		return accepted(), nil
	}
	p, err := b.start(r.http.Context(), newProcess{key: keyLegacy, initialize: ownGreeting})
	if err != nil {
		return nil, err
	}
	return b.serve(p, r)
}

// ownGreeting begins with a process that all legacy clients share. None of them can
// be asked anything by the server.
var ownGreeting = []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + wire.Version20251125 +
	`","capabilities":{},"clientInfo":{"name":"thoughtgate","version":"1"}}}`)

// greetShared answers a legacy client that begins, of a process that all share, with
// what the process has answered to the gate.
func (b *Bridge) greetShared(r *request) (*http.Response, error) {
	p, err := b.start(r.http.Context(), newProcess{key: keyLegacy, initialize: ownGreeting})
	if err != nil {
		return nil, err
	}
	defer b.leave(p)
	result, err := p.server.Greeted(r.http.Context())
	if err != nil {
		return nil, err
	}
	return answer(jsonrpc.AppendResult(nil, r.first().ID.Bytes, inVersion(result, r.first()))), nil
}

// get opens the stream on which the server of a session speaks unasked.
func (b *Bridge) get(r *http.Request, by httpclient.Peer, id string) (*http.Response, error) {
	p, err := b.session(r.Context(), by, id)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return noSession(), nil
	}
	mail := p.unasked.open(func() { b.leave(p) })
	context.AfterFunc(r.Context(), func() { _ = mail.Close() })
	return events(mail), nil
}

// RoundTrip implements [httpclient.Transport].
func (b *Bridge) RoundTrip(r *http.Request, by httpclient.Peer) (*http.Response, error) {
	switch id := r.Header.Get("Mcp-Session-Id"); {
	case r.Method == http.MethodPost:
		return b.post(r, by)
	case id == "" || b.cfg.Shared:
		return notAllowed(), nil
	case r.Method == http.MethodGet:
		return b.get(r, by, id)
	case r.Method == http.MethodDelete:
		return b.delete(r, by, id)
	default:
		return notAllowed(), nil
	}
}
