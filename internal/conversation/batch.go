package conversation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A batch is a request of several messages. If one of them needs approval, the batch is held or
// refused as a whole. Otherwise each message passes or is refused separately. Requests about
// tasks of the gate are always answered separately.
type batch struct {
	sender     *sender
	out        responder
	registered *registrations
	check      policyCheck
	messages   []jsonrpc.Message // not planned yet
	plan       *Plan             // the result
	sent       [][]byte          // ids of the forwarded requests

	judged []callrecord.Entry // about the messages, unless they are held
}

// decide plans the batch.
func (b *batch) decide(ctx context.Context) {
	if b.out.gateway.Holds() {
		b.answerOwnTasks(ctx)
	}
	if len(b.messages) == 0 {
		b.answerAll()
		return
	}
	var held []catalog.Judgement
	refused := false
	problems, all := make([]*mcp.Problem, len(b.messages)), make([]catalog.Judgement, len(b.messages))
	for i := range b.messages {
		all[i], problems[i] = b.judge(ctx, &b.messages[i])
		b.sent = append(b.sent, requestID(&b.messages[i])...)
		if problems[i] != nil {
			refused = true
		} else if all[i].Handling != policy.PassOn {
			held = append(held, all[i])
		}
	}
	b.record(all, problems)
	switch {
	case !refused && len(held) > 0:
		b.decideWhole(held, all)
	case len(held) > 0:
		b.plan.Kind, b.plan.Answer = Refuse, func(context.Context) error { return b.refuse(problems) }
	case refused:
		b.leaveOut(problems)
	}
}

// record collects the entries about the messages. If one of them needs approval, all are refused
// unless the batch is held.
func (b *batch) record(all []catalog.Judgement, problems []*mcp.Problem) {
	whole := slices.ContainsFunc(all, func(j catalog.Judgement) bool {
		return j.Handling != policy.PassOn && j.Handling != policy.RefuseDenied
	})
	for i := range b.messages {
		b.judged = append(b.judged, b.out.gateway.judgedCall(&b.messages[i], all[i], problems[i])...)
	}
	for i := range b.judged {
		if whole && b.judged[i].Outcome == "" {
			b.judged[i].Outcome = callrecord.Refused
		}
	}
}

// decideWhole plans a batch with messages that need approval.
func (b *batch) decideWhole(held, all []catalog.Judgement) {
	switch {
	case b.repeats():
		b.refuseAll("two requests of this batch have the same id, so their answers could be confused: none of them ran")
	//mutate:swap "m.Kind == jsonrpc.Response" "false" internal/mcphttp.TestBatchNeedsStrictestVerdict an answer to the server waits in a held batch
	case slices.ContainsFunc(b.messages, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Response }):
		b.refuseAll("an answer to the server cannot wait for the approval that this batch needs, so none of it was sent: send the answer by itself")
	case differ(held):
		b.refuseAll("the calls of this batch need different approvals, so none of them ran: send them one by one")
	default:
		b.planHold(held[0], all)
	}
}

// leaveOut answers the refused messages, and forwards the others, which need no approval.
func (b *batch) leaveOut(problems []*mcp.Problem) {
	var passed [][]byte
	b.sent = nil
	for i := range b.messages {
		m := &b.messages[i]
		if problems[i] == nil {
			passed, b.sent = append(passed, m.Raw), append(b.sent, requestID(m)...)
			continue
		}
		if answer := b.out.to(m.ID.Bytes).problemMessage(problems[i]); m.Kind == jsonrpc.Request {
			b.plan.Answers = append(b.plan.Answers, answer)
		}
	}
	if len(passed) == 0 {
		b.answerAll()
		return
	}
	b.plan.Body = jsonrpc.Array(passed)
}

// answerOwnTasks removes the messages for the gate itself: it answers requests about its tasks,
// withdraws cancelled calls, and drops answers to invitations.
func (b *batch) answerOwnTasks(ctx context.Context) {
	var rest []jsonrpc.Message
	var raw [][]byte
	for i := range b.messages {
		m := &b.messages[i]
		if isAboutOwnTask(m) {
			continue
		}
		if invited, err := (inviter{sender: b.sender, out: b.out}).answered(ctx, m); invited || err != nil {
			continue
		}
		if answer := b.aboutOwnTask(ctx, m); answer != nil {
			b.plan.Answers = append(b.plan.Answers, answer)
		} else if !(canceller{sender: b.sender, out: b.out}).cancels(ctx, m) {
			rest, raw = append(rest, *m), append(raw, m.Raw)
		}
	}
	if len(rest) < len(b.messages) {
		b.messages, b.plan.Body = rest, jsonrpc.Array(raw)
	}
}

// aboutOwnTask returns the answer to a request about a task of the gate, or for the list of
// tasks. It returns nil for any other message.
func (b *batch) aboutOwnTask(ctx context.Context, m *jsonrpc.Message) []byte {
	id, _ := m.Params.TaskID.Text()
	if !isTaskRequest(m) || m.Method != mcpname.TasksList && !task.ID(id).Own() {
		return nil
	}
	out := b.out.to(m.ID.Bytes)
	kept := &batchReply{Reply: out.reply, out: out}
	out.reply = kept
	answer := func(ctx context.Context) error { return b.result(ctx, out, b.sender.ref(task.ID(id))) }
	if m.Method != mcpname.TasksResult {
		answer = taskRequest{sender: b.sender, out: out, registered: b.registered}.plan(ctx, m, nil).Answer
	}
	if answer == nil {
		return kept.out.problemMessage(&mcp.Problem{Type: mcp.InvalidRequest, Detail: "only tasks of the gate can be listed in a batch; send this request by itself"})
	}
	if err := answer(ctx); err != nil {
		return kept.out.failure(err)
	}
	return kept.message
}

// result answers with the outcome of a task. It does not wait, because the rest of the batch
// would wait too.
func (b *batch) result(ctx context.Context, out responder, ref task.Ref) error {
	t, err := b.out.gateway.cfg.Approvals.Collect(ctx, ref, b.sender.send())
	switch {
	case err != nil:
		return refuseTask(b.sender, out, err)
	case !t.State.Terminal():
		return out.answer(out.pendingError(t))
	case t.Result != nil && t.Result.Size > upstream.MaxWhole:
		// All answers of a batch are kept in memory.
		return out.reply.Refuse(&mcp.Problem{Type: mcp.InvalidRequest, Detail: "the result is too large for a batch: ask for it alone"})
	}
	answer, err := out.dialect().ResultOutcome(t)
	if err != nil {
		return err
	}
	text := out.outcomeText(t, answer)
	return out.reply.Compose(func(to io.Writer) error { return text.Compose(to, b.out.gateway.cfg.Approvals.Open(ctx, t)) }, func() {
		b.plan.ended = append(b.plan.ended, t)
	})
}

// A batchReply is the [Reply] to one request of a batch. It keeps the answer for the batch.
type batchReply struct {
	Reply

	out     responder // to the request, in the batch
	message []byte
}

// Refuse implements [Reply].
func (k *batchReply) Refuse(problem *mcp.Problem) error {
	return k.Answer(Answered, k.out.problemMessage(problem))
}

// Fail implements [Reply].
func (k *batchReply) Fail(err error) error { return err }

// Answer implements [Reply].
func (k *batchReply) Answer(_ Status, message []byte) error {
	k.message = message
	return nil
}

// Compose implements [Reply].
func (k *batchReply) Compose(write func(io.Writer) error, note func()) error {
	var message bytes.Buffer
	if err := write(&message); err != nil {
		return err
	}
	note()
	return k.Answer(Answered, message.Bytes())
}

// judge asks policy about a message of the batch. The protocol version with batches has no tasks,
// so a task parameter is ignored.
func (b *batch) judge(ctx context.Context, m *jsonrpc.Message) (catalog.Judgement, *mcp.Problem) {
	if m.Kind == jsonrpc.Request && mcp.IsList(m.Method) {
		cursor, _ := m.Params.Member("cursor").Text()
		b.plan.lists = append(b.plan.lists, listRequest{id: m.ID.Bytes, method: m.Method, cursor: cursor})
	}
	m.Params.Task = jsonrpc.Value{}
	return b.check.check(ctx, m)
}

func (b *batch) pending(out responder) pendingAnswer {
	return pendingAnswer{sender: b.sender, out: out}
}

// answerAll completes the plan of a batch that the gate answers entirely.
func (b *batch) answerAll() {
	b.plan.Kind = AnswerSelf
	b.plan.Answer = func(ctx context.Context) error {
		if len(b.plan.Answers) == 0 {
			return b.out.answer(nil) // only notifications
		}
		err := b.out.answer(jsonrpc.Array(b.plan.Answers))
		if err == nil {
			b.plan.delivered(ctx, b.sender)
		}
		return err
	}
}

// requestID returns the id of m if it is a request, in a slice of at most one element.
func requestID(m *jsonrpc.Message) [][]byte {
	if m.Kind != jsonrpc.Request {
		return nil
	}
	return [][]byte{m.ID.Bytes}
}

// repeats reports whether two requests have the same id.
func (b *batch) repeats() bool {
	seen := make(map[string]bool)
	for i := range b.messages {
		if id := jsonrpc.IDKey(b.messages[i].ID.Bytes); b.messages[i].Kind == jsonrpc.Request {
			if seen[id] {
				return true
			}
			seen[id] = true
		}
	}
	return false
}

// differ reports whether calls need different workflows.
func differ(held []catalog.Judgement) bool {
	return slices.ContainsFunc(held, func(j catalog.Judgement) bool { return j.Verdict.Workflow != held[0].Verdict.Workflow })
}

// refuse answers a batch that must not pass, because of the given problems of its messages.
func (b *batch) refuse(problems []*mcp.Problem) error {
	for _, problem := range problems {
		if problem != nil {
			b.out.reply.NoteProblem(problem)
		}
	}
	other := &mcp.Problem{Type: mcp.PolicyDenied, Detail: "not run, because another message of this batch was refused"}
	return b.answerEach(func(out responder, i int) []byte {
		return cmp.Or(problems[i], other).AppendResponse(nil, out.era, out.id, out.reply.Correlation())
	})
}

// refuseAll plans to answer every request with the same problem.
func (b *batch) refuseAll(detail string) {
	problem := &mcp.Problem{Type: mcp.InvalidRequest, Detail: detail}
	b.plan.Kind, b.plan.Answer = Refuse, func(context.Context) error {
		return b.answerEach(func(out responder, _ int) []byte { return out.problemMessage(problem) })
	}
}

// answerEach answers the batch with the result of answer for each request.
func (b *batch) answerEach(answer func(out responder, index int) []byte) error {
	return b.out.answer(b.each(answer))
}

// each returns the array of answers, or nil if the batch has only notifications.
func (b *batch) each(answer func(out responder, index int) []byte) []byte {
	answers := slices.Clone(b.plan.Answers)
	for i := range b.messages {
		if b.messages[i].Kind == jsonrpc.Request {
			answers = append(answers, answer(b.out.to(b.messages[i].ID.Bytes), i))
		}
	}
	if answers == nil {
		return nil
	}
	return jsonrpc.Array(answers)
}

// planHold plans to hold the whole batch.
func (b *batch) planHold(held catalog.Judgement, all []catalog.Judgement) {
	b.registered.reserve()
	body := b.plan.Body
	b.plan.Kind, b.plan.Verdict, b.plan.Wait = HoldRequest, held.Verdict, b.out.gateway.waitMode(b.out.era, b.out.gateway.Waiting().Hold, held.Verdict)
	entries := b.judged
	b.judged = nil
	b.plan.Answer = func(ctx context.Context) error {
		return b.holdWhole(ctx, entries, approval.Call{
			Message: body, Verdict: held.Verdict, Session: held.Session, InBatch: b.tools(ctx, all),
		})
	}
}

// tools returns the tools that the messages call, by the index of the message. It prefers the
// definition with which the message was judged.
func (b *batch) tools(ctx context.Context, judged []catalog.Judgement) []approval.Tool {
	tools := make([]approval.Tool, len(b.messages))
	for i, tool := range b.check.tools().FindAll(ctx, b.messages) {
		if judged[i].Tool.DigestText() != "" {
			tool = judged[i].Tool
		}
		//mutate:swap "describedTool(tool)" `describedTool(tool); tools[i].Description = ""` internal/mcphttp.TestApproverSeesToolsOfBatch the description of a tool in a batch is not shown
		tools[i] = describedTool(tool)
	}
	return tools
}

// holdWhole holds the whole batch for one approval, keeps the request open, and answers all
// requests.
func (b *batch) holdWhole(ctx context.Context, entries []callrecord.Entry, c approval.Call) error {
	//mutate:false internal/app.TestNothingIsHeldForClientThatLeft a batch of a client that left is held
	if b.sender.gone() {
		b.out.gateway.recordHeld(entries, "", false, ErrGone)
		return ErrGone
	}
	b.sender.identify(&c)
	c.Upstream, c.Trace = b.sender.upstream(), b.out.reply.Trace()
	b.sender.rememberHost(ctx)
	ctx, held := b.registered.register(ctx, new(jsonrpc.Message), b.sent...) // cancelling one request cancels the whole batch
	defer held.stop()
	t, attached, err := b.out.gateway.cfg.Approvals.Hold(ctx, c)
	b.out.gateway.recordHeld(entries, t.ID, attached, err)
	held.bind(b.sender.ref(t.ID))
	if err != nil {
		b.out.gateway.cfg.Log.InfoContext(b.sender.repeatable(ctx, c.Verdict.Label), "batch not held", "err", err)
		return b.answerEach(func(out responder, i int) []byte { return out.notHeldMessage(b.messages[i].Method, err) })
	}
	leave, err := enterWaiting(b.sender)
	if err != nil {
		t = b.sender.collect(ctx, t)
		b.sender.noteLeft(ctx, []task.ID{t.ID})
		return b.answerEach(func(out responder, i int) []byte { return b.pending(out).message(ctx, t, b.messages[i].Method) })
	}
	defer leave()
	refused := newRefusal()
	w := newWaiting(b.sender, b.out, b.registered, refused)
	if err := w.open(t, func() error { return nil }); err != nil {
		b.out.gateway.cfg.Approvals.ClientLeft(ctx, b.sender.ref(t.ID))
		return err
	}
	began := time.Now()
	t, err = w.wait(ctx, t, b.out.gateway.Waiting().Hold, b.sender.sendBy(b.sender.client.Caller(), refused))
	b.out.gateway.cfg.Metrics.WaitEnded(waitResult(b.sender.gone(), t, err), time.Since(began))
	switch {
	case err == nil:
		return b.deliver(ctx, w, t)
	case errors.Is(err, ErrGone), b.sender.gone():
		return ErrGone
	case !errors.Is(err, task.ErrNotReady):
		return w.end(b.each(func(out responder, _ int) []byte { return waitFailed(out, err) }))
	default:
		return w.end(b.each(func(out responder, i int) []byte { return b.pending(out).message(ctx, t, b.messages[i].Method) }))
	}
}

// deliver answers the batch with its outcome.
func (b *batch) deliver(ctx context.Context, w *waiting, t task.Task) error {
	if r := w.refusalOf(t); r != nil {
		return w.refuse(r)
	}
	payload, err := io.ReadAll(b.out.gateway.cfg.Approvals.Open(ctx, t))
	answers := b.each(func(out responder, i int) []byte {
		if err != nil {
			return out.failure(err)
		}
		one := t
		one.Call.Method = b.messages[i].Method // it determines the form of a refusal
		return b.outcomeAt(i, out, one, payload)
	})
	if err != nil {
		return w.end(answers)
	}
	return w.stream.Compose(writes(answers), func() { b.sender.delivered(ctx, &t) })
}

// outcomeAt returns the answer to the request at an index of the batch, with its current id.
func (b *batch) outcomeAt(index int, out responder, t task.Task, payload []byte) []byte {
	if t.Result == nil || t.State != task.Completed { // the batch did not run, or failed as a whole
		var message []byte
		answer, err := out.dialect().Outcome(t)
		if err == nil {
			message, err = out.outcomeText(t, answer).ComposeBytes(payload)
		}
		if err != nil {
			return out.failure(err)
		}
		return message
	}
	n := 0
	for response := range (jsonrpc.Value{Bytes: payload}).Member("responses").Elements() {
		if n == index && response.IsObject() {
			var patch jsonrpc.Patch
			patch.Set(jsonrpc.Value{Bytes: response.Bytes}, "id", out.id)
			if m, err := b.sender.read(patch.Apply(response.Bytes)); err == nil {
				return lists{sender: b.sender, out: out}.inBatch(b.plan.lists, m)
			}
			break
		}
		n++
	}
	return out.problemMessage(&mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream did not answer this request of the batch"})
}

// A listRequest is a request for a list in a batch.
type listRequest struct {
	id             []byte
	method, cursor string
}

// ReadBatch returns the messages of an upstream's answer to a batch, filtered for the client.
// Responses to other requests are dropped.
func (r *Request) ReadBatch(p *Plan, answered []byte) ([][]byte, error) {
	packet, err := r.readPacket(answered)
	if err != nil {
		return nil, err
	}
	var messages [][]byte
	for i := range packet.Messages {
		if !r.Expects(&packet.Messages[i]) {
			r.LogDropped()
			continue
		}
		messages = append(messages, r.lists().inBatch(p.lists, &packet.Messages[i]))
	}
	return messages, nil
}

// inBatch returns a message of the upstream's answer to a batch with the given lists, filtered
// for the client.
func (l lists) inBatch(requests []listRequest, m *jsonrpc.Message) []byte {
	for _, list := range requests {
		if m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, list.id) {
			return l.show(list.method, list.cursor, m)
		}
	}
	return m.Raw
}

// AnswerBatch answers a batch with the upstream's answers and those of the gate.
func (r *Request) AnswerBatch(ctx context.Context, p *Plan, answers [][]byte) error {
	if err := r.out.answer(jsonrpc.Array(append(answers, p.Answers...))); err != nil {
		return err
	}
	r.NoteDelivered(ctx, p)
	return nil
}

// NoteDelivered records that the client was sent the outcomes among the gate's answers.
func (r *Request) NoteDelivered(ctx context.Context, p *Plan) { p.delivered(ctx, &r.sender) }

// delivered records that the client was sent the outcomes among the answers.
func (p *Plan) delivered(ctx context.Context, sender *sender) {
	for i := range p.ended {
		sender.delivered(ctx, &p.ended[i])
	}
}
