package conversation

import (
	"context"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// counts counts what happened to tasks.
type counts struct {
	mu    sync.Mutex
	tasks map[task.ID]int
}

// maxCounted is how many tasks are counted. If there are more, all begin anew.
const maxCounted = 10_000

// add counts once more, and returns how often that was.
func (c *counts) add(id task.ID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks == nil || len(c.tasks) >= maxCounted {
		c.tasks = make(map[task.ID]int)
	}
	c.tasks[id]++
	return c.tasks[id]
}

// has reports whether something was counted.
func (c *counts) has(id task.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tasks[id] > 0
}

// callAgain is how often a model is asked to make the same call again. Hosts end a
// turn after a few identical calls.
const callAgain = 2

// stillPending says, for a model, how its call stands and what to do.
func (r *Request) stillPending(ctx context.Context, t task.Task) []byte {
	return r.pendingAnswer(ctx, t, t.Call.Method)
}

// pendingAnswer is stillPending for a request with the given method that t is
// about, maybe among others.
func (r *Request) pendingAnswer(ctx context.Context, t task.Task, method string) []byte {
	if method != "tools/call" {
		return r.pendingError(t)
	}
	d := r.dialect()
	return jsonrpc.AppendResult(nil, r.id, d.ToolResult(mcptask.ToolText{
		Text: r.pendingText(ctx, t), Error: !r.hub.Waiting().NoError,
		Meta: d.Denied(string(wire.ApprovalPending), mcptask.RemediationAvailable, t.ID),
	}))
}

// pendingError returns the error which says that t has not ended.
func (r *Request) pendingError(t task.Task) []byte {
	pending := &wire.Problem{Type: wire.ApprovalPending, RetryAfter: int(t.PollInterval.Seconds())}
	return r.errorMessage(pending.RPCError(r.era, r.reply.Correlation()))
}

// pendingText returns the text for a model whose call has no answer yet. It says
// that the call ran, or did not run, only if that is so; it does not invite the
// model to change the call; and it ends the model's turn in time.
func (r *Request) pendingText(ctx context.Context, t task.Task) string {
	if _, shared := r.owner(); shared {
		return r.lostText(ctx, t)
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
	waits := "It waits for approval by " + r.dialect().Facts(t) + ". It has not run. "
	if r.hub.pending.add(t.ID) <= callAgain {
		return "Nothing is wrong with this call: do not change it. " + waits +
			"Call the tool again with exactly the same arguments: that call waits for the decision and gets the result."
	}
	where := ""
	if page := r.hub.Waiting().Page; page != nil {
		where = " at " + page(t.ID)
	}
	return waits + "Do not call the tool again now. Tell the user that the call waits for approval" + where +
		", and that it runs when they ask for it again after that."
}

// lostText returns the text for a model whose client cannot be recognised when it calls
// again. A call that it would make again is another call.
func (r *Request) lostText(ctx context.Context, t task.Task) string {
	const lost = "The gate cannot recognise this client when it calls again, so its result cannot be had. " +
		"Do not call the tool again: that would be another call. Tell the user."
	switch {
	case t.State == task.Executing:
		return "This call was approved and is running. " + lost
	case t.State.Terminal():
		return "This call has ended. " + lost
	default:
		return r.withdrawnText(ctx, t)
	}
}

// withdrawnText withdraws a call whose client could not find it again, and says
// so.
func (r *Request) withdrawnText(ctx context.Context, t task.Task) string {
	_, err := r.hub.cfg.Desk.Cancel(context.WithoutCancel(ctx), r.ref(t.ID), r.withdrawal("the client cannot be recognised when it calls again"))
	if err != nil {
		r.hub.cfg.Log.WarnContext(ctx, "held call not withdrawn", "task_id", t.ID, "cause", err)
		return "This call needs approval, which nobody has given yet. It has not run."
	}
	return "This call needs approval, and the gate cannot recognise this client when it calls again: " +
		"the request for approval is withdrawn. It has not run. Tell the user; " +
		"a client that identifies itself, or has a session, can wait longer."
}
