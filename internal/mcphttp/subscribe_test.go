package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A notifier sends the notifications of a task server to all current subscribers.
type notifier struct {
	mu           sync.Mutex
	subscribers  map[chan string]bool
	connected    []time.Time // when each subscriber connected
	off          bool        // refuses all subscribers
	acknowledges bool        // acknowledges each subscription
	refuses      int         // status for all subscribers, if not zero
}

func (r *notifier) serve(w http.ResponseWriter, req *http.Request) {
	said := make(chan string, 100)
	r.mu.Lock()
	r.connected = append(r.connected, time.Now())
	if r.off || r.refuses != 0 {
		defer r.mu.Unlock()
		if r.off {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(r.refuses)
		return
	}
	if r.subscribers == nil {
		r.subscribers = make(map[chan string]bool)
	}
	r.subscribers[said] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, said)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	if r.acknowledges {
		io.WriteString(w, `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{}}}`+"\n\n")
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case text, open := <-said:
			if !open {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, "data: "+text+"\n\n")
			w.(http.Flusher).Flush()
		case <-req.Context().Done():
			return
		}
	}
}

func (r *notifier) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for said := range r.subscribers {
		said <- text
	}
}

// cut breaks all streams.
func (r *notifier) cut(off bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = off
	for said := range r.subscribers {
		close(said)
		delete(r.subscribers, said)
	}
}

func (r *notifier) listeners() (now, ever int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.subscribers), len(r.connected)
}

// spread returns the time between the first and the last reconnect after the first n.
func (r *notifier) spread(n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connected[len(r.connected)-1].Sub(r.connected[n])
}

// newNotifierFixture is newTaskFixture with a task server that sends notifications, and a gate
// that reconnects after delay.
func newNotifierFixture(t *testing.T, delay time.Duration) (*taskFixture, *notifier) {
	r := &notifier{acknowledges: true}
	p := newTaskFixture(t, func(_ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{ReconnectDelay: delay, ReconnectAttempts: 3}
		w.Heartbeat = time.Hour // a client that listens must cause no queries
	})
	p.server.mu.Lock()
	p.server.speak = r.serve
	p.server.mu.Unlock()
	return p, r
}

// runs holds and approves a call of a modern client, and returns the task and the upstream's
// task ID once that exists.
func (p *taskFixture) runs(t *testing.T) (own, upstreams string) {
	t.Helper()
	own = taskID(t, p.ask(modernCall("hold_optional", tasksExtension), modernHeaders("hold_optional")...))
	p.approve(task.ID(own))
	get, headers := about("tasks/get", own)
	eventually(t, "the upstream has the task", func() bool {
		p.ask(get, headers...)
		return len(p.server.made()) == 1
	})
	eventually(t, "the gate knows the task", func() bool {
		now, err := p.approvals.Get(t.Context(), task.AnyOwner().Ref(task.ID(own)))
		return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	return own, p.server.made()[0]
}

func modernStatus(id, status, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":%q,"status":%q,"statusMessage":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":null}}`, id, status, message)
}

// GOV-004 10.1 "SSE capability check: supported", 10.2 "SSE full flow", 10.5 "SSE advertised,
// client subscribes", "Client subscribes mid-execution", "Task completes via SSE", "Lazy SSE:
// polling only", "Lazy SSE: first subscriber"; F-010.2, F-010.3, F-010.4, F-010.6, F-010.8,
// GOV-004 F-011.1, F-011.4, NF-002.4: the first subscriber opens the upstream subscription, all
// share it, and the last one closes it. Polling clients need none. The upstream's task ID is
// replaced by the gate's.
func TestUpstreamSubscriptionIsShared(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	if _, ever := notifier.listeners(); ever != 0 {
		t.Fatalf("%d upstream subscriptions without a client that listens", ever)
	}
	listen, headers := listenTo(own)
	var streams []func() string
	for range 3 {
		next := p.stream(t, http.MethodPost, listen, headers...)
		next() // acknowledgement
		wantText(t, "status", next(), own)
		streams = append(streams, next)
	}
	events := p.watch(t, eventsOf(own), headers...)
	dashboard := jsonrpc.NewEventReader(events.Body, 1<<20)
	status(t, dashboard, "3", own)
	eventually(t, "the gate subscribes", func() bool { now, _ := notifier.listeners(); return now == 1 })
	eventually(t, "the metrics count it", func() bool {
		return strings.Contains(scrape(p.gateway), "thoughtgate_sse_upstream_connections_active 1")
	})

	say := func() {
		notifier.say(modernStatus("another", "working", "not ours"))
		notifier.say(modernStatus(upstreams, "working", "half done"))
	}
	for _, next := range append(streams, func() string { return statusOf(t, dashboard, "3") }) {
		told := toldUntil(t, next, own, say, `"status":"working"`, "half done")
		if strings.Contains(told, upstreams) || strings.Contains(told, "not ours") {
			t.Errorf("unexpected notification: %s", told)
		}
	}
	p.server.done(`{"content":[{"type":"text","text":"made"}]}`)
	eventually(t, "the upstream is done", func() bool { return p.server.ended(upstreams) })
	notifier.say(modernStatus(upstreams, "completed", ""))
	for _, next := range streams {
		toldUntil(t, next, own, nil, `"status":"completed"`, "made")
	}
	eventually(t, "no subscription to the upstream is left", func() bool { now, _ := notifier.listeners(); return now == 0 })
	if _, ever := notifier.listeners(); ever != 1 {
		t.Errorf("%d upstream subscriptions; want one for all clients", ever)
	}
}

// toldUntil reads task notifications until a message has all the texts, and returns all
// of them. The gate may query the upstream at any time, so any number of "working" statuses
// may come before. say, unless nil, makes the upstream repeat a notification that such a query
// may have overtaken.
func toldUntil(t *testing.T, next func() string, own string, say func(), want ...string) string {
	t.Helper()
	for all := ""; ; {
		if say != nil {
			say()
		}
		told := next()
		all += told
		if !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(told, text) }) {
			wantText(t, "the message", told, own)
			return all
		}
		if !strings.Contains(told, own) || !strings.Contains(told, `"status":"working"`) {
			t.Fatalf("got %s\nwant %q, or a status working", told, want)
		}
	}
}

// ended reports whether a task of the upstream has ended.
func (s *taskServer) ended(id string) bool {
	t, err := s.tasks.Store.Get(s.t.Context(), task.AnyOwner().Ref(task.ID(id)))
	return err == nil && t.State.Terminal()
}

// 10.5 "Lazy SSE: last unsubscribe", GOV-004 F-010, F-010.7, F-011.
func TestLastListenerEndsUpstreamSubscription(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	r := p.send(listen, headers...)
	eventually(t, "the gate subscribes", func() bool { now, _ := notifier.listeners(); return now == 1 })
	r.cancel()
	eventually(t, "no client listens", func() bool { now, _ := notifier.listeners(); return now == 0 })
}

// GOV-004 10.2 and 10.4 "SSE upstream disconnect", 10.5 "Upstream SSE reconnect success",
// "Upstream SSE reconnect exhausted", F-010.5, NF-003.4: a lost stream is resumed. After some
// failed attempts the gate gives up and logs it. The gate's own notifications continue.
func TestLostUpstreamStreamIsResumed(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next()
	next()
	eventually(t, "the gate subscribes", func() bool { now, _ := notifier.listeners(); return now == 1 })
	notifier.cut(false)
	eventually(t, "the gate subscribes again", func() bool { now, ever := notifier.listeners(); return now == 1 && ever == 2 })
	toldUntil(t, next, own, func() { notifier.say(modernStatus(upstreams, "working", "back again")) }, "back again")
	eventually(t, "the metrics count it", func() bool {
		return strings.Contains(scrape(p.gateway), `thoughtgate_sse_reconnections_total{result="success"} 1`)
	})

	notifier.cut(true)
	eventually(t, "the gate stops reconnecting", func() bool { return strings.Contains(p.log.String(), "no more notifications from an upstream") })
	if _, ever := notifier.listeners(); ever != 2+3 {
		t.Errorf("%d attempts; want three more", ever)
	}
	wantText(t, "metrics", scrape(p.gateway), `thoughtgate_sse_reconnections_total{result="failed"} 3`)
	cancel, headers := about("tasks/cancel", own)
	p.ask(cancel, headers...)
	toldUntil(t, next, own, nil, `"status":"cancelled"`)
}

// GOV-004 10.1 "SSE capability check: not supported", "SSE client subscribe: SSE not
// advertised", 10.2 "No upstream SSE: client attempt", 10.5 "SSE not advertised, client
// subscribes", GOV-004 F-009.1, F-010.1 as design 6 has them: clients may subscribe all the
// same, and get the gate's notifications.
func TestUpstreamWithoutStreamsIsAskedOnce(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	notifier.refuses = http.StatusNotFound
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next()
	wantText(t, "status", next(), own, `"status":"working"`)
	eventually(t, "the upstream was asked", func() bool { _, ever := notifier.listeners(); return ever == 1 })
	cancel, headers := about("tasks/cancel", own)
	p.ask(cancel, headers...)
	toldUntil(t, next, own, nil, `"status":"cancelled"`)
	if _, ever := notifier.listeners(); ever != 1 {
		t.Errorf("asked %d times; want once", ever)
	}
}

// GOV-004 10.4 "Mass SSE reconnect", F-011.5: lost streams of many tasks reconnect at different
// times.
func TestManyLostStreamsReconnectSpread(t *testing.T) {
	const many, delay = 30, 300 * time.Millisecond
	p, notifier := newNotifierFixture(t, delay)
	each(many, func(i int) {
		own := taskID(t, p.ask(modernCall("hold_optional", tasksExtension), as(modernHeaders("hold_optional"), i)...))
		p.approve(task.ID(own))
		listen, headers := listenTo(own)
		p.stream(t, http.MethodPost, listen, as(headers, i)...)
	})
	eventually(t, "the gate subscribes to all tasks", func() bool { now, _ := notifier.listeners(); return now == many })
	for tries := 1; ; tries++ { // after a pause of a busy machine, all reconnect at once
		_, before := notifier.listeners()
		notifier.cut(false)
		eventually(t, "the gate subscribes to all tasks again", func() bool { now, ever := notifier.listeners(); return now == many && ever == before+many })
		spread := notifier.spread(before)
		if spread >= delay/3 {
			break
		}
		if tries == 3 {
			t.Fatalf("all came again within %s", spread)
		}
	}
}

// GOV-004 10.5 "Lazy SSE: multiple tasks": of ten running tasks, two have subscribers.
func TestOnlyWatchedTasksAreSubscribed(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	each(10, func(i int) {
		own := taskID(t, p.ask(modernCall("hold_optional", tasksExtension), as(modernHeaders("hold_optional"), i)...))
		p.approve(task.ID(own))
		get, headers := about("tasks/get", own)
		p.ask(get, as(headers, i)...)
		if i < 2 {
			listen, headers := listenTo(own)
			p.stream(t, http.MethodPost, listen, as(headers, i)...)
		}
	})
	eventually(t, "all run upstream", func() bool { return len(p.server.made()) == 10 })
	eventually(t, "the gate subscribes to two tasks", func() bool { now, _ := notifier.listeners(); return now == 2 })
	if _, ever := notifier.listeners(); ever != 2 {
		t.Errorf("%d upstream subscriptions; want two", ever)
	}
}

// GOV-004 10.5 "Task fails via SSE": the gate queries the reason and tells the client.
func TestUpstreamFailureIsReported(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next()
	next()
	eventually(t, "the gate subscribes", func() bool { now, _ := notifier.listeners(); return now == 1 })
	p.server.done("out of paper!")
	eventually(t, "the upstream has failed", func() bool { return p.server.ended(upstreams) })
	notifier.say(modernStatus(upstreams, "failed", ""))
	toldUntil(t, next, own, nil, `"status":"failed"`, "out of paper")
}

// as returns the headers of one of many modern clients.
func as(headers []string, i int) []string {
	headers[9] = fmt.Sprintf("Bearer agent %d", i)
	return headers
}

// A legacy upstream's report on its task of a held call reaches the client with the ID of the
// held call. Reports on other tasks pass unchanged.
func TestNestedTaskReportOnGetStream(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	notifier.acknowledges = false
	next := p.stream(t, http.MethodGet, "")
	own := taskID(t, p.ask(toolCall("3", "hold_required", `,"task":{}`)))
	wantText(t, "held", next(), own)
	p.approve(task.ID(own))
	p.ask(legacyAbout("tasks/get", own))
	wantText(t, "approved", next(), own, "Approved")
	wantText(t, "running", next(), own)
	eventually(t, "the upstream has the task", func() bool { return len(p.server.made()) == 1 })
	eventually(t, "the gate knows the task", func() bool {
		now, err := p.approvals.Get(t.Context(), task.AnyOwner().Ref(task.ID(own)))
		return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	upstreams := p.server.made()[0]
	say := func(id, status, message string) {
		notifier.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications\/tasks\/status","params":{"taskId":%q,"status":%q,"statusMessage":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null}}`, id, status, message))
	}
	var all []string
	until := func(want string) {
		for !strings.Contains(strings.Join(all, ""), want) {
			all = append(all, next())
		}
	}
	say("theirs", "working", "somebody else's")
	say(upstreams, "working", "half done")
	until("half done")
	say(upstreams, "completed", "")
	until(`"status":"completed"`)
	told := strings.Join(all, "\n")
	wantText(t, "told", told, `"taskId":"theirs"`, "half done", own)
	if strings.Contains(told, upstreams) {
		t.Errorf("the client got the task ID of the upstream: %s", told)
	}
	p.server.done(`{"content":[{"type":"text","text":"made"}]}`)
	wantText(t, "result", p.ask(legacyAbout("tasks/result", own)), "made")
}

func TestListenDuringUpstreamOutage(t *testing.T) {
	p := newTaskFixture(t, nil)
	own, _ := p.runs(t)
	p.server.fail(nil, func(method string) *jsonrpc.Error {
		if method != "tasks/get" {
			return nil
		}
		return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "not now"}
	})
	message, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, message, headers...)
	wantText(t, "acknowledged", next(), "subscriptions/acknowledged", own)
	wantText(t, "status", next(), own, `"status":"working"`)
}

// Other headers are not sent, because the approver of the call did not see them.
func TestListeningTakesCredentialsOnly(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	got := make(chan http.Header, 1)
	p.server.mu.Lock()
	p.server.speak = func(w http.ResponseWriter, r *http.Request) {
		select {
		case got <- r.Header.Clone():
		default: // an earlier subscription
		}
		notifier.serve(w, r)
	}
	p.server.mu.Unlock()
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, append(headers, "X-Tenant", "another")...)
	next() // acknowledgement
	select {
	case h := <-got:
		if h.Get("X-Tenant") != "" {
			t.Error("the upstream got a header other than a credential")
		}
		if method := h.Get("Mcp-Method"); method != "subscriptions/listen" {
			t.Errorf("the upstream got the method %q", method)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the upstream got no subscription")
	}
}
