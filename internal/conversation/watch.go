package conversation

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Watched returns a task that the client may watch.
func (r *Request) Watched(ctx context.Context, id task.ID) (task.Task, *wire.Problem) {
	if !id.Own() {
		return task.Task{}, &wire.Problem{Type: wire.PassthroughTask}
	}
	if !r.hub.Holds() {
		return task.Task{}, &wire.Problem{Type: wire.TaskNotFound}
	}
	t, err := r.hub.cfg.Desk.Get(ctx, r.ref(id))
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, task.ErrNotFound), errors.Is(err, task.ErrOwnerMismatch):
		return t, &wire.Problem{Type: wire.TaskNotFound, Cause: err}
	default:
		return t, r.StoreFailed(err)
	}
}

// EnterWatching counts the client as one that watches a task, unless its owner
// has as many as it may. The result counts it out again.
func (s *sender) EnterWatching() (leave func(), err error) {
	return s.hub.watchers.enter(s, s.hub.Waiting().Events.PerOwner)
}

// A Watch lets a client look on as one task goes on. To look on is no contact: no
// call begins because of it.
type Watch struct {
	*Request

	steps      *approval.Following
	upstreams  followedUpstreams
	disconnect func()
	last       time.Time // when something happened
}

// FromNow is how many steps a client has seen that wants to know how a task stands
// now, and then of every step.
const FromNow = -1

// Watch begins to watch t, after as many of its steps as the client has seen.
func (r *Request) Watch(ctx context.Context, t task.Task, seen int) (*Watch, error) {
	steps, err := r.hub.cfg.Desk.Follow(ctx, t.Owner, []task.ID{t.ID})
	if err != nil {
		return nil, r.StoreFailed(err)
	}
	if seen > FromNow {
		steps.After(t.ID, seen)
	}
	return &Watch{
		Request: r, steps: steps, upstreams: followedUpstreams{r: r},
		disconnect: r.connect(approval.About(ctx, t), []task.ID{t.ID}),
	}, nil
}

// Close ends the watch.
func (w *Watch) Close() {
	w.upstreams.leave()
	w.disconnect()
	w.steps.Close()
}

// Next returns what has happened to the task since the last call, or nothing if
// it is time for a sign of life. It returns false when the task has ended, nothing
// has happened for too long, or ctx has ended.
func (w *Watch) Next(ctx context.Context) (news []task.Task, more bool) {
	if len(w.steps.Open()) == 0 {
		return nil, false
	}
	if w.last.IsZero() {
		w.last = time.Now()
	}
	wait := w.hub.Beat()
	if idle := w.hub.Waiting().Events.Idle; idle > 0 {
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
	if len(news) > 0 {
		w.last = time.Now()
		w.upstreams.hearAll(news)
	}
	return news, true
}

// Status returns how a task stands, in words that need no MCP to be read.
func (w *Watch) Status(t task.Task) ([]byte, error) {
	return json.Marshal(struct {
		TaskID        task.ID        `json:"taskId"`
		Status        mcptask.Status `json:"status"`
		StatusMessage string         `json:"statusMessage,omitzero"`
		Timestamp     string         `json:"timestamp"`
	}{t.ID, w.dialect().Status(t), w.dialect().StatusMessage(t), string(mcptask.At(t.UpdatedAt))})
}

// Sent notes that the client was sent the status of a task.
func (w *Watch) Sent(t task.Task) {
	w.hub.notified(w.reply.Context(), t, w.dialect().Status(t))
}
