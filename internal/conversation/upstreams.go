package conversation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// followedUpstreams are the subscriptions to upstreams that one client's stream uses.
type followedUpstreams struct {
	gateway *Gateway
	client  Client
	joined  map[task.ID]func()
}

// hear joins the subscription to the upstream's task for t, if there is one, until t has ended.
func (f *followedUpstreams) hear(t *task.Task) {
	leave := f.joined[t.ID]
	switch {
	case t.State.Terminal() && leave != nil:
		leave()
		delete(f.joined, t.ID)
	case leave == nil && upstream.CanListen(*t) && !f.gateway.Waiting().Events.SkipUpstreams:
		if f.joined == nil {
			f.joined = make(map[task.ID]func())
		}
		u := upstreamTask{gateway: f.gateway, caller: f.client.Caller(), task: *t}
		f.joined[t.ID] = f.gateway.upstreams.join(t.ID, u.listen)
	}
}

// leave leaves all subscriptions.
func (f *followedUpstreams) leave() {
	for _, leave := range f.joined {
		leave()
	}
}

// An upstreamTask is a task that an upstream has created for a held call.
type upstreamTask struct {
	gateway *Gateway
	caller  *upstream.Caller
	task    task.Task // of the held call
}

// listen listens to the upstream's task until ctx ends or the upstream cannot be reached. After
// that, the upstream is asked whenever a client asks the gate.
func (u upstreamTask) listen(ctx context.Context, clients func() int) {
	ctx = approval.LogContext(ctx, u.task)
	for attempt := 0; ; attempt++ {
		again := attempt > 0
		err := u.listenOnce(ctx, clients, func() {
			if attempt > 0 {
				u.gateway.cfg.Metrics.Reconnected(metrics.Success)
			}
			attempt = 0
			u.gateway.cfg.Log.DebugContext(ctx, "SSE upstream subscribed", "upstream_task_id", u.task.Execution.UpstreamTask)
			u.catchUp(ctx) // with events before the subscription
		})
		if again && attempt > 0 {
			u.gateway.cfg.Metrics.Reconnected(metrics.Failed)
		}
		if ctx.Err() != nil || errors.Is(err, upstream.ErrRefused) {
			return
		}
		if attempt >= u.gateway.Waiting().Events.ReconnectAttempts {
			u.gateway.cfg.Log.WarnContext(ctx, "no more notifications from an upstream; it is polled instead", "err", err)
			return
		}
		// The random part prevents that all replicas reconnect at the same time.
		delay := u.gateway.Waiting().Events.ReconnectDelay
		pause.For(ctx, delay/2+rand.N(max(delay, 1)))
	}
}

// listenOnce opens one stream of notifications and handles them until the stream ends. It returns the
// reason, which is never nil. It calls subscribed once, when the upstream acknowledges the subscription.
func (u upstreamTask) listenOnce(ctx context.Context, maxClients func() int, subscribed func()) error {
	//mutate:swap "StepListen" "StepPoll" internal/mcphttp.TestListeningIsTraced a subscription has no span
	ctx, span := u.caller.Step(ctx, tracing.StepListen, u.task)
	defer func() {
		//mutate:swap "maxClients()" "0" internal/mcphttp.TestListeningIsTraced the span of a subscription has no clients
		span.SetStep(tracing.StepAttrs{Clients: maxClients()})
		span.End()
	}()
	stream, err := u.caller.Listen(ctx, u.task)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	u.gateway.cfg.Metrics.SubscriptionOpened()
	defer u.gateway.cfg.Metrics.SubscriptionClosed()
	events := jsonrpc.NewEventReader(stream, upstream.MaxWhole)
	subscribed = sync.OnceFunc(subscribed) // the upstream may repeat its acknowledgement
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
			subscribed()
		case m.Method == mcpname.NotifyTasks:
			u.report(ctx, m)
		}
	}
}

// report stores a status that the upstream reports, so that all followers of the gate's task see
// it. At the end of the task, the upstream is asked for the result, which may be large.
func (u upstreamTask) report(ctx context.Context, m *jsonrpc.Message) {
	status, err := upstream.ReadReport(m.Params.Value, mcp.Modern)
	if err != nil || status.Task != u.task.Execution.UpstreamTask {
		return
	}
	u.gateway.cfg.Metrics.Notified(metrics.FromUpstream)
	if status.State.Ended() {
		u.gateway.reports.take(ctx, u.task.ID, report{final: true, act: u.catchUp})
		return
	}
	u.gateway.record(ctx, task.OwnedBy(u.task.Owner).Ref(u.task.ID), status)
}

// catchUp asks the upstream for the status of its task.
func (u upstreamTask) catchUp(ctx context.Context) {
	_, err := u.gateway.cfg.Approvals.Contact(ctx, task.OwnedBy(u.task.Owner).Ref(u.task.ID), u.caller)
	u.gateway.logNotStored(ctx, u.task.ID, err)
}

// record stores a status that an upstream reports for the task of a held call.
func (g *Gateway) record(ctx context.Context, ref task.Ref, status approval.Report) {
	g.reports.take(ctx, ref.ID, report{final: status.State.Ended() || status.Cancelled, act: func(ctx context.Context) {
		_, err := g.cfg.Approvals.Report(ctx, ref, status)
		g.logNotStored(ctx, ref.ID, err)
	}})
}

// logNotStored logs that the status of an upstream's task could not be stored.
func (g *Gateway) logNotStored(ctx context.Context, id task.ID, err error) {
	if err != nil && ctx.Err() == nil {
		g.cfg.Log.WarnContext(ctx, "cannot store the state of an upstream's task", "task_id", id, "err", err)
	}
}

// subscriptions are the tasks of upstreams that the gate listens to because at least one client
// follows the held call. The first client begins a subscription, with its credentials, and the
// last one ends it. Legacy upstreams report on the GET stream of each client instead.
type subscriptions struct {
	mu      sync.Mutex
	open    map[task.ID]*subscription
	closed  bool
	running sync.WaitGroup
}

type subscription struct {
	clients int
	most    int // maximum of clients
	joins   int // total of clients
	stop    context.CancelFunc
}

// A listenFunc listens to an upstream until its context ends. The function clients returns the
// maximum number of clients so far.
type listenFunc func(ctx context.Context, clients func() int)

// join adds a client to the subscription of a task, and returns a function that removes it. The
// first client starts listen.
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

// listen calls listen, and again if a client has joined in the meantime.
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

// forget removes a subscription. The caller holds the lock.
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

// close ends all subscriptions, and waits for their end.
func (s *subscriptions) close() {
	s.mu.Lock()
	s.closed = true
	for _, sub := range s.open {
		sub.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// ReportInterval is how often the gate handles reports of an upstream about one task. Each costs
// a write to the store or a request to the upstream.
const ReportInterval = 500 * time.Millisecond

// reportTimeout bounds the handling of one report.
const reportTimeout = 30 * time.Second

// reportBurst is how many reports of a task are handled at once before they are coalesced.
const reportBurst = 5

// reports coalesces the reports of upstreams about their tasks, so that a flood of them costs
// little. The gate handles the first few reports of a task and the first final one at once. Of
// all others it handles the latest one per interval. A later report never replaces a final one.
type reports struct {
	mu      sync.Mutex
	tasks   map[task.ID]*reportQueue // with reports in the current interval
	closing chan struct{}
	closed  bool
	running sync.WaitGroup
}

// A reportQueue is the state of the reports of one task.
type reportQueue struct {
	acting sync.Mutex // held while a report is handled
	atOnce int        // how many were handled at once
	ended  bool       // a final report was handled
	latest *report    // waits for the end of the interval; may be nil
}

// A report is a status that an upstream reports.
type report struct {
	final bool // the upstream's task has ended
	act   func(context.Context)
}

func newReports() *reports {
	return &reports{tasks: make(map[task.ID]*reportQueue), closing: make(chan struct{})}
}

// take handles a report of a task now, or at the end of the interval.
func (r *reports) take(ctx context.Context, id task.ID, one report) {
	r.mu.Lock()
	q := r.tasks[id]
	first := q == nil
	if first && r.closed {
		r.mu.Unlock()
		return // the gate stops; the next poll gets the status
	}
	if first {
		q = &reportQueue{}
		r.tasks[id] = q
		r.running.Add(1)
	}
	atOnce := q.admit(one)
	r.mu.Unlock()
	if atOnce {
		q.act(ctx, one)
	}
	if first {
		go func() {
			defer r.running.Done()
			r.rest(context.WithoutCancel(ctx), id, q)
		}()
	}
}

// admit reports whether a report is handled at once. Otherwise it is queued.
func (q *reportQueue) admit(one report) bool {
	switch {
	case one.final && !q.ended:
		q.ended, q.latest = true, nil
		return true
	case !one.final && !q.ended && q.atOnce < reportBurst:
		q.atOnce++
		return true
	case q.latest == nil || one.final || !q.latest.final:
		q.latest = &one
	}
	return false
}

// act handles a report after those before it.
func (q *reportQueue) act(ctx context.Context, one report) {
	q.acting.Lock()
	defer q.acting.Unlock()
	one.act(ctx)
}

// rest handles the queued report of a task at the end of each interval, until the queue is empty.
func (r *reports) rest(ctx context.Context, id task.ID, q *reportQueue) {
	for {
		timer := time.NewTimer(ReportInterval)
		select {
		case <-timer.C:
		case <-r.closing:
		}
		timer.Stop()
		one := r.next(id)
		if one == nil {
			return
		}
		bounded, done := context.WithTimeout(ctx, reportTimeout)
		q.act(bounded, *one)
		done()
	}
}

// next returns the queued report of a task. If there is none, it removes the queue.
func (r *reports) next(id task.ID) *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.tasks[id]
	one := q.latest
	if q.latest = nil; one == nil {
		delete(r.tasks, id)
	}
	return one
}

// close handles all queued reports, and waits for that.
func (r *reports) close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.closing)
	}
	r.mu.Unlock()
	r.running.Wait()
}
