package mcphttp

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Events says how long, and by how many, the events of a task are listened to.
type Events struct {
	Idle     time.Duration // after which a stream that has nothing to tell is ended; 0 means never
	PerOwner int           // how many streams one owner may have open; 0 means any number

	SkipUpstreams     bool          // listen to no upstream for news of its tasks
	ReconnectDelay    time.Duration // before an upstream is connected to again, on average
	ReconnectAttempts int           // how often that is tried in a row
}

// route returns the upstream behind a path and, if it is the path of a task's
// events, which lies below that of the upstream, the id of the task.
func (h *Handler) route(path string) (u *httpclient.Client, events string, ok bool) {
	if u, ok = h.cfg.Routes[path]; ok {
		return u, "", true
	}
	rest, ok := strings.CutSuffix(path, "/events")
	at := strings.LastIndex(rest, "/tasks/")
	if !ok || at < 0 {
		return nil, "", false
	}
	id := rest[at+len("/tasks/"):]
	u, ok = h.cfg.Routes[rest[:at]]
	return u, id, ok && id != "" && !strings.Contains(id, "/")
}

// taskEvents tells whoever asks in the name of its owner what becomes of a task,
// in events that need no MCP to be read. To look on is no contact: it has
// nothing run.
func (x *exchange) taskEvents(id string) error {
	if x.r.Method != http.MethodGet {
		x.w.Header().Set("Allow", "GET")
		return x.refuse(&wire.Problem{Type: wire.MethodNotAllowed})
	}
	t, problem := x.watched(task.ID(id))
	if problem != nil {
		return x.refuse(problem)
	}
	leave, err := x.h.watchers.enter(x, x.h.settings().Waiting.Events.PerOwner)
	if err != nil {
		return x.refuseCrowded(err)
	}
	defer leave()
	place, err := strconv.Atoi(x.r.Header.Get("Last-Event-Id"))
	resumes := err == nil
	if resumes && t.State.Terminal() && place >= len(t.Transitions) {
		x.begin(http.StatusNoContent) // which tells a browser not to come again
		return nil
	}
	ctx, stop := x.endable(x.ctx)
	defer stop()
	f, err := x.h.cfg.Desk.Follow(ctx, t.Owner, []task.ID{t.ID})
	if err != nil {
		return x.fail(x.storeFailed(err))
	}
	defer f.Close()
	defer x.connect(approval.About(ctx, t), []task.ID{t.ID})()
	if resumes {
		f.After(t.ID, place)
	}
	return x.sendEvents(ctx, f)
}

// watched returns a task that the client may watch.
func (x *exchange) watched(id task.ID) (task.Task, *wire.Problem) {
	if !id.Own() {
		return task.Task{}, &wire.Problem{Type: wire.PassthroughTask}
	}
	if x.h.cfg.Desk == nil {
		return task.Task{}, &wire.Problem{Type: wire.TaskNotFound}
	}
	owner, _ := x.owner()
	t, err := x.h.cfg.Desk.Get(x.ctx, task.OwnedBy(owner).Ref(id))
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, task.ErrNotFound), errors.Is(err, task.ErrOwnerMismatch):
		return t, &wire.Problem{Type: wire.TaskNotFound, Cause: err}
	default:
		return t, x.storeFailed(err)
	}
}

// Those who lose their stream are to come again so soon, at random: not all of
// them at once.
const (
	soonest = 1 * time.Second
	spread  = 4 * time.Second
)

// sendEvents tells what becomes of the one task that is followed, until it has
// ended or nothing has happened for too long.
func (x *exchange) sendEvents(ctx context.Context, f *approval.Following) error {
	x.h.cfg.Metrics.StreamOpened(metrics.StreamEvents)
	defer x.h.cfg.Metrics.StreamClosed(metrics.StreamEvents)
	if err := x.beginEvents(); err != nil {
		return err
	}
	//nolint:gosec // nothing depends on nobody guessing it
	if err := x.sendNow(jsonrpc.AppendEvent(nil, jsonrpc.Event{Retry: soonest + rand.N(spread)})); err != nil {
		return err
	}
	upstreams := followedUpstreams{x: x}
	defer upstreams.leave()
	for last := time.Now(); len(f.Open()) > 0; {
		wait := x.h.beat()
		if idle := x.h.settings().Waiting.Events.Idle; idle > 0 {
			left := idle - time.Since(last)
			if left <= 0 {
				return nil
			}
			wait = min(wait, left)
		}
		news, err := f.Next(ctx, wait)
		if err != nil {
			return nil // the stream ends with the client, or with the gate
		}
		if len(news) > 0 {
			last = time.Now()
		}
		if err := x.sendNews(&upstreams, news); err != nil {
			return err
		}
	}
	return nil
}

// sendNews tells how tasks stand, or else that the stream is alive.
func (x *exchange) sendNews(upstreams *followedUpstreams, news []task.Task) error {
	if len(news) == 0 {
		return x.sendNow(jsonrpc.AppendComment(nil, "ping"))
	}
	for _, t := range news {
		upstreams.hear(t)
		event, err := x.statusEvent(t)
		if err != nil {
			return x.fail(err)
		}
		if err := x.write(event); err != nil {
			return err
		}
		x.h.notified(x.ctx, t, x.dialect().Status(t))
	}
	return x.flush()
}

// statusEvent returns the event that tells how a task stands. Its id is the
// number of the step, so that a client that loses the stream can go on from there.
func (x *exchange) statusEvent(t task.Task) ([]byte, error) {
	data, err := json.Marshal(struct {
		TaskID        task.ID        `json:"taskId"`
		Status        mcptask.Status `json:"status"`
		StatusMessage string         `json:"statusMessage,omitzero"`
		Timestamp     string         `json:"timestamp"`
	}{t.ID, x.dialect().Status(t), x.dialect().StatusMessage(t), string(mcptask.At(t.UpdatedAt))})
	return jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "task_status", ID: strconv.Itoa(len(t.Transitions)), HasID: true, Data: data}), err
}
