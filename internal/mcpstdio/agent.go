// Package mcpstdio serves MCP over standard input and output to one agent. An [Agent] reads the
// client's messages in order, asks package conversation for a plan for each, and sends the
// answers. The [Link] is the connection to the server: a process, or a server over HTTP.
package mcpstdio

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/human"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Link is the connection to the server.
type Link interface {
	// Upstream makes the requests of the gate itself.
	Upstream() *upstream.Upstream
	// Credentials returns the headers for requests on behalf of the client, or nil if the
	// transport has none.
	Credentials() http.Header
	// Forward sends a message of the client unchanged. The error is a [*mcp.Problem].
	Forward(ctx context.Context, f upstream.Forwarded) error
}

// Limits limits the resources that the client can use.
type Limits struct {
	Line     int            // bytes of one message
	Requests int            // concurrent unanswered requests
	Parse    jsonrpc.Limits // of one message
	Silence  Silence        // of the server; zero if the link has its own limits
}

// Config configures an [Agent].
type Config struct {
	In        io.Reader
	Out       io.Writer
	Link      Link
	Principal policy.Principal // of the client
	Server    string           // distinguishes servers of the same name
	Catalog   *catalog.Catalog
	Gateway   *conversation.Gateway
	Limits    Limits
	Log       *slog.Logger
	Metrics   *metrics.Metrics // may be nil
	Tracing   *tracing.Tracing // may be nil
}

// An Agent serves the client at the other end of a pipe. It implements [upstream.Receiver].
type Agent struct {
	cfg    Config
	client client
	out    output

	left       context.Context // ends when the client closes its end of the pipe
	leave      context.CancelFunc
	inputEnded chan struct{}             // closed after the last message of the client was read
	running    admission.InFlight        // the answers of the gate, and streams
	pending    requestTable[*forwarding] // requests forwarded to the server
	own        requestTable[*reply]      // requests that the gate answers

	readClock readClock // to the server

	filter *conversation.StreamFilter // filters messages that the server sends on its own initiative
}

// New returns the agent for a pipe.
func New(cfg Config) *Agent {
	a := &Agent{cfg: cfg, inputEnded: make(chan struct{})}
	a.left, a.leave = context.WithCancel(context.Background())
	a.out = output{w: cfg.Out, lost: a.leave}
	a.client = client{link: cfg.Link, gate: cfg.Catalog, from: catalog.Client{
		Upstream: cfg.Link.Upstream().Name(), Server: cfg.Server, Principal: cfg.Principal,
		Key: catalog.ClientKey(cfg.Principal, "stdio-"+rand.Text(), ""),
	}}
	a.filter = a.beginStream().request.Filter()
	return a
}

// beginStream returns the reply for messages that the server sends on its own initiative.
func (a *Agent) beginStream() *reply {
	r := a.newReply(a.left)
	r.request = a.cfg.Gateway.BeginStream(&a.client, r, false)
	return r
}

// Owner returns the owner of the client's tasks.
func (a *Agent) Owner() string {
	owner, _ := a.client.from.Owner()
	return owner
}

// InputEnded returns a channel that is closed when the client has closed its end of the pipe.
// Earlier messages may still be in progress.
func (a *Agent) InputEnded() <-chan struct{} { return a.inputEnded }

// Serve serves the client until it closes either end of the pipe and the server has accepted
// its last message, or until ctx ends. If the server does not read, Serve waits until the
// server is closed.
func (a *Agent) Serve(ctx context.Context) {
	// Requests that were read are answered even if ctx ends.
	answering := context.WithoutCancel(ctx)
	messages := make(chan *exchange, queued)
	go func() { // ends with the pipe, possibly long after ctx
		defer close(messages)
		a.read(answering, messages)
		close(a.inputEnded)
	}()
	for {
		select {
		case <-ctx.Done():
			a.leave()
			return
		case <-a.left.Done(): // the client does not read any more
			return
		case x, more := <-messages:
			if !more {
				a.leave()
				return
			}
			x.safely(x.serve)
		}
	}
}

// queued is the number of messages that may wait for planning. Answers of the client to the
// server bypass this queue, because planning may require the server's answer, which may require
// the client's. While the queue is full, the gate cannot notice that the client has left.
const queued = 256

// read reads messages until the client closes its end of the pipe.
func (a *Agent) read(ctx context.Context, messages chan<- *exchange) {
	lines := jsonrpc.NewLineReader(a.cfg.In, a.cfg.Limits.Line)
	for {
		text, err := lines.Next()
		x := a.newExchange(ctx)
		switch {
		case errors.Is(err, jsonrpc.ErrTooLarge):
			x.safely(func() error {
				return x.reply.Refuse(&mcp.Problem{Type: mcp.BodyTooLarge, Detail: "the message is larger than " + human.Size(int64(a.cfg.Limits.Line)) + " (limits.max_request_body)"})
			})
		case err != nil:
			return
		case !x.read(text):
		case x.isResponse():
			x.safely(x.serve)
		default:
			select {
			case messages <- x:
			case <-a.left.Done():
				return
			}
		}
	}
}

// Finish waits until all requests of the client are answered, or ctx ends. The client has left,
// so no request waits for a decision.
func (a *Agent) Finish(ctx context.Context) {
	if a.running.Wait(ctx) == nil {
		_ = a.pending.open.Wait(ctx) // returns when ctx ends
	}
}

// Close ends everything that waits for the client.
func (a *Agent) Close() { a.leave() }

// A client is the sender of all messages of a pipe. It implements [conversation.Client].
type client struct {
	link    Link
	gate    *catalog.Catalog
	from    catalog.Client
	version atomic.Pointer[string] // agreed protocol version; nil before initialize
}

// agreed returns the agreed protocol version, or "".
func (c *client) agreed() string {
	if version := c.version.Load(); version != nil {
		return *version
	}
	return ""
}

// Identity implements [conversation.Client].
func (c *client) Identity() catalog.Client { return c.from }

// JoiningIdentity implements [conversation.Client].
func (c *client) JoiningIdentity() catalog.Client { return c.from }

// Caller implements [conversation.Client].
func (c *client) Caller() *upstream.Caller {
	return c.link.Upstream().Caller(c.gate, c.from, c.link.Credentials())
}

// Network implements [conversation.Client].
func (c *client) Network() string { return "stdio" }

// Local implements [conversation.Origin]: the agent has started the gate.
func (c *client) Local() bool { return true }

// Transport implements [conversation.Client].
func (c *client) Transport() conversation.Transport {
	return conversation.Transport{Version: c.agreed(), Pipe: true}
}

// Authentication implements [conversation.Client].
func (c *client) Authentication() conversation.Authentication { return recognition{} }

// A recognition never changes, because a pipe has one client.
type recognition struct{}

// Valid implements [conversation.Authentication].
func (recognition) Valid() bool { return true }

// Changed implements [conversation.Authentication].
func (recognition) Changed() <-chan struct{} { return nil }

// An output writes messages to the client, one at a time. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	w    io.Writer
	gone bool
	lost func() // called when the client stops reading
}

// send writes a message as one line.
func (o *output) send(message []byte) error { return o.sendNoted(message, func() {}) }

// sendNoted is send that calls note before the client can have read the whole message.
func (o *output) sendNoted(message []byte, note func()) error {
	line := jsonrpc.AppendLine(make([]byte, 0, len(message)+1), message)
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := line
	if len(line) > upstream.PieceSize { // a shorter line is written in one piece
		rest = line[len(line)-1:]
		if err := o.write(line[:len(line)-1]); err != nil {
			return err
		}
	}
	if o.gone {
		return conversation.ErrGone
	}
	note()
	return o.write(rest)
}

func (o *output) write(p []byte) error {
	if o.gone {
		return conversation.ErrGone
	}
	if _, err := o.w.Write(p); err != nil {
		o.gone = true
		o.lost()
		return conversation.ErrGone
	}
	return nil
}
