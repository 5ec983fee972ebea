package conversation

import (
	"context"
	"errors"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A responder makes and sends the gate's answers to a request.
type responder struct {
	gateway *Gateway
	reply   Reply
	era     mcp.Era
	id      []byte // of the request; nil for other messages
}

// to returns the responder for another request of a batch.
func (o responder) to(id []byte) responder {
	o.id = id
	return o
}

func (o responder) dialect() mcptask.Dialect {
	d := o.gateway.dialect(o.era)
	d.Gate.Correlation = o.reply.Correlation()
	return d
}

// denied returns the _meta of the result of a call that may not run, or not yet.
func (o responder) denied(reason mcp.Type, r gatedialect.Remediation, decidedIn task.ID) schema.Object {
	if o.era != mcp.Modern {
		return nil
	}
	return o.dialect().Gate.Denied(string(reason), r, decidedIn)
}

// answer sends a message.
func (o responder) answer(message []byte) error { return o.reply.Answer(Answered, message) }

// problemMessage returns the message for a problem.
func (o responder) problemMessage(problem *mcp.Problem) []byte {
	o.reply.NoteProblem(problem)
	return problem.AppendResponse(nil, o.era, o.id, o.reply.Correlation())
}

// errorMessage returns the message for e, with the correlation id.
func (o responder) errorMessage(e *jsonrpc.Error) []byte {
	data := jsonrpc.Value{Bytes: e.Data}
	if data.IsObject() {
		var patch jsonrpc.Patch
		patch.Set(data, "correlation_id", jsonrpc.AppendString(nil, o.reply.Correlation()))
		e.Data = patch.Apply(e.Data)
	}
	kind, _ := data.Member("error_type").Text()
	o.reply.NoteProblem(&mcp.Problem{Type: mcp.Type(kind), Detail: e.Message})
	return jsonrpc.AppendErrorResponse(nil, o.id, e)
}

// failure returns the message for an error of the gate or of its store.
func (o responder) failure(err error) []byte { return o.errorMessage(o.dialect().Error(err)) }

// answerError sends the message for e, with the matching status.
func (o responder) answerError(e *jsonrpc.Error) error {
	status := Answered
	if o.era == mcp.Modern {
		switch e.Code {
		case mcp.CodeMissingCapability:
			status = BadRequest
		case jsonrpc.CodeMethodNotFound:
			status = UnknownMethod
		}
		kind, _ := (jsonrpc.Value{Bytes: e.Data}).Member("error_type").Text()
		if mcp.Type(kind) == mcp.StoreUnavailable || mcp.Type(kind) == mcp.ShuttingDown {
			status = Unavailable
		}
	}
	return o.reply.Answer(status, o.errorMessage(e))
}

// answerFailure answers with an error of the gate or of its store.
func (o responder) answerFailure(err error) error { return o.answerError(o.dialect().Error(err)) }

// resultText returns the message with a result.
func (o responder) resultText(result mcptask.Text) mcptask.Text {
	return result.Wrap(`{"jsonrpc":"2.0","id":`+string(o.id)+`,"result":`, "}")
}

// outcomeText returns the message with the outcome of t, including the upstream's answer.
func (o responder) outcomeText(t task.Task, a mcptask.Outcome) mcptask.Text {
	switch {
	case !a.Error.Present():
		return o.resultText(a.Result)
	case t.Result == nil:
		return mcptask.Text{}.Wrap(string(o.errorMessage(a.Err(nil))), "")
	default:
		return a.Error.Wrap(`{"jsonrpc":"2.0","id":`+string(o.id)+`,"error":`, "}")
	}
}

// messageOf returns the message for an answer without a stored result.
func (o responder) messageOf(a mcptask.Outcome) []byte {
	if a.Error.Present() {
		return o.errorMessage(a.Err(nil))
	}
	message, err := o.resultText(a.Result).ComposeBytes(nil)
	if err != nil {
		return o.failure(err)
	}
	return message
}

// storeProblem returns the problem for err, a failure of the store.
func (o responder) storeProblem(err error) *mcp.Problem {
	p := mcp.StoreProblem(o.era, err)
	switch {
	case errors.Is(err, task.ErrOutdated):
		p.Detail = "the store was written by a newer version; update this gate before it can hold calls. The call did not run"
	case errors.Is(err, storekit.ErrMaybeCreated):
		p.Detail = "it is unknown whether the store has the call: it may still be approved and run"
	}
	return p
}

// storeFailed reports whether err is a failure of the store rather than its answer.
func storeFailed(err error) bool {
	_, known := errors.AsType[*task.Error](err)
	return !known || errors.Is(err, task.ErrUnavailable)
}

// notHeldMessage returns the answer to a request that could not be held. For a tool it is a
// result that a model can read.
func (o responder) notHeldMessage(method string, err error) []byte {
	switch {
	case storeFailed(err):
		return o.problemMessage(o.storeProblem(err))
	//mutate:false internal/mcphttp.TestOutcomesHaveTheFormOfTheirMethod a resource that is not held gets the result of a tool
	case method != mcpname.ToolsCall:
		return o.failure(err)
	default:
		return o.messageOf(o.dialect().Refuse(err))
	}
}

// callAgain is how many times a model is asked to repeat its call. Hosts end a turn after a few
// identical calls.
const callAgain = 2

// A pendingAnswer tells a model that its call has no result yet, and what to do.
type pendingAnswer struct {
	sender *sender
	out    responder
}

// message returns the answer to a request with the given method, whose call is t or part of t.
func (p pendingAnswer) message(ctx context.Context, t task.Task, method string) []byte {
	if method != mcpname.ToolsCall {
		return p.out.pendingError(t)
	}
	d := p.out.dialect()
	return jsonrpc.AppendResult(nil, p.out.id, d.ToolResult(mcptask.ToolText{
		Text: p.text(ctx, t), Error: true,
		Meta: p.out.denied(mcp.ApprovalPending, gatedialect.RemediationAvailable, t.ID),
	}))
}

// pendingError returns the error for a task that has not ended.
func (o responder) pendingError(t task.Task) []byte {
	pending := &mcp.Problem{Type: mcp.ApprovalPending, RetryAfter: int(t.PollInterval.Seconds())}
	return o.errorMessage(pending.RPCError(o.era, o.reply.Correlation()))
}

// text returns the text for a model whose call has no result yet. It says whether the call ran
// only if that is certain. It must not tempt the model to change the call, and it ends the
// model's turn in time.
func (p pendingAnswer) text(ctx context.Context, t task.Task) string {
	if _, shared := p.sender.owner(); shared {
		return p.lostText(ctx, t)
	}
	switch {
	case t.State == task.Executing:
		return "This call was approved and is running. " +
			"Call the tool again with exactly the same arguments to get its result; it will not run twice."
	case t.State.Terminal():
		return "This call has ended. Call the tool again with exactly the same arguments to get its result; it will not run twice."
	case t.State == task.Approved:
		return "This call was approved and has not run yet. " +
			"Call the tool again with exactly the same arguments: it then runs, once, and you get its result."
	}
	waits := "It waits for approval by " + gatedialect.Facts(t, p.out.dialect().Now) + ". It has not run. "
	if p.sender.gateway.pendingAnswers.update(t.ID, func(n int) int { return n + 1 }) <= callAgain {
		return "Nothing is wrong with this call: do not change it. " + waits +
			"Call the tool again with exactly the same arguments: that call waits for the decision and gets the result."
	}
	where := ""
	if page := p.sender.gateway.Waiting().Page; page != nil {
		where = " at " + page(t.ID)
	}
	return waits + "Do not call the tool again now. Tell the user that the call waits for approval" + where +
		", and that it runs when they ask for it again after that."
}

// lostText returns the text for a model whose client is not recognised when it calls again. If it
// repeats the call, that is another call.
func (p pendingAnswer) lostText(ctx context.Context, t task.Task) string {
	const lost = "The gate cannot recognise this client when it calls again, so its result cannot be had. " +
		"Do not call the tool again: that would be another call. Tell the user."
	switch {
	case t.State == task.Executing:
		return "This call was approved and is running. " + lost
	case t.State.Terminal():
		return "This call has ended. " + lost
	default:
		return p.withdrawnText(ctx, t)
	}
}

// withdrawnText withdraws a call whose client could not get its result, and returns a text that
// says so.
func (p pendingAnswer) withdrawnText(ctx context.Context, t task.Task) string {
	_, err := p.sender.gateway.cfg.Approvals.Cancel(context.WithoutCancel(ctx), p.sender.ref(t.ID), p.sender.withdrawal("the client cannot be recognised when it calls again"))
	if err != nil {
		p.sender.gateway.cfg.Log.WarnContext(ctx, "held call not withdrawn", "task_id", t.ID, "err", err)
		return "This call needs approval, which nobody has given yet. It has not run."
	}
	return "This call needs approval, and the gate cannot recognise this client when it calls again: " +
		"the request for approval is withdrawn. It has not run. Tell the user; " +
		"a client that identifies itself, or has a session, can wait longer."
}

// join returns the concatenated texts.
func join(texts ...string) []byte { return []byte(strings.Join(texts, "")) }
