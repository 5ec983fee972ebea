package mcphttp

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
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// planWhole judges a batch as one thing: the strictest verdict about one of its
// messages goes for all of them. The plan has the answers to the rest of the batch
// already.
func (x *exchange) planWhole(ctx context.Context, p jsonrpc.Packet, plan *plan) *plan {
	var held []gate.Judged
	refused := false
	problems := make([]*wire.Problem, len(p.Messages))
	for i := range p.Messages {
		judged, problem := x.judgeInBatch(ctx, &p.Messages[i], plan)
		problems[i] = problem
		x.ids = append(x.ids, requestIDs(&p.Messages[i])...)
		if problem != nil {
			x.problem, refused = problem, true
		} else if judged.Handling != policy.PassOn {
			held = append(held, judged)
		}
	}
	body := plan.body
	switch {
	case refused:
		plan.answer = func(context.Context) error { return x.refuseWhole(p, plan, problems) }
	case len(held) == 0:
	case repeats(p):
		plan.answer = x.refusesAll(p, plan, "two requests of this batch have the same id, so their answers could be confused: none of them ran")
	case differ(held):
		plan.answer = x.refusesAll(p, plan, "the calls of this batch need different approvals, so none of them ran: send them one by one")
	default:
		plan.answer = func(ctx context.Context) error {
			return x.holdBatch(ctx, p, plan, approval.Call{
				Message: body, Verdict: held[0].Verdict, Session: held[0].Session, InBatch: x.toolsInBatch(ctx, p),
			})
		}
	}
	return plan
}

// toolsInBatch returns what the upstream says of the tools that the messages of a
// batch call, in the places of the messages.
func (x *exchange) toolsInBatch(ctx context.Context, p jsonrpc.Packet) []approval.Tool {
	tools := make([]approval.Tool, len(p.Messages))
	for i, tool := range x.tools().FindAll(ctx, p.Messages) {
		tools[i] = approval.Tool{Annotations: tool.Annotations, Digest: tool.DigestText()}
	}
	return tools
}

// repeats reports whether two requests of a batch have the same id.
func repeats(p jsonrpc.Packet) bool {
	seen := make(map[string]bool)
	for i := range p.Messages {
		if id := string(p.Messages[i].ID.Bytes); p.Messages[i].Kind == jsonrpc.Request {
			if seen[id] {
				return true
			}
			seen[id] = true
		}
	}
	return false
}

// differ reports whether calls are to be approved in different ways.
func differ(held []gate.Judged) bool {
	return slices.ContainsFunc(held, func(j gate.Judged) bool { return j.Verdict.Workflow != held[0].Verdict.Workflow })
}

// refuseWhole answers a batch of which something may not pass.
func (x *exchange) refuseWhole(p jsonrpc.Packet, plan *plan, problems []*wire.Problem) error {
	aside := &wire.Problem{Type: wire.PolicyDenied, Detail: "not run, because another message of this batch was refused"}
	return x.answerEach(p, plan, func(i int) []byte {
		problem := problems[i]
		if problem == nil {
			problem = aside
		}
		return problem.AppendResponse(nil, x.era, x.id, x.correlationID())
	})
}

// refusesAll returns what answers every request of a batch with the same problem.
func (x *exchange) refusesAll(p jsonrpc.Packet, plan *plan, detail string) func(context.Context) error {
	problem := &wire.Problem{Type: wire.InvalidRequest, Detail: detail}
	return func(context.Context) error {
		x.problem = problem
		return x.answerEach(p, plan, func(int) []byte { return problem.AppendResponse(nil, x.era, x.id, x.correlationID()) })
	}
}

// answerEach answers a batch with what answer returns for each of its requests.
func (x *exchange) answerEach(p jsonrpc.Packet, plan *plan, answer func(i int) []byte) error {
	if answers := x.each(p, plan, answer); answers != nil {
		return x.answer(answers)
	}
	return x.accept() // nothing but notifications
}

// each returns an array of the answers to the requests of a batch, or nil if
// there are none. While answer is called, x.id is the request's.
func (x *exchange) each(p jsonrpc.Packet, plan *plan, answer func(i int) []byte) []byte {
	defer func() { x.id = nil }()
	answers := slices.Clone(plan.refusals)
	for i := range p.Messages {
		if p.Messages[i].Kind == jsonrpc.Request {
			x.id = p.Messages[i].ID.Bytes
			answers = append(answers, answer(i))
		}
	}
	if answers == nil {
		return nil
	}
	return jsonrpc.Array(answers)
}

// holdBatch holds a whole batch, of which c says what it is and how it was
// judged, for one approval, keeps the client waiting, and answers with what
// became of all of it.
func (x *exchange) holdBatch(ctx context.Context, p jsonrpc.Packet, plan *plan, c approval.Call) error {
	x.identify(&c)
	c.Upstream, c.Trace = x.upstream.Name(), x.span.Traceparent()
	t, _, err := x.h.cfg.Desk.Hold(ctx, c)
	if err != nil {
		x.h.cfg.Log.InfoContext(ctx, "batch not held", "cause", err)
		return x.answerEach(p, plan, func(int) []byte { return x.refused(err) })
	}
	for _, id := range x.ids {
		x.cancellable(id, t) // a batch that waits as one is withdrawn as one
	}
	leave, err := x.enterWaiting()
	if err != nil {
		return x.answerEach(p, plan, func(i int) []byte { return x.pendingAnswer(t, p.Messages[i].Method) })
	}
	defer leave()
	w, err := x.beginWaiting(new(jsonrpc.Message))
	if err != nil {
		return err
	}
	began := time.Now()
	t, err = w.wait(ctx, t, x.h.settings().Waiting.Hold, x.send())
	x.h.cfg.Metrics.WaitEnded(x.waitResult(t, err), time.Since(began))
	switch {
	case err == nil:
		return x.deliverBatch(ctx, w, p, plan, t)
	case errors.Is(err, errGone), x.ctx.Err() != nil:
		return errGone
	case !errors.Is(err, task.ErrNotReady):
		return w.end(x.each(p, plan, func(int) []byte { return x.waitFailed(err) }))
	default:
		return w.end(x.each(p, plan, func(i int) []byte { return x.pendingAnswer(t, p.Messages[i].Method) }))
	}
}

// refused returns the answer to a request that could not be held.
func (x *exchange) refused(err error) []byte {
	if _, known := errors.AsType[*task.Error](err); !known {
		x.problem = x.storeFailed(err)
		return x.problem.AppendResponse(nil, x.era, x.id, x.correlationID())
	}
	return x.messageOf(x.dialect().Refuse(err))
}

// deliverBatch answers a batch with what became of it.
func (x *exchange) deliverBatch(ctx context.Context, w *waiting, p jsonrpc.Packet, plan *plan, t task.Task) error {
	payload, err := io.ReadAll(x.h.cfg.Desk.Open(ctx, t))
	answers := x.each(p, plan, func(i int) []byte {
		if err != nil {
			return x.errorMessage(x.dialect().Error(err))
		}
		return x.outcomeInBatch(t, plan.lists, payload, i)
	})
	if err != nil {
		return w.end(answers)
	}
	text := mcptask.Text{}.Around(string(answers), "")
	return w.compose(text, nil, func() { x.delivered(ctx, t) })
}

// outcomeInBatch returns the answer to the request at a place in a batch: what
// the upstream said to it, under the id that the client has given it this time.
func (x *exchange) outcomeInBatch(t task.Task, lists []listRequest, payload []byte, place int) []byte {
	if t.Result == nil || t.State != task.Completed {
		answer, err := x.dialect().Answer(t)
		if err != nil {
			return x.errorMessage(x.dialect().Error(err))
		}
		message, err := x.outcomeText(t, answer).Whole(payload)
		if err != nil {
			return x.errorMessage(x.dialect().Error(err))
		}
		return message
	}
	n := 0
	for said := range (jsonrpc.Value{Bytes: payload}).Member("responses").Elements() {
		if n == place && said.IsObject() {
			var patch jsonrpc.Patch
			patch.Set(jsonrpc.Value{Bytes: said.Bytes}, "id", x.id)
			if shown, err := x.shownInBatch(lists, patch.Apply(said.Bytes)); err == nil {
				return shown
			}
			break
		}
		n++
	}
	x.problem = &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream did not answer this request of the batch"}
	return x.problem.AppendResponse(nil, x.era, x.id, x.correlationID())
}
