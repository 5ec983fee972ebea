package conversation

import (
	"context"
	"errors"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// shownTasks says what a client gets of the list of an upstream's tasks.
const shownTasks = "those of the upstream's tasks that are its own"

// A taskList is a request for the tasks of a client.
type taskList struct{ *Request }

// plan returns the plan of a request for tasks. The gate lists its own
// tasks first, page by page. The page with the last of them goes on with the first
// page of the upstream's, so that a client which reads one page only sees both.
// For a further page of its own the upstream is asked.
func (l taskList) plan(ctx context.Context, m *jsonrpc.Message) *Plan {
	owner, shared := l.owner()
	if shared { // it is not known whose tasks they would be
		return &Plan{Kind: Forward, Body: l.body, Shown: shownTasks, Rewrite: func(answer *jsonrpc.Message) []byte {
			return l.showUpstreams(ctx, answer, owner)
		}}
	}
	cursor, upstreams, err := l.openCursor(ctx, m)
	switch {
	case err != nil:
		return answers(func(context.Context) error { return l.answerFailure(err) })
	case upstreams:
		return l.planUpstreams(ctx, m, cursor, owner)
	default:
		return answers(func(ctx context.Context) error { return l.own(ctx, m, cursor, owner) })
	}
}

// own answers with a page of the gate's own tasks.
func (l taskList) own(ctx context.Context, m *jsonrpc.Message, cursor, owner string) error {
	page, err := l.hub.cfg.Desk.List(ctx, owner, cursor, 0)
	if err != nil {
		return l.answerFailure(err)
	}
	var more upstreamPage
	if page.Next != "" {
		page.Next, err = l.seal(ctx, useList, "own "+page.Next)
	} else if more = l.upstreamTasks(ctx, m, owner); more.next != "" {
		page.Next, err = l.seal(ctx, useList, "upstream "+more.next)
	}
	if err != nil {
		return l.answerFailure(err)
	}
	result, err := l.dialect().ListResult(page)
	if err != nil {
		return l.reply.Fail(err)
	}
	return l.answer(jsonrpc.AppendResult(nil, l.id, more.appendedTo(result)))
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
func (l taskList) upstreamTasks(ctx context.Context, m *jsonrpc.Message, owner string) upstreamPage {
	facts := l.hub.cfg.Gate.About(l.client.From())
	if !facts.ListTasks && facts.Session != (policy.Session{}) {
		return upstreamPage{}
	}
	result, err := l.firstUpstreamPage(ctx, m)
	if err != nil {
		l.hub.cfg.Log.WarnContext(l.repeatable(ctx, l.upstream()), "the upstream failed to list its tasks: the client gets only the gate's tasks",
			"upstream", l.upstream(), "cause", err)
		return upstreamPage{}
	}
	next, _ := result.Member("nextCursor").Text()
	return upstreamPage{tasks: l.foreignTasks(ctx, result.Member("tasks"), owner), next: next}
}

// firstUpstreamPage asks the upstream for its tasks from the beginning.
func (l taskList) firstUpstreamPage(ctx context.Context, received *jsonrpc.Message) (jsonrpc.Value, error) {
	m, err := pageRequest(received, "")
	if err != nil {
		return jsonrpc.Value{}, err
	}
	return l.client.Caller().List(ctx, m)
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
func (l taskList) openCursor(ctx context.Context, m *jsonrpc.Message) (cursor string, upstreams bool, err error) {
	sealed := m.Params.Member("cursor")
	if !sealed.Present() {
		return "", false, nil
	}
	text, _ := sealed.Text()
	opened, err := l.unseal(ctx, useList, text)
	if errors.Is(err, keyring.ErrForeign) {
		err = &task.Error{Kind: task.KindInvalidCursor}
	}
	whose, cursor, _ := strings.Cut(opened, " ")
	return cursor, whose == "upstream", err
}

// planUpstreams returns the plan of a request for a further page of the
// upstream's own list: with its own cursor, and with its answer's cursor sealed on
// the way back.
func (l taskList) planUpstreams(ctx context.Context, received *jsonrpc.Message, cursor, owner string) *Plan {
	m, err := pageRequest(received, cursor)
	if err != nil {
		return answers(func(context.Context) error { return l.reply.Fail(err) })
	}
	return &Plan{Kind: Forward, Body: m.Raw, Shown: shownTasks, Rewrite: func(answer *jsonrpc.Message) []byte {
		shown := l.showUpstreams(ctx, answer, owner)
		m, err := l.read(shown)
		if err != nil {
			return shown
		}
		next, ok := m.Result.Member("nextCursor").Text()
		if !ok {
			return shown
		}
		sealed, err := l.seal(ctx, useList, "upstream "+next)
		if err != nil {
			return jsonrpc.AppendErrorResponse(nil, l.id, l.dialect().Error(err))
		}
		var p jsonrpc.Patch
		p.Set(m.Result, "nextCursor", jsonrpc.AppendString(nil, sealed))
		return p.Apply(shown)
	}}
}

// showUpstreams returns a list of the upstream's tasks with those only that the
// client may see.
func (l taskList) showUpstreams(ctx context.Context, answer *jsonrpc.Message, owner string) []byte {
	listed := answer.Result.Member("tasks")
	if !listed.IsArray() {
		return answer.Raw
	}
	var patch jsonrpc.Patch
	patch.Replace(listed, jsonrpc.Array(l.foreignTasks(ctx, listed, owner)))
	return patch.Apply(answer.Raw)
}

// foreignTasks returns the upstream's tasks without those that it made of held
// calls: the client has them as tasks of the gate's. If it is not known which
// those are, none is shown. An upstream's task never has an id that the client
// would take for one of the gate's.
func (l taskList) foreignTasks(ctx context.Context, listed jsonrpc.Value, owner string) [][]byte {
	nested, err := l.hub.cfg.Desk.UpstreamTasks(ctx, owner)
	if err != nil {
		l.hub.cfg.Log.WarnContext(ctx, "tasks of the upstream not listed: it is not known which belong to held calls",
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
