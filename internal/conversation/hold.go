package conversation

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A hold keeps a call of one request until it is decided: as a task, or by keeping the request
// open.
type hold struct {
	sender     *sender
	out        responder
	registered *registrations
	refused    *refusal // set when the upstream refuses a call of this request
}

func newHold(sender *sender, out responder, registered *registrations) hold {
	return hold{sender: sender, out: out, registered: registered, refused: newRefusal()}
}

// hold returns the hold for a call that is the whole request.
func (r *Request) hold() hold { return newHold(&r.sender, r.out, &r.registered) }

// asTask answers with a task.
func (h hold) asTask(ctx context.Context, m *jsonrpc.Message, judged catalog.Judgement) error {
	t, _, err := h.create(ctx, m, judged, h.send())
	if err != nil {
		return h.answerNotHeld(m.Method, err)
	}
	result, err := h.out.dialect().CreateResult(t)
	if err != nil {
		return h.out.reply.Fail(err)
	}
	return h.out.answer(jsonrpc.AppendResult(nil, h.out.id, result))
}

// inRequest keeps the request open until the call is decided.
func (h hold) inRequest(ctx context.Context, m *jsonrpc.Message, judged catalog.Judgement) error {
	ctx, held := h.registered.register(ctx, m, h.out.id)
	defer held.stop()
	t, attached, err := h.create(ctx, m, judged, nil)
	held.bind(h.sender.ref(t.ID))
	if err != nil {
		return h.answerNotHeld(m.Method, err)
	}
	if !attached && h.inviter().byRound(m, t) {
		return h.out.answer(h.invitingRound(t))
	}
	return h.await(ctx, m, t, 0, held)
}

// create creates a task for a call, or attaches the call to the task of an identical one.
func (h hold) create(ctx context.Context, m *jsonrpc.Message, judged catalog.Judgement, send approval.Sender) (t task.Task, attached bool, err error) {
	defer func() { h.out.gateway.recordHeld(h.out.gateway.judgedCall(m, judged, nil), t.ID, attached, err) }()
	//mutate:false internal/app.TestNothingRunsForClientThatLeft an approved call runs for a client that left
	//mutate:false internal/app.TestNothingIsHeldForClientThatLeft a call of a client that left is held
	if h.sender.gone() {
		return task.Task{}, false, ErrGone
	}
	variables, err := clientVariables(m)
	if err != nil {
		return task.Task{}, false, err
	}
	var ttl time.Duration
	if h.out.era == mcp.Legacy { // modern requests have no ttl
		ttl, _ = task.ParseTTL(m.Params.Task.Member("ttl").Bytes) // checkTask has checked it
	}
	call := approval.Call{
		Upstream: h.sender.upstream(),
		Parsed:   m, Request: m.ID.Bytes, Verdict: judged.Verdict, TTL: ttl, Variables: variables, Session: judged.Session, Send: send,
		Trace: h.out.reply.Trace(), Correlation: h.out.reply.Correlation(),
		Tool: h.sender.describe(judged.Tool), Define: func(ctx context.Context) approval.Tool { return h.define(ctx, m) },

		ReadOnlyTools: func() []gatetask.GrantTool {
			return h.out.gateway.cfg.Catalog.ReadOnlyTools(h.sender.client.Identity())
		},
	}
	h.sender.identify(&call)
	h.sender.rememberHost(ctx)
	t, attached, err = h.out.gateway.cfg.Approvals.Hold(ctx, call)
	if err != nil {
		h.out.gateway.cfg.Log.InfoContext(h.sender.repeatable(ctx, judged.Verdict.Label), "call not held", "err", err)
	}
	return t, attached, err
}

// define asks the upstream for the tool that m calls. It returns a zero Tool if that fails.
func (h hold) define(ctx context.Context, m *jsonrpc.Message) approval.Tool {
	tool, err := h.sender.client.Caller().Definition(ctx, m)
	if err != nil {
		h.out.gateway.cfg.Log.DebugContext(ctx, "tools not listed", "upstream", h.sender.upstream(), "err", err)
		return approval.Tool{}
	}
	return h.sender.describe(tool)
}

// describe converts a tool of the catalog for approvals, with what the gate knows of its definitions.
func (s *sender) describe(t catalog.Tool) approval.Tool {
	tool := describedTool(t)
	tool.Trusted, tool.ReadOnly = s.gateway.cfg.Catalog.Trust(s.client.Identity(), t)
	return tool
}

// describedTool converts a tool of the catalog for approvals.
func describedTool(t catalog.Tool) approval.Tool {
	return approval.Tool{Description: t.Description, Annotations: t.Annotations, Digest: t.DigestText(), Change: t.Change, Accepted: t.Accepted, HasOutputSchema: t.HasOutputSchema}
}

func (h hold) inviter() inviter { return inviter{sender: h.sender, out: h.out} }

func (h hold) pending() pendingAnswer { return pendingAnswer{sender: h.sender, out: h.out} }

// send returns the sender that runs the call with the credentials of this request.
func (h hold) send() approval.Sender { return h.sender.sendBy(h.sender.client.Caller(), h.refused) }

// answerNotHeld answers a call for which no task could be created.
func (h hold) answerNotHeld(method string, err error) error {
	if errors.Is(err, ErrGone) {
		return ErrGone
	}
	if storeFailed(err) {
		return h.out.reply.Refuse(h.out.storeProblem(err))
	}
	status := Answered
	if h.out.era == mcp.Modern && errors.Is(err, task.ErrClosed) {
		status = Unavailable
	}
	return h.out.reply.Answer(status, h.out.notHeldMessage(method, err))
}

// await waits for t, the task of m, and answers with its outcome, or with the time at which to call again. For
// a modern client, round is the number of requests in which it has already waited. held is the
// registration through which the client can cancel.
func (h hold) await(ctx context.Context, m *jsonrpc.Message, t task.Task, round int, held *heldRequest) (err error) {
	if !t.State.Terminal() {
		leave, err := enterWaiting(h.sender)
		if err != nil {
			t = h.sender.collect(ctx, t)
			h.sender.noteLeft(ctx, []task.ID{t.ID})
			return h.out.answer(h.pending().message(ctx, t, t.Call.Method)) // the limit is reached, so the client must call again later
		}
		defer leave()
	}
	w := newWaiting(h.sender, h.out, h.registered, h.refused)
	w.token = progressToken(m)
	ref := h.sender.ref(t.ID)
	requests := h.out.gateway.held.addWaiter(held, requestKey{h.sender.peer(), string(h.out.id)}) // before anything is sent, so that another request that ends does not withdraw the call
	if requests > 1 {
		t = h.out.gateway.cfg.Approvals.RecordRequests(ctx, t, requests)
	}
	defer func() {
		if !errors.Is(err, ErrGone) || w.sent {
			h.out.gateway.held.removeWaiter(held)
		} else if last := h.out.gateway.held.dropWaiter(held); last {
			h.withdraw(ref, round)
		}
	}()
	err = w.open(t, func() error {
		if err := w.greet(t); err != nil {
			return err
		}
		return w.inviter.send(w.stream, t)
	})
	if err != nil {
		h.out.gateway.cfg.Approvals.ClientLeft(ctx, ref)
		return err
	}
	began := time.Now()
	t, err = w.wait(ctx, t, h.sender.holdTime(m), w.send())
	//mutate:drop internal/app.TestHeldCallIsObserved a wait without a decision is not counted
	h.out.gateway.cfg.Metrics.WaitEnded(waitResult(h.sender.gone(), t, err), time.Since(began))
	if held.cancelled.Load() && t.State == task.Cancelled || held.timedOut.Load() {
		return nil // a cancelled request is not answered
	}
	return h.endWaiting(ctx, w, t, err, round)
}

// waitResult returns the label of a wait for metrics.
func waitResult(gone bool, t task.Task, err error) string {
	switch {
	case gone:
		return metrics.WaitGone
	case err != nil || t.State == task.Expired:
		return metrics.WaitTimeout
	case t.Execution == nil:
		return metrics.WaitRejected
	default:
		return metrics.WaitApproved
	}
}

// endWaiting answers a client whose wait for t has ended with err.
func (h hold) endWaiting(ctx context.Context, w *waiting, t task.Task, err error, round int) error {
	switch {
	case err == nil && t.AwaitsInput():
		return w.end(h.askToRepeat(t, max(1, round))) // it can call again with the state
	case err == nil:
		return w.deliver(ctx, t, h.out.dialect().Outcome)
	case errors.Is(err, ErrGone), h.sender.gone():
		return ErrGone
	case !errors.Is(err, task.ErrNotReady):
		return w.fail(err)
	default:
		return w.end(h.notYet(ctx, t, round))
	}
}

// notYet answers a client whose time to wait is over. A modern client is asked to repeat its
// request, at most maxRounds times.
func (h hold) notYet(ctx context.Context, t task.Task, round int) []byte {
	if h.out.era == mcp.Modern && round < maxRounds {
		return h.askToRepeat(t, round+1)
	}
	return h.pending().message(ctx, t, t.Call.Method)
}

// withdraw cancels the task of a modern client that closed its request, unless another request
// waits for the task. A client with a retry state can come back, and a client at a pipe can
// restart and repeat the call, so their tasks stay.
func (h hold) withdraw(ref task.Ref, round int) {
	if h.out.era != mcp.Modern || round > 0 || h.sender.client.Transport().Pipe {
		return
	}
	ctx := context.WithoutCancel(h.out.reply.Context())
	h.out.gateway.cfg.Approvals.Withdraw(ctx, ref, h.sender.withdrawal("the client closed its request"))
}

// maxRounds is how many times a modern client is asked to repeat its request before it gets the
// pending answer. Clients give up after about ten rounds.
const maxRounds = 9

// askToRepeat returns a message that asks a modern client to repeat its request, with the
// questions of the upstream, if any.
func (h hold) askToRepeat(t task.Task, round int) []byte {
	asked := []byte("{}")
	if t.AwaitsInput() && t.Execution.InputRequests != nil {
		asked = t.Execution.InputRequests
	}
	return h.nextRound(asked, retryState{task: t.ID, round: round})
}

// invitingRound returns a message that invites the user of a modern client to decide, and asks
// the client to repeat its request. It waits for t when it does.
func (h hold) invitingRound(t task.Task) []byte {
	asked := append([]byte(`{"approval":{"method":"elicitation/create","params":`), h.inviter().params(t, "")...)
	return h.nextRound(append(asked, `}}`...), retryState{task: t.ID, round: 1, invited: true})
}

// nextRound returns a message that asks a modern client to repeat its request with answers to the
// given questions.
func (h hold) nextRound(asked []byte, s retryState) []byte {
	ctx := context.WithoutCancel(h.out.reply.Context()) // the context may have ended because the gate stops
	state, err := h.sender.seal(ctx, useWait, s.String())
	if err != nil {
		return jsonrpc.AppendErrorResponse(nil, h.out.id, h.out.dialect().Error(err))
	}
	result := append([]byte(`{"resultType":"input_required","inputRequests":`), asked...)
	result = append(result, `,"requestState":`...)
	result = append(result, jsonrpc.AppendString(nil, state)...)
	return jsonrpc.AppendResult(nil, h.out.id, append(result, '}'))
}

// A retryState is sealed into the requestState of a modern client, which it sends again when it
// repeats its request.
type retryState struct {
	task    task.ID
	round   int
	invited bool // the gate, not the upstream, asked a question in the last round
}

// String returns the text that parseRetryState reads.
func (s retryState) String() string {
	text := string(s.task) + " " + strconv.Itoa(s.round)
	if s.invited {
		text += " invited"
	}
	return text
}

func parseRetryState(text string) (retryState, error) {
	id, rest, _ := strings.Cut(text, " ")
	count, invited, _ := strings.Cut(rest, " ")
	round, err := strconv.Atoi(count)
	return retryState{task: task.ID(id), round: round, invited: invited != ""}, err
}

// retry continues the wait of a modern client that repeats its request with a sealed retryState.
// The request must contain the same call.
func (h hold) retry(ctx context.Context, m *jsonrpc.Message, state string) error {
	text, err := h.sender.unseal(ctx, useWait, state)
	if errors.Is(err, keyring.ErrForeign) {
		return h.out.reply.Refuse(&mcp.Problem{Type: mcp.InvalidParams, Detail: "requestState was not issued to this client, or the gate's key was replaced; " +
			"repeat the call without it: a held call is found again"})
	}
	if err != nil {
		return h.out.answerFailure(err)
	}
	last, err := parseRetryState(text)
	if err != nil {
		return h.out.reply.Fail(err)
	}
	ref := h.sender.ref(last.task)
	t, err := h.out.gateway.cfg.Approvals.Get(ctx, ref)
	if err != nil {
		return h.out.answerFailure(err)
	}
	//mutate:false internal/mcphttp.TestModernRounds a state is valid for another call
	if !h.out.gateway.cfg.Approvals.IsIdentical(t, m) {
		return h.out.reply.Refuse(&mcp.Problem{Type: mcp.InvalidParams, Detail: "requestState belongs to another call"})
	}
	// An answer to an invitation of the gate has no effect and is not for the upstream.
	if responses := m.Params.Member("inputResponses"); responses.IsObject() && !last.invited {
		if t, err = h.out.gateway.cfg.Approvals.Respond(ctx, ref, responses.Bytes, h.send()); err != nil {
			return refuseTask(h.sender, h.out, err)
		}
	}
	return h.awaitAgain(ctx, m, t, last.round)
}

// awaitAgain is await for a request whose task exists already.
func (h hold) awaitAgain(ctx context.Context, m *jsonrpc.Message, t task.Task, round int) error {
	ctx, held := h.registered.register(ctx, m, h.out.id)
	defer held.stop()
	held.bind(h.sender.ref(t.ID))
	return h.await(ctx, m, t, round, held)
}

// Resume continues the wait of a client that lost the stream of a held request. The resume point
// is the one from [Stream.SetResumePoint].
func (r *Request) Resume(ctx context.Context, resumePoint string) error {
	text, err := r.sender.unseal(ctx, useResume, resumePoint)
	if errors.Is(err, keyring.ErrForeign) {
		return r.out.reply.Refuse(&mcp.Problem{Type: mcp.InvalidRequest, Detail: "Last-Event-ID was not issued to this client, or the gate's key was replaced"})
	}
	if err != nil {
		return r.out.answerFailure(err)
	}
	id, request, _ := strings.Cut(text, " ")
	r.out.id, r.registered.ids = []byte(request), [][]byte{[]byte(request)}
	t, err := r.gateway.cfg.Approvals.Get(ctx, r.sender.ref(task.ID(id)))
	if err != nil {
		return r.out.answerFailure(err)
	}
	one, ended := requestName(t.ID, r.out.id), t.State.Terminal()
	if t.State == task.Cancelled || r.gateway.timedOut.has(one) || ended && r.gateway.redelivered.has(one) {
		// Some clients resume forever as long as they get an answer.
		return r.out.reply.Refuse(&mcp.Problem{Type: mcp.MethodNotAllowed, Detail: "the call of this stream was answered or cancelled"})
	}
	err = r.hold().awaitAgain(ctx, new(jsonrpc.Message), t, 0)
	if err == nil && ended && !r.sender.gone() {
		r.gateway.redelivered.set(one, struct{}{})
	}
	return err
}
