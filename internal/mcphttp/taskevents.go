package mcphttp

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The retry time is random, so that clients that lost their streams do not reconnect all at
// once.
const (
	minRetry    = 1 * time.Second
	retryJitter = 4 * time.Second
)

// taskEvents streams the steps of a task to its owner, in events that can be read without MCP.
// The stream is mostly idle, so work that needs a deep stack runs in another goroutine.
func (x *exchange) taskEvents(id task.ID) error {
	if x.r.Method != http.MethodGet {
		x.reply.out.header().Set("Allow", "GET")
		return x.reply.Refuse(&mcp.Problem{Type: mcp.MethodNotAllowed})
	}
	var s *subscription
	var err error
	ownstack.Do(func() { s, err = x.subscribe(id) })
	if s == nil {
		return err
	}
	defer s.close()
	for err == nil {
		news, more := s.watch.Next(s.ctx)
		if !more {
			return nil // the task, the client or the gate has ended
		}
		ownstack.Do(func() { err = s.send(news) })
	}
	return err
}

// A subscription is an event stream about one task.
type subscription struct {
	reply *reply
	ctx   context.Context // ends with the stream or at shutdown
	watch *conversation.Watch
	end   func() // releases the stream's slot
}

// subscribe begins the event stream. It returns nil if the client got another answer.
func (x *exchange) subscribe(id task.ID) (s *subscription, err error) {
	if problem := x.client.checkSession(); problem != nil {
		return nil, x.reply.Refuse(problem)
	}
	request := x.begin(conversation.Message{})
	t, problem := request.WatchableTask(x.account.Context, id)
	if problem != nil {
		return nil, x.reply.Refuse(problem)
	}
	leave, err := request.EnterWatching()
	if err != nil {
		return nil, x.reply.Fail(err)
	}
	ctx, stop := x.h.endable(x.account.Context, x.client.epoch)
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
		x.reply.out.begin(http.StatusNoContent) // stops a browser from reconnecting
		return nil, nil
	}
	w, err := request.Watch(ctx, t, seen)
	if err != nil {
		return nil, x.reply.Fail(err)
	}
	x.h.cfg.Metrics.StreamOpened(metrics.StreamEvents)
	s = &subscription{reply: &x.reply, ctx: ctx, watch: w, end: end}
	// jitter only; not security-sensitive
	return s, x.reply.newStream().send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Retry: minRetry + rand.N(retryJitter)}))
}

// send writes the new states of the task, or a comment if there are none. The event ID is the
// number of the step, so that a client can resume after it.
func (s *subscription) send(news []task.Task) error {
	out := &s.reply.out
	if len(news) == 0 {
		return out.sendNow(jsonrpc.AppendComment(nil, "ping"))
	}
	for _, t := range news {
		data, err := s.watch.Status(t)
		if err != nil {
			return s.reply.Fail(err)
		}
		event := jsonrpc.Event{Name: "task_status", ID: strconv.Itoa(len(t.Transitions)), HasID: true, Data: data}
		if err := out.write(jsonrpc.AppendEvent(nil, event)); err != nil {
			return err
		}
		s.watch.Sent(t)
	}
	return out.flush()
}

// close ends the stream.
func (s *subscription) close() {
	s.reply.h.cfg.Metrics.StreamClosed(metrics.StreamEvents)
	s.watch.Close()
	s.end()
}
