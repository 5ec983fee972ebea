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
	saying  sync.Mutex // held while the receiver is called

	greeting sync.Mutex // held by the one who begins a session again
	mu       sync.Mutex
	session  session
	pending  map[string]*pending // by id
}

// A session is what the server knows the client by, and how the client began.
type session struct {
	id, version string
	initialize  []byte // nil if the client has not begun, or is modern
	isReady     bool   // the client has said that it is
	listens     context.CancelFunc
}

// A pending is a request that the server has not answered and the client can cancel.
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

// received gives the receiver what the server said, and returns which of the given
// requests it answers, and whether it asks the client something.
func (l *Link) received(text []byte, ids [][]byte) (answered [][]byte, asks bool) {
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
	return answered, upstream.Asks(line.Packet)
}

// unanswered informs the receiver that the server does not answer.
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
