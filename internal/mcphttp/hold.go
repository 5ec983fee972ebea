package mcphttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// maxRounds is how often a modern client is sent round again before it gets the
// pending answer. Clients give up after about ten.
const maxRounds = 9

// Waiting says how long clients are kept waiting in their requests.
type Waiting struct {
	Hold     time.Duration // before a client is told to come again
	Longest  time.Duration // for a client that is told of progress meanwhile
	Beat     time.Duration // between two signs of life
	PerOwner int           // how many requests of one client may wait at a time; 0 means any number
	Pending  mcptask.Status
	Drafts   bool // tell modern clients of approvals as drafts of MCP propose

	WholeBatches bool          // hold all of a batch of which something needs approval
	Texts        *keyring.Ring // seals what clients hand back; shared by all replicas. Nil: a key of this handler's own

	Events Events
}

func (x *exchange) dialect() mcptask.Dialect {
	return mcptask.Dialect{Era: mcptask.Era(x.era), PendingStatus: x.h.settings().Waiting.Pending, Drafts: x.h.settings().Waiting.Drafts}
}

// toDesk makes a task of a call.
func (x *exchange) toDesk(ctx context.Context, m *jsonrpc.Message, j gate.Judged, send approval.Sender) (task.Task, error) {
	variables, err := clientVariables(m)
	if err != nil {
		return task.Task{}, err
	}
	var ttl time.Duration
	if x.era == wire.Legacy { // modern requests have no such member
		ttl, _ = task.ParseTTL(m.Params.Task.Member("ttl").Bytes) // was checked before
	}
	call := approval.Call{
		Upstream: x.upstream.Name(),
		Message:  m.Raw, Verdict: j.Verdict, TTL: ttl, Variables: variables, Session: j.Session, Send: send,
		Trace: x.span.Traceparent(), Correlation: x.correlationID(),
		Tool: approval.Tool{
			Description: j.Tool.Description, Annotations: j.Tool.Annotations, Digest: j.Tool.DigestText(),
		},
	}
	x.identify(&call)
	t, _, err := x.h.cfg.Desk.Hold(ctx, call)
	if err != nil {
		x.h.cfg.Log.InfoContext(ctx, "call not held", "cause", err)
	}
	return t, err
}

// createTask answers a client that knows tasks with one.
func (x *exchange) createTask(ctx context.Context, m *jsonrpc.Message, j gate.Judged) error {
	t, err := x.toDesk(ctx, m, j, x.send())
	if err != nil {
		return x.notHeld(err)
	}
	result, err := x.dialect().CreateResult(t)
	if err != nil {
		return x.fail(err)
	}
	return x.answer(jsonrpc.AppendResult(nil, x.id, result))
}

// hold keeps a client that does not know tasks waiting in its request.
func (x *exchange) hold(ctx context.Context, m *jsonrpc.Message, j gate.Judged) error {
	t, err := x.toDesk(ctx, m, j, nil)
	if err != nil {
		return x.notHeld(err)
	}
	return x.awaitTask(ctx, m, t, 0)
}

// awaitTask waits for the task of m and answers with what became of it, or
// with when to come again. Round counts the requests in which a modern client
// has waited already.
func (x *exchange) awaitTask(ctx context.Context, m *jsonrpc.Message, t task.Task, round int) (err error) {
	if !t.State.Terminal() {
		leave, err := x.enterWaiting()
		if err != nil {
			return x.answer(x.stillPending(t)) // too many wait already: this one comes again later
		}
		defer leave()
	}
	owner, _ := x.owner()
	ref := task.OwnedBy(owner).Ref(t.ID)
	x.h.held.join(ref.ID) // before the client hears anything: another one that leaves must not withdraw the call
	defer func() {
		if last := x.h.held.leave(ref.ID); last && errors.Is(err, errGone) {
			x.withdraw(ref, round)
		}
	}()
	defer x.release(x.h.held.add(x.peer(), x.id, ref))
	w, err := x.beginWaiting(m)
	if err != nil {
		return err
	}
	if err := w.prime(owner, t.ID); err != nil {
		return err
	}
	began := time.Now()
	w.lend()
	t, err = w.wait(ctx, t, x.patience(m), w.sender())
	x.h.cfg.Metrics.WaitEnded(x.waitResult(t, err), time.Since(began))
	return x.endWaiting(ctx, w, t, err, round)
}

// endWaiting answers a client whose wait for t has ended with err.
func (x *exchange) endWaiting(ctx context.Context, w *waiting, t task.Task, err error, round int) error {
	switch {
	case err == nil && t.Asks():
		return w.end(x.comeAgain(t, max(1, round))) // with the state it can come again
	case err == nil:
		return w.deliver(ctx, t, x.dialect().Answer)
	case errors.Is(err, errGone), x.ctx.Err() != nil:
		return errGone
	case !errors.Is(err, task.ErrNotReady):
		return w.end(x.waitFailed(err))
	default:
		return w.end(x.notYet(t, round))
	}
}

// waitResult says, for metrics, how a wait ended.
func (x *exchange) waitResult(t task.Task, err error) string {
	switch {
	case x.ctx.Err() != nil:
		return metrics.WaitGone
	case err != nil || t.State == task.Expired:
		return metrics.WaitTimeout
	case t.Execution == nil:
		return metrics.WaitRejected
	default:
		return metrics.WaitApproved
	}
}

// notYet answers a client that has waited long enough in this request: a modern
// one is sent round again, as long as it will go.
func (x *exchange) notYet(t task.Task, round int) []byte {
	if x.era == wire.Modern && round < maxRounds {
		return x.comeAgain(t, round+1)
	}
	return x.stillPending(t)
}

// patience is how long the client may be kept waiting: as long as approval can
// take if it is shown progress, which is what keeps clients from giving up.
func (x *exchange) patience(m *jsonrpc.Message) time.Duration {
	if progressToken(m).Present() {
		return x.h.settings().Waiting.Longest
	}
	return x.h.settings().Waiting.Hold
}

func (x *exchange) delivered(ctx context.Context, t task.Task) {
	if x.ctx.Err() != nil {
		return // what was written has not arrived, as far as can be known
	}
	owner, _ := x.owner()
	err := x.h.cfg.Desk.Delivered(context.WithoutCancel(ctx), task.OwnedBy(owner).Ref(t.ID))
	if err != nil {
		x.h.cfg.Log.WarnContext(approval.About(ctx, t), "delivery not noted", "cause", err)
	}
}

// withdraw cancels the task of a modern client that left, if no other request
// waits for it: closing the stream is its way to say so, unless it holds a state
// with which it can come again.
func (x *exchange) withdraw(ref task.Ref, round int) {
	if x.era != wire.Modern || round > 0 || x.told {
		return
	}
	owner, _ := x.owner()
	ctx := context.WithoutCancel(x.ctx)
	if _, err := x.h.cfg.Desk.Cancel(ctx, ref, approval.Withdrawal{By: owner, Reason: "the client closed its request", Send: x.send()}); err != nil {
		x.h.cfg.Log.DebugContext(ctx, "task not cancelled", "task_id", ref.ID, "cause", err)
	}
}

// comeAgain sends a modern client round once more, with what the upstream asks,
// if it does, and a state that finds the task again.
func (x *exchange) comeAgain(t task.Task, round int) []byte {
	owner, _ := x.owner()
	ctx := context.WithoutCancel(x.ctx) // the answer may be the last before the gate stops
	state, err := x.seal(ctx, "wait", owner, string(t.ID)+" "+strconv.Itoa(round))
	if err != nil {
		return jsonrpc.AppendErrorResponse(nil, x.id, x.dialect().Error(err))
	}
	asked := []byte("{}")
	if t.Asks() && t.Execution.InputRequests != nil {
		asked = t.Execution.InputRequests
	}
	result := append([]byte(`{"resultType":"input_required","inputRequests":`), asked...)
	result = append(result, `,"requestState":`...)
	result = append(result, jsonrpc.AppendString(nil, state)...)
	return jsonrpc.AppendResult(nil, x.id, append(result, '}'))
}

// resume takes a modern client up that comes again. The state says which task;
// the call must be the same.
func (x *exchange) resume(ctx context.Context, m *jsonrpc.Message, state string) error {
	owner, _ := x.owner()
	text, err := x.unseal(ctx, "wait", owner, state)
	if errors.Is(err, keyring.ErrForeign) {
		return x.refuse(&wire.Problem{Type: wire.InvalidParams, Detail: "requestState was not issued to this client, or the gate's key was replaced; " +
			"repeat the call without it: a held call is found again"})
	}
	if err != nil {
		return x.answerError(x.dialect().Error(err))
	}
	id, count, _ := strings.Cut(text, " ")
	round, err := strconv.Atoi(count)
	if err != nil {
		return x.fail(err)
	}
	t, err := x.h.cfg.Desk.Get(ctx, task.OwnedBy(owner).Ref(task.ID(id)))
	if err != nil {
		return x.answerError(x.dialect().Error(err))
	}
	if !approval.SameCall(t, m.Raw) {
		return x.refuse(&wire.Problem{Type: wire.InvalidParams, Detail: "requestState belongs to another call"})
	}
	if responses := m.Params.Member("inputResponses"); responses.IsObject() {
		if t, err = x.h.cfg.Desk.Respond(ctx, task.OwnedBy(owner).Ref(t.ID), responses.Bytes, x.send()); err != nil {
			return x.refuseTask(err)
		}
	}
	return x.awaitTask(ctx, m, t, round)
}

// Texts for a model whose call has no answer yet. They say that the call ran, or
// did not run, only if that is so.
const (
	textUndecided = "This call is waiting for a person to approve it. It has not run. " +
		"Call the tool again with the same arguments to wait for it and get its result."
	textRunning = "This call was approved and is running. " +
		"Call the tool again with the same arguments to get its result; it will not run twice."
)

// stillPending tells a model how its call stands, and what to do.
func (x *exchange) stillPending(t task.Task) []byte { return x.pendingAnswer(t, t.Call.Method) }

// pendingAnswer is stillPending for a request with the given method that t is
// about, maybe among others.
func (x *exchange) pendingAnswer(t task.Task, method string) []byte {
	if method != "tools/call" {
		return x.errorMessage((&wire.Problem{Type: wire.ApprovalPending, RetryAfter: int(t.PollInterval.Seconds())}).
			RPCError(x.era, x.correlationID()))
	}
	text := textRunning
	if t.State == task.InputRequired {
		text = textUndecided
	}
	result := append([]byte(`{"content":[{"type":"text","text":`), jsonrpc.AppendString(nil, text)...)
	result = append(result, `}],"isError":true`...)
	if x.era == wire.Modern {
		result = append(result, `,"resultType":"complete"`...)
		if meta := x.dialect().Denied(string(wire.ApprovalPending), mcptask.RemediationAvailable, t.ID); meta != nil {
			result = append(append(result, `,"_meta":`...), meta...)
		}
	}
	return jsonrpc.AppendResult(nil, x.id, append(result, '}'))
}

// messageOf returns an answer of the gate's own as a message.
func (x *exchange) messageOf(a mcptask.Answer) []byte {
	if a.Error.Present() {
		return x.errorMessage(a.Err(nil))
	}
	message, err := x.resultText(a.Result).Whole(nil)
	if err != nil {
		return x.errorMessage(x.dialect().Error(err))
	}
	return message
}

// errorMessage returns the message that carries e, with the name under which
// logs speak of it.
func (x *exchange) errorMessage(e *jsonrpc.Error) []byte {
	data := jsonrpc.Value{Bytes: e.Data}
	if data.IsObject() {
		var patch jsonrpc.Patch
		patch.Set(data, "correlation_id", jsonrpc.AppendString(nil, x.correlationID()))
		e.Data = patch.Apply(e.Data)
	}
	kind, _ := data.Member("error_type").Text()
	x.problem = &wire.Problem{Type: wire.Type(kind), Detail: e.Message}
	return jsonrpc.AppendErrorResponse(nil, x.id, e)
}

// notHeld answers a call that could not become a task.
func (x *exchange) notHeld(err error) error {
	if _, known := errors.AsType[*task.Error](err); !known || errors.Is(err, task.ErrUnavailable) {
		return x.refuse(x.storeFailed(err))
	}
	status := http.StatusOK
	if x.era == wire.Modern && errors.Is(err, task.ErrClosed) {
		status = http.StatusServiceUnavailable
	}
	return x.answerWith(status, x.messageOf(x.dialect().Refuse(err)))
}

// storeFailed returns the problem of a request for which the store is needed and
// cannot be used, because of err.
func (x *exchange) storeFailed(err error) *wire.Problem {
	p := wire.StoreFailed(x.era, err)
	if errors.Is(err, task.ErrOutdated) {
		p.Detail = "this gate is older than its store and must be updated before it can hold calls; it did not run"
	}
	return p
}

// answerError answers with an error that belongs to the request, with the HTTP
// status that modern clients expect of it.
func (x *exchange) answerError(e *jsonrpc.Error) error {
	status := http.StatusOK
	if x.era == wire.Modern {
		switch e.Code {
		case wire.CodeMissingCapability:
			status = http.StatusBadRequest
		case jsonrpc.CodeMethodNotFound:
			status = http.StatusNotFound
		}
		if kind, _ := (jsonrpc.Value{Bytes: e.Data}).Member("error_type").Text(); kind == string(wire.StoreUnavailable) {
			status = http.StatusServiceUnavailable
		}
	}
	return x.answerWith(status, x.errorMessage(e))
}
