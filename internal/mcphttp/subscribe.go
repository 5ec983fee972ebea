package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// subscriptions are the tasks of upstreams that are listened to, each because at
// least one client listens to the gate's own task that has become it. The first
// client begins that, in its own name, and the last one ends it. Legacy upstreams
// speak of their tasks on the GET stream that a client has anyway.
type subscriptions struct {
	mu      sync.Mutex
	open    map[task.ID]*subscription
	closed  bool
	running sync.WaitGroup
}

type subscription struct {
	clients int
	stop    context.CancelFunc
}

// join counts one more client that listens to a task, and returns what counts it
// out again. The first one has listen run.
func (s *subscriptions) join(id task.ID, listen func(context.Context)) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	if s.open == nil {
		s.open = make(map[task.ID]*subscription)
	}
	one := s.open[id]
	if one == nil {
		one = &subscription{}
		s.open[id] = one
		var ctx context.Context
		ctx, one.stop = context.WithCancel(context.Background())
		s.running.Go(func() { listen(ctx) })
	}
	one.clients++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if one.clients--; one.clients == 0 {
			one.stop()
			delete(s.open, id)
		}
	}
}

// close ends all subscriptions, and waits for that.
func (s *subscriptions) close() {
	s.mu.Lock()
	s.closed = true
	for _, one := range s.open {
		one.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// followedUpstreams are the subscriptions that one client's stream takes part in.
type followedUpstreams struct {
	x      *exchange
	joined map[task.ID]func()
}

// hear takes part in the subscription to the upstream's task that t has become,
// if it has, until t has ended.
func (f *followedUpstreams) hear(t task.Task) {
	leave := f.joined[t.ID]
	switch {
	case t.State.Terminal() && leave != nil:
		leave()
		delete(f.joined, t.ID)
	case leave == nil && canBeHeard(t):
		if f.joined == nil {
			f.joined = make(map[task.ID]func())
		}
		x := f.x
		c := newCaller(x.upstream, x.h.cfg.Gate, x.from(), x.r.Header.Clone())
		f.joined[t.ID] = x.h.upstreams.join(t.ID, func(ctx context.Context) { x.h.listenUpstream(ctx, c, t) })
	}
}

// leave ends taking part in all.
func (f *followedUpstreams) leave() {
	for _, leave := range f.joined {
		leave()
	}
}

// canBeHeard reports whether t has become a task of a modern upstream, that is
// at work on it.
func canBeHeard(t task.Task) bool {
	if t.State != task.Executing || t.Execution.UpstreamTask == "" || t.Execution.Upstream.Ended() {
		return false
	}
	call, err := outgoing(t)
	return err == nil && eraOf(call) == wire.Modern
}

// listenUpstream listens to the upstream's task that t has become, until ctx
// ends or there is no use in it: whoever has tasks can be asked as well.
func (h *Handler) listenUpstream(ctx context.Context, c *caller, t task.Task) {
	for attempt := 0; ; attempt++ {
		again := attempt > 0
		err := h.hearUpstream(ctx, c, t, func() {
			if attempt > 0 {
				h.cfg.Metrics.Reconnected(metrics.Success)
			}
			attempt = 0
			h.catchUp(ctx, c, t) // with what was said before it was listened to
		})
		if again && attempt > 0 {
			h.cfg.Metrics.Reconnected(metrics.Failed)
		}
		if ctx.Err() != nil || errors.Is(err, errRefused) {
			return
		}
		if attempt >= h.settings().Waiting.Events.ReconnectAttempts {
			h.cfg.Log.WarnContext(ctx, "an upstream cannot be listened to any more; it is asked when somebody asks", "task", t.ID, "cause", err)
			return
		}
		// Those who lost the same upstream do not come again all at once.
		delay := h.settings().Waiting.Events.ReconnectDelay
		pause := time.NewTimer(delay/2 + rand.N(max(delay, 1))) //nolint:gosec // nothing depends on nobody guessing it
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// hearUpstream listens on one stream, and returns why that ended. It calls begun
// when the upstream has acknowledged.
func (h *Handler) hearUpstream(ctx context.Context, c *caller, t task.Task, begun func()) error {
	resp, err := c.listen(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, span := h.cfg.Tracing.StartStep(ctx, tracing.StepListen)
	defer span.End()
	span.SetStep(tracing.StepAttrs{UpstreamTask: t.Execution.UpstreamTask})
	h.cfg.Metrics.SubscriptionOpened()
	defer h.cfg.Metrics.SubscriptionClosed()
	events := jsonrpc.NewEventReader(resp.Body, maxRewritten)
	for {
		event, err := events.Next()
		if err != nil {
			return err
		}
		m, err := parsed(event.Data)
		switch {
		case err != nil:
		case m.Kind == jsonrpc.Response && m.Error.Present():
			return errRefused
		case m.Method == "notifications/subscriptions/acknowledged":
			begun()
		case m.Method == mcptask.MethodModernStatus:
			h.upstreamSays(ctx, c, t, m)
		}
	}
}

// listen asks for the stream on which the upstream speaks of its task that t has
// become.
func (c *caller) listen(ctx context.Context, t task.Task) (*http.Response, error) {
	request, err := listenRequest(t)
	if err != nil {
		return nil, err
	}
	header, err := c.as.headerOf(request)
	if err != nil {
		return nil, err
	}
	count := c.upstream.sending()
	resp, err := c.upstream.sendBy(ctx, c.upstream.streams, &http.Request{
		Method: http.MethodPost, URL: new(url.URL), Header: header,
	}, request.Raw)
	if err != nil {
		count(outcomeOf(err))
		return nil, err
	}
	count(outcomeOfStatus(resp.StatusCode))
	switch {
	case resp.StatusCode >= http.StatusInternalServerError:
		err = fmt.Errorf("the upstream answered with status %d", resp.StatusCode)
	case resp.StatusCode != http.StatusOK || mediaType(resp.Header.Get("Content-Type")) != "text/event-stream":
		err = errRefused
	default:
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, err
}

// listenRequest returns the request to hear of the upstream's task that t has
// become.
func listenRequest(t task.Task) (*jsonrpc.Message, error) {
	call, err := outgoing(t)
	if err != nil {
		return nil, err
	}
	return parsed(join(`{"jsonrpc":"2.0","id":`, string(newRequestID()), `,"method":"subscriptions/listen","params":{"notifications":{"taskIds":[`,
		string(jsonrpc.AppendString(nil, t.Execution.UpstreamTask)), `]},"_meta":`, string(requestMeta(call)), `}}`))
}

// upstreamSays takes note of what the upstream says of its task, from where all
// who listen to t hear of it. For the outcome it is asked: that may be large.
func (h *Handler) upstreamSays(ctx context.Context, c *caller, t task.Task, m *jsonrpc.Message) {
	said, err := readReport(m.Params.Value, wire.Modern)
	if err != nil || said.Task != t.Execution.UpstreamTask {
		return
	}
	h.cfg.Metrics.Notified(metrics.FromUpstream)
	if said.State.Ended() {
		h.reports.take(ctx, t.ID, report{final: true, act: func(ctx context.Context) { h.catchUp(ctx, c, t) }})
		return
	}
	h.note(ctx, task.OwnedBy(t.Owner).Ref(t.ID), said)
}

// note takes note of what an upstream says of the task that a held call has
// become.
func (h *Handler) note(ctx context.Context, ref task.Ref, said approval.Report) {
	h.reports.take(ctx, ref.ID, report{final: said.State.Ended() || said.Cancelled, act: func(ctx context.Context) {
		_, err := h.cfg.Desk.Report(ctx, ref, said)
		h.unnoted(ctx, ref.ID, err)
	}})
}

// catchUp asks the upstream how its task stands that t has become.
func (h *Handler) catchUp(ctx context.Context, c *caller, t task.Task) {
	_, err := h.cfg.Desk.Contact(ctx, task.OwnedBy(t.Owner).Ref(t.ID), c)
	h.unnoted(ctx, t.ID, err)
}

// unnoted logs that what an upstream said could not be noted.
func (h *Handler) unnoted(ctx context.Context, id task.ID, err error) {
	if err != nil && ctx.Err() == nil {
		h.cfg.Log.WarnContext(ctx, "what an upstream said of its task is not noted", "task", id, "cause", err)
	}
}
