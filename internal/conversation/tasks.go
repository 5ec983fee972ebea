package conversation

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// longestResult is how long tasks/result waits when nothing else ends it.
const longestResult = 24 * time.Hour

// A taskRequest is a request about tasks.
type taskRequest struct{ *Request }

// plan returns the plan of a request about tasks, or nil for other messages.
// Requests about tasks that are not the gate's own go to the upstream.
func (q taskRequest) plan(ctx context.Context, m *jsonrpc.Message) *Plan {
	if m.Kind != jsonrpc.Request || !strings.HasPrefix(m.Method, "tasks/") {
		return nil
	}
	if m.Method == mcptask.MethodList && q.era == wire.Legacy {
		return taskList(q).plan(ctx, m)
	}
	extension := q.era == wire.Modern && needsExtension(m.Method)
	if extension && !declaresTasks(m) {
		return answers(func(context.Context) error { return q.AnswerError(mcptask.MissingExtension()) })
	}
	id, _ := m.Params.TaskID.Text()
	if !task.ID(id).Own() && q.upstreamHasTasks() {
		p := forward(q.toUpstreamTask(ctx, m))
		if extension {
			p.Unknown = q.dialect().Error(&task.Error{Kind: task.KindNotFound}) // the gate knows the method, so it is the task that is not known
		}
		return p
	}
	return answers(func(ctx context.Context) error { return q.answerAbout(ctx, m, q.ref(task.ID(id))) })
}

// isAboutOwnTask reports whether m is a notification about a task of the gate's
// own. There is no such notification from clients, so nothing becomes of it.
func isAboutOwnTask(m *jsonrpc.Message) bool {
	switch {
	case m.Kind != jsonrpc.Notification:
		return false
	case m.Method == methodListen:
		own, _ := ownTasks(m.Params.Member("notifications"))
		return len(own) > 0
	default:
		id, _ := m.Params.TaskID.Text()
		return strings.HasPrefix(m.Method, "tasks/") && task.ID(id).Own()
	}
}

// needsExtension reports whether a method is part of the extension that the gate
// declares, so that only clients that declare it too may use it.
func needsExtension(method string) bool {
	return method == mcptask.MethodGet || method == mcptask.MethodUpdate || method == mcptask.MethodCancel
}

// upstreamHasTasks reports whether a task that is not the gate's own can be the
// upstream's. The abilities of the upstream may be unknown.
func (q taskRequest) upstreamHasTasks() bool {
	facts := q.hub.cfg.Gate.About(q.client.From())
	return facts.Tasks || facts.Session == policy.Session{}
}

// answerAbout answers a request about a task of the gate's own, or of nobody's.
func (q taskRequest) answerAbout(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	switch {
	case m.Method == mcptask.MethodGet:
		return q.get(ctx, ref)
	case m.Method == mcptask.MethodCancel:
		return q.cancel(ctx, ref)
	case m.Method == mcptask.MethodResult && q.era == wire.Legacy:
		return q.result(ctx, m, ref)
	case m.Method == mcptask.MethodUpdate && q.era == wire.Modern:
		return q.update(ctx, m, ref)
	default:
		return q.AnswerError(methodNotFound())
	}
}

func methodNotFound() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found", Data: []byte(`{"error_type":"method_not_found"}`)}
}

// get answers how a task stands. Asking is a sign that the owner is there, so
// it lets an approved call begin.
func (q taskRequest) get(ctx context.Context, ref task.Ref) error {
	t, err := q.hub.cfg.Desk.Contact(ctx, ref, q.send())
	if err != nil {
		return q.refuseTask(err)
	}
	result, err := q.dialect().GetResult(t)
	if err != nil {
		return q.reply.Fail(err)
	}
	text := q.resultText(result)
	err = q.reply.Compose(func(to io.Writer) error { return text.Compose(to, q.hub.cfg.Desk.Open(ctx, t)) }, func() {
		if q.era == wire.Modern && t.State.Terminal() {
			q.delivered(ctx, &t) // with the status it has the result, and can ask for it again
		}
	})
	if unsent(err) {
		return q.answerFailure(err)
	}
	return err
}

// result waits until a task has ended and answers with what became of it.
func (q taskRequest) result(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	t, err := q.hub.cfg.Desk.Get(ctx, ref)
	if err != nil {
		return q.answerFailure(err)
	}
	leave, err := q.EnterWaiting()
	if err != nil {
		return q.reply.Fail(err)
	}
	defer leave()
	w := &waiting{Request: q.Request, token: progressToken(m)}
	if err := w.begin(); err != nil {
		q.hub.cfg.Desk.Gone(ctx, ref)
		return err
	}
	defer w.notifyMeanwhile(ref.ID)()
	t, err = w.wait(ctx, t, longestResult, w.sender())
	switch {
	case err == nil:
		return w.deliver(ctx, t, q.dialect().ResultAnswer)
	case errors.Is(err, ErrGone), q.gone():
		return ErrGone
	default:
		return w.end(q.waitFailed(err))
	}
}

// cancel withdraws a task. A modern client gets an acknowledgement, also
// when the task has ended.
func (q taskRequest) cancel(ctx context.Context, ref task.Ref) error {
	t, err := q.hub.cfg.Desk.Cancel(ctx, ref, q.withdrawal("cancelled by the client"))
	over := errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
	if err != nil && (!over || q.era == wire.Legacy) {
		return q.answerFailure(err)
	}
	result, err := q.dialect().CancelResult(t)
	if err != nil {
		return q.reply.Fail(err)
	}
	return q.answer(jsonrpc.AppendResult(nil, q.id, result))
}

// refuseTask answers a request about a task that failed.
func (r *Request) refuseTask(err error) error {
	if failed, ok := errors.AsType[*approval.SendError](err); ok {
		return r.reply.Refuse(unasked(failed))
	}
	return r.answerFailure(err)
}

// taskProblem returns the error for a request about a task that failed.
func (r *Request) taskProblem(err error) *jsonrpc.Error {
	if failed, ok := errors.AsType[*approval.SendError](err); ok {
		return unasked(failed).RPCError(r.era, r.reply.Correlation())
	}
	return r.dialect().Error(err)
}

// unasked returns the problem of an upstream that could not be asked about its
// task. The task goes on, and the client may ask again.
func unasked(failed *approval.SendError) *wire.Problem {
	problem := &wire.Problem{
		Type: wire.UpstreamInvalid, Cause: failed, RetryAfter: 1,
		Hint: "the task is still running; ask again",
	}
	switch failed.Stage {
	case task.StageUpstreamUnreachable:
		problem.Type = wire.UpstreamDown
	case task.StageUpstreamTimeout:
		problem.Type = wire.UpstreamTimeout
	case task.StageUpstreamGone:
		problem.Type, problem.Hint = wire.UpstreamTaskGone, ""
	default:
	}
	return problem
}

// update takes what a modern client wants noted on its task, the time that it
// wants the task to live, and its answers to what the upstream asks.
func (q taskRequest) update(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	err := updateOwn(ctx, q.hub.cfg.Desk, ref, m)
	if responses := m.Params.Member("inputResponses"); err == nil && responses.IsObject() {
		_, err = q.hub.cfg.Desk.Respond(ctx, ref, responses.Bytes, q.send())
	}
	if err != nil && !errors.Is(err, task.ErrAlreadyTerminal) {
		return q.refuseTask(err)
	}
	return q.answer(jsonrpc.AppendResult(nil, q.id, []byte(`{"resultType":"complete"}`)))
}

// updateOwn changes a task of the gate's as its owner wants, or nothing of it if
// something of what the owner wants makes no sense.
func updateOwn(ctx context.Context, desk *approval.Desk, ref task.Ref, m *jsonrpc.Message) error {
	variables, err := clientVariables(m)
	if err != nil {
		return err
	}
	ttl, err := mcptask.UpdatedTTL(m.Params.Member("ttlMs").Bytes)
	if err != nil {
		return err
	}
	if len(variables) > 0 {
		_, err = desk.SetVariables(ctx, ref, variables)
	} else {
		_, err = desk.Get(ctx, ref)
	}
	if err == nil && ttl > 0 {
		_, err = desk.Extend(ctx, ref, ttl)
	}
	return err
}

// clientVariables returns what the client wants noted on a task.
func clientVariables(m *jsonrpc.Message) (task.Variables, error) {
	if !m.Params.Meta.Present() {
		return nil, nil
	}
	var meta mcptask.Object
	if err := json.Unmarshal(m.Params.Meta.Bytes, &meta); err != nil {
		return nil, err
	}
	return mcptask.ClientVariables(meta), nil
}
