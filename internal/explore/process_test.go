package explore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// The times of all gates are short, so that a run has few rounds of housekeeping.
const (
	lease     = 30 * time.Second
	patience  = 2 * time.Minute // of the approvers' workflow
	execution = 50 * time.Second
	retrieval = time.Minute
	holding   = 50 * time.Second // the longest time that a request is held
	restart   = 5 * time.Second  // from the death of a process to its restart
	sweep     = 20 * time.Second // between two rounds of housekeeping
	slowness  = 12 * time.Second // of the slow tool
)

// settings are the settings of gates that differ between scenarios.
type settings struct {
	channel  bool // notify approvers on a channel
	several  bool // the server is one of two of an endpoint
	start    approval.Start
	alone    bool          // there is only one gate
	quorum   int           // of approvers; 0 means 1
	validity time.Duration // of an approval
}

// A process is a gate. When it dies, it loses everything in memory.
type process struct {
	w       *world
	name    string
	before  *process // the previous process of this name
	store   gatestore.Store
	gate    *catalog.Catalog
	desk    *approval.Service
	hub     *conversation.Gateway
	handler *mcphttp.Handler
	client  *httpclient.Client
	other   *httpclient.Client // of the other server of an endpoint
	several *several.Endpoint  // may be nil

	stop  context.CancelFunc
	works sync.WaitGroup
	died  chan struct{}
	once  sync.Once
	ends  atomic.Bool

	// A process that stands still.
	frozen   chan struct{} // closed when it begins
	thawed   chan struct{} // closed when it ends
	thaws    time.Time     // when it ends at the latest
	at       *call         // at which it stands
	replaced atomic.Bool   // another process has taken over one of its runs

	cutUntil atomic.Int64 // when the store can be reached again
	sound    atomic.Int64 // since when the effects of all faults are over
}

// suffer records that a call of the process ends with a fault.
func (p *process) suffer(f fault) {
	now := time.Now()
	if f == cut || f == cutAfter {
		p.cutUntil.Store(now.Add(outage).UnixNano())
	}
	switch f {
	case none:
		return
	case deaf:
		now = now.Add(horizon)
	case overdue:
		now = now.Add(overdueness)
	default:
		now = now.Add(lateness)
	}
	p.sound.Store(max(p.sound.Load(), now.Add(sweep).UnixNano()))
}

// isCut reports whether the process cannot reach its store.
func (p *process) isCut() bool { return time.Now().UnixNano() < p.cutUntil.Load() }

// freeze has the process stand still at a call.
func (p *process) freeze(at *call) {
	p.at, p.thaws = at, time.Now().Add(lease+5*time.Second)
	close(p.frozen)
}

func (p *process) isFrozen() bool {
	select {
	case <-p.frozen:
	default:
		return false
	}
	select {
	case <-p.thawed:
		return false
	default:
		return true
	}
}

// freezes returns a channel that is closed when the process begins to stand still.
func (p *process) freezes() <-chan struct{} {
	select {
	case <-p.thawed:
		return nil
	default:
		return p.frozen
	}
}

// awaitThaw waits while the process stands still.
func (p *process) awaitThaw() {
	if p.isFrozen() {
		<-p.thawed
	}
}

// unlessFrozen calls leave. A process that stands still notices that later.
func (p *process) unlessFrozen(leave func()) {
	if !p.isFrozen() {
		leave()
		return
	}
	p.w.actors.Go(func() {
		<-p.thawed
		leave()
	})
}

// startProcess starts a gate on the store of the world.
func startProcess(w *world, name string) *process {
	p := &process{w: w, name: name, died: make(chan struct{}), frozen: make(chan struct{}), thawed: make(chan struct{})}
	p.sound.Store(time.Now().UnixNano())
	p.store = sharedStore{w.store, p}.reached()
	log := slog.New(slog.DiscardHandler)
	p.gate = catalog.New(&catalog.Settings{Policy: w.policyNow(w.outcomes.denies()), Upstreams: []string{"test", "other"}}, time.Now, log, nil)
	target := &url.URL{Scheme: "http", Host: "upstream.test", Path: "/mcp"}
	dial := func(name string) *httpclient.Client {
		return httpclient.New(httpclient.Config{
			Name: name, URL: target, Transport: (*wires)(p), ForwardAuthorization: true, Log: log,
			ConnectTimeout: 5 * time.Second, ResponseTimeout: 20 * time.Second, CallTimeout: execution, IdleTimeout: time.Minute, MaxIdle: 10,
		})
	}
	p.client, p.other = dial("test"), dial("other")
	route := mcphttp.Endpoint{Upstream: p.client}
	if w.settings.several {
		sessions := upstream.NewSessions(func() gatestore.Records { return p.store }, log)
		p.several = several.New("/mcp", []several.ServerConfig{{Client: p.other, Prefix: "other"}, {Client: p.client}}, sessions, several.ListLimit, log)
		route = mcphttp.Endpoint{Several: p.several}
	}
	var err error
	p.desk, err = approval.New(approval.Config{
		Store: p.store, Durable: true, Judge: func(c policy.Call) policy.Verdict { return p.gate.Recheck(c) }, Workflow: w.settings.workflow,
		Send: func(t task.Task) approval.Sender { return p.client.Upstream().Sender(t, p.gate) },
		Settings: approval.Settings{
			Start: w.settings.start, Limits: task.Limits{PerOwner: 2, Total: 20}, Retrieval: retrieval, MaxTTL: time.Hour,
			Execution: execution, Sweep: sweep, Keep: time.Hour,
			Polling: task.Polling{Min: time.Second, Max: 5 * time.Second},
		},
		Lease: lease, Name: name, Log: log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ring := keyring.New(p.store, time.Now)
	waiting := conversation.Waiting{
		PerOwner: 2, Hold: holding, HoldWithProgress: holding, HoldUnlimited: time.Hour, Heartbeat: 15 * time.Second, MinPoll: time.Second,
		Events: conversation.Events{SkipUpstreams: true},
	}
	p.hub = conversation.NewGateway(conversation.Config{
		Catalog: p.gate, Approvals: p.desk, Records: p.store, Waiting: waiting, Texts: ring, Log: log,
	})
	p.handler = mcphttp.NewHandler(mcphttp.Config{
		Routes: map[string]mcphttp.Endpoint{"/mcp": route}, Catalog: p.gate, Gateway: p.hub, Log: log,
		Limits: mcphttp.Limits{
			Requests: admission.Limits{Total: 100}, Streams: admission.Limits{Total: 100}, Body: 1 << 20,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		},
		Settings: mcphttp.Settings{Guard: mcphttp.Guard{Loopback: true}},
	})
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.works.Go(func() { _ = p.desk.Run(ctx) })
	if w.settings.channel {
		box := channel.New(channel.Config{
			Store: p.store, Cases: p.desk.Viewer(), Channels: map[string]channel.Channel{"chat": (*chatAt)(p)},
			Workflow: func(task.Task) policy.Workflow { return policy.Workflow{Channels: []string{"chat"}} },
			Page:     func(id task.ID) string { return "http://gate.test/" + string(id) }, Name: name,
			Metrics: silentMetrics{}, Now: time.Now, Log: log,
		})
		p.works.Go(func() { box.Run(ctx) })
	}
	return p
}

func (s settings) workflow(string) (approval.Workflow, bool) {
	return approval.Workflow{Quorum: s.quorum, Validity: s.validity, Timeout: patience, Grants: policy.Grants{Longest: time.Hour, Uses: 10}}, true
}

func (p *process) String() string { return p.name }

// serves implements [replica].
func (p *process) serves() bool { return !p.isDead() && !p.closing() && !p.isFrozen() }

func (p *process) isDead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// closing reports whether the process is being shut down.
func (p *process) closing() bool { return p.ends.Load() }

// die kills the process. A new one starts after a while.
func (p *process) die() {
	p.once.Do(func() {
		close(p.died)
		p.w.tell("%s dies", p.name)
		p.w.act(false, func() {
			if p.w.sleep(restart) != nil {
				return
			}
			p.w.replace(p)
		})
	})
}

// replace starts the successor of a process that died or was shut down, unless it has been
// started already.
func (w *world) replace(p *process) {
	w.mu.Lock()
	known := slices.Contains(w.gates[:], replica(p))
	w.mu.Unlock()
	if !known {
		return
	}
	next := startProcess(w, p.name)
	next.before = p
	w.tell("%s is started again", p.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.gates {
		if w.gates[i] == p {
			w.gates[i] = next
		}
	}
}

// shutdown implements [replica]: it shuts the process down in order, like a deployment, and
// starts its successor.
func (p *process) shutdown() {
	p.w.tell("%s is shut down", p.name)
	p.ends.Store(true)
	p.close()
	if !p.isDead() {
		p.w.replace(p)
	}
}

// close ends all work of the process and waits for it.
func (p *process) close() {
	p.ends.Store(true)
	p.handler.EndStreams()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.desk.Close(ctx)
	p.stop()
	p.works.Wait()
	if p.several != nil {
		p.several.Close()
	}
	p.client.Close()
	p.other.Close()
}

// sleep waits on behalf of a call of the process.
func (p *process) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.w.over:
		return errDead
	}
}

// wires connect a process to the upstream.
type wires process

// Reach implements [httpclient.Transport].
func (p *wires) Reach(context.Context) error { return nil }

// RoundTrip implements [httpclient.Transport].
func (p *wires) RoundTrip(r *http.Request, _ httpclient.Peer) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	method := r.Method
	if packet, err := jsonrpc.Parse(body, jsonrpc.Limits{}); err == nil {
		method = packet.Messages[0].Method
	}
	return do(r.Context(), (*process)(p), "upstream."+method, "", func(ctx context.Context) (*http.Response, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{})
		}
		status, header, answer := p.w.server.serve(r.Method, body)
		if bytes.Contains(body, []byte(`"name":"hold_slow"`)) {
			if err := (*process)(p).sleep(ctx, slowness); err != nil {
				return nil, err
			}
		}
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: header, Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)), Request: r,
		}, nil
	})
}

// An answer is the answer to one request.
type answer struct {
	status int
	body   string
	err    error // the connection broke
}

// text returns the last message of the answer.
func (a answer) text() string {
	last := strings.TrimSpace(a.body)
	for line := range strings.Lines(a.body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.TrimSpace(data) != "" {
			last = strings.TrimSpace(data)
		}
	}
	return last
}

// send implements [replica]. It returns when the answer is complete, when the connection
// breaks, or when ctx ends.
func (p *process) send(ctx context.Context, header http.Header, message string) answer {
	inner, leave := context.WithCancel(context.Background())
	defer p.unlessFrozen(leave)
	r, err := http.NewRequestWithContext(inner, http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(message))
	if err != nil {
		return answer{err: err}
	}
	r.Header = header.Clone()
	r.RemoteAddr = "127.0.0.1:1"
	out := &writer{p: p, ctx: inner, leave: leave, header: http.Header{}}
	done := make(chan struct{})
	p.w.actors.Go(func() {
		defer close(done)
		defer out.recover()
		p.handler.ServeHTTP(out, r)
	})
	select {
	case <-done:
	case <-p.died:
		return answer{err: errDead}
	case <-p.freezes():
		return answer{err: errFrozen}
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	}
	return out.result()
}

// A writer is the connection to a client.
type writer struct {
	p      *process
	ctx    context.Context // of the request
	leave  context.CancelFunc
	header http.Header

	mu     sync.Mutex
	status int
	body   bytes.Buffer
	broken error
}

func (w *writer) Header() http.Header              { return w.header }
func (w *writer) Flush()                           {}
func (w *writer) SetWriteDeadline(time.Time) error { return nil }
func (w *writer) SetReadDeadline(time.Time) error  { return nil }

func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

// Write implements [io.Writer]. A write of a message stops at a point.
func (w *writer) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte(`"jsonrpc"`)) {
		return w.take(b)
	}
	switch w.p.w.stopAt(context.Background(), w.p, "client.Write", "") {
	case die:
		w.p.die()
		<-w.p.w.over
		return 0, errDead
	case dieAfter:
		n, _ := w.take(b)
		w.p.die()
		<-w.p.w.over
		return n, errDead
	case lost: // the connection accepts the message, and breaks before the client has received it
		w.breakOff(errLost)
		return len(b), nil
	case fail:
		w.breakOff(errFail)
		return 0, errFail
	case late, overdue:
		_ = w.p.sleep(context.Background(), lateness)
		return w.take(b)
	default:
		return w.take(b)
	}
}

func (w *writer) take(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return 0, w.broken
	}
	return w.body.Write(b)
}

// recover breaks the connection of a handler that panics, as net/http does.
func (w *writer) recover() {
	v := recover()
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		w.breakOff(http.ErrAbortHandler)
	} else if v != nil {
		panic(v)
	}
}

// breakOff breaks the connection. The gate notices this a moment later.
func (w *writer) breakOff(err error) {
	w.mu.Lock()
	w.broken = err
	w.mu.Unlock()
	time.AfterFunc(time.Millisecond, w.leave)
}

func (w *writer) result() answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return answer{status: w.status, body: w.body.String(), err: w.broken}
}

// pending implements [replica].
func (p *process) pending() ([]review.Approval, error) {
	return ask(p, func(ctx context.Context) ([]review.Approval, error) {
		page, err := p.desk.Viewer().Pending(ctx, review.Filter{})
		return page.Approvals, err
	})
}

// show implements [replica].
func (p *process) show(id task.ID) (review.Approval, error) {
	return ask(p, func(ctx context.Context) (review.Approval, error) { return p.desk.Viewer().Show(ctx, id) })
}

// decide implements [replica].
func (p *process) decide(name string, id task.ID, r approval.Ruling) error {
	at := time.Now()
	_, err := ask(p, func(ctx context.Context) (task.Task, error) {
		return p.desk.Decide(ctx, id, approval.Approver{Name: name}, r)
	})
	p.w.outcomes.ruled(id, name, at, err)
	return err
}

// ask performs the action of an approver at a process. It fails if the process dies.
func ask[T any](p *process, f func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeout(p.w.ctx, 30*time.Second)
	defer p.unlessFrozen(cancel)
	done := make(chan result, 1)
	p.w.actors.Go(func() {
		v, err := f(ctx)
		done <- result{v, err}
	})
	select {
	case r := <-done:
		return r.v, r.err
	case <-p.died:
		var zero T
		return zero, errDead
	case <-p.freezes():
		var zero T
		return zero, errFrozen
	}
}

type silentMetrics struct{}

func (silentMetrics) ChannelSent(string, error)     {}
func (silentMetrics) ChannelWaiting(string, int)    {}
func (silentMetrics) ChannelReceives(string, error) {}

// chatAt is the chat as used by one process.
type chatAt process

// A chat is a channel with a reader who answers questions.
type chat struct {
	w     *world
	mu    sync.Mutex
	asked map[string]review.Approval // by the id of the message, so that a repeated message replaces the earlier one
	ended map[task.ID]channel.Stage
}

func (p *chatAt) Address() string { return "chat" }

func (p *chatAt) Ask(ctx context.Context, q channel.Question) (string, error) {
	return do(ctx, (*process)(p), "channel.Ask", string(q.Stage), func(context.Context) (string, error) {
		c := p.w.channel
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asked == nil {
			c.asked, c.ended = map[string]review.Approval{}, map[task.ID]channel.Stage{}
		}
		c.asked[q.MessageID()] = q.Approval
		return "message", nil
	})
}

func (p *chatAt) Update(ctx context.Context, _ string, q channel.Question) error {
	_, err := do(ctx, (*process)(p), "channel.Update", string(q.Stage), func(context.Context) (nothing, error) {
		c := p.w.channel
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended[q.Approval.ID] = q.Stage
		return nothing{}, nil
	})
	return err
}

func (p *chatAt) Remind(context.Context, string, channel.Question) error { return nil }

// pending returns the calls that the chat shows as open.
func (c *chat) pending() []review.Approval {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []review.Approval
	for _, a := range c.asked {
		if _, over := c.ended[a.ID]; !over {
			list = append(list, a)
		}
	}
	return list
}

// closed reports whether the chat shows a call as ended.
func (c *chat) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stage := range c.ended {
		if stage.Final() {
			return true
		}
	}
	return false
}
