package mcphttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A forwarding sends the planned body of a request upstream and relays the answer.
type forwarding struct {
	h       *Handler
	r       *http.Request
	client  *client
	body    *requestBody
	reply   *reply
	request *conversation.Request
	plan    *conversation.Plan
	use     httpclient.Use // the purpose of the upstream request
	blocks  bool           // see [upstream.Blocks]
}

// useOf returns the purpose of a request.
func useOf(method string, packet jsonrpc.Packet) httpclient.Use {
	if method == http.MethodGet {
		return httpclient.Stream
	}
	for i := range packet.Messages {
		if packet.Messages[i].Method == mcpname.ToolsCall {
			return httpclient.Call
		}
	}
	return httpclient.Plain
}

// run forwards the request.
func (f *forwarding) run(ctx context.Context) error {
	measurement := f.client.upstream.Measure()
	resp, err := f.ask(ctx)
	if err != nil {
		measurement.End(httpclient.OutcomeOf(err))
		return f.failUpstream(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	f.client.noteAccepted(resp)
	f.client.endSession(resp)
	if f.request.Listens() {
		f.forgetBody()
		measurement.End(httpclient.OutcomeOfStatus(resp.StatusCode)) // the client decides how long the stream lasts
	} else {
		defer func() { measurement.End(f.outcome(resp.StatusCode)) }()
	}
	switch {
	case ctx.Err() == nil && f.needsGateStream(resp):
		_ = resp.Body.Close()
		return f.listenToGate(ctx)
	case f.needsStandaloneStream(resp):
		_ = resp.Body.Close() // the client may stay for long
		return f.request.Subscriber().ServeStream(ctx)
	case resp.StatusCode == http.StatusNotFound && f.plan.MethodNotFound != nil:
		return f.request.AnswerError(f.plan.MethodNotFound)
	default:
		a := f.relay(resp)
		return a.run(ctx)
	}
}

// relay returns the relay for the upstream's answer.
func (f *forwarding) relay(resp *http.Response) relay {
	a := relay{
		h: f.h, client: f.client, reply: f.reply, request: f.request, plan: f.plan, resp: resp, use: f.use, kind: kindOf(resp),
		begins:  f.reply.account.Label == mcpname.Initialize && f.client.era == mcp.Legacy,
		silence: f.client.upstream.ReadTimeout(f.use),
	}
	//mutate:true TestQuestionLiftsSilenceLimit the result of an upstream's task has a time limit
	if !f.blocks {
		a.patience = a.silence
	}
	return a
}

// ask sends the body upstream and returns the answer, if its headers are valid.
func (f *forwarding) ask(ctx context.Context) (*http.Response, error) {
	if f.client.down != nil {
		return nil, f.client.down
	}
	key := f.client.Identity().Key
	//mutate:swap "catalog.OwnerIn(key)" `"all"` Test(AnswersStayWithTheirPrincipal|PrincipalsUseSeparateHTTP2Connections) principals share a pool
	by := httpclient.Peer{Use: f.use, Principal: catalog.PrincipalIn(key), Owner: catalog.OwnerIn(key), Share: f.body.client}
	if by.Owner == "" {
		by.Owner = f.body.client.Network() // only the address is known
	}
	resp, err := f.client.upstream.Do(ctx, by, f.r, f.plan.Body)
	if err != nil {
		return nil, err
	}
	f.client.reached = true
	if problem := httpclient.CheckResponse(resp); problem != nil {
		_ = resp.Body.Close()
		return nil, problem
	}
	return resp, nil
}

// failUpstream answers the client after the upstream request failed with err.
func (f *forwarding) failUpstream(ctx context.Context, err error) error {
	if message := f.reply.substitute(f.plan, err); message != nil {
		return f.reply.Answer(conversation.Answered, message)
	}
	if ctx.Err() == nil && f.needsGateStream(nil) {
		return f.listenToGate(ctx)
	}
	if problem, ok := errors.AsType[*mcp.Problem](err); ok && problem.Connect != "" {
		return f.request.InviteToConnect(problem)
	}
	return f.reply.Fail(err)
}

// outcome returns the metric label for the upstream's part of the exchange.
func (f *forwarding) outcome(status int) string {
	if f.reply.account.Problem != nil && f.reply.account.Problem.Type.Upstream() {
		return httpclient.OutcomeOf(f.reply.account.Problem)
	}
	return httpclient.OutcomeOfStatus(status)
}

// forgetBody releases the memory of a large body after it was sent, because the exchange may
// last long. It drops all references to the body. A small body is kept, since the upstream
// request still refers to it.
func (f *forwarding) forgetBody() {
	if f.body.reserved <= upstream.PieceSize {
		return
	}
	f.client.Identity() // needs the metadata
	f.plan.Body, f.client.meta = nil, jsonrpc.Value{}
	f.body.giveBack(int64(f.request.Detach()))
}

// needsGateStream reports whether a listening client gets the gate's events instead of the
// upstream's answer; resp is nil if there is none. The upstream's 401 and 403 are passed on, so
// that the client can authenticate. A client that listens only for list changes, which the gate
// declares, is also served if the upstream does not know the method.
func (f *forwarding) needsGateStream(resp *http.Response) bool {
	switch {
	case f.plan.OwnTasks == nil:
		return resp != nil && resp.StatusCode == http.StatusNotFound && f.request.Subscriber().WantsLists()
	case resp == nil:
		return true
	default:
		return !streams(resp) && resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden
	}
}

// listenToGate serves a modern client that listens to gate and upstream, if the upstream does
// not answer with a stream.
func (f *forwarding) listenToGate(ctx context.Context) error {
	if f.plan.OwnTasks == nil {
		leave, err := f.request.EnterWaiting()
		if err != nil {
			return f.reply.Fail(err)
		}
		defer leave()
	}
	f.h.cfg.Log.InfoContext(ctx, "no notifications from the upstream: the client gets only those about held calls")
	return f.request.Subscriber().ServeSubscription(ctx, f.plan, f.reply.newStream())
}

// needsStandaloneStream reports whether a legacy client gets a GET stream of the gate, because
// the upstream has none. The gate has declared notifications about tasks and list changes.
func (f *forwarding) needsStandaloneStream(resp *http.Response) bool {
	return f.r.Method == http.MethodGet && resp.StatusCode == http.StatusMethodNotAllowed && f.h.cfg.Gateway.Governs() &&
		!f.request.Resumed() && f.client.takesEvents() && f.client.version() < mcp.Version20260728
}

// streams reports whether the upstream's answer is an event stream.
func streams(resp *http.Response) bool { return kindOf(resp) == "text/event-stream" }
