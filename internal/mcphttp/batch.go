package mcphttp

import (
	"context"
	"errors"
	"io"
	"net/http"
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

// governWhole judges a batch as one thing: the strictest verdict about one of
// its messages goes for all of them. It returns what may go on to the upstream,
// and reports false if the client has its answer.
func (x *exchange) governWhole(ctx context.Context, p jsonrpc.Packet, body []byte) ([]byte, bool) {
	var held []gate.Judged
	refused := false
	problems := make([]*wire.Problem, len(p.Messages))
	for i := range p.Messages {
		judged, problem := x.judgeInBatch(ctx, &p.Messages[i])
		problems[i] = problem
		x.ids = append(x.ids, requestIDs(&p.Messages[i])...)
		if problem != nil {
			x.problem, refused = problem, true
		} else if judged.Handling != policy.PassOn {
			held = append(held, judged)
		}
	}
	switch {
	case refused:
		x.refuseWhole(p, problems)
	case len(held) == 0:
		return body, true
	case repeats(p):
		x.refuseAll(p, &wire.Problem{
			Type: wire.InvalidRequest, Detail: "two requests of this batch have the same id, so that nobody could tell their answers apart: none of them ran",
		})
	case differ(held):
		x.refuseAll(p, &wire.Problem{
			Type: wire.InvalidRequest, Detail: "the calls of this batch need different approvals, so none of them ran: make them one by one",
		})
	default:
		x.holdBatch(ctx, p, approval.Call{
			Message: body, Verdict: held[0].Verdict, Session: held[0].Session, InBatch: x.toolsInBatch(ctx, p),
		})
	}
	return nil, false
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
func (x *exchange) refuseWhole(p jsonrpc.Packet, problems []*wire.Problem) {
	aside := &wire.Problem{Type: wire.PolicyDenied, Detail: "not run, because another message of this batch was refused"}
	x.answerEach(p, func(i int) []byte {
		problem := problems[i]
		if problem == nil {
			problem = aside
		}
		return problem.AppendResponse(nil, x.era, x.id, x.correlationID())
	})
}

// refuseAll answers every request of a batch with the same problem.
func (x *exchange) refuseAll(p jsonrpc.Packet, problem *wire.Problem) {
	x.problem = problem
	x.answerEach(p, func(int) []byte { return problem.AppendResponse(nil, x.era, x.id, x.correlationID()) })
}

// answerEach answers a batch with what answer returns for each of its requests.
func (x *exchange) answerEach(p jsonrpc.Packet, answer func(i int) []byte) {
	if answers := x.each(p, answer); answers != nil {
		x.answer(answers)
		return
	}
	x.begin(http.StatusAccepted) // nothing but notifications
}

// each returns an array of the answers to the requests of a batch, or nil if
// there are none. While answer is called, x.id is the request's.
func (x *exchange) each(p jsonrpc.Packet, answer func(i int) []byte) []byte {
	defer func() { x.id = nil }()
	answers := slices.Clone(x.refusals)
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
func (x *exchange) holdBatch(ctx context.Context, p jsonrpc.Packet, c approval.Call) {
	x.identify(&c)
	c.Upstream, c.Trace = x.upstream.Name(), x.span.Traceparent()
	t, _, err := x.h.cfg.Desk.Hold(ctx, c)
	if err != nil {
		x.h.cfg.Log.InfoContext(ctx, "batch not held", "correlation_id", x.correlationID(), "cause", err)
		x.answerEach(p, func(int) []byte { return x.refused(err) })
		return
	}
	leave, err := x.enterWaiting()
	if err != nil {
		x.answerEach(p, func(i int) []byte { return x.pendingAnswer(t, p.Messages[i].Method) })
		return
	}
	defer leave()
	began, w := time.Now(), x.beginWaiting(new(jsonrpc.Message))
	t, err = w.wait(ctx, t, x.h.settings().Waiting.Hold, x.send())
	x.h.cfg.Metrics.WaitEnded(x.waitResult(t, err), time.Since(began))
	switch {
	case err == nil:
		x.deliverBatch(ctx, w, p, t)
	case !errors.Is(err, task.ErrNotReady):
		w.end(x.each(p, func(int) []byte { return x.errorMessage(x.dialect().Error(err)) }))
	case x.r.Context().Err() != nil:
		x.leave()
	default:
		w.end(x.each(p, func(i int) []byte { return x.pendingAnswer(t, p.Messages[i].Method) }))
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
func (x *exchange) deliverBatch(ctx context.Context, w *waiting, p jsonrpc.Packet, t task.Task) {
	payload, err := io.ReadAll(x.h.cfg.Desk.Open(ctx, t))
	answers := x.each(p, func(i int) []byte {
		if err != nil {
			return x.errorMessage(x.dialect().Error(err))
		}
		return x.outcomeInBatch(t, payload, i)
	})
	if err != nil {
		w.end(answers)
		return
	}
	text := mcptask.Text{}.Around(string(answers), "")
	_ = w.compose(text, nil, func() { x.delivered(ctx, t) }) // nothing is left to be read
}

// outcomeInBatch returns the answer to the request at a place in a batch: what
// the upstream said to it, under the id that the client has given it this time.
func (x *exchange) outcomeInBatch(t task.Task, payload []byte, place int) []byte {
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
			if shown, err := x.shownInBatch(patch.Apply(said.Bytes)); err == nil {
				return shown
			}
			break
		}
		n++
	}
	x.problem = &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream did not answer this request of the batch"}
	return x.problem.AppendResponse(nil, x.era, x.id, x.correlationID())
}
