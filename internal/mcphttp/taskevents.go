package mcphttp

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

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

// taskEvents tells a client that asks in the name of its owner what becomes of a
// task, in events that need no MCP to be read.
func (x *exchange) taskEvents(id string) error {
	if x.r.Method != http.MethodGet {
		x.out.header().Set("Allow", "GET")
		return x.Refuse(&wire.Problem{Type: wire.MethodNotAllowed})
	}
	x.request = x.h.cfg.Hub.Begin(&x.client, x, conversation.Message{})
	t, problem := x.request.Watched(x.ctx, task.ID(id))
	if problem != nil {
		return x.Refuse(problem)
	}
	leave, err := x.request.EnterWatching()
	if err != nil {
		return x.Fail(err)
	}
	defer leave()
	seen, err := strconv.Atoi(x.r.Header.Get("Last-Event-Id"))
	switch {
	case err != nil:
		seen = conversation.FromNow
	case t.State.Terminal() && seen >= len(t.Transitions):
		x.out.begin(http.StatusNoContent) // which tells a browser not to come again
		return nil
	}
	return x.watch(t, seen)
}

// Clients that lose their stream are to come again so soon, at random: not all of
// them at once.
const (
	soonest = 1 * time.Second
	spread  = 4 * time.Second
)

// watch tells what becomes of a task, after as many steps as the client has seen,
// until the task has ended or nothing has happened for too long.
func (x *exchange) watch(t task.Task, seen int) error {
	ctx, stop := x.endable(x.ctx)
	defer stop()
	w, err := x.request.Watch(ctx, t, seen)
	if err != nil {
		return x.Fail(err)
	}
	defer w.Close()
	x.h.cfg.Metrics.StreamOpened(metrics.StreamEvents)
	defer x.h.cfg.Metrics.StreamClosed(metrics.StreamEvents)
	s := x.newStream()
	//nolint:gosec // nothing depends on nobody guessing it
	if err := s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Retry: soonest + rand.N(spread)})); err != nil {
		return err
	}
	for {
		news, more := w.Next(ctx)
		if !more {
			return nil // the stream ends with the task, with the client, or with the gate
		}
		if err := x.sendNews(w, news); err != nil {
			return err
		}
	}
}

// sendNews tells how a task stands, or else that the stream is alive. The id of an
// event is the number of the step, so that a client that loses the stream can go
// on from there.
func (x *exchange) sendNews(w *conversation.Watch, news []task.Task) error {
	if len(news) == 0 {
		return x.out.sendNow(jsonrpc.AppendComment(nil, "ping"))
	}
	for _, t := range news {
		data, err := w.Status(t)
		if err != nil {
			return x.Fail(err)
		}
		event := jsonrpc.Event{Name: "task_status", ID: strconv.Itoa(len(t.Transitions)), HasID: true, Data: data}
		if err := x.out.write(jsonrpc.AppendEvent(nil, event)); err != nil {
			return err
		}
		w.Sent(t)
	}
	return x.out.flush()
}
