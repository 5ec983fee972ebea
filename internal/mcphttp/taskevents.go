package mcphttp

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
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

// Clients that lose their stream are to come again so soon, at random: not all of
// them at once.
const (
	soonest = 1 * time.Second
	spread  = 4 * time.Second
)

// taskEvents shows a client that asks in the name of its owner what becomes of a
// task, in events that need no MCP to be read. Most of the time the stream is idle.
// Whatever needs a deep stack therefore runs on another one.
func (x *exchange) taskEvents(id string) error {
	if x.r.Method != http.MethodGet {
		x.out.header().Set("Allow", "GET")
		return x.Refuse(&wire.Problem{Type: wire.MethodNotAllowed})
	}
	var s *subscription
	var err error
	ownstack.Do(func() { s, err = x.subscribe(task.ID(id)) })
	if s == nil {
		return err
	}
	defer s.close()
	for err == nil {
		news, more := s.watch.Next(s.ctx)
		if !more {
			return nil // the stream ends with the task, with the client, or with the gate
		}
		ownstack.Do(func() { err = s.send(news) })
	}
	return err
}

// A subscription is a stream of events about one task.
type subscription struct {
	x     *exchange
	ctx   context.Context //nolint:containedctx // it ends with the stream, or with the gate
	watch *conversation.Watch
	end   func() // counts the client out
}

// subscribe begins the stream of events about a task. It returns no subscription if
// the client was answered otherwise.
func (x *exchange) subscribe(id task.ID) (s *subscription, err error) {
	x.request = x.h.cfg.Hub.Begin(&x.client, x, conversation.Message{})
	t, problem := x.request.Watched(x.ctx, id)
	if problem != nil {
		return nil, x.Refuse(problem)
	}
	leave, err := x.request.EnterWatching()
	if err != nil {
		return nil, x.Fail(err)
	}
	ctx, stop := x.endable(x.ctx)
	end := func() { stop(); leave() }
	defer func() {
		if s == nil {
			end()
		}
	}()
	seen, err := strconv.Atoi(x.r.Header.Get("Last-Event-Id"))
	switch {
	case err != nil:
		seen = conversation.FromNow
	case t.State.Terminal() && seen >= len(t.Transitions):
		x.out.begin(http.StatusNoContent) // a browser does not come again after that
		return nil, nil
	}
	w, err := x.request.Watch(ctx, t, seen)
	if err != nil {
		return nil, x.Fail(err)
	}
	x.h.cfg.Metrics.StreamOpened(metrics.StreamEvents)
	s = &subscription{x: x, ctx: ctx, watch: w, end: end}
	//nolint:gosec // jitter only; not security-sensitive
	return s, x.newStream().send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Retry: soonest + rand.N(spread)}))
}

// close ends the stream.
func (s *subscription) close() {
	s.x.h.cfg.Metrics.StreamClosed(metrics.StreamEvents)
	s.watch.Close()
	s.end()
}

// send tells how a task stands, or else that the stream is alive. The id of an
// event is the number of the step, so that a client that loses the stream can go
// on from there.
func (s *subscription) send(news []task.Task) error {
	x := s.x
	if len(news) == 0 {
		return x.out.sendNow(jsonrpc.AppendComment(nil, "ping"))
	}
	for _, t := range news {
		data, err := s.watch.Status(t)
		if err != nil {
			return x.Fail(err)
		}
		event := jsonrpc.Event{Name: "task_status", ID: strconv.Itoa(len(t.Transitions)), HasID: true, Data: data}
		if err := x.out.write(jsonrpc.AppendEvent(nil, event)); err != nil {
			return err
		}
		s.watch.Sent(t)
	}
	return x.out.flush()
}
