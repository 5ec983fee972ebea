package mcpstdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// An exchange is one message of the client, or a batch, on its way through the
// gate. It implements [conversation.Client] and [conversation.Reply].
type exchange struct {
	a       *Agent
	ctx     *requestContext
	cancel  context.CancelFunc // ends ctx
	settle  func()             // see settled
	settled chan struct{}      // closed when the client waits for the gate, or has been answered; nil before limit
	start   time.Time

	packet  jsonrpc.Packet
	era     wire.Era
	request *conversation.Request // what the client sent; nil before it was read
	plan    *conversation.Plan
	parts   *parts // of a batch that the server is answering
	label   string // what metrics and logs call the exchange
	problem *wire.Problem
	failed  bool // the server answered with an error

	subscribed atomic.Bool // the server has acknowledged the client's subscription

	span, upstreamSpan tracing.Span

	expected, crowded bool // see expect
}

// A requestContext is the context of one message, which knows what the log says of
// it.
type requestContext struct {
	context.Context //nolint:containedctx // it is one

	principal string
	named     sync.Once
	name      string
}

// Value implements [context.Context].
func (c *requestContext) Value(key any) any {
	if key == (logging.RequestKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// LogRequest implements [logging.RequestSource].
func (c *requestContext) LogRequest() logging.Request {
	return logging.Request{CorrelationID: c.correlationID(), Principal: c.principal}
}

// correlationID returns the name under which logs and answers speak of the
// message.
func (c *requestContext) correlationID() string {
	c.named.Do(func() { c.name = uuid.NewString() })
	return c.name
}

func (a *Agent) newExchange(ctx context.Context) *exchange {
	return &exchange{
		a: a, ctx: &requestContext{Context: ctx, principal: a.cfg.Principal.ID}, cancel: func() {}, settle: func() {},
		label: "unread", start: time.Now(),
	}
}

// read reads a message, and reports whether there is one to serve.
func (x *exchange) read(text []byte) bool {
	packet, err := jsonrpc.Parse(text, x.a.cfg.Limits.Parse)
	if err != nil {
		x.safely(func() error { return x.refuseUnread(err) })
		return false
	}
	x.packet = packet
	x.describe()
	x.trace()
	x.era, err = wire.ClassifyBare(packet, x.a.agreed())
	x.request = x.a.cfg.Hub.Begin(x, x, conversation.Message{Packet: packet, Body: text, Era: x.era})
	if err != nil {
		x.safely(func() error { return x.Fail(err) })
		return false
	}
	return true
}

// isResponse reports whether the message is a client's answer to the server.
func (x *exchange) isResponse() bool {
	return !x.packet.Batch && x.packet.Messages[0].Kind == jsonrpc.Response
}

// refuseUnread answers a line that is no message.
func (x *exchange) refuseUnread(err error) error {
	unread, ok := errors.AsType[*jsonrpc.ParseError](err)
	if !ok {
		return x.Fail(err)
	}
	return x.refuseID(wire.FromParse(unread), unread.ID.Bytes)
}

// serve plans what becomes of the message, and has that done.
func (x *exchange) serve() error {
	if target := x.cancels(); target != nil {
		x.a.running.Go(func() { x.safely(func() error { return x.cancelOwn(target) }) })
		return errLater
	}
	x.limit()
	x.plan = x.request.Plan(x.ctx)
	if x.plan.Answer == nil {
		return x.forward()
	}
	id := x.request.ID()
	if id != nil && !x.a.own.add(id, x, x.a.cfg.Limits.Requests) {
		return x.Refuse(tooMany())
	}
	x.a.running.Go(func() {
		defer x.a.own.drop(id, x)
		x.safely(func() error { return x.plan.Answer(x.ctx) })
	})
	return errLater
}

// errLater says that the exchange goes on.
var errLater = errors.New("the exchange goes on")

// limit gives the exchange a context of its own, which ends when the client
// cancels the request, or leaves while it waits.
func (x *exchange) limit() {
	x.ctx.Context, x.cancel = context.WithCancel(x.ctx.Context)
	x.settled = make(chan struct{})
	x.settle = sync.OnceFunc(func() { close(x.settled) })
}

// cancels returns the request that the gate is answering and the message cancels,
// or nil.
func (x *exchange) cancels() *exchange {
	m := &x.packet.Messages[0]
	id := m.Params.Member("requestId")
	if x.packet.Batch || m.Method != methodCancelled || !id.Present() {
		return nil
	}
	return x.a.own.get(id.Bytes)
}

// cancelOwn cancels a request that the gate is answering. If the client waits for
// a held call, the conversation knows what is meant; all else just ends. The server
// has never seen the request.
func (x *exchange) cancelOwn(target *exchange) error {
	select {
	case <-target.settled:
	case <-x.ctx.Done():
		return nil
	}
	if x.plan = x.request.Plan(x.ctx); x.plan.Answer != nil {
		return x.plan.Answer(x.ctx)
	}
	target.cancel()
	return nil
}

func tooMany() *wire.Problem { return &wire.Problem{Type: wire.ClientLimit, RetryAfter: 1} }

// safely does something for the exchange, turns a panic into an answer, and ends
// the exchange unless it goes on.
func (x *exchange) safely(do func() error) {
	err := x.recovered(do)
	if errors.Is(err, errLater) {
		return
	}
	x.end(err)
}

func (x *exchange) recovered(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			x.a.cfg.Log.ErrorContext(x.ctx, "panic", "panic", cause, "stack", string(debug.Stack()))
			err = x.Refuse(&wire.Problem{Type: wire.Internal})
		}
	}()
	return do()
}

// From implements [conversation.Client].
func (x *exchange) From() gate.Client { return x.a.sender }

// Joining implements [conversation.Client].
func (x *exchange) Joining() gate.Client { return x.a.sender }

// Caller implements [conversation.Client].
func (x *exchange) Caller() *upstream.Caller {
	return x.a.cfg.Link.Upstream().Caller(x.a.cfg.Gate, x.a.sender, x.a.cfg.Link.Credentials())
}

// Network implements [conversation.Client].
func (x *exchange) Network() string { return "stdio" }

// Local implements [conversation.Origin]: the agent has started the gate.
func (x *exchange) Local() bool { return true }

// Transport implements [conversation.Client].
func (x *exchange) Transport() conversation.Transport {
	return conversation.Transport{Version: x.a.agreed(), Pipe: true}
}

// Recognition implements [conversation.Client].
func (x *exchange) Recognition() conversation.Recognition { return recognition{} }

// A recognition is that of a client at the other end of a pipe, which always is who
// it was.
type recognition struct{}

// Valid implements [conversation.Recognition].
func (recognition) Valid() bool { return true }

// Changed implements [conversation.Recognition].
func (recognition) Changed() <-chan struct{} { return nil }

// Context implements [conversation.Reply].
func (x *exchange) Context() context.Context { return x.ctx }

// Gone implements [conversation.Reply].
func (x *exchange) Gone() bool { return x.ctx.Err() != nil }

// Correlation implements [conversation.Reply].
func (x *exchange) Correlation() string { return x.ctx.correlationID() }

// Trace implements [conversation.Reply].
func (x *exchange) Trace() string { return x.span.Traceparent() }

// Note implements [conversation.Reply].
func (x *exchange) Note(problem *wire.Problem) { x.problem = problem }

// Park implements [conversation.Reply].
func (x *exchange) Park() error { return nil }

// Fail implements [conversation.Reply].
func (x *exchange) Fail(err error) error {
	if x.ctx.Err() != nil {
		return conversation.ErrGone
	}
	problem, ok := errors.AsType[*wire.Problem](err)
	switch {
	case ok:
	case errors.Is(err, admission.ErrClient), errors.Is(err, admission.ErrFull):
		problem = tooMany()
	default:
		problem = &wire.Problem{Type: wire.Internal, Cause: err}
	}
	return x.Refuse(problem)
}

// Refuse implements [conversation.Reply]. A message that is no request gets no
// answer, unless it cannot be known what it is.
func (x *exchange) Refuse(problem *wire.Problem) error {
	if x.request != nil && x.request.ID() == nil && !x.packet.Batch {
		x.problem = problem
		return nil
	}
	var id []byte
	if x.request != nil {
		id = x.request.ID()
	}
	return x.refuseID(problem, id)
}

// refuseID is Refuse for a request with the given id, which is nil if it could not
// be read.
func (x *exchange) refuseID(problem *wire.Problem, id []byte) error {
	x.problem = problem
	return x.a.out.send(problem.AppendResponse(nil, x.era, id, x.Correlation()))
}

// Answer implements [conversation.Reply].
func (x *exchange) Answer(_ conversation.Status, message []byte) error {
	if message == nil {
		return nil
	}
	return x.a.out.send(message)
}

// Compose implements [conversation.Reply]. The message is held until it is complete:
// nobody else could write meanwhile, and what it waits for may come from the server
// behind something else that the client must read first.
func (x *exchange) Compose(write func(io.Writer) error, note func()) error {
	var message bytes.Buffer
	if err := write(&message); err != nil {
		return err
	}
	if x.ctx.Err() != nil {
		return conversation.ErrGone
	}
	return x.a.out.sendNoted(message.Bytes(), note)
}

// parts are the answers to a batch, of which the server gives some.
type parts struct {
	missing [][]byte // the ids that the server has not answered
	answers [][]byte
}
