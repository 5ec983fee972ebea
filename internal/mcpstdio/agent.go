// Package mcpstdio is MCP over standard input and output towards an agent: an
// [Agent] reads the messages of the one client at the other end of the pipe, has
// package conversation plan what becomes of them, and passes on what the server
// says. It knows neither tasks nor approvals, nor how the server is reached.
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

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Link is the way to the server.
type Link interface {
	// Upstream returns what the gate itself asks the server with.
	Upstream() *upstream.Upstream
	// Credentials returns with which headers the gate makes requests in the name
	// of the client; nil if the transport has none.
	Credentials() http.Header
	// Forward sends what the client said, as it is. The error is a [*wire.Problem].
	Forward(ctx context.Context, f upstream.Forwarded) error
}

// Limits bounds what the client can make the gate do.
type Limits struct {
	Line     int            // bytes of one message
	Requests int            // requests at a time that have no answer yet
	Parse    jsonrpc.Limits // of one message
}

// Config is what an [Agent] is made of.
type Config struct {
	In        io.Reader
	Out       io.Writer
	Link      Link
	Principal policy.Principal // who the client is
	Server    string           // distinguishes the server from others with its name, if there may be any
	Gate      *gate.Gate
	Hub       *conversation.Hub
	Limits    Limits
	Log       *slog.Logger
	Metrics   *metrics.Metrics // nil counts nothing
	Tracing   *tracing.Tracing // nil traces nothing
}

// An Agent is the client at the other end of a pipe. It implements
// [upstream.Receiver].
type Agent struct {
	cfg     Config
	sender  gate.Client
	out     output
	version atomic.Pointer[string] // that client and server agreed on; nil before they did

	left    context.Context //nolint:containedctx // ends when the client closes its end of the pipe, and belongs to no request
	leave   context.CancelFunc
	ended   chan struct{} // closed when the client has said the last of what it says
	running tally         // answers of the gate's own, and streams
	pending requests      // that the server is to answer
	own     requests      // that the gate is answering

	filter *conversation.StreamFilter // of what the server says unasked
}

// New returns the agent at the other end of cfg's pipe.
func New(cfg Config) *Agent {
	a := &Agent{cfg: cfg, ended: make(chan struct{})}
	a.left, a.leave = context.WithCancel(context.Background())
	a.out = output{w: cfg.Out, lost: a.leave}
	a.sender = gate.Client{
		Upstream: cfg.Link.Upstream().Name(), Server: cfg.Server, Principal: cfg.Principal,
		Key: gate.ClientKey(cfg.Principal, "stdio-"+rand.Text(), ""),
	}
	x := a.newExchange(a.left)
	x.request = cfg.Hub.BeginStream(x, x, false)
	a.filter = x.request.Filter()
	return a
}

// Owner returns whose tasks those of the client are.
func (a *Agent) Owner() string {
	owner, _ := a.sender.Owner()
	return owner
}

// InputEnded returns a channel that is closed when the client has closed its end of the
// pipe. What it said before may still have to be served.
func (a *Agent) InputEnded() <-chan struct{} { return a.ended }

// Serve takes what the client says until it closes either end of the pipe, and the
// server has taken the last of it, or until ctx ends. It waits for a server that reads
// nothing until the server is closed.
func (a *Agent) Serve(ctx context.Context) {
	// Requests that have been read are answered, even if ctx ends before.
	answering := context.WithoutCancel(ctx)
	messages := make(chan *exchange, queued)
	go func() { // ends with the pipe, which may be long after ctx has ended
		defer close(messages)
		a.read(answering, messages)
		close(a.ended)
	}()
	for {
		select {
		case <-ctx.Done():
			a.leave()
			return
		case <-a.left.Done(): // it reads nothing more
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

// queued is how many messages may be read before the one before them has been
// planned. Answers of the client to the server do not wait in this queue: the
// server may need one before it says what the gate asks it in order to plan. While
// the queue is full, the gate cannot see that the client has left.
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
				return x.Refuse(&wire.Problem{Type: wire.BodyTooLarge, Detail: "the message is too large (limits.max_request_body)"})
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

// Finish waits until everything that the client asked has been answered, or ctx
// ends. The client has left by then, so that nobody waits for decisions any more.
func (a *Agent) Finish(ctx context.Context) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		a.running.wait()
		a.pending.wait()
	}()
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

// Close ends what waits for the client, as if it had left.
func (a *Agent) Close() { a.leave() }

// agreed returns the protocol version that client and server agreed on.
func (a *Agent) agreed() string {
	if version := a.version.Load(); version != nil {
		return *version
	}
	return ""
}

// An output is the gate's end of the pipe to the client. Messages are written one
// at a time, by any goroutine.
type output struct {
	mu   sync.Mutex
	w    io.Writer
	gone bool
	lost func() // is called when the client takes nothing more
}

// send writes a message as one line.
func (o *output) send(message []byte) error { return o.sendNoted(message, func() {}) }

// sendNoted is send that calls note before the client can have read all of the
// message.
func (o *output) sendNoted(message []byte, note func()) error {
	line := jsonrpc.AppendLine(make([]byte, 0, len(message)+1), message)
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := line
	if len(line) > upstream.PieceSize { // otherwise all of it fits into the pipe, or nothing
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
