package conversation

import (
	"bytes"
	"context"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A batch is a request of several messages.
type batch struct{ *Request }

// plan decides what becomes of the messages.
func (b batch) plan(ctx context.Context) *Plan {
	p := forward(b.body)
	rest := b.packet.Messages
	if b.hub.Holds() {
		rest = b.answerOwnTasks(ctx, p)
	}
	switch {
	case len(rest) == 0:
		return b.answersAll(p)
	case b.hub.Waiting().WholeBatches && b.hub.Holds():
		return wholeBatch{batch: b, messages: rest, plan: p}.decide(ctx)
	default:
		return b.planEach(ctx, rest, p)
	}
}

// answersAll makes p the plan of a batch of which nothing goes to the upstream.
func (b batch) answersAll(p *Plan) *Plan {
	p.Kind = AnswerSelf
	p.Answer = func(ctx context.Context) error {
		if len(p.Answers) == 0 {
			return b.answer(nil) // nothing but notifications
		}
		return b.AnswerBatch(ctx, p, nil)
	}
	return p
}

// AnswerBatch answers a batch with what the upstream said to some of it, and the
// gate to the rest.
func (r *Request) AnswerBatch(ctx context.Context, p *Plan, answers [][]byte) error {
	if err := r.answer(jsonrpc.Array(append(answers, p.Answers...))); err != nil {
		return err
	}
	r.HandOver(ctx, p)
	return nil
}

// HandOver notes that the client has been sent the outcomes among the gate's
// answers to a batch.
func (r *Request) HandOver(ctx context.Context, p *Plan) {
	for i := range p.ended {
		r.delivered(ctx, &p.ended[i])
	}
}

// answerOwnTasks answers the requests of a batch that are about the gate's own
// tasks, withdraws the held calls that it cancels, leaves out answers to the gate's
// invitations, and returns the rest of the batch.
func (b batch) answerOwnTasks(ctx context.Context, p *Plan) []jsonrpc.Message {
	messages := b.packet.Messages
	var rest []jsonrpc.Message
	for i := range messages {
		if isAboutOwnTask(&messages[i]) {
			continue
		}
		if invited, err := b.answersInvitation(ctx, &messages[i]); invited || err != nil {
			continue
		}
		if answer := b.aboutOwnTask(ctx, &messages[i], p); answer != nil {
			p.Answers = append(p.Answers, answer)
		} else if !b.cancelsHeld(ctx, &messages[i]) {
			rest = append(rest, messages[i])
		}
	}
	if len(rest) == len(messages) {
		return messages
	}
	var raw [][]byte
	for i := range rest {
		raw = append(raw, rest[i].Raw)
	}
	p.Body = jsonrpc.Array(raw)
	return rest
}

// aboutOwnTask returns the answer to a request about a task of the gate's own,
// or nil for any other message. It does not wait: the rest of the batch would.
func (b batch) aboutOwnTask(ctx context.Context, m *jsonrpc.Message, p *Plan) []byte {
	id, _ := m.Params.TaskID.Text()
	if m.Kind != jsonrpc.Request || !strings.HasPrefix(m.Method, "tasks/") || !task.ID(id).Own() {
		return nil
	}
	r := b.part(m.ID.Bytes)
	ref := r.ref(task.ID(id))
	switch m.Method {
	case mcptask.MethodGet:
		t, err := r.hub.cfg.Desk.Contact(ctx, ref, r.send())
		return r.statusMessage(t, err, r.dialect().GetResult)
	case mcptask.MethodCancel:
		t, err := r.hub.cfg.Desk.Cancel(ctx, ref, r.withdrawal("cancelled by the client"))
		return r.statusMessage(t, err, func(t task.Task) (mcptask.Text, error) {
			result, err := r.dialect().CancelResult(t)
			return mcptask.Text{}.Around(string(result), ""), err
		})
	case mcptask.MethodResult:
		t, err := r.hub.cfg.Desk.Collect(ctx, ref, r.send())
		return r.resultMessage(ctx, p, t, err)
	default:
		return r.errorMessage(methodNotFound())
	}
}

// statusMessage returns the message about how t stands, as shown says.
func (r *Request) statusMessage(t task.Task, err error, shown func(task.Task) (mcptask.Text, error)) []byte {
	var text mcptask.Text
	if err == nil {
		text, err = shown(t)
	}
	if err == nil {
		var message []byte
		if message, err = r.resultText(text).Whole(nil); err == nil {
			return message
		}
	}
	return r.errorMessage(r.taskProblem(err))
}

// resultMessage returns the answer to a request for the result of t.
func (r *Request) resultMessage(ctx context.Context, p *Plan, t task.Task, err error) []byte {
	switch {
	case err != nil:
		return r.errorMessage(r.taskProblem(err))
	case !t.State.Terminal():
		return r.pendingError(t)
	default:
		return r.outcomeMessage(ctx, p, t, r.dialect().ResultAnswer)
	}
}

// outcomeMessage returns the message about what became of t, as shown says
// it, as one of the answers to a batch.
func (r *Request) outcomeMessage(ctx context.Context, p *Plan, t task.Task, shown func(task.Task) (mcptask.Answer, error)) []byte {
	if t.Result != nil && t.Result.Size > upstream.MaxWhole {
		// The answers to a batch are held, so this one stays where it is.
		problem := wire.Problem{Type: wire.InvalidRequest, Detail: "the result is too large for a batch: ask for it alone"}
		return r.errorMessage(problem.RPCError(r.era, r.reply.Correlation()))
	}
	var message bytes.Buffer
	answer, err := shown(t)
	if err == nil {
		err = r.outcomeText(t, answer).Compose(&message, r.hub.cfg.Desk.Open(ctx, t))
	}
	if err != nil {
		return r.failure(err)
	}
	p.ended = append(p.ended, t)
	return message.Bytes()
}

// planEach judges the messages of a batch one by one. Those that may pass are
// forwarded together; the others are answered by the gate.
func (b batch) planEach(ctx context.Context, messages []jsonrpc.Message, p *Plan) *Plan {
	var passed [][]byte
	for i := range messages {
		if m := &messages[i]; b.passes(ctx, m, p) {
			passed = append(passed, m.Raw)
			b.ids = append(b.ids, requestIDs(m)...)
		}
	}
	switch {
	case len(passed) == len(messages):
	case len(passed) > 0:
		p.Body = jsonrpc.Array(passed)
	default:
		return b.answersAll(p)
	}
	return p
}

// passes reports whether a message of a batch goes to the upstream. If it does
// not, the plan has the answer to it.
func (b batch) passes(ctx context.Context, m *jsonrpc.Message, p *Plan) bool {
	judged, problem := b.judge(ctx, m, p)
	switch {
	case problem != nil:
		if answer := b.part(m.ID.Bytes).problemMessage(problem); m.Kind == jsonrpc.Request {
			p.Answers = append(p.Answers, answer)
		}
	case len(b.state.holds) > 0 && b.cancelsHeld(ctx, m): // a call of this batch
	case judged.Handling == policy.PassOn:
		return true
	default:
		p.Answers = append(p.Answers, b.hold(ctx, m, judged, p))
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

// judge judges a message of a batch. The version that has batches has no tasks,
// so the upstream's cannot be listed, and calls are not made as tasks.
func (b batch) judge(ctx context.Context, m *jsonrpc.Message, p *Plan) (gate.Judgement, *wire.Problem) {
	switch {
	case m.Kind != jsonrpc.Request:
	case m.Method == mcptask.MethodList:
		return gate.Judgement{}, &wire.Problem{Type: wire.InvalidRequest, Detail: "tasks cannot be listed in a batch"}
	case wire.IsList(m.Method):
		cursor, _ := m.Params.Member("cursor").Text()
		p.lists = append(p.lists, listRequest{id: m.ID.Bytes, method: m.Method, cursor: cursor})
	}
	m.Params.Task = jsonrpc.Value{}
	return judge(b).message(ctx, m)
}

// hold holds one call of a batch, and returns the answer that asks to make it
// again, since the others are not to wait for it; or what became of it if it has
// come again.
func (b batch) hold(ctx context.Context, m *jsonrpc.Message, judged gate.Judgement, p *Plan) []byte {
	b.claimAnswer()
	r := b.part(m.ID.Bytes)
	ctx, held := r.expect(ctx, m, m.ID.Bytes)
	defer held.stop()
	t, _, err := hold{r}.toDesk(ctx, m, judged, r.send())
	held.bind(r.ref(t.ID))
	if err != nil {
		return r.notHeldMessage(err)
	}
	if t = r.collect(ctx, t); !t.State.Terminal() {
		return r.stillPending(ctx, t)
	}
	return r.outcomeMessage(ctx, p, t, r.dialect().Answer)
}

// A listRequest asks for a list, as part of a batch.
type listRequest struct {
	id             []byte
	method, cursor string
}

// ReadBatch returns the messages of an upstream's answer to a batch, as the client
// gets to see them. Answers that nobody asked for are left out.
func (r *Request) ReadBatch(p *Plan, answered []byte) ([][]byte, error) {
	packet, err := jsonrpc.Parse(answered, jsonrpc.Limits{Depth: r.hub.cfg.Parse.Depth, Batch: upstream.MaxWhole})
	if err != nil {
		return nil, err
	}
	var messages [][]byte
	for i := range packet.Messages {
		if !r.Expects(&packet.Messages[i]) {
			r.Dropped()
			continue
		}
		shown, err := r.shownInBatch(p.lists, packet.Messages[i].Raw)
		if err != nil {
			return nil, err
		}
		messages = append(messages, shown)
	}
	return messages, nil
}

// shownInBatch returns a message of the upstream's answer to a batch as the client
// gets to see it.
func (r *Request) shownInBatch(requests []listRequest, raw []byte) ([]byte, error) {
	m, err := r.read(raw)
	if err != nil {
		return nil, err
	}
	for _, list := range requests {
		if m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, list.id) {
			return lists{r}.show(list.method, list.cursor, m), nil
		}
	}
	return raw, nil
}
