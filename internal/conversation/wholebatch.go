package conversation

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A wholeBatch is a batch that is judged as one thing: the strictest verdict about
// one of its messages goes for all of them.
type wholeBatch struct {
	batch

	messages []jsonrpc.Message
	plan     *Plan // which has the answers to the rest of the batch already
}

// decide judges the messages and completes the plan.
func (b wholeBatch) decide(ctx context.Context) *Plan {
	var held []gate.Judgement
	refused := false
	problems := make([]*wire.Problem, len(b.messages))
	for i := range b.messages {
		judged, problem := b.judge(ctx, &b.messages[i], b.plan)
		problems[i] = problem
		b.ids = append(b.ids, requestIDs(&b.messages[i])...)
		if problem != nil {
			b.reply.Note(problem)
			refused = true
		} else if judged.Handling != policy.PassOn {
			held = append(held, judged)
		}
	}
	switch {
	case refused:
		return b.answerBy(Refuse, func(context.Context) error { return b.refuse(problems) })
	case len(held) == 0:
		return b.plan
	case b.repeats():
		return b.refuseAll("two requests of this batch have the same id, so their answers could be confused: none of them ran")
	case differ(held):
		return b.refuseAll("the calls of this batch need different approvals, so none of them ran: send them one by one")
	}
	b.claimAnswer()
	body := b.plan.Body
	b.plan.Verdict, b.plan.Face = held[0].Verdict, b.hub.face(b.era, b.hub.Waiting().Hold, held[0].Verdict)
	return b.answerBy(HoldRequest, func(ctx context.Context) error {
		return b.hold(ctx, approval.Call{
			Message: body, Verdict: held[0].Verdict, Session: held[0].Session, InBatch: b.tools(ctx),
		})
	})
}

// answerBy completes the plan of a batch that the gate answers.
func (b wholeBatch) answerBy(k Kind, answer func(context.Context) error) *Plan {
	b.plan.Kind, b.plan.Answer = k, answer
	return b.plan
}

// tools returns what the upstream says of the tools that the messages call, in
// the places of the messages.
func (b wholeBatch) tools(ctx context.Context) []approval.Tool {
	tools := make([]approval.Tool, len(b.messages))
	for i, tool := range b.Request.tools().FindAll(ctx, b.messages) {
		tools[i] = approval.Tool{Description: tool.Description, Annotations: tool.Annotations, Digest: tool.DigestText()}
	}
	return tools
}

// repeats reports whether two requests have the same id.
func (b wholeBatch) repeats() bool {
	seen := make(map[string]bool)
	for i := range b.messages {
		if id := string(b.messages[i].ID.Bytes); b.messages[i].Kind == jsonrpc.Request {
			if seen[id] {
				return true
			}
			seen[id] = true
		}
	}
	return false
}

// differ reports whether calls are to be approved in different ways.
func differ(held []gate.Judgement) bool {
	return slices.ContainsFunc(held, func(j gate.Judgement) bool { return j.Verdict.Workflow != held[0].Verdict.Workflow })
}

// refuse answers a batch of which something may not pass.
func (b wholeBatch) refuse(problems []*wire.Problem) error {
	other := &wire.Problem{Type: wire.PolicyDenied, Detail: "not run, because another message of this batch was refused"}
	return b.answerEach(func(r *Request, i int) []byte {
		problem := problems[i]
		if problem == nil {
			problem = other
		}
		return problem.AppendResponse(nil, r.era, r.id, r.reply.Correlation())
	})
}

// refuseAll returns the plan that answers every request with the same problem.
func (b wholeBatch) refuseAll(detail string) *Plan {
	problem := &wire.Problem{Type: wire.InvalidRequest, Detail: detail}
	return b.answerBy(Refuse, func(context.Context) error {
		return b.answerEach(func(r *Request, _ int) []byte { return r.problemMessage(problem) })
	})
}

// answerEach answers the batch with what answer returns for each of its requests.
func (b wholeBatch) answerEach(answer func(r *Request, place int) []byte) error {
	if answers := b.each(answer); answers != nil {
		return b.answer(answers)
	}
	return b.answer(nil) // nothing but notifications
}

// each returns an array of the answers to the requests, or nil if there are none.
func (b wholeBatch) each(answer func(r *Request, place int) []byte) []byte {
	answers := slices.Clone(b.plan.Answers)
	for i := range b.messages {
		if b.messages[i].Kind == jsonrpc.Request {
			answers = append(answers, answer(b.part(b.messages[i].ID.Bytes), i))
		}
	}
	if answers == nil {
		return nil
	}
	return jsonrpc.Array(answers)
}

// hold holds the whole batch, of which c says what it is and how it was judged,
// for one approval, keeps the client waiting, and answers with what became of all
// of it.
func (b wholeBatch) hold(ctx context.Context, c approval.Call) error {
	if b.gone() {
		return ErrGone
	}
	b.identify(&c)
	c.Upstream, c.Trace = b.upstream(), b.reply.Trace()
	b.rememberHost(ctx)
	ctx, held := b.expect(ctx, new(jsonrpc.Message), b.ids...) // a batch that waits as one is withdrawn as one
	defer held.stop()
	t, _, err := b.hub.cfg.Desk.Hold(ctx, c)
	held.bind(b.ref(t.ID))
	if err != nil {
		b.hub.cfg.Log.InfoContext(b.repeatable(ctx, c.Verdict.Label), "batch not held", "cause", err)
		return b.answerEach(func(r *Request, _ int) []byte { return r.notHeldMessage(err) })
	}
	leave, err := b.EnterWaiting()
	if err != nil {
		t = b.collect(ctx, t)
		b.noteLeft(ctx, []task.ID{t.ID})
		return b.answerEach(func(r *Request, i int) []byte { return r.pendingAnswer(ctx, t, b.messages[i].Method) })
	}
	defer leave()
	w := &waiting{Request: b.Request}
	if err := w.begin(); err != nil {
		b.hub.cfg.Desk.Gone(ctx, b.ref(t.ID))
		return err
	}
	began := time.Now()
	t, err = w.wait(ctx, t, b.hub.Waiting().Hold, b.send())
	b.hub.cfg.Metrics.WaitEnded(b.waitResult(t, err), time.Since(began))
	switch {
	case err == nil:
		return b.deliver(ctx, w, t)
	case errors.Is(err, ErrGone), b.gone():
		return ErrGone
	case !errors.Is(err, task.ErrNotReady):
		return w.end(b.each(func(r *Request, _ int) []byte { return r.waitFailed(err) }))
	default:
		return w.end(b.each(func(r *Request, i int) []byte { return r.pendingAnswer(ctx, t, b.messages[i].Method) }))
	}
}

// deliver answers the batch with what became of it.
func (b wholeBatch) deliver(ctx context.Context, w *waiting, t task.Task) error {
	payload, err := io.ReadAll(b.hub.cfg.Desk.Open(ctx, t))
	answers := b.each(func(r *Request, i int) []byte {
		if err != nil {
			return r.failure(err)
		}
		one := t
		one.Call.Method = b.messages[i].Method // which says how a refusal looks
		return r.outcomeInBatch(one, b.plan.lists, payload, i)
	})
	if err != nil {
		return w.end(answers)
	}
	return w.stream.Compose(writes(answers), func() { b.delivered(ctx, &t) })
}

// outcomeInBatch returns the answer to the request at a place in a batch: what
// the upstream said to it, under the id that the client has given it this time.
func (r *Request) outcomeInBatch(t task.Task, requests []listRequest, payload []byte, place int) []byte {
	if t.Result == nil || t.State != task.Completed {
		return r.endingInBatch(t, payload)
	}
	n := 0
	for said := range (jsonrpc.Value{Bytes: payload}).Member("responses").Elements() {
		if n == place && said.IsObject() {
			var patch jsonrpc.Patch
			patch.Set(jsonrpc.Value{Bytes: said.Bytes}, "id", r.id)
			if shown, err := r.shownInBatch(requests, patch.Apply(said.Bytes)); err == nil {
				return shown
			}
			break
		}
		n++
	}
	return r.problemMessage(&wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream did not answer this request of the batch"})
}

// endingInBatch returns the answer to a request of a batch that did not run, or
// failed as a whole.
func (r *Request) endingInBatch(t task.Task, payload []byte) []byte {
	var message []byte
	answer, err := r.dialect().Answer(t)
	if err == nil {
		message, err = r.outcomeText(t, answer).Whole(payload)
	}
	if err != nil {
		return r.failure(err)
	}
	return message
}
