package conversation

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// maxRounds is how often a modern client is asked to repeat its request before it
// gets the pending answer. Clients give up after about ten.
const maxRounds = 9

// A hold is a request whose call needs approval.
type hold struct{ *Request }

// toDesk makes a task of a call, or attaches the call to the task of an identical
// one.
func (h hold) toDesk(ctx context.Context, m *jsonrpc.Message, judged gate.Judgement, send approval.Sender) (t task.Task, attached bool, err error) {
	if h.gone() {
		return task.Task{}, false, ErrGone
	}
	variables, err := clientVariables(m)
	if err != nil {
		return task.Task{}, false, err
	}
	var ttl time.Duration
	if h.era == wire.Legacy { // modern requests have no such member
		ttl, _ = task.ParseTTL(m.Params.Task.Member("ttl").Bytes) // was checked before
	}
	call := approval.Call{
		Upstream: h.upstream(),
		Message:  m.Raw, Request: m.ID.Bytes, Verdict: judged.Verdict, TTL: ttl, Variables: variables, Session: judged.Session, Send: send,
		Trace: h.reply.Trace(), Correlation: h.reply.Correlation(),
		Tool: describedTool(judged.Tool), Define: func(ctx context.Context) approval.Tool { return h.define(ctx, m) },
	}
	h.identify(&call)
	h.rememberHost(ctx)
	t, attached, err = h.hub.cfg.Desk.Hold(ctx, call)
	if err != nil {
		h.hub.cfg.Log.InfoContext(h.repeatable(ctx, judged.Verdict.Label), "call not held", "cause", err)
	}
	return t, attached, err
}

// define returns what the upstream says now of the tool that m calls, or nothing.
func (h hold) define(ctx context.Context, m *jsonrpc.Message) approval.Tool {
	tool, err := h.client.Caller().Described(ctx, m)
	if err != nil {
		h.hub.cfg.Log.DebugContext(ctx, "tools not listed", "upstream", h.upstream(), "cause", err)
		return approval.Tool{}
	}
	return describedTool(tool)
}

// describedTool returns what an upstream says of a tool as the desk wants it.
func describedTool(t gate.Tool) approval.Tool {
	return approval.Tool{Description: t.Description, Annotations: t.Annotations, Digest: t.DigestText()}
}

// asTask answers a client that knows tasks with one.
func (h hold) asTask(ctx context.Context, m *jsonrpc.Message, judged gate.Judgement) error {
	t, _, err := h.toDesk(ctx, m, judged, h.send())
	if err != nil {
		return h.notHeld(err)
	}
	result, err := h.dialect().CreateResult(t)
	if err != nil {
		return h.reply.Fail(err)
	}
	return h.answer(jsonrpc.AppendResult(nil, h.id, result))
}

// inRequest keeps a client that does not know tasks waiting in its request.
func (h hold) inRequest(ctx context.Context, m *jsonrpc.Message, judged gate.Judgement) error {
	ctx, held := h.expect(ctx, m, h.id)
	defer held.stop()
	t, attached, err := h.toDesk(ctx, m, judged, nil)
	held.bind(h.ref(t.ID))
	if err != nil {
		return h.notHeld(err)
	}
	if !attached && h.invitesByRound(m, t) {
		return h.answer(h.invitingRound(t))
	}
	return h.await(ctx, m, t, 0, held)
}

// notHeld answers a call that could not become a task.
func (h hold) notHeld(err error) error {
	if errors.Is(err, ErrGone) {
		return ErrGone
	}
	if storeFailed(err) {
		return h.reply.Refuse(h.StoreFailed(err))
	}
	status := Answered
	if h.era == wire.Modern && errors.Is(err, task.ErrClosed) {
		status = NotNow
	}
	return h.reply.Answer(status, h.messageOf(h.dialect().Refuse(err)))
}

// await waits for the task of m and answers with what became of it, or with when
// to come again. Round counts the requests in which a modern client has waited
// already; held is the request, which the client can cancel.
func (h hold) await(ctx context.Context, m *jsonrpc.Message, t task.Task, round int, held *heldRequest) (err error) {
	if !t.State.Terminal() {
		leave, err := h.EnterWaiting()
		if err != nil {
			t = h.collect(ctx, t)
			h.noteLeft(ctx, []task.ID{t.ID})
			return h.answer(h.stillPending(ctx, t)) // too many wait already: this one comes again later
		}
		defer leave()
	}
	w := &waiting{Request: h.Request, token: progressToken(m)}
	ref := h.ref(t.ID)
	h.hub.held.addWaiter(ref.ID) // before the client hears anything: another one that leaves must not withdraw the call
	defer func() {
		if last := h.hub.held.removeWaiter(ref.ID); last && errors.Is(err, ErrGone) && !w.sent {
			h.withdraw(ref, round)
		}
	}()
	if err := w.open(t); err != nil {
		h.hub.cfg.Desk.Gone(ctx, ref)
		return err
	}
	began := time.Now()
	t, err = w.wait(ctx, t, h.patience(m), w.sender())
	h.hub.cfg.Metrics.WaitEnded(h.waitResult(t, err), time.Since(began))
	if held.cancelled.Load() && t.State == task.Cancelled || held.gaveUp.Load() {
		return nil // a cancelled request is not answered
	}
	return h.endWaiting(ctx, w, t, err, round)
}

// endWaiting answers a client whose wait for t has ended with err.
func (h hold) endWaiting(ctx context.Context, w *waiting, t task.Task, err error, round int) error {
	switch {
	case err == nil && t.Asks():
		return w.end(h.askToRepeat(t, max(1, round))) // with the state it can come again
	case err == nil:
		return w.deliver(ctx, t, h.dialect().Answer)
	case errors.Is(err, ErrGone), h.gone():
		return ErrGone
	case !errors.Is(err, task.ErrNotReady):
		return w.end(h.waitFailed(err))
	default:
		return w.end(h.notYet(ctx, t, round))
	}
}

// notYet answers a client that has waited long enough in this request: a modern
// one is asked to repeat its request, at most maxRounds times.
func (h hold) notYet(ctx context.Context, t task.Task, round int) []byte {
	if h.era == wire.Modern && round < maxRounds {
		return h.askToRepeat(t, round+1)
	}
	return h.stillPending(ctx, t)
}

// withdraw cancels the task of a modern client that left, if no other request
// waits for it: closing the stream is its way to say so, unless it holds a state
// with which it can come again. A client that closes a pipe may start again and
// repeat the call.
func (h hold) withdraw(ref task.Ref, round int) {
	if h.era != wire.Modern || round > 0 || h.client.Transport().Pipe {
		return
	}
	ctx := context.WithoutCancel(h.reply.Context())
	if _, err := h.hub.cfg.Desk.Cancel(ctx, ref, h.withdrawal("the client closed its request")); err != nil {
		h.hub.cfg.Log.DebugContext(ctx, "task not cancelled", "task_id", ref.ID, "cause", err)
	}
}

// askToRepeat asks a modern client to repeat its request, with what the upstream asks,
// if it does, and with a state that finds the task again.
func (h hold) askToRepeat(t task.Task, round int) []byte {
	asked := []byte("{}")
	if t.Asks() && t.Execution.InputRequests != nil {
		asked = t.Execution.InputRequests
	}
	return h.nextRound(asked, roundState{task: t.ID, round: round})
}

// nextRound asks a modern client to repeat its request with answers to what is asked.
func (h hold) nextRound(asked []byte, s roundState) []byte {
	ctx := context.WithoutCancel(h.reply.Context()) // the answer may be the last before the gate stops
	state, err := h.seal(ctx, useWait, s.String())
	if err != nil {
		return jsonrpc.AppendErrorResponse(nil, h.id, h.dialect().Error(err))
	}
	result := append([]byte(`{"resultType":"input_required","inputRequests":`), asked...)
	result = append(result, `,"requestState":`...)
	result = append(result, jsonrpc.AppendString(nil, state)...)
	return jsonrpc.AppendResult(nil, h.id, append(result, '}'))
}

// A roundState is what a modern client brings back when it comes again.
type roundState struct {
	task    task.ID
	round   int
	invited bool // the gate, and not the upstream, asked something in the last round
}

// String returns the text that readRoundState reads.
func (s roundState) String() string {
	text := string(s.task) + " " + strconv.Itoa(s.round)
	if s.invited {
		text += " invited"
	}
	return text
}

func readRoundState(text string) (roundState, error) {
	id, rest, _ := strings.Cut(text, " ")
	count, invited, _ := strings.Cut(rest, " ")
	round, err := strconv.Atoi(count)
	return roundState{task: task.ID(id), round: round, invited: invited != ""}, err
}

// resumeRound takes up a modern client that repeats its request. The state says which
// task; the call must be the same.
func (h hold) resumeRound(ctx context.Context, m *jsonrpc.Message, state string) error {
	text, err := h.unseal(ctx, useWait, state)
	if errors.Is(err, keyring.ErrForeign) {
		return h.reply.Refuse(&wire.Problem{Type: wire.InvalidParams, Detail: "requestState was not issued to this client, or the gate's key was replaced; " +
			"repeat the call without it: a held call is found again"})
	}
	if err != nil {
		return h.answerFailure(err)
	}
	last, err := readRoundState(text)
	if err != nil {
		return h.reply.Fail(err)
	}
	ref := h.ref(last.task)
	t, err := h.hub.cfg.Desk.Get(ctx, ref)
	if err != nil {
		return h.answerFailure(err)
	}
	if !h.hub.cfg.Desk.Same(t, m.Raw) {
		return h.reply.Refuse(&wire.Problem{Type: wire.InvalidParams, Detail: "requestState belongs to another call"})
	}
	// An answer to the gate's invitation decides nothing, and is not for the upstream.
	if responses := m.Params.Member("inputResponses"); responses.IsObject() && !last.invited {
		if t, err = h.hub.cfg.Desk.Respond(ctx, ref, responses.Bytes, h.send()); err != nil {
			return h.refuseTask(err)
		}
	}
	return h.awaitAgain(ctx, m, t, last.round)
}

// awaitAgain is await for a request that comes for a task which is there already.
func (h hold) awaitAgain(ctx context.Context, m *jsonrpc.Message, t task.Task, round int) error {
	ctx, held := h.expect(ctx, m, h.id)
	defer held.stop()
	held.bind(h.ref(t.ID))
	return h.await(ctx, m, t, round, held)
}

// Resume takes up a client that lost the stream of a request which is held. Place
// is what the client was asked to come back with.
func (r *Request) Resume(ctx context.Context, place string) error {
	text, err := r.unseal(ctx, useResume, place)
	if errors.Is(err, keyring.ErrForeign) {
		return r.reply.Refuse(&wire.Problem{Type: wire.InvalidRequest, Detail: "Last-Event-ID was not issued to this client, or the gate's key was replaced"})
	}
	if err != nil {
		return r.answerFailure(err)
	}
	id, request, _ := strings.Cut(text, " ")
	r.id = []byte(request)
	t, err := r.hub.cfg.Desk.Get(ctx, r.ref(task.ID(id)))
	if err != nil {
		return r.answerFailure(err)
	}
	one, ended := requestOf(t.ID, r.id), t.State.Terminal()
	if t.State == task.Cancelled || r.hub.givenUp.has(one) || ended && r.hub.resumed.has(one) {
		// There are clients that come back for ever as long as they are answered.
		return r.reply.Refuse(&wire.Problem{Type: wire.MethodNotAllowed, Detail: "the call of this stream was answered or cancelled"})
	}
	err = hold{r}.awaitAgain(ctx, new(jsonrpc.Message), t, 0)
	if err == nil && ended && !r.gone() {
		r.hub.resumed.add(one)
	}
	return err
}

// waitResult says, for metrics, how a wait ended.
func (r *Request) waitResult(t task.Task, err error) string {
	switch {
	case r.gone():
		return metrics.WaitGone
	case err != nil || t.State == task.Expired:
		return metrics.WaitTimeout
	case t.Execution == nil:
		return metrics.WaitRejected
	default:
		return metrics.WaitApproved
	}
}
