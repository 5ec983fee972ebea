package mcphttp

import (
	"bytes"
	"context"
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

// planMany is plan for a batch.
func (x *exchange) planMany(ctx context.Context, p jsonrpc.Packet, body []byte) *plan {
	plan := &plan{body: body}
	if x.h.cfg.Desk != nil {
		p = x.answerOwnTasks(ctx, p, plan)
	}
	switch {
	case len(p.Messages) == 0 && len(plan.refusals) == 0:
		return answered(func(context.Context) error { return x.accept() })
	case len(p.Messages) == 0:
		plan.answer = func(ctx context.Context) error { return x.answerRefusals(ctx, plan) }
		return plan
	case x.h.settings().Waiting.WholeBatches && x.h.cfg.Desk != nil:
		return x.planWhole(ctx, p, plan)
	default:
		return x.planEach(ctx, p, plan)
	}
}

// answerBatch answers a batch with what the upstream said to some of it, and the
// gate to the rest.
func (x *exchange) answerBatch(ctx context.Context, p *plan, answers [][]byte) error {
	if err := x.answer(jsonrpc.Array(append(answers, p.refusals...))); err != nil {
		return err
	}
	x.handOver(ctx, p)
	return nil
}

// answerRefusals answers a batch of which nothing goes to the upstream with the
// answers that the gate has, if there are any.
func (x *exchange) answerRefusals(ctx context.Context, p *plan) error {
	if len(p.refusals) == 0 {
		return x.accept() // nothing but notifications
	}
	return x.answerBatch(ctx, p, nil)
}

// answerOwnTasks answers the requests of a batch that are about the gate's own
// tasks, withdraws the held calls that it cancels, and returns the rest of the
// batch.
func (x *exchange) answerOwnTasks(ctx context.Context, p jsonrpc.Packet, plan *plan) jsonrpc.Packet {
	rest := p
	rest.Messages = nil
	for i := range p.Messages {
		if tellsOfOwnTask(&p.Messages[i]) {
			continue
		}
		if answer := x.ownTaskInBatch(ctx, &p.Messages[i], plan); answer != nil {
			plan.refusals = append(plan.refusals, answer)
		} else if !x.cancelsHeld(ctx, &p.Messages[i]) {
			rest.Messages = append(rest.Messages, p.Messages[i])
		}
	}
	if len(rest.Messages) == len(p.Messages) {
		return p
	}
	var raw [][]byte
	for i := range rest.Messages {
		raw = append(raw, rest.Messages[i].Raw)
	}
	plan.body = jsonrpc.Array(raw)
	return rest
}

// ownTaskInBatch returns the answer to a request about a task of the gate's own,
// or nil for any other message. It does not wait: the rest of the batch would.
func (x *exchange) ownTaskInBatch(ctx context.Context, m *jsonrpc.Message, plan *plan) []byte {
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
		return x.resultInBatch(ctx, plan, t, err)
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
func (x *exchange) resultInBatch(ctx context.Context, plan *plan, t task.Task, err error) []byte {
	switch {
	case err != nil:
		return x.errorMessage(x.taskProblem(err))
	case !t.State.Terminal():
		pending := &wire.Problem{Type: wire.ApprovalPending, RetryAfter: int(t.PollInterval.Seconds())}
		return x.errorMessage(pending.RPCError(x.era, x.correlationID()))
	default:
		return x.outcomeMessage(ctx, plan, t, x.dialect().ResultAnswer)
	}
}

// planEach judges the messages of a batch one by one. Those that may pass are
// forwarded together; the others are answered by the gate.
func (x *exchange) planEach(ctx context.Context, p jsonrpc.Packet, plan *plan) *plan {
	var passed [][]byte
	for i := range p.Messages {
		if m := &p.Messages[i]; x.passesInBatch(ctx, m, plan) {
			passed = append(passed, m.Raw)
			x.ids = append(x.ids, requestIDs(m)...)
		}
	}
	switch {
	case len(passed) == len(p.Messages):
	case len(passed) > 0:
		plan.body = jsonrpc.Array(passed)
	default:
		plan.answer = func(ctx context.Context) error { return x.answerRefusals(ctx, plan) }
	}
	return plan
}

// passesInBatch reports whether a message of a batch goes to the upstream. If it
// does not, the plan has the answer to it.
func (x *exchange) passesInBatch(ctx context.Context, m *jsonrpc.Message, plan *plan) bool {
	judged, problem := x.judgeInBatch(ctx, m, plan)
	switch {
	case problem != nil:
		x.problem = problem
		if m.Kind == jsonrpc.Request {
			plan.refusals = append(plan.refusals, problem.AppendResponse(nil, x.era, m.ID.Bytes, x.correlationID()))
		}
	case len(x.holds) > 0 && x.cancelsHeld(ctx, m): // a call of this batch
	case judged.Handling == policy.PassOn:
		return true
	default:
		plan.refusals = append(plan.refusals, x.pendingInBatch(ctx, m, judged, plan))
	}
	return false
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
func (x *exchange) judgeInBatch(ctx context.Context, m *jsonrpc.Message, plan *plan) (gate.Judged, *wire.Problem) {
	switch {
	case m.Kind != jsonrpc.Request:
	case m.Method == mcptask.MethodList:
		return gate.Judged{}, &wire.Problem{Type: wire.InvalidRequest, Detail: "tasks cannot be listed in a batch"}
	case wire.IsList(m.Method):
		plan.noteList(m)
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
func (p *plan) noteList(m *jsonrpc.Message) {
	cursor, _ := m.Params.Member("cursor").Text()
	p.lists = append(p.lists, listRequest{id: m.ID.Bytes, method: m.Method, cursor: cursor})
}

// shownInBatch returns a message of the upstream's answer to a batch as the client
// gets to see it.
func (x *exchange) shownInBatch(lists []listRequest, raw []byte) ([]byte, error) {
	m, err := x.readMessage(raw)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		if m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, list.id) {
			return x.showList(list.method, list.cursor, m), nil
		}
	}
	return raw, nil
}

// pendingInBatch holds one call of a batch, and returns the answer that tells
// to make it again, since the others are not to wait for it; or what became of
// it if it has come again.
func (x *exchange) pendingInBatch(ctx context.Context, m *jsonrpc.Message, j gate.Judged, plan *plan) []byte {
	x.id = m.ID.Bytes
	defer func() { x.id = nil }()
	t, err := x.toDesk(ctx, m, j, x.send())
	if err != nil {
		return x.messageOf(x.dialect().Refuse(err))
	}
	if !t.State.Terminal() {
		x.cancellable(m.ID.Bytes, t)
		return x.stillPending(t)
	}
	return x.outcomeMessage(ctx, plan, t, x.dialect().Answer)
}

// outcomeMessage returns the message that tells what became of t, as shown tells
// it, as one of the answers to a batch.
func (x *exchange) outcomeMessage(ctx context.Context, plan *plan, t task.Task, shown func(task.Task) (mcptask.Answer, error)) []byte {
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
	plan.handed = append(plan.handed, t)
	return message.Bytes()
}

// handOver notes that the outcomes among the answers to a batch have been told.
func (x *exchange) handOver(ctx context.Context, p *plan) {
	for _, t := range p.handed {
		x.delivered(ctx, t)
	}
}
