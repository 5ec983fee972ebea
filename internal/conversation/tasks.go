package conversation

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A taskRequest is a request about one task.
type taskRequest struct {
	sender     *sender
	out        responder
	registered *registrations
}

func isTaskRequest(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Request && strings.HasPrefix(m.Method, "tasks/")
}

// plan returns the plan of a request about tasks with the given body. Requests about tasks of the
// upstream are forwarded.
func (q taskRequest) plan(ctx context.Context, m *jsonrpc.Message, body []byte) *Plan {
	if m.Method == mcpname.TasksList && q.out.era == mcp.Legacy {
		return taskList{sender: q.sender, out: q.out}.plan(ctx, m, body)
	}
	extension := q.out.era == mcp.Modern && needsExtension(m.Method)
	if extension && !declaresTasks(m) {
		return answers(func(context.Context) error { return q.out.answerError(mcptask.MissingExtension()) })
	}
	id, _ := m.Params.TaskID.Text()
	if !task.ID(id).Own() && q.upstreamHasTasks() {
		p := forward(toUpstreamTask(ctx, q.sender, m, body))
		if extension {
			p.MethodNotFound = q.out.dialect().Error(&task.Error{Kind: task.ErrNotFound}) // the method exists, so the task is unknown
		}
		return p
	}
	return answers(func(ctx context.Context) error { return q.answerAbout(ctx, m, q.sender.ref(task.ID(id))) })
}

// needsExtension reports whether a method is part of the tasks extension. Only clients that
// declare the extension may use it.
func needsExtension(method string) bool {
	return method == mcpname.TasksGet || method == mcpname.TasksUpdate || method == mcpname.TasksCancel
}

// declaresTasks reports whether a modern request declares the tasks extension.
func declaresTasks(m *jsonrpc.Message) bool {
	return m.Params.Meta.Member(mcpname.MetaClientCapabilities).Member("extensions").Member(mcpname.ExtensionTasks).IsObject()
}

// upstreamHasTasks reports whether the upstream may have tasks. Its capabilities may be unknown.
func (q taskRequest) upstreamHasTasks() bool {
	facts := q.out.gateway.cfg.Catalog.Handshake(q.sender.client.Identity())
	return facts.Tasks || facts.Session == policy.Session{}
}

// isAboutOwnTask reports whether m is a notification about a task of the gate. Clients have no
// reason to send one, so it is dropped.
func isAboutOwnTask(m *jsonrpc.Message) bool {
	switch {
	case m.Kind != jsonrpc.Notification:
		return false
	case m.Method == mcpname.SubscriptionsListen:
		own, _ := ownTasks(m.Params.Member("notifications"))
		//mutate:false internal/mcphttp.TestListenNotificationDoesNotSubscribe an upstream learns of a task of the gate from a notification
		return len(own) > 0
	default:
		id, _ := m.Params.TaskID.Text()
		return strings.HasPrefix(m.Method, "tasks/") && task.ID(id).Own()
	}
}

// answerAbout answers a request about a task that is not the upstream's.
func (q taskRequest) answerAbout(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	switch {
	case m.Method == mcpname.TasksGet:
		return q.get(ctx, ref)
	case m.Method == mcpname.TasksCancel:
		return q.cancel(ctx, ref)
	case m.Method == mcpname.TasksResult && q.out.era == mcp.Legacy:
		return q.result(ctx, m, ref)
	case m.Method == mcpname.TasksUpdate && q.out.era == mcp.Modern:
		return q.update(ctx, m, ref)
	default:
		return q.out.answerError(methodNotFound())
	}
}

func methodNotFound() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found", Data: []byte(`{"error_type":"method_not_found"}`)}
}

// get answers with the status of a task. The request shows that the owner is present, so an
// approved call runs.
func (q taskRequest) get(ctx context.Context, ref task.Ref) error {
	t, err := q.out.gateway.cfg.Approvals.Contact(ctx, ref, q.sender.send())
	if err != nil {
		return refuseTask(q.sender, q.out, err)
	}
	result, err := q.out.dialect().GetResult(t)
	if err != nil {
		return q.out.reply.Fail(err)
	}
	text := q.out.resultText(result)
	err = q.out.reply.Compose(func(to io.Writer) error { return text.Compose(to, q.out.gateway.cfg.Approvals.Open(ctx, t)) }, func() {
		if q.out.era == mcp.Modern && t.State.Terminal() {
			q.sender.delivered(ctx, &t) // the status includes the result, which the client can fetch again
		}
	})
	if unsent(err) {
		return q.out.answerFailure(err)
	}
	return err
}

// maxResultWait is how long tasks/result waits at most.
const maxResultWait = 24 * time.Hour

// result waits until a task has ended, and answers with its outcome.
func (q taskRequest) result(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	t, err := q.out.gateway.cfg.Approvals.Get(ctx, ref)
	if err != nil {
		return q.out.answerFailure(err)
	}
	leave, err := enterWaiting(q.sender)
	if err != nil {
		return q.out.reply.Fail(err)
	}
	defer leave()
	w := newWaiting(q.sender, q.out, q.registered, newRefusal())
	w.token = progressToken(m)
	endNotices := func() {}
	defer func() { endNotices() }()
	err = w.open(t, func() error {
		if !t.State.Terminal() {
			endNotices = w.notifyMeanwhile(ref.ID)
		}
		return nil
	})
	if err != nil {
		q.out.gateway.cfg.Approvals.ClientLeft(ctx, ref)
		return err
	}
	t, err = w.wait(ctx, t, maxResultWait, w.send())
	switch {
	case err == nil:
		return w.deliver(ctx, t, q.out.dialect().ResultOutcome)
	case errors.Is(err, ErrGone), q.sender.gone():
		return ErrGone
	default:
		return w.fail(err)
	}
}

// cancel cancels a task. A modern client gets an acknowledgement even if the task has ended.
func (q taskRequest) cancel(ctx context.Context, ref task.Ref) error {
	t, err := q.out.gateway.cfg.Approvals.Cancel(ctx, ref, q.sender.withdrawal("cancelled by the client"))
	over := errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
	if err != nil && (!over || q.out.era == mcp.Legacy) {
		return q.out.answerFailure(err)
	}
	result, err := q.out.dialect().CancelResult(t)
	if err != nil {
		return q.out.reply.Fail(err)
	}
	return q.out.answer(jsonrpc.AppendResult(nil, q.out.id, result))
}

// update changes the variables and the lifetime of a task for a modern client, and takes its
// answers to questions of the upstream.
func (q taskRequest) update(ctx context.Context, m *jsonrpc.Message, ref task.Ref) error {
	err := updateOwn(ctx, q.out.gateway.cfg.Approvals, ref, m)
	if responses := m.Params.Member("inputResponses"); err == nil && responses.IsObject() {
		_, err = q.out.gateway.cfg.Approvals.Respond(ctx, ref, responses.Bytes, q.sender.send())
	}
	if err != nil && !errors.Is(err, task.ErrAlreadyTerminal) {
		return refuseTask(q.sender, q.out, err)
	}
	return q.out.answer(jsonrpc.AppendResult(nil, q.out.id, []byte(`{"resultType":"complete"}`)))
}

// updateOwn changes a task as its owner asks, or nothing if a part of the request is invalid.
func updateOwn(ctx context.Context, approvals *approval.Service, ref task.Ref, m *jsonrpc.Message) error {
	variables, err := clientVariables(m)
	if err != nil {
		return err
	}
	ttl, err := mcptask.UpdatedTTL(m.Params.Member("ttlMs").Bytes)
	if err != nil {
		return err
	}
	if len(variables) > 0 {
		_, err = approvals.SetVariables(ctx, ref, variables)
	} else {
		_, err = approvals.Get(ctx, ref)
	}
	if err == nil && ttl > 0 {
		_, err = approvals.Extend(ctx, ref, ttl)
	}
	return err
}

// clientVariables returns the variables of a task in the metadata of m.
func clientVariables(m *jsonrpc.Message) (task.Variables, error) {
	if !m.Params.Meta.Present() {
		return nil, nil
	}
	var meta schema.Object
	if err := json.Unmarshal(m.Params.Meta.Bytes, &meta); err != nil {
		return nil, err
	}
	return mcptask.ClientVariables(meta), nil
}

// refuseTask answers a request about a task that failed.
func refuseTask(sender *sender, out responder, err error) error {
	failed, ok := errors.AsType[*approval.SendError](err)
	switch {
	case ok && failed.Refusal != nil:
		sender.client.Caller().NoteAccepted() // its next request need not report the refusal again
		return out.reply.Refuse(Refused(failed.Refusal))
	case ok:
		return out.reply.Refuse(unasked(failed))
	default:
		return out.answerFailure(err)
	}
}

// unasked returns the problem of an upstream that could not be asked about its task. The task
// goes on.
func unasked(failed *approval.SendError) *mcp.Problem {
	problem := &mcp.Problem{
		Type: mcp.UpstreamInvalid, Cause: failed, RetryAfter: 1,
		Hint: "the task is still running; ask again",
	}
	switch failed.Stage {
	case lifecycle.StageUpstreamUnreachable:
		problem.Type = mcp.UpstreamDown
	case lifecycle.StageUpstreamTimeout:
		problem.Type = mcp.UpstreamTimeout
	case lifecycle.StageUpstreamGone:
		problem.Type, problem.Hint = mcp.UpstreamTaskGone, ""
	case lifecycle.StageSessionGone:
		problem = Refused(failed.Refusal)
		problem.Hint = "the task is still running; begin again, and ask again"
	default:
	}
	return problem
}

// toUpstreamTask returns the body for the upstream of a message that relates to a task of the
// gate. The task id is replaced by that of the upstream's task, or removed if it has none.
func toUpstreamTask(ctx context.Context, sender *sender, m *jsonrpc.Message, body []byte) []byte {
	id, _ := metaOf(m).Member(mcpname.MetaRelatedTask).Member("taskId").Text()
	if !task.ID(id).Own() {
		return body
	}
	t, err := sender.gateway.cfg.Approvals.Get(ctx, sender.ref(task.ID(id)))
	if err == nil && t.Execution != nil && t.Execution.UpstreamTask != "" {
		return upstream.RenameTask(m, id, t.Execution.UpstreamTask).Raw
	}
	var patch jsonrpc.Patch
	//mutate:swap "mcpname.MetaRelatedTask" "" internal/mcphttp.TestClientMessagesNameNestedTask an upstream reads the id of a task of the gate
	patch.Replace(metaOf(m), metaOf(m).Without(mcpname.MetaRelatedTask))
	return patch.Apply(m.Raw)
}

// metaOf returns the metadata of a message.
func metaOf(m *jsonrpc.Message) jsonrpc.Value {
	if m.Kind == jsonrpc.Response {
		return m.Result.Member("_meta")
	}
	return m.Params.Meta
}

// shownTasks describes the filtered list of an upstream's tasks.
const shownTasks = "its own tasks of the upstream"

// A taskList is a request for the tasks of a client.
type taskList struct {
	sender *sender
	out    responder
}

// plan returns the plan of a request for tasks. The gate lists its own tasks first. The page with
// the last of them also has the first page of the upstream's tasks, so that a client that reads
// only one page sees both. Requests for further pages are forwarded.
func (l taskList) plan(ctx context.Context, m *jsonrpc.Message, body []byte) *Plan {
	owner, shared := l.sender.owner()
	if shared { // it is unknown which tasks belong to this client
		return &Plan{Kind: Forward, Body: body, RewriteNote: shownTasks, Rewrite: func(answer *jsonrpc.Message) []byte {
			return l.showUpstreamTasks(ctx, answer, owner)
		}}
	}
	cursor, upstreams, err := l.openCursor(ctx, m)
	switch {
	case err != nil:
		return answers(func(context.Context) error { return l.out.answerFailure(err) })
	case upstreams:
		return l.planUpstreamPage(ctx, m, cursor, owner)
	default:
		return answers(func(ctx context.Context) error { return l.own(ctx, m, cursor, owner) })
	}
}

// own answers with a page of the gate's tasks.
func (l taskList) own(ctx context.Context, m *jsonrpc.Message, cursor, owner string) error {
	page, err := l.out.gateway.cfg.Approvals.List(ctx, owner, cursor, 0)
	if err != nil {
		return l.out.answerFailure(err)
	}
	var more upstreamPage
	if page.Next != "" {
		page.Next, err = l.sender.seal(ctx, useList, "own "+page.Next)
	} else if more = l.upstreamTasks(ctx, m, owner); more.next != "" {
		page.Next, err = l.sender.seal(ctx, useList, "upstream "+more.next)
	}
	if err != nil {
		return l.out.answerFailure(err)
	}
	result, err := l.out.dialect().ListResult(page)
	if err != nil {
		return l.out.reply.Fail(err)
	}
	return l.out.answer(jsonrpc.AppendResult(nil, l.out.id, more.appendedTo(result)))
}

// An upstreamPage is a page of the upstream's tasks.
type upstreamPage struct {
	tasks [][]byte
	next  string // the upstream's cursor of the next page; empty for the last
}

// appendedTo returns a list of the gate's tasks with those of p appended.
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

// upstreamListsTasks reports whether the upstream may list tasks. Its capabilities may be
// unknown.
func (l taskList) upstreamListsTasks() bool {
	facts := l.out.gateway.cfg.Catalog.Handshake(l.sender.client.Identity())
	return facts.ListTasks || facts.Session == policy.Session{}
}

// upstreamTasks returns the first page of the upstream's tasks. It is empty if the upstream does
// not list tasks, or fails.
func (l taskList) upstreamTasks(ctx context.Context, m *jsonrpc.Message, owner string) upstreamPage {
	if !l.upstreamListsTasks() {
		return upstreamPage{}
	}
	result, err := l.firstUpstreamPage(ctx, m)
	if err != nil {
		l.out.gateway.cfg.Log.WarnContext(l.sender.repeatable(ctx, l.sender.upstream()), "upstream failed to list its tasks; the client gets only the tasks of the gate",
			"upstream", l.sender.upstream(), "err", err)
		return upstreamPage{}
	}
	next, _ := result.Member("nextCursor").Text()
	return upstreamPage{tasks: l.visibleTasks(ctx, result.Member("tasks"), owner), next: next}
}

// firstUpstreamPage asks the upstream for the first page of its tasks.
func (l taskList) firstUpstreamPage(ctx context.Context, received *jsonrpc.Message) (jsonrpc.Value, error) {
	m, err := pageRequest(received, "")
	if err != nil {
		return jsonrpc.Value{}, err
	}
	return l.sender.client.Caller().List(ctx, m)
}

// pageRequest returns m with another cursor, or without one if cursor is empty.
func pageRequest(m *jsonrpc.Message, cursor string) (*jsonrpc.Message, error) {
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

// openCursor returns the cursor in the request, and whether it is one of the upstream.
func (l taskList) openCursor(ctx context.Context, m *jsonrpc.Message) (cursor string, upstreams bool, err error) {
	sealed := m.Params.Member("cursor")
	if !sealed.Present() {
		return "", false, nil
	}
	text, _ := sealed.Text()
	opened, err := l.sender.unseal(ctx, useList, text)
	if errors.Is(err, keyring.ErrForeign) {
		err = &task.Error{Kind: task.ErrInvalidCursor}
	}
	whose, cursor, _ := strings.Cut(opened, " ")
	return cursor, whose == "upstream", err
}

// planUpstreamPage returns the plan of a request for a further page of the upstream's tasks. It
// is forwarded with the upstream's cursor, and the cursor in the answer is sealed.
func (l taskList) planUpstreamPage(ctx context.Context, received *jsonrpc.Message, cursor, owner string) *Plan {
	m, err := pageRequest(received, cursor)
	if err != nil {
		return answers(func(context.Context) error { return l.out.reply.Fail(err) })
	}
	return &Plan{Kind: Forward, Body: m.Raw, RewriteNote: shownTasks, Rewrite: func(answer *jsonrpc.Message) []byte {
		shown := l.showUpstreamTasks(ctx, answer, owner)
		m, err := l.sender.read(shown)
		if err != nil {
			return shown
		}
		next, ok := m.Result.Member("nextCursor").Text()
		if !ok {
			return shown
		}
		sealed, err := l.sender.seal(ctx, useList, "upstream "+next)
		if err != nil {
			return jsonrpc.AppendErrorResponse(nil, l.out.id, l.out.dialect().Error(err))
		}
		var p jsonrpc.Patch
		p.Set(m.Result, "nextCursor", jsonrpc.AppendString(nil, sealed))
		return p.Apply(shown)
	}}
}

// showUpstreamTasks returns a list of the upstream's tasks, filtered for the client.
func (l taskList) showUpstreamTasks(ctx context.Context, answer *jsonrpc.Message, owner string) []byte {
	listed := answer.Result.Member("tasks")
	if !listed.IsArray() {
		return answer.Raw
	}
	var patch jsonrpc.Patch
	patch.Replace(listed, jsonrpc.Array(l.visibleTasks(ctx, listed, owner)))
	return patch.Apply(answer.Raw)
}

// visibleTasks returns the upstream's tasks without those for held calls, because the client has
// these as tasks of the gate. If they cannot be looked up, it returns none. Tasks with ids that
// look like ids of the gate are left out.
func (l taskList) visibleTasks(ctx context.Context, listed jsonrpc.Value, owner string) [][]byte {
	nested, err := l.out.gateway.cfg.Approvals.UpstreamTasks(ctx, owner)
	if err != nil {
		l.out.gateway.cfg.Log.WarnContext(ctx, "cannot look up the tasks of held calls; tasks of the upstream are not listed",
			"err", err)
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
