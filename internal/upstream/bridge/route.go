package bridge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// post sends a client's POST to its process.
func (b *Bridge) post(r *http.Request, by httpclient.Peer) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	line := upstream.ReadLine(body, b.cfg.Server.Depth)
	if line.Err != nil {
		return nil, &mcp.Problem{Type: mcp.InvalidRequest, Cause: line.Err}
	}
	req := &request{http: r, by: by, packet: line.Packet, body: body}
	greets := !line.Packet.Batch && req.first().Kind == jsonrpc.Request && req.first().Method == mcpname.Initialize
	switch id := r.Header.Get("Mcp-Session-Id"); {
	case req.isModern():
		return b.modern(req)
	case b.cfg.Shared && greets:
		return b.initializeShared(req)
	case b.cfg.Shared:
		return b.shared(req)
	case greets:
		return b.beginSession(req)
	case id == "":
		return textResponse(http.StatusBadRequest, "the Mcp-Session-Id header is missing: begin with initialize"), nil
	default:
		return b.inSession(req, id)
	}
}

// modern serves a modern request.
func (b *Bridge) modern(r *request) (*http.Response, error) {
	n := processSpec{key: keyModern}
	if !b.cfg.Shared {
		n = processSpec{key: keyClient + r.by.Principal, principal: r.by.Principal, share: shareOf(r.by)}
	}
	p, err := b.start(r.http.Context(), n)
	if err != nil {
		return nil, err
	}
	return b.serve(p, r)
}

// shared serves a legacy client with the shared process. It drops notifications and answers: they
// would concern the session of all clients.
func (b *Bridge) shared(r *request) (*http.Response, error) {
	if !r.asks() {
		return accepted(), nil
	}
	//mutate:drop TestSharedProcessGetsOnlyRequests a client sends a shared process an answer in a batch
	r.packet.Messages = slices.DeleteFunc(r.packet.Messages, func(m jsonrpc.Message) bool { return m.Kind != jsonrpc.Request })
	p, err := b.start(r.http.Context(), processSpec{key: keyLegacy, initialize: gateInitialize})
	if err != nil {
		return nil, err
	}
	return b.serve(p, r)
}

// gateInitialize is the initialize request for the process that all legacy clients share. It
// declares no capabilities, so the server cannot send requests to the clients.
var gateInitialize = []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + mcp.Version20251125 +
	`","capabilities":{},"clientInfo":{"name":"thoughtgate","version":"1"}}}`)

// initializeShared answers a client's initialize with the answer of the shared process to
// gateInitialize.
func (b *Bridge) initializeShared(r *request) (*http.Response, error) {
	p, err := b.start(r.http.Context(), processSpec{key: keyLegacy, initialize: gateInitialize})
	if err != nil {
		return nil, err
	}
	defer b.release(p)
	result, err := p.server.InitializeResult(r.http.Context())
	if err != nil {
		return nil, err
	}
	return answer(jsonrpc.AppendResult(nil, r.first().ID.Bytes, withVersion(result, r.first()))), nil
}

// listen opens the client's stream of a session.
func (b *Bridge) listen(r *http.Request, by httpclient.Peer, id string) (*http.Response, error) {
	p, err := b.sessionProcess(r.Context(), by, id)
	if err != nil {
		return nil, err
	}
	stream := p.listen()
	end := sync.OnceFunc(func() {
		p.stopListening(stream)
		b.release(p)
	})
	context.AfterFunc(r.Context(), end)
	return events(body{stream, closeFunc(end)}), nil
}

// RoundTrip implements [httpclient.Transport].
func (b *Bridge) RoundTrip(r *http.Request, by httpclient.Peer) (*http.Response, error) {
	resp, err := b.route(r, by)
	if errors.Is(err, errNoSession) {
		return textResponse(http.StatusNotFound, err.Error()), nil
	}
	return resp, err
}

func (b *Bridge) route(r *http.Request, by httpclient.Peer) (*http.Response, error) {
	switch id := r.Header.Get("Mcp-Session-Id"); {
	case r.Method == http.MethodPost:
		return b.post(r, by)
	case id == "" || b.cfg.Shared:
		return notAllowed(), nil
	case r.Method == http.MethodGet:
		return b.listen(r, by, id)
	case r.Method == http.MethodDelete:
		return b.endSession(r, by, id)
	default:
		return notAllowed(), nil
	}
}
