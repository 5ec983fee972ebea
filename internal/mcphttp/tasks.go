package mcphttp

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// longestResult is how long tasks/result waits when nothing else ends it.
const longestResult = 24 * time.Hour

// planTasks returns the plan of a request about tasks, or nil for other messages.
// Requests about tasks that are not the gate's own go to the upstream.
func (x *exchange) planTasks(ctx context.Context, m *jsonrpc.Message, body []byte) *plan {
	if m.Kind != jsonrpc.Request || !strings.HasPrefix(m.Method, "tasks/") {
		return nil
	}
	if m.Method == mcptask.MethodList && x.era == wire.Legacy {
		return x.planListTasks(ctx, m, body)
	}
	extension := x.era == wire.Modern && needsExtension(m.Method)
	if extension && !declaresTasks(m) {
		return answered(func(context.Context) error { return x.answerError(mcptask.MissingExtension()) })
	}
	id, _ := m.Params.TaskID.Text()
	if !task.ID(id).Own() && x.upstreamHasTasks() {
		p := &plan{body: x.toUpstreamTask(ctx, m, body)}
		if extension {
			p.unknown = x.dialect().Error(&task.Error{Kind: task.KindNotFound}) // the gate knows the method, so it is the task that is not known
		}
		return p
	}
	owner, _ := x.owner()
	return answered(func(ctx context.Context) error { return x.aboutTask(ctx, m, task.OwnedBy(owner).Ref(task.ID(id))) })
}

// tellsOfOwnTask reports whether m is a notification about a task of the gate's
// own. There is no such notification from clients, so nothing becomes of it.
func tellsOfOwnTask(m *jsonrpc.Message) bool {
	id, _ := m.Params.TaskID.Text()
	return m.Kind == jsonrpc.Notification && strings.HasPrefix(m.Method, "tasks/") && task.ID(id).Own()
}

// needsExtension reports whether a method is part of the extension that the gate
// declares, so that only clients that declare it too may use it.
func needsExtension(method string) bool {
	return method == mcptask.MethodGet || method == mcptask.MethodUpdate || method == mcptask.MethodCancel
}

// upstreamHasTasks reports whether a task that is not the gate's own can be the
// upstream's. What the upstream is able to do may not be known.
func (x *exchange) upstreamHasTasks() bool {
	facts := x.h.cfg.Gate.About(x.from())
	return facts.Tasks || facts.Session == policy.Session{}
}

// declaresTasks reports whether a modern request says that its sender knows
// tasks.
func declaresTasks(m *jsonrpc.Message) bool {
	return m.Params.Meta.Member(wire.MetaCapabilities).Member("extensions").Member(wire.ExtensionTasks).IsObject()
}

func (x *exchange) aboutTask(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	switch {
	case m.Method == mcptask.MethodGet:
		return x.getTask(ctx, ref)
	case m.Method == mcptask.MethodCancel:
		return x.cancelTask(ctx, ref)
	case m.Method == mcptask.MethodResult && x.era == wire.Legacy:
		return x.taskResult(ctx, m, ref)
	case m.Method == mcptask.MethodUpdate && x.era == wire.Modern:
		return x.updateTask(ctx, m, ref)
	default:
		return x.answerError(methodNotFound())
	}
}

func methodNotFound() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found", Data: []byte(`{"error_type":"method_not_found"}`)}
}

// getTask tells how a task stands. Asking is a sign that the owner is there, so
// it lets an approved call begin.
func (x *exchange) getTask(ctx context.Context, ref task.Ref) error {
	t, err := x.h.cfg.Desk.Contact(ctx, ref, x.send())
	if err != nil {
		return x.refuseTask(err)
	}
	result, err := x.dialect().GetResult(t)
	if err != nil {
		return x.fail(err)
	}
	w := &waiting{x: x} // as if it had waited, for no time
	err = w.compose(x.resultText(result), x.h.cfg.Desk.Open(ctx, t), func() {
		if x.era == wire.Modern && t.State.Terminal() {
			x.delivered(ctx, t) // with the status it has the result, and can ask for it again
		}
	})
	if err == nil || errors.Is(err, errGone) || errors.Is(err, errBrokenOff) {
		return err
	}
	return x.answerError(x.dialect().Error(err))
}

// taskResult waits until a task has ended and answers with what became of it.
func (x *exchange) taskResult(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	t, err := x.h.cfg.Desk.Get(ctx, ref)
	if err != nil {
		return x.answerError(x.dialect().Error(err))
	}
	leave, err := x.enterWaiting()
	if err != nil {
		return x.refuseCrowded(err)
	}
	defer leave()
	w, err := x.beginWaiting(m)
	if err != nil {
		return err
	}
	defer w.tellMeanwhile(ref.ID)()
	t, err = w.wait(ctx, t, longestResult, w.sender())
	switch {
	case err == nil:
		return w.deliver(ctx, t, x.dialect().ResultAnswer)
	case errors.Is(err, errGone), x.ctx.Err() != nil:
		return errGone
	default:
		return w.end(x.waitFailed(err))
	}
}

// cancelTask withdraws a task. A modern client is told that it was heard, also
// when the task has ended.
func (x *exchange) cancelTask(ctx context.Context, ref task.Ref) error {
	owner, _ := x.owner()
	t, err := x.h.cfg.Desk.Cancel(ctx, ref, approval.Withdrawal{By: owner, Reason: "cancelled by the client", Send: x.send()})
	over := errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
	if err != nil && (!over || x.era == wire.Legacy) {
		return x.answerError(x.dialect().Error(err))
	}
	result, err := x.dialect().CancelResult(t)
	if err != nil {
		return x.fail(err)
	}
	return x.answer(jsonrpc.AppendResult(nil, x.id, result))
}

// refuseTask answers a request about a task that failed.
func (x *exchange) refuseTask(err error) error {
	if failed, ok := errors.AsType[*approval.SendError](err); ok {
		return x.refuse(unasked(failed))
	}
	return x.answerError(x.dialect().Error(err))
}

// taskProblem returns the error that tells of a request about a task that failed.
func (x *exchange) taskProblem(err error) *jsonrpc.Error {
	if failed, ok := errors.AsType[*approval.SendError](err); ok {
		return unasked(failed).RPCError(x.era, x.correlationID())
	}
	return x.dialect().Error(err)
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

// updateTask takes what a modern client wants noted on its task, the time that it
// wants the task to live, and its answers to what the upstream asks.
func (x *exchange) updateTask(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	err := updateOwn(ctx, x.h.cfg.Desk, ref, m)
	if responses := m.Params.Member("inputResponses"); err == nil && responses.IsObject() {
		_, err = x.h.cfg.Desk.Respond(ctx, ref, responses.Bytes, x.send())
	}
	if err != nil && !errors.Is(err, task.ErrAlreadyTerminal) {
		return x.refuseTask(err)
	}
	return x.answer(jsonrpc.AppendResult(nil, x.id, []byte(`{"resultType":"complete"}`)))
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

// planListTasks returns the plan of a request for tasks. The gate lists its own
// tasks first, page by page. The page with the last of them goes on with the first
// page of the upstream's, so that a client which reads one page only sees both.
// For a further page of its own the upstream is asked.
func (x *exchange) planListTasks(ctx context.Context, m *jsonrpc.Message, body []byte) *plan {
	owner, shared := x.owner()
	if shared { // nobody can tell whose tasks they would be
		return &plan{body: body, rewrite: func(answer *jsonrpc.Message) []byte { return x.showUpstreams(ctx, answer, owner) }}
	}
	cursor, upstreams, err := x.openCursor(ctx, m, owner)
	switch {
	case err != nil:
		return answered(func(context.Context) error { return x.answerError(x.dialect().Error(err)) })
	case upstreams:
		return x.planUpstreamPage(ctx, m, cursor, owner)
	default:
		return answered(func(ctx context.Context) error { return x.listTasks(ctx, m, cursor, owner) })
	}
}

// listTasks answers with a page of the gate's own tasks.
func (x *exchange) listTasks(ctx context.Context, m *jsonrpc.Message, cursor, owner string) error {
	page, err := x.h.cfg.Desk.List(ctx, owner, cursor, 0)
	if err != nil {
		return x.answerError(x.dialect().Error(err))
	}
	var more upstreamPage
	if page.Next != "" {
		page.Next, err = x.seal(ctx, "list", owner, "own "+page.Next)
	} else if more = x.upstreamTasks(ctx, m, owner); more.next != "" {
		page.Next, err = x.seal(ctx, "list", owner, "upstream "+more.next)
	}
	if err != nil {
		return x.answerError(x.dialect().Error(err))
	}
	result, err := x.dialect().ListResult(page)
	if err != nil {
		return x.fail(err)
	}
	return x.answer(jsonrpc.AppendResult(nil, x.id, more.appendedTo(result)))
}

// An upstreamPage is a page of the upstream's own tasks.
type upstreamPage struct {
	tasks [][]byte
	next  string // the upstream's cursor of the page that follows; empty if none does
}

// appendedTo returns the result of a list of the gate's tasks with those of p
// behind them.
func (p upstreamPage) appendedTo(result []byte) []byte {
	if len(p.tasks) == 0 {
		return result
	}
	listed := jsonrpc.Value{Bytes: result}.Member("tasks")
	var all [][]byte
	for entry := range listed.Elements() {
		all = append(all, entry.Bytes)
	}
	var patch jsonrpc.Patch
	patch.Replace(listed, jsonrpc.Array(append(all, p.tasks...)))
	return patch.Apply(result)
}

// upstreamTasks returns the first page of the upstream's tasks. An upstream that
// does not list tasks, or fails to, counts as one that has none.
func (x *exchange) upstreamTasks(ctx context.Context, m *jsonrpc.Message, owner string) upstreamPage {
	facts := x.h.cfg.Gate.About(x.from())
	if !facts.ListTasks && facts.Session != (policy.Session{}) {
		return upstreamPage{}
	}
	result, err := x.firstUpstreamPage(ctx, m)
	if err != nil {
		x.h.cfg.Log.WarnContext(x.repeatable(ctx, x.upstream.Name()), "the upstream failed to list its tasks: the client gets only the gate's tasks",
			"upstream", x.upstream.Name(), "cause", err)
		return upstreamPage{}
	}
	next, _ := result.Member("nextCursor").Text()
	return upstreamPage{tasks: x.foreignTasks(ctx, result.Member("tasks"), owner), next: next}
}

// firstUpstreamPage asks the upstream for its tasks from the beginning.
func (x *exchange) firstUpstreamPage(ctx context.Context, received *jsonrpc.Message) (jsonrpc.Value, error) {
	ctx, stop := context.WithTimeout(ctx, x.upstream.Silence(httpclient.Plain))
	defer stop()
	m, err := pageRequest(received, "")
	if err != nil {
		return jsonrpc.Value{}, err
	}
	return x.caller().List(ctx, m)
}

// pageRequest returns a request for a list with another cursor, or without one
// if that is empty.
func pageRequest(received *jsonrpc.Message, cursor string) (*jsonrpc.Message, error) {
	m, err := jsonrpc.ParseMessage(received.Raw, jsonrpc.Limits{}) // whose places count from its own start, not from that of the body
	if err != nil {
		return nil, err
	}
	var patch jsonrpc.Patch
	switch {
	case cursor != "":
		patch.Set(m.Params.Value, "cursor", jsonrpc.AppendString(nil, cursor))
	case m.Params.Member("cursor").Present():
		patch.Replace(m.Params.Value, m.Params.Without("cursor"))
	default:
		return m, nil
	}
	return jsonrpc.ParseMessage(patch.Apply(m.Raw), jsonrpc.Limits{})
}

// openCursor returns the cursor that the client was given, and whether it is
// the upstream's.
func (x *exchange) openCursor(ctx context.Context, m *jsonrpc.Message, owner string) (cursor string, upstreams bool, err error) {
	sealed := m.Params.Member("cursor")
	if !sealed.Present() {
		return "", false, nil
	}
	text, _ := sealed.Text()
	opened, err := x.unseal(ctx, "list", owner, text)
	if errors.Is(err, keyring.ErrForeign) {
		err = &task.Error{Kind: task.KindInvalidCursor}
	}
	whose, cursor, _ := strings.Cut(opened, " ")
	return cursor, whose == "upstream", err
}

// planUpstreamPage returns the plan of a request for a further page of the
// upstream's own list: with its own cursor, and with its answer's cursor sealed on
// the way back.
func (x *exchange) planUpstreamPage(ctx context.Context, received *jsonrpc.Message, cursor, owner string) *plan {
	m, err := pageRequest(received, cursor)
	if err != nil {
		return answered(func(context.Context) error { return x.fail(err) })
	}
	return &plan{body: m.Raw, rewrite: func(answer *jsonrpc.Message) []byte {
		shown := x.showUpstreams(ctx, answer, owner)
		m, err := x.readMessage(shown)
		if err != nil {
			return shown
		}
		next, ok := m.Result.Member("nextCursor").Text()
		if !ok {
			return shown
		}
		sealed, err := x.seal(ctx, "list", owner, "upstream "+next)
		if err != nil {
			return jsonrpc.AppendErrorResponse(nil, x.id, x.dialect().Error(err))
		}
		var p jsonrpc.Patch
		p.Set(m.Result, "nextCursor", jsonrpc.AppendString(nil, sealed))
		return p.Apply(shown)
	}}
}

// showUpstreams returns a list of the upstream's tasks with those only that the
// client may see.
func (x *exchange) showUpstreams(ctx context.Context, answer *jsonrpc.Message, owner string) []byte {
	listed := answer.Result.Member("tasks")
	if !listed.IsArray() {
		return answer.Raw
	}
	var patch jsonrpc.Patch
	patch.Replace(listed, jsonrpc.Array(x.foreignTasks(ctx, listed, owner)))
	return patch.Apply(answer.Raw)
}

// foreignTasks returns the upstream's tasks without those that it made of held
// calls: the client has them as tasks of the gate's. If it is not known which
// those are, none is shown. An upstream's task never has an id that the client
// would take for one of the gate's.
func (x *exchange) foreignTasks(ctx context.Context, listed jsonrpc.Value, owner string) [][]byte {
	nested, err := x.h.cfg.Desk.UpstreamTasks(ctx, owner)
	if err != nil {
		x.h.cfg.Log.WarnContext(ctx, "cannot tell which tasks of the upstream belong to held calls: none is listed",
			"cause", err)
		return nil
	}
	var shown [][]byte
	for entry := range listed.Elements() {
		if id, _ := entry.Member("taskId").Text(); nested[id] == "" && !task.ID(id).Own() {
			shown = append(shown, entry.Bytes)
		}
	}
	return shown
}
