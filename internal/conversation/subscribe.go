package conversation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
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
	most    int // clients that there were at a time
	joins   int // clients that there were in all
	stop    context.CancelFunc
}

// A listenFunc listens to an upstream until its context ends. Clients returns how
// many clients, at most, listened at a time so far.
type listenFunc func(ctx context.Context, clients func() int)

// join counts one more client that listens to a task, and returns what counts it
// out again. The first one has listen run.
func (s *subscriptions) join(id task.ID, listen listenFunc) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	if s.open == nil {
		s.open = make(map[task.ID]*subscription)
	}
	sub := s.open[id]
	if sub == nil {
		sub = &subscription{}
		s.open[id] = sub
		var ctx context.Context
		ctx, sub.stop = context.WithCancel(context.Background())
		s.running.Go(func() { s.listen(ctx, id, sub, listen) })
	}
	sub.clients++
	sub.joins++
	sub.most = max(sub.most, sub.clients)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if sub.clients--; sub.clients == 0 {
			sub.stop()
			s.forget(id, sub)
		}
	}
}

// listen runs listen until it returns, and again if a client has joined in the meantime.
func (s *subscriptions) listen(ctx context.Context, id task.ID, sub *subscription, listen listenFunc) {
	for heard := 0; ; {
		s.mu.Lock()
		if heard == sub.joins || ctx.Err() != nil {
			s.forget(id, sub)
			s.mu.Unlock()
			return
		}
		heard = sub.joins
		s.mu.Unlock()
		listen(ctx, func() int { return s.most(sub) })
	}
}

// forget takes a subscription out, if it is still there. The caller holds the lock.
func (s *subscriptions) forget(id task.ID, sub *subscription) {
	if s.open[id] == sub {
		delete(s.open, id)
	}
}

func (s *subscriptions) most(sub *subscription) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sub.most
}

// close ends all subscriptions, and waits for that.
func (s *subscriptions) close() {
	s.mu.Lock()
	s.closed = true
	for _, sub := range s.open {
		sub.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// followedUpstreams are the subscriptions that one client's stream takes part in.
type followedUpstreams struct {
	r      *Request
	joined map[task.ID]func()
}

// hearAll calls hear with each of the tasks.
func (f *followedUpstreams) hearAll(news []task.Task) {
	for i := range news {
		f.hear(&news[i])
	}
}

// hear takes part in the subscription to the upstream's task that t has become,
// if it has, until t has ended.
func (f *followedUpstreams) hear(t *task.Task) {
	leave := f.joined[t.ID]
	switch {
	case t.State.Terminal() && leave != nil:
		leave()
		delete(f.joined, t.ID)
	case leave == nil && upstream.CanListen(*t) && !f.r.hub.Waiting().Events.SkipUpstreams:
		if f.joined == nil {
			f.joined = make(map[task.ID]func())
		}
		r := f.r
		u := upstreamTask{caller: r.client.Caller(), task: *t}
		f.joined[t.ID] = r.hub.upstreams.join(t.ID, func(ctx context.Context, clients func() int) {
			u.clients = clients
			r.hub.listenUpstream(ctx, u)
		})
	}
}

// leave ends taking part in all.
func (f *followedUpstreams) leave() {
	for _, leave := range f.joined {
		leave()
	}
}

// An upstreamTask is a task of an upstream's that is listened to.
type upstreamTask struct {
	caller  *upstream.Caller
	task    task.Task  // the gate's own that has become it
	clients func() int // how many clients have listened to it at a time
}

// listenUpstream listens to the upstream's task that t has become, until ctx
// ends or the upstream cannot be listened to. The gate then asks the upstream when a
// client asks the gate.
func (h *Hub) listenUpstream(ctx context.Context, u upstreamTask) {
	ctx = approval.About(ctx, u.task)
	for attempt := 0; ; attempt++ {
		again := attempt > 0
		err := h.hearUpstream(ctx, u, func() {
			if attempt > 0 {
				h.cfg.Metrics.Reconnected(metrics.Success)
			}
			attempt = 0
			h.cfg.Log.DebugContext(ctx, "SSE upstream subscribed", "upstream_task_id", u.task.Execution.UpstreamTask)
			h.catchUp(ctx, u.caller, u.task) // with what was said before it was listened to
		})
		if again && attempt > 0 {
			h.cfg.Metrics.Reconnected(metrics.Failed)
		}
		if ctx.Err() != nil || errors.Is(err, upstream.ErrRefused) {
			return
		}
		if attempt >= h.Waiting().Events.ReconnectAttempts {
			h.cfg.Log.WarnContext(ctx, "no more notifications from an upstream; it is asked when a client asks", "cause", err)
			return
		}
		// Those who lost the same upstream do not come again all at once.
		delay := h.Waiting().Events.ReconnectDelay
		pause := time.NewTimer(delay/2 + rand.N(max(delay, 1))) //nolint:gosec // jitter only; not security-sensitive
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// hearUpstream listens on one stream, and returns why that ended. It calls begun
// when the upstream has acknowledged.
func (h *Hub) hearUpstream(ctx context.Context, u upstreamTask, begun func()) error {
	c, t := u.caller, u.task
	ctx, span := c.Step(ctx, tracing.StepListen, t)
	defer func() {
		span.SetStep(tracing.StepAttrs{Clients: u.clients()})
		span.End()
	}()
	stream, err := c.Listen(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	h.cfg.Metrics.SubscriptionOpened()
	defer h.cfg.Metrics.SubscriptionClosed()
	events := jsonrpc.NewEventReader(stream, upstream.MaxWhole)
	begun = sync.OnceFunc(begun) // an upstream may repeat its acknowledgement
	for {
		event, err := events.Next()
		if err != nil {
			return err
		}
		m, err := jsonrpc.ParseMessage(event.Data, jsonrpc.Limits{})
		switch {
		case err != nil:
		case m.Kind == jsonrpc.Response && m.Error.Present():
			return upstream.ErrRefused
		case IsAcknowledgement(m):
			begun()
		case m.Method == mcptask.MethodStatus2026:
			h.upstreamSays(ctx, c, t, m)
		}
	}
}

// upstreamSays takes note of what the upstream says of its task, from where all
// who listen to t hear of it. For the outcome it is asked: that may be large.
func (h *Hub) upstreamSays(ctx context.Context, c *upstream.Caller, t task.Task, m *jsonrpc.Message) {
	said, err := upstream.ReadReport(m.Params.Value, wire.Modern)
	if err != nil || said.Task != t.Execution.UpstreamTask {
		return
	}
	h.cfg.Metrics.Notified(metrics.FromUpstream)
	if said.State.Ended() {
		h.reports.take(ctx, t.ID, report{final: true, act: func(ctx context.Context) { h.catchUp(ctx, c, t) }})
		return
	}
	h.record(ctx, task.OwnedBy(t.Owner).Ref(t.ID), said)
}

// record stores what an upstream says of the task that a held call has become.
func (h *Hub) record(ctx context.Context, ref task.Ref, said approval.Report) {
	h.reports.take(ctx, ref.ID, report{final: said.State.Ended() || said.Cancelled, act: func(ctx context.Context) {
		_, err := h.cfg.Desk.Report(ctx, ref, said)
		h.logNotStored(ctx, ref.ID, err)
	}})
}

// catchUp asks the upstream how its task stands that t has become.
func (h *Hub) catchUp(ctx context.Context, c *upstream.Caller, t task.Task) {
	_, err := h.cfg.Desk.Contact(ctx, task.OwnedBy(t.Owner).Ref(t.ID), c)
	h.logNotStored(ctx, t.ID, err)
}

// logNotStored logs that what an upstream said could not be stored.
func (h *Hub) logNotStored(ctx context.Context, id task.ID, err error) {
	if err != nil && ctx.Err() == nil {
		h.cfg.Log.WarnContext(ctx, "cannot store the state of an upstream's task", "task_id", id, "cause", err)
	}
}
