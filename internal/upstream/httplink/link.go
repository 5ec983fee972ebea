// Package httplink is the way from a client at the other end of a pipe to a server
// over Streamable HTTP: it keeps the session, listens to what the server says unasked,
// and finds the rest of a stream that broke off. It knows neither policy nor approvals.
package httplink

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodListen      = "subscriptions/listen"
)

// Config is what a [Link] is made of.
type Config struct {
	Client  *httpclient.Client
	Asks    upstream.Config        // of what the gate itself asks; Server and Room are set by New
	Token   func() (string, error) // returns what is sent as a bearer token; nil if nothing is
	MaxLine int                    // bytes of one message of the server
	Depth   int                    // how deep its messages may nest; 0 means the default
	Log     *slog.Logger
}

// A Link reaches a server over HTTP for one client. It implements [upstream.Server].
type Link struct {
	cfg      Config
	asks     *upstream.Upstream
	receiver upstream.Receiver

	life    context.Context //nolint:containedctx // ends with Close, and belongs to no request
	end     context.CancelFunc
	running sync.WaitGroup
	saying  sync.Mutex // held by the one who tells the receiver something

	greeting sync.Mutex // held by the one who begins a session again
	mu       sync.Mutex
	session  session
	pending  map[string]*pending // requests that the server has not answered
}

// A session is what the server knows the client by, and how the client began.
type session struct {
	id, version string
	initialize  []byte // nil if the client has not begun, or is modern
	isReady     bool   // the client has said that it is
	listens     context.CancelFunc
}

// A pending is a request that the server has not answered.
type pending struct {
	cancel   context.CancelFunc
	isModern bool
}

// New returns a link to the server of cfg.
func New(cfg Config) *Link {
	l := &Link{cfg: cfg, pending: make(map[string]*pending)}
	l.life, l.end = context.WithCancel(context.Background())
	cfg.Asks.Server, cfg.Asks.Room = l, cfg.Client.Room()
	l.asks = upstream.New(cfg.Asks)
	return l
}

// Upstream returns what the gate itself asks the server with.
func (l *Link) Upstream() *upstream.Upstream { return l.asks }

// Credentials returns headers without anything in them: [Link.Send] adds the session
// and the token as they are when something is sent.
func (l *Link) Credentials() http.Header { return make(http.Header) }

// Start has what the server says to the client go to receiver.
func (l *Link) Start(receiver upstream.Receiver) error {
	l.receiver = receiver
	return nil
}

// Over returns a channel that is never closed: a server that cannot be reached may be
// there again for the next request.
func (l *Link) Over() <-chan struct{} { return nil }

// Err returns nil.
func (l *Link) Err() error { return nil }

// Close ends the session and everything that goes on.
func (l *Link) Close() {
	l.endSession()
	l.end()
	l.running.Wait()
	l.cfg.Client.Close()
}

// Forward sends what the client said, as it is. The answer to a request arrives later.
// All else has been taken by the server when Forward returns, so that the order of
// what the client says is kept. The error is a [*wire.Problem].
func (l *Link) Forward(ctx context.Context, f upstream.Forwarded) error {
	if l.cancels(f) || !f.Expect() {
		return nil
	}
	m := &f.Packet.Messages[0]
	var ids [][]byte
	for i := range f.Packet.Messages {
		if f.Packet.Messages[i].Kind == jsonrpc.Request {
			ids = append(ids, bytes.Clone(f.Packet.Messages[i].ID.Bytes))
		}
	}
	r := upstream.Request{Message: m, Body: f.Body, As: f.As, Forwarded: true, Stream: m.Method == methodListen}
	if len(ids) == 0 {
		return l.notify(ctx, r)
	}
	l.begins(f)
	x := &exchange{l: l, request: r, ids: ids}
	ctx, x.cancel = context.WithCancel(l.life) //nolint:contextcheck // the answer comes after Forward has returned
	l.expect(x, wire.EraOf(m) == wire.Modern)
	l.running.Go(func() { x.run(ctx) })
	return nil
}

// begins notes how the client begins, if it does.
func (l *Link) begins(f upstream.Forwarded) {
	if f.Packet.Batch || f.Packet.Messages[0].Method != methodInitialize {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session.listens != nil {
		l.session.listens()
	}
	l.session = session{initialize: bytes.Clone(f.Body)}
}

// cancels ends the request that f cancels if its client is modern: over HTTP, modern
// clients cancel a request by closing its stream.
func (l *Link) cancels(f upstream.Forwarded) bool {
	m := &f.Packet.Messages[0]
	if f.Packet.Batch || m.Method != methodCancelled {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pending[idKey(m.Params.Member("requestId").Bytes)]
	if p == nil || !p.isModern {
		return false
	}
	p.cancel()
	return true
}

// idKey returns what tells an id from others; see [jsonrpc.SameID].
func idKey(id []byte) string {
	if text, ok := (jsonrpc.Value{Bytes: id}).Text(); ok {
		return `"` + text
	}
	return string(id)
}

func (l *Link) expect(x *exchange, isModern bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range x.ids {
		l.pending[idKey(id)] = &pending{cancel: x.cancel, isModern: isModern}
	}
}

func (l *Link) forget(ids [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.pending, idKey(id))
	}
}

// notify sends what needs no answer.
func (l *Link) notify(ctx context.Context, r upstream.Request) error {
	resp, err := l.Send(ctx, r)
	if err != nil {
		return problemOf(err)
	}
	_ = resp.Body.Close()
	if resp.Status >= http.StatusMultipleChoices {
		return refusal(resp.Status)
	}
	if r.Message.Method == methodInitialized {
		l.ready() //nolint:contextcheck // it listens for as long as the session lasts
	}
	return nil
}

// received gives the receiver what the server said, and returns which of the given
// requests it answers.
func (l *Link) received(text []byte, ids [][]byte) (answered [][]byte) {
	line := upstream.ReadLine(bytes.TrimSpace(text), l.cfg.Depth)
	for i := range line.Packet.Messages {
		m := &line.Packet.Messages[i]
		if m.Kind == jsonrpc.Response && slices.ContainsFunc(ids, func(id []byte) bool { return jsonrpc.SameID(id, m.ID.Bytes) }) {
			answered = append(answered, m.ID.Bytes)
		}
	}
	if line.Err != nil {
		var scan jsonrpc.AnswerScanner
		_ = scan.Scan(line.Text) // what it has found by then counts
		answered = scan.IDs()
	}
	l.saying.Lock()
	defer l.saying.Unlock()
	l.receiver.Received(line)
	return answered
}

// unanswered tells the receiver that the server does not answer.
func (l *Link) unanswered(ids [][]byte, err error) {
	l.saying.Lock()
	defer l.saying.Unlock()
	l.receiver.Unanswered(ids, problemOf(err))
}

// problemOf returns what an error means to the client.
func problemOf(err error) *wire.Problem {
	if known, ok := errors.AsType[*wire.Problem](err); ok {
		return known
	}
	return &wire.Problem{Type: wire.UpstreamInvalid, Cause: err}
}
