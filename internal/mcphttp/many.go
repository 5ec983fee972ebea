package mcphttp

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// governMany is govern for a batch.
func (x *exchange) governMany(ctx context.Context, p jsonrpc.Packet, body []byte) ([]byte, bool) {
	if x.h.cfg.Desk != nil {
		p, body = x.answerOwnTasks(ctx, p, body)
	}
	switch {
	case len(p.Messages) == 0:
		x.answer(jsonrpc.Array(x.refusals))
		x.handOver(ctx)
		return nil, false
	case x.h.settings().Waiting.WholeBatches && x.h.cfg.Desk != nil:
		return x.governWhole(ctx, p, body)
	default:
		return x.governBatch(ctx, p, body)
	}
}

// answerOwnTasks answers the requests of a batch that are about the gate's own
// tasks, and returns the rest of the batch.
func (x *exchange) answerOwnTasks(ctx context.Context, p jsonrpc.Packet, body []byte) (jsonrpc.Packet, []byte) {
	rest := p
	rest.Messages = nil
	for i := range p.Messages {
		if answer := x.ownTaskInBatch(ctx, &p.Messages[i]); answer != nil {
			x.refusals = append(x.refusals, answer)
		} else {
			rest.Messages = append(rest.Messages, p.Messages[i])
		}
	}
	if len(rest.Messages) == len(p.Messages) {
		return p, body
	}
	var raw [][]byte
	for i := range rest.Messages {
		raw = append(raw, rest.Messages[i].Raw)
	}
	return rest, jsonrpc.Array(raw)
}

// ownTaskInBatch returns the answer to a request about a task of the gate's own,
// or nil for any other message. It does not wait: the rest of the batch would.
func (x *exchange) ownTaskInBatch(ctx context.Context, m *jsonrpc.Message) []byte {
	id, _ := m.Params.TaskID.Text()
	if m.Kind != jsonrpc.Request || !strings.HasPrefix(m.Method, "tasks/") || !task.ID(id).Own() {
		return nil
	}
	x.id = m.ID.Bytes
	defer func() { x.id = nil }()
	owner, _ := x.owner()
	ref := task.OwnedBy(owner).Ref(task.ID(id))
	switch m.Method {
	case mcptask.MethodGet:
		t, err := x.h.cfg.Desk.Contact(ctx, ref, x.send())
		return x.taskMessage(t, err, x.dialect().GetResult)
	case mcptask.MethodCancel:
		t, err := x.h.cfg.Desk.Cancel(ctx, ref, approval.Withdrawal{By: owner, Reason: "cancelled by the client", Send: x.send()})
		return x.taskMessage(t, err, func(t task.Task) (mcptask.Text, error) {
			result, err := x.dialect().CancelResult(t)
			return mcptask.Text{}.Around(string(result), ""), err
		})
	case mcptask.MethodResult:
		t, err := x.h.cfg.Desk.Contact(ctx, ref, x.send())
		return x.resultInBatch(ctx, t, err)
	default:
		return x.errorMessage(methodNotFound())
	}
}

// taskMessage returns the message that tells how t stands, as shown tells it.
func (x *exchange) taskMessage(t task.Task, err error, shown func(task.Task) (mcptask.Text, error)) []byte {
	var text mcptask.Text
	if err == nil {
		text, err = shown(t)
	}
	if err == nil {
		var message []byte
		if message, err = x.resultText(text).Whole(nil); err == nil {
			return message
		}
	}
	return x.errorMessage(x.taskProblem(err))
}

// resultInBatch returns the answer to a request for the result of t.
func (x *exchange) resultInBatch(ctx context.Context, t task.Task, err error) []byte {
	switch {
	case err != nil:
		return x.errorMessage(x.taskProblem(err))
	case !t.State.Terminal():
		pending := &wire.Problem{Type: wire.ApprovalPending, RetryAfter: int(t.PollInterval.Seconds())}
		return x.errorMessage(pending.RPCError(x.era, x.correlationID()))
	default:
		return x.outcomeMessage(ctx, t, x.dialect().ResultAnswer)
	}
}

// governBatch judges the messages of a batch one by one. Those that may pass
// are forwarded together; the others are answered by the gate.
func (x *exchange) governBatch(ctx context.Context, p jsonrpc.Packet, body []byte) ([]byte, bool) {
	var passed [][]byte
	for i := range p.Messages {
		m := &p.Messages[i]
		judged, problem := x.judgeInBatch(ctx, m)
		switch {
		case problem == nil && judged.Handling == policy.PassOn:
			passed = append(passed, m.Raw)
			x.ids = append(x.ids, requestIDs(m)...)
		case problem == nil:
			x.refusals = append(x.refusals, x.pendingInBatch(ctx, m, judged))
		case m.Kind == jsonrpc.Request:
			x.refusals = append(x.refusals, problem.AppendResponse(nil, x.era, m.ID.Bytes, x.correlationID()))
			x.problem = problem
		default:
			x.problem = problem
		}
	}
	switch {
	case len(passed) == len(p.Messages):
		return body, true
	case len(passed) > 0:
		return jsonrpc.Array(passed), true
	case len(x.refusals) > 0:
		x.answer(jsonrpc.Array(x.refusals))
		x.handOver(ctx)
	default:
		x.begin(http.StatusAccepted) // nothing but notifications
	}
	return nil, false
}

// requestIDs returns the id of m if it is a request.
func requestIDs(m *jsonrpc.Message) [][]byte {
	if m.Kind != jsonrpc.Request {
		return nil
	}
	return [][]byte{m.ID.Bytes}
}

// judgeInBatch judges a message of a batch. The version that has batches has no
// tasks, so the upstream's cannot be listed, and calls are not made as tasks.
func (x *exchange) judgeInBatch(ctx context.Context, m *jsonrpc.Message) (gate.Judged, *wire.Problem) {
	switch {
	case m.Kind != jsonrpc.Request:
	case m.Method == mcptask.MethodList:
		return gate.Judged{}, &wire.Problem{Type: wire.InvalidRequest, Detail: "tasks cannot be listed in a batch"}
	case wire.IsList(m.Method):
		x.noteList(m)
	}
	m.Params.Task = jsonrpc.Value{}
	return x.judge(ctx, m)
}

// A listRequest asks for a list, as part of a batch.
type listRequest struct {
	id             []byte
	method, cursor string
}

// noteList notes that the answer to m is one that the gate has to see.
func (x *exchange) noteList(m *jsonrpc.Message) {
	cursor, _ := m.Params.Member("cursor").Text()
	x.lists = append(x.lists, listRequest{id: m.ID.Bytes, method: m.Method, cursor: cursor})
}

// shownInBatch returns a message of the upstream's answer to a batch as the client
// gets to see it.
func (x *exchange) shownInBatch(raw []byte) ([]byte, error) {
	m, err := x.readMessage(raw)
	if err != nil {
		return nil, err
	}
	for _, list := range x.lists {
		if m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, list.id) {
			return x.showList(list.method, list.cursor, m), nil
		}
	}
	return raw, nil
}

// pendingInBatch holds one call of a batch, and returns the answer that tells
// to make it again, since the others are not to wait for it; or what became of
// it if it has come again.
func (x *exchange) pendingInBatch(ctx context.Context, m *jsonrpc.Message, j gate.Judged) []byte {
	x.id = m.ID.Bytes
	defer func() { x.id = nil }()
	t, err := x.toDesk(ctx, m, j, x.send())
	if err != nil {
		return x.messageOf(x.dialect().Refuse(err))
	}
	if !t.State.Terminal() {
		return x.stillPending(t)
	}
	return x.outcomeMessage(ctx, t, x.dialect().Answer)
}

// outcomeMessage returns the message that tells what became of t, as shown tells
// it, as one of the answers to a batch.
func (x *exchange) outcomeMessage(ctx context.Context, t task.Task, shown func(task.Task) (mcptask.Answer, error)) []byte {
	if t.Result != nil && t.Result.Size > upstream.MaxWhole {
		// The answers to a batch are held, so this one stays where it is.
		problem := wire.Problem{Type: wire.InvalidRequest, Detail: "the result is too large for a batch: ask for it alone"}
		return x.errorMessage(problem.RPCError(x.era, x.correlationID()))
	}
	var message bytes.Buffer
	answer, err := shown(t)
	if err == nil {
		err = x.outcomeText(t, answer).Compose(&message, x.h.cfg.Desk.Open(ctx, t))
	}
	if err != nil {
		return x.errorMessage(x.dialect().Error(err))
	}
	x.handed = append(x.handed, t)
	return message.Bytes()
}

// handOver notes that the outcomes among the answers to a batch have been told.
func (x *exchange) handOver(ctx context.Context) {
	for _, t := range x.handed {
		x.delivered(ctx, t)
	}
}
