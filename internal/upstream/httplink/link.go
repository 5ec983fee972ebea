// Package httplink connects a client at a pipe to a server over Streamable HTTP. It keeps the
// session, listens to the server's notifications, and resumes streams that were interrupted. It
// does not know policy or approvals.
package httplink

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Config configures a [Link].
type Config struct {
	Client   *httpclient.Client
	Upstream upstream.Config        // for requests of the gate; New sets Server and AnswerLimit
	Token    func() (string, error) // returns the bearer token; nil if none is sent
	MaxLine  int                    // maximum bytes of a message of the server
	Depth    int                    // maximum nesting of its messages; 0 means the default
	Log      *slog.Logger
}

// A Link connects one client to a server over HTTP. It implements [upstream.Server].
type Link struct {
	cfg      Config
	upstream *upstream.Upstream
	receiver upstream.Receiver

	ctx        context.Context // canceled by Close
	cancel     context.CancelFunc
	running    sync.WaitGroup
	receiverMu sync.Mutex // held while the receiver is called

	renewMu sync.Mutex // held while a session is renewed
	mu      sync.Mutex
	session session
	pending map[string]*pending // by id
}

// A session is the client's session with the server, and how the client began it.
type session struct {
	id, version   string
	initialize    []byte // nil before initialize, and for a modern client
	isReady       bool   // the client has sent notifications/initialized
	stopListening context.CancelFunc
}

// A pending is an unanswered request that the client can cancel.
type pending struct {
	cancel   context.CancelFunc
	isModern bool
}

// New returns a link to the server of cfg.
func New(cfg Config) *Link {
	l := &Link{cfg: cfg, pending: make(map[string]*pending)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	cfg.Upstream.Server, cfg.Upstream.AnswerLimit = l, cfg.Client.AnswerLimit()
	l.upstream = upstream.New(cfg.Upstream)
	return l
}

// Upstream makes the requests of the gate itself.
func (l *Link) Upstream() *upstream.Upstream { return l.upstream }

// Credentials returns empty headers: [Link.Send] adds the session and the token.
func (l *Link) Credentials() http.Header { return make(http.Header) }

// Start sets the receiver of the server's messages to the client.
func (l *Link) Start(receiver upstream.Receiver) error {
	l.receiver = receiver
	return nil
}

// Done returns nil, a channel that is never closed: a server that is unreachable may be back for
// the next request.
func (l *Link) Done() <-chan struct{} { return nil }

// Err returns nil.
func (l *Link) Err() error { return nil }

// received passes a message to the receiver. It returns which of the requests with these ids it
// answers, and whether it asks the client something.
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
		_ = scan.Scan(line.Text) // the ids before the error count
		answered = scan.IDs()
	}
	l.receiverMu.Lock()
	defer l.receiverMu.Unlock()
	l.receiver.Received(line)
	return answered, upstream.AsksClient(line.Packet)
}

// unanswered tells the receiver that the server does not answer these requests.
func (l *Link) unanswered(ids [][]byte, err error) {
	l.receiverMu.Lock()
	defer l.receiverMu.Unlock()
	l.receiver.Unanswered(ids, upstream.ProblemOf(err))
}
