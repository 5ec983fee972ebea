package mcphttp

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// An exchange is one HTTP request on its way through the gate. It implements
// [conversation.Reply].
type exchange struct {
	h        *Handler
	r        *http.Request
	ctx      *requestContext // of r
	client   client
	body     requestBody
	out      response
	upstream *httpclient.Client
	start    time.Time

	request *conversation.Request // what the client sent; before its body is read, nothing
	label   string                // what metrics and logs call the exchange
	problem *wire.Problem
	failed  bool // whether the upstream answered the request with a JSON-RPC error
	gone    bool // whether the client left before its answer

	guest     admission.Client // see client.room
	place     *admission.Pool  // in which the exchange counts; see moveTo
	augmented bool             // whether the client asks for a task
	calls     bool             // whether the client calls a tool, in a batch or not
	blocks    bool             // see [upstream.Blocks]

	span, upstreamSpan tracing.Span
}

// post takes one message, or a batch, to the upstream, if it may pass.
func (x *exchange) post() error {
	packet, body, err := x.read()
	if err != nil {
		return x.refuseUnread(err)
	}
	defer x.request.End()
	var ctx context.Context = x.ctx
	if x.h.cfg.Tracing != nil {
		ctx = x.traceRequest(ctx, packet)
	}
	if x.request.Listens() {
		if err := x.moveTo(x.h.streams); err != nil {
			return x.Fail(err)
		}
		var stop func()
		ctx, stop = x.endable(ctx)
		defer stop()
	}
	p := x.request.Plan(ctx)
	if p.Answer != nil {
		return p.Answer(ctx)
	}
	if p.Own != nil { // the stream lasts as long as the client likes
		leave, err := x.request.EnterWaiting()
		if err != nil {
			return x.Fail(err)
		}
		defer leave()
	}
	return x.forwardTraced(ctx, packet, body, p)
}

// read reads the body and makes sure that it is a packet which the upstream
// will read in the same way.
func (x *exchange) read() (jsonrpc.Packet, []byte, error) {
	body, problem := x.body.read(x.ctx)
	if problem == nil {
		problem = x.client.recogniseAgain() // the body may have taken its time
	}
	if problem != nil {
		return jsonrpc.Packet{}, nil, problem
	}
	packet, err := jsonrpc.Parse(body, x.h.cfg.Limits.Parse)
	if err != nil {
		return jsonrpc.Packet{}, nil, err
	}
	x.describe(packet)
	x.received()
	x.client.era, err = wire.Classify(packet, wire.Headers{
		Version: x.r.Header["Mcp-Protocol-Version"],
		Method:  x.r.Header["Mcp-Method"],
		Name:    x.r.Header["Mcp-Name"],
	})
	x.request = x.h.cfg.Hub.Begin(&x.client, x, conversation.Message{Packet: packet, Body: body, Era: x.client.era})
	return packet, body, err
}

// describe notes what the exchange is about.
func (x *exchange) describe(p jsonrpc.Packet) {
	x.blocks = upstream.Blocks(p)
	for i := range p.Messages {
		x.calls = x.calls || p.Messages[i].Method == "tools/call"
	}
	if p.Batch {
		x.label = "batch"
		x.h.cfg.Metrics.BatchSize(len(p.Messages))
		return
	}
	m := &p.Messages[0]
	x.label, x.augmented, x.client.meta = m.Method, m.Params.Task.Present(), m.Params.Meta
	if m.Kind == jsonrpc.Response {
		x.label = "response"
	}
}

// get opens the stream on which a legacy server speaks unasked.
func (x *exchange) get() error {
	if x.body.unread {
		return x.Refuse(&wire.Problem{Type: wire.InvalidRequest, Detail: "a GET request has no body"})
	}
	x.received()
	place := x.r.Header.Get("Last-Event-Id")
	if x.h.cfg.Hub.Holds() && conversation.IsSealed(place) {
		x.request = x.h.cfg.Hub.Begin(&x.client, x, conversation.Message{})
		defer x.request.End()
		return x.request.Resume(x.ctx, place)
	}
	x.request = x.h.cfg.Hub.BeginStream(&x.client, x, place != "")
	defer x.request.End()
	ctx, stop := x.endable(x.ctx)
	defer stop()
	return x.forward(ctx, &conversation.Plan{})
}

// delete ends a session.
func (x *exchange) delete() error {
	if x.body.unread {
		return x.Refuse(&wire.Problem{Type: wire.InvalidRequest, Detail: "a DELETE request has no body"})
	}
	x.received()
	x.request = x.h.cfg.Hub.Begin(&x.client, x, conversation.Message{})
	defer x.request.End()
	if x.r.Header.Get("Mcp-Session-Id") != "" {
		x.request.EndSession(x.ctx)
	}
	return x.forward(x.ctx, &conversation.Plan{})
}

// endable returns a context that also ends with [Handler.EndStreams], and when
// agents are no longer recognised as this one was.
func (x *exchange) endable(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(x.h.drain, cancel)
	forget := context.AfterFunc(x.client.since.over, cancel)
	return ctx, func() { forget(); stop(); cancel() }
}

// forward sends what passed of the request upstream, and what comes back to the
// client.
func (x *exchange) forward(ctx context.Context, p *conversation.Plan) error {
	defer x.upstreamSpan.End()
	measurement := x.upstream.Sending()
	resp, err := x.ask(ctx, p)
	if err != nil {
		measurement.Ended(httpclient.OutcomeOf(err))
		return x.failUpstream(ctx, p, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if x.endless() {
		x.forgetBody(p)
		measurement.Ended(httpclient.OutcomeOfStatus(resp.StatusCode)) // the time until it ends is the client's choice
	} else {
		defer func() { measurement.Ended(x.upstreamOutcome(resp.StatusCode)) }()
	}
	switch {
	case ctx.Err() == nil && x.hearsGateOnly(p, resp):
		_ = resp.Body.Close()
		return x.listenWithout(ctx, p)
	case x.hasOwnStream(resp):
		_ = resp.Body.Close() // it may be long until the client leaves
		return x.request.Listening().StreamAlone(ctx)
	case resp.StatusCode == http.StatusNotFound && p.Unknown != nil:
		return x.request.AnswerError(p.Unknown)
	default:
		return relay{x: x, plan: p, resp: resp, kind: kindOf(resp), silence: x.upstream.Silence(x.use())}.run(ctx)
	}
}

// ask sends what passed of the request upstream, and returns the answer if that is
// a proper one.
func (x *exchange) ask(ctx context.Context, p *conversation.Plan) (*http.Response, error) {
	by := httpclient.Peer{Use: x.use(), Principal: gate.PrincipalIn(x.client.From().Key), Room: x.guest}
	resp, err := x.upstream.Do(ctx, by, x.r, p.Body)
	if err != nil {
		return nil, err
	}
	if problem := httpclient.Improper(resp); problem != nil {
		_ = resp.Body.Close()
		return nil, problem
	}
	return resp, nil
}

// use returns what the request to the upstream is for.
func (x *exchange) use() httpclient.Use {
	switch {
	case x.r.Method == http.MethodGet:
		return httpclient.Stream
	case x.calls:
		return httpclient.Call
	default:
		return httpclient.Plain
	}
}

// failUpstream answers a client whose request got no usable answer from the
// upstream, because of err.
func (x *exchange) failUpstream(ctx context.Context, p *conversation.Plan, err error) error {
	if message := x.substitute(p); message != nil {
		return x.Answer(conversation.Answered, message)
	}
	if ctx.Err() == nil && x.hearsGateOnly(p, nil) {
		return x.listenWithout(ctx, p)
	}
	return x.Fail(err)
}

// traceRequest starts the span of the exchange, as a child of the one that the
// client names in a header or in the metadata of its message.
func (x *exchange) traceRequest(ctx context.Context, p jsonrpc.Packet) context.Context {
	parent := tracing.Parent{
		Traceparent: x.r.Header.Get("Traceparent"),
		Tracestate:  x.r.Header.Get("Tracestate"),
	}
	meta := metaOf(p)
	if inner, traced := meta.Member(wire.MetaTraceparent).Text(); traced {
		parent.Traceparent = inner
		parent.Tracestate, _ = meta.Member(wire.MetaTracestate).Text()
	}
	ctx, x.span = x.h.cfg.Tracing.StartRequest(ctx, parent)
	return ctx
}

// forwardTraced forwards what passed of a body, as a step of its trace if there
// is one.
func (x *exchange) forwardTraced(ctx context.Context, packet jsonrpc.Packet, body []byte, p *conversation.Plan) error {
	if x.h.cfg.Tracing != nil {
		ctx, p.Body = x.traceUpstream(ctx, packet, body, p.Body)
	}
	return x.forward(ctx, p)
}

// traceUpstream starts the span of the upstream's part and informs the upstream
// of it, in headers and, where the message is one that has such metadata and
// has not been changed, there as well.
func (x *exchange) traceUpstream(ctx context.Context, p jsonrpc.Packet, body, passed []byte) (context.Context, []byte) {
	ctx, x.upstreamSpan = x.h.cfg.Tracing.StartUpstream(ctx)
	traceparent := x.upstreamSpan.Traceparent()
	x.r.Header.Set("Traceparent", traceparent)
	meta := metaOf(p)
	traced := meta.Member(wire.MetaTraceparent).Present()
	if !meta.IsObject() || !traced && x.client.era != wire.Modern || !bytes.Equal(body, passed) {
		return ctx, passed
	}
	var patch jsonrpc.Patch
	patch.Set(meta, wire.MetaTraceparent, jsonrpc.AppendString(nil, traceparent))
	return ctx, patch.Apply(passed)
}

// metaOf returns the metadata of a packet with one message.
func metaOf(p jsonrpc.Packet) jsonrpc.Value {
	if p.Batch {
		return jsonrpc.Value{}
	}
	return p.Messages[0].Params.Meta
}

// streams reports whether an answer of the upstream's is a stream of events.
func streams(resp *http.Response) bool { return kindOf(resp) == "text/event-stream" }

// hearsGateOnly reports whether a client that listens gets the gate's own events
// instead of the upstream's answer, which is nil if there is none. It does get the
// upstream's 401 or 403, so that it can authenticate. A client that only
// wants to hear of changed lists, which the gate declares, is served if
// the upstream has no such method.
func (x *exchange) hearsGateOnly(p *conversation.Plan, resp *http.Response) bool {
	switch {
	case p.Own == nil:
		return resp != nil && resp.StatusCode == http.StatusNotFound && x.request.Listening().WantsLists()
	case resp == nil:
		return true
	default:
		return !streams(resp) && resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden
	}
}

// listenWithout serves a modern client that wants to hear of the gate as well as
// of the upstream, if the upstream does not answer with a stream.
func (x *exchange) listenWithout(ctx context.Context, p *conversation.Plan) error {
	if p.Own == nil {
		leave, err := x.request.EnterWaiting()
		if err != nil {
			return x.Fail(err)
		}
		defer leave()
	}
	x.h.cfg.Log.InfoContext(ctx, "no notifications from the upstream: the client gets only those about held calls")
	return x.request.Listening().ListenAlone(ctx, p, x.newStream())
}

// hasOwnStream reports whether a legacy client whose upstream has no GET stream
// gets one of the gate's own: the gate has declared notifications of tasks, and of
// changed lists.
func (x *exchange) hasOwnStream(resp *http.Response) bool {
	return x.r.Method == http.MethodGet && resp.StatusCode == http.StatusMethodNotAllowed && x.h.cfg.Hub.Governs() &&
		!x.request.Resumed() && x.takesEvents() && x.client.version() < wire.Version20260728
}

// takesEvents reports whether the client takes an answer that is a stream of
// events.
func (x *exchange) takesEvents() bool {
	return strings.Contains(strings.Join(x.r.Header["Accept"], ","), "text/event-stream")
}
