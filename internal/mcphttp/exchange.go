package mcphttp

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An exchange is one HTTP request and its answer.
type exchange struct {
	h       *Handler
	r       *http.Request
	account conversation.Telemetry
	client  client
	body    requestBody
	slot    slot
	reply   reply

	delegated bool // parts of this exchange with single servers are recorded instead
	unlisted  bool // the client does not know the definitions of tools
}

func newExchange(h *Handler, w http.ResponseWriter, r *http.Request) *exchange {
	ctx := &conversation.RequestContext{Context: r.Context(), Remote: r.RemoteAddr, Principal: anonymous}
	x := &exchange{h: h, r: r, account: h.cfg.Gateway.NewTelemetry(ctx, r.Method), slot: slot{h: h}}
	x.reply = reply{h: h, account: &x.account, client: &x.client, body: &x.body, slot: &x.slot, out: newResponse(w, h.cfg.Limits.WriteTimeout)}
	x.client = client{h: h, r: r, shown: r, ctx: ctx, out: &x.reply.out}
	x.body = requestBody{h: h, r: r, out: &x.reply.out}
	return x
}

// serve answers the request.
func (x *exchange) serve() error {
	if err := x.body.expect(x.account.Start); err != nil {
		return err
	}
	events, problem := x.enter()
	if problem != nil {
		return x.reply.Refuse(problem)
	}
	if several := x.h.cfg.Routes[x.client.path].Several; several != nil {
		return (&combined{x: x, endpoint: several}).serve(events)
	}
	if events != "" {
		return x.withSlot(x.h.streams, func() error { return x.taskEvents(task.ID(events)) })
	}
	switch x.r.Method {
	case http.MethodPost:
		return x.withSlot(x.h.requests, x.post)
	case http.MethodDelete:
		return x.withSlot(x.h.requests, x.delete)
	case http.MethodGet:
		return x.withSlot(x.h.streams, x.get)
	default:
		x.reply.out.header().Set("Allow", "POST, GET, DELETE")
		return x.reply.Refuse(&mcp.Problem{Type: mcp.MethodNotAllowed})
	}
}

// enter checks the headers, finds the upstream and identifies the agent. For an event stream it
// returns the task ID.
func (x *exchange) enter() (events string, problem *mcp.Problem) {
	if problem := x.h.settings().Guard.check(x.r); problem != nil {
		return "", problem
	}
	var ok bool
	if x.client.path, events, ok = x.h.route(x.r.URL.Path); !ok {
		return "", &mcp.Problem{Type: mcp.NotFound}
	}
	endpoint := x.h.cfg.Routes[x.client.path]
	x.client.upstream = endpoint.Upstream
	isCredential := endpoint.Several.IsCredential
	if endpoint.Several == nil {
		isCredential = endpoint.Upstream.IsCredential
	}
	if problem := ambiguous(x.r.Header, isCredential); problem != nil {
		return "", problem
	}
	return events, x.client.recognise()
}

// withSlot runs serve if the pool has a free slot. Otherwise it refuses the request before
// reading its body.
func (x *exchange) withSlot(pool *admission.Pool, serve func() error) error {
	x.body.client = x.client.admissionClient()
	if err := x.slot.enter(pool, x.body.client); err != nil {
		return x.reply.Fail(err)
	}
	defer func() {
		x.slot.leave()
		x.body.giveBack(0)
	}()
	return serve()
}

// post plans one message or batch, and answers or forwards it.
func (x *exchange) post() error {
	m, err := x.read()
	if err != nil {
		return x.reply.refuseUnread(err)
	}
	request := x.reply.request
	defer request.End()
	if problem := x.client.checkSession(); problem != nil {
		return x.reply.Refuse(problem)
	}
	ctx := x.account.StartSpan(x.account.Context, m.Packet, tracing.Parent{
		Traceparent: x.r.Header.Get("Traceparent"), Tracestate: x.r.Header.Get("Tracestate"),
	})
	if request.Listens() {
		if err := x.slot.moveTo(x.h.streams); err != nil {
			return x.reply.Fail(err)
		}
		var stop func()
		ctx, stop = x.h.endable(ctx, x.client.epoch)
		defer stop()
	}
	p := request.Plan(ctx)
	if p.Kind == conversation.HoldTask || p.Kind == conversation.HoldRequest {
		if problem := x.client.confirmSession(); problem != nil {
			return x.reply.Refuse(problem)
		}
	}
	if p.Answer != nil {
		return p.Answer(ctx)
	}
	if p.OwnTasks != nil { // the stream may stay open indefinitely
		leave, err := request.EnterWaiting()
		if err != nil {
			return x.reply.Fail(err)
		}
		defer leave()
	}
	if x.h.cfg.Tracing != nil {
		ctx, p.Body = x.traceUpstream(ctx, m, p.Body)
	}
	x.mirror(ctx, &m.Packet.Messages[0])
	return x.forward(ctx, m.Packet, p)
}

// read reads and parses the body. It refuses a body that the upstream could parse differently.
func (x *exchange) read() (conversation.Message, error) {
	body, problem := x.body.read(x.account.Context)
	if problem == nil {
		//mutate:swap "x.client.recogniseAgain()" "nil" internal/app.TestReloadRevokes a revoked agent is served once its body has arrived
		problem = x.client.recogniseAgain() // receiving the body may have taken long
	}
	if problem != nil {
		return conversation.Message{}, problem
	}
	packet, err := jsonrpc.Parse(body, x.h.cfg.Limits.Parse)
	if err != nil {
		return conversation.Message{}, err
	}
	x.account.Describe(packet)
	x.account.Received(x.client.upstream.Name())
	x.client.era, err = mcp.Classify(packet, mcp.Headers{
		Version: x.r.Header["Mcp-Protocol-Version"],
		Method:  x.r.Header["Mcp-Method"],
		Name:    x.r.Header["Mcp-Name"],
	})
	x.client.meta, x.account.Era = metaOf(packet), x.client.era
	m := conversation.Message{Packet: packet, Body: body, Era: x.client.era}
	x.begin(m)
	return m, err
}

// begin creates the conversation's Request for the message.
func (x *exchange) begin(m conversation.Message) *conversation.Request {
	x.reply.request = x.h.cfg.Gateway.Begin(&x.client, &x.reply, m)
	return x.reply.request
}

// metaOf returns the _meta of a single message.
func metaOf(p jsonrpc.Packet) jsonrpc.Value {
	if p.Batch {
		return jsonrpc.Value{}
	}
	return p.Messages[0].Params.Meta
}

// traceUpstream starts the span of the upstream request. It sends the trace context in headers,
// and in _meta if that is present and the body is unchanged.
func (x *exchange) traceUpstream(ctx context.Context, m conversation.Message, passed []byte) (context.Context, []byte) {
	ctx, span := x.account.StartUpstream(ctx)
	traceparent := span.Traceparent()
	x.r.Header.Set("Traceparent", traceparent)
	meta := metaOf(m.Packet)
	traced := meta.Member(mcp.MetaTraceparent).Present()
	if !meta.IsObject() || !traced && m.Era != mcp.Modern || !bytes.Equal(m.Body, passed) {
		return ctx, passed
	}
	var patch jsonrpc.Patch
	patch.Set(meta, mcp.MetaTraceparent, jsonrpc.AppendString(nil, traceparent))
	return ctx, patch.Apply(m.Packet.Messages[0].Raw)
}

// get opens the stream for messages that a legacy server sends on its own initiative.
func (x *exchange) get() error {
	if x.body.unread {
		return x.reply.Refuse(&mcp.Problem{Type: mcp.InvalidRequest, Detail: "a GET request has no body"})
	}
	x.account.Received(x.client.upstream.Name())
	//mutate:drop internal/app.TestSessionBelongsToItsPrincipal the stream of a session is open to other principals
	if problem := x.client.checkSession(); problem != nil {
		return x.reply.Refuse(problem)
	}
	eventID := x.r.Header.Get("Last-Event-Id")
	if x.h.cfg.Gateway.Holds() && conversation.IsSealed(eventID) {
		request := x.begin(conversation.Message{})
		defer request.End()
		return request.Resume(x.account.Context, eventID)
	}
	x.reply.request = x.h.cfg.Gateway.BeginStream(&x.client, &x.reply, eventID != "")
	defer x.reply.request.End()
	ctx, stop := x.h.endable(x.account.Context, x.client.epoch)
	defer stop()
	return x.forward(ctx, jsonrpc.Packet{}, &conversation.Plan{})
}

// delete ends a session.
func (x *exchange) delete() error {
	if x.body.unread {
		return x.reply.Refuse(&mcp.Problem{Type: mcp.InvalidRequest, Detail: "a DELETE request has no body"})
	}
	x.account.Received(x.client.upstream.Name())
	//mutate:drop internal/app.TestSessionBelongsToItsPrincipal other principals end a session
	if problem := x.client.checkSession(); problem != nil {
		return x.reply.Refuse(problem)
	}
	request := x.begin(conversation.Message{})
	defer request.End()
	if x.r.Header.Get(sessionHeader) != "" {
		request.EndSession(x.account.Context)
	}
	return x.forward(x.account.Context, jsonrpc.Packet{}, &conversation.Plan{})
}

// forward sends the planned body upstream and relays the answer.
func (x *exchange) forward(ctx context.Context, packet jsonrpc.Packet, p *conversation.Plan) error {
	f := forwarding{
		h: x.h, r: x.r, client: &x.client, body: &x.body, reply: &x.reply, request: x.reply.request, plan: p,
		use: useOf(x.r.Method, packet), blocks: upstream.WaitsForTask(packet),
	}
	return f.run(ctx)
}

// finish records the exchange in the metrics and the log. It breaks the connection if the answer is
// incomplete or the client has no time left to read its end.
func (x *exchange) finish(err error) {
	if x.delegated && err == nil {
		return
	}
	if x.delegated || x.record(err) {
		panic(http.ErrAbortHandler)
	}
}

// record records the exchange, and reports whether the connection must be broken.
func (x *exchange) record(err error) (broken bool) {
	out, took := &x.reply.out, time.Since(x.account.Start)
	//mutate:swap ">= " "> 2*" TestUpstreamErrorsAreCounted a status of the upstream does not count
	x.account.Failed = x.account.Failed || out.status >= http.StatusBadRequest
	name := ""
	if x.client.upstream != nil {
		name = x.client.upstream.Name()
	}
	x.account.Finish(x.reply.request, name, took, err)
	//mutate:swap "|| took > out.timeout/2 && out.extend() != nil " "" TestLateEndIsDelivered the end of an answer is late
	return err != nil || took > out.timeout/2 && out.extend() != nil // the server sends the end of the answer after this function returns
}
