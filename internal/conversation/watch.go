package conversation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// WatchableTask returns a task if the client may watch it.
func (r *Request) WatchableTask(ctx context.Context, id task.ID) (task.Task, *mcp.Problem) {
	if !id.Own() {
		return task.Task{}, &mcp.Problem{Type: mcp.PassthroughTask}
	}
	if !r.gateway.Holds() {
		return task.Task{}, &mcp.Problem{Type: mcp.TaskNotFound}
	}
	t, err := r.gateway.cfg.Approvals.Get(ctx, r.sender.ref(id))
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, task.ErrNotFound), errors.Is(err, task.ErrOwnerMismatch):
		return t, &mcp.Problem{Type: mcp.TaskNotFound, Cause: err}
	default:
		return t, r.out.storeProblem(err)
	}
}

// EnterWatching counts the client as watching a task, unless its owner has reached the limit. The
// caller calls leave at the end.
func (r *Request) EnterWatching() (leave func(), err error) {
	return enter(&r.gateway.watchers, &r.sender, r.gateway.Waiting().Events.PerOwner)
}

// A Watch streams the events of one task to a client. It does not count as presence of the owner,
// so approved calls do not run because of it.
type Watch struct {
	gateway *Gateway
	out     responder

	steps      *approval.Follower
	upstreams  followedUpstreams
	disconnect func()
	last       time.Time // time of the last event
}

// FromNow is the value of seen for a client that wants the current status first, and then every
// step.
const FromNow = -1

// Watch begins to watch t. The client has already seen the given number of steps.
func (r *Request) Watch(ctx context.Context, t task.Task, seen int) (*Watch, error) {
	steps, err := r.gateway.cfg.Approvals.Follow(ctx, t.Owner, []task.ID{t.ID})
	if err != nil {
		return nil, r.out.storeProblem(err)
	}
	if seen > FromNow {
		steps.SkipSteps(t.ID, seen)
	}
	return &Watch{
		gateway: r.gateway, out: r.out, steps: steps, upstreams: followedUpstreams{gateway: r.gateway, client: r.sender.client},
		disconnect: r.gateway.connect(approval.LogContext(ctx, t), []task.ID{t.ID}),
	}, nil
}

// Close ends the watch.
func (w *Watch) Close() {
	w.upstreams.leave()
	w.disconnect()
	w.steps.Close()
}

// Next returns the events since the last call, or none if it is time for a heartbeat. It returns
// false when the task has ended, when nothing has happened for too long, or when ctx has ended.
func (w *Watch) Next(ctx context.Context) (news []task.Task, more bool) {
	if len(w.steps.Unfinished()) == 0 {
		return nil, false
	}
	if w.last.IsZero() {
		w.last = time.Now()
	}
	wait := w.gateway.HeartbeatInterval()
	if idle := w.gateway.Waiting().Events.Idle; idle > 0 {
		left := idle - time.Since(w.last)
		if left <= 0 {
			return nil, false
		}
		wait = min(wait, left)
	}
	news, err := w.steps.Next(ctx, wait)
	if err != nil {
		return nil, false
	}
	for i := range news {
		w.last = time.Now()
		w.upstreams.hear(&news[i])
	}
	return news, true
}

// Status returns the status of a task as JSON that can be read without knowledge of MCP.
func (w *Watch) Status(t task.Task) ([]byte, error) {
	return json.Marshal(struct {
		TaskID        task.ID       `json:"taskId"`
		Status        schema.Status `json:"status"`
		StatusMessage string        `json:"statusMessage,omitzero"`
		Timestamp     string        `json:"timestamp"`
	}{t.ID, w.out.dialect().Status(t), w.out.dialect().StatusMessage(t), string(schema.At(t.UpdatedAt))})
}

// Sent records that the client was sent the status of a task.
func (w *Watch) Sent(t task.Task) {
	w.gateway.notified(w.out.reply.Context(), t, w.out.dialect().Status(t))
}

// connect counts a stream with notifications of tasks, and returns a function that removes it
// from the count.
func (g *Gateway) connect(ctx context.Context, ids []task.ID) (leave func()) {
	for _, id := range ids {
		count, _ := g.eventClients.add(id, 0)
		g.cfg.Log.DebugContext(ctx, "SSE client connected", "task_id", id, "client_count", count)
	}
	return func() {
		for _, id := range ids {
			g.eventClients.remove(id)
		}
	}
}

// notified counts and logs that a client was sent the status of a task.
func (g *Gateway) notified(ctx context.Context, t task.Task, status schema.Status) {
	g.cfg.Metrics.Notified(metrics.FromGate)
	if g.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		g.cfg.Log.LogAttrs(approval.LogContext(ctx, t), slog.LevelDebug, "SSE notification forwarded", slog.String("status", string(status)))
	}
}
