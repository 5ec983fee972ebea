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

// A radio is how a task server speaks unasked: to all who listen at the moment.
type radio struct {
	mu      sync.Mutex
	heard   map[chan string]bool
	tuned   []time.Time // when somebody began to listen
	off     bool        // nobody is let in
	greets  bool        // listeners are told first that they are heard
	refuses int         // with this status
}

func (r *radio) serve(w http.ResponseWriter, req *http.Request) {
	said := make(chan string, 100)
	r.mu.Lock()
	r.tuned = append(r.tuned, time.Now())
	if r.off || r.refuses != 0 {
		defer r.mu.Unlock()
		if r.off {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(r.refuses)
		return
	}
	if r.heard == nil {
		r.heard = make(map[chan string]bool)
	}
	r.heard[said] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.heard, said)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	if r.greets {
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

func (r *radio) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for said := range r.heard {
		said <- text
	}
}

// cut breaks all streams off.
func (r *radio) cut(off bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = off
	for said := range r.heard {
		close(said)
		delete(r.heard, said)
	}
}

func (r *radio) listeners() (now, ever int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.heard), len(r.tuned)
}

// spread returns how much time lies between the first and the last one to listen
// after the first n.
func (r *radio) spread(n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tuned[len(r.tuned)-1].Sub(r.tuned[n])
}

// newRadioFixture is newTaskFixture with a task server that speaks, and a gate that
// listens again after delay.
func newRadioFixture(t *testing.T, delay time.Duration) (*taskFixture, *radio) {
	r := &radio{greets: true}
	p := newTaskFixture(t, func(_ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{ReconnectDelay: delay, ReconnectAttempts: 3}
		w.Beat = time.Hour // nothing is asked just because somebody listens
	})
	p.server.mu.Lock()
	p.server.speak = r.serve
	p.server.mu.Unlock()
	return p, r
}

// runs has a call of a modern client held and approved, and returns the task
// once it has become one of the upstream's, whose id is returned as well.
func (p *taskFixture) runs(t *testing.T) (own, upstreams string) {
	t.Helper()
	own = taskID(t, p.ask(modernCall("hold_optional", tasksExtension), modernHeaders("hold_optional")...))
	p.approve(task.ID(own))
	get, headers := about("tasks/get", own)
	eventually(t, "the upstream has the task", func() bool {
		p.ask(get, headers...)
		return len(p.server.made()) == 1
	})
	eventually(t, "the gate knows", func() bool {
		now, err := p.desk.Get(t.Context(), task.AnyOwner().Ref(task.ID(own)))
		return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	return own, p.server.made()[0]
}

func modernStatus(id, status, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":%q,"status":%q,"statusMessage":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":null}}`, id, status, message)
}

// GOV-004 10.1 "SSE capability check: supported", 10.2 "SSE full flow",
// 10.5 "SSE advertised, client subscribes", "Client subscribes mid-execution",
// "Task completes via SSE", "Lazy SSE: polling only", "Lazy SSE: first subscriber":
// nobody listens to the upstream while clients only ask; the first who listens begins that, all share it, the last one ends it.
// F-010.2, F-010.3, F-010.4, F-010.6, F-010.8.
// GOV-004 F-011.1, F-011.4, NF-002.4: one subscription for all who listen, and the
// upstream's id is replaced by the gate's.
func TestUpstreamHeardWhileSomebodyListens(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	if _, ever := radio.listeners(); ever != 0 {
		t.Fatalf("the upstream was listened to %d times while nobody listened", ever)
	}
	listen, headers := listenTo(own)
	var streams []func() string
	for range 3 {
		next := p.stream(t, http.MethodPost, listen, headers...)
		next() // acknowledgement
		wantText(t, "how it stands", next(), own)
		streams = append(streams, next)
	}
	events := p.watch(t, eventsOf(own), headers...)
	dashboard := jsonrpc.NewEventReader(events.Body, 1<<20)
	status(t, dashboard, "3", own)
	eventually(t, "the upstream is listened to", func() bool { now, _ := radio.listeners(); return now == 1 })
	eventually(t, "it is counted", func() bool {
		return strings.Contains(scrape(p.gateway), "thoughtgate_sse_upstream_connections_active 1")
	})

	say := func() {
		radio.say(modernStatus("another", "working", "not ours"))
		radio.say(modernStatus(upstreams, "working", "half done"))
	}
	for _, next := range append(streams, func() string { return statusOf(t, dashboard, "3") }) {
		told := toldUntil(t, next, own, say, `"status":"working"`, "half done")
		if strings.Contains(told, upstreams) || strings.Contains(told, "not ours") {
			t.Errorf("more is told than is to be: %s", told)
		}
	}
	p.server.done(`{"content":[{"type":"text","text":"made"}]}`)
	eventually(t, "the upstream is done", func() bool { return p.server.ended(upstreams) })
	radio.say(modernStatus(upstreams, "completed", ""))
	for _, next := range streams {
		toldUntil(t, next, own, nil, `"status":"completed"`, "made")
	}
	eventually(t, "nobody listens to the upstream", func() bool { now, _ := radio.listeners(); return now == 0 })
	if _, ever := radio.listeners(); ever != 1 {
		t.Errorf("the upstream was listened to %d times; want once for all", ever)
	}
}

// toldUntil reads what a stream tells of a task until a message has all the texts,
// and returns all that it has read. The gate may ask the upstream at any time how
// its task stands, so the stream may tell any number of times before that the task
// works. Say, unless it is nil, has the upstream say again what such an answer may
// have overtaken.
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
			t.Fatalf("told %s\nwant %q, or that the task works", told, want)
		}
	}
}

// ended reports whether a task of the upstream's has ended.
func (s *taskServer) ended(id string) bool {
	t, err := s.tasks.Store.Get(s.t.Context(), task.AnyOwner().Ref(task.ID(id)))
	return err == nil && t.State.Terminal()
}

// 10.5 "Lazy SSE: last unsubscribe": the last client that goes takes the connection to the upstream with it.
// GOV-004 F-010, F-010.7, F-011.
func TestUpstreamNotHeardWithoutListeners(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	r := p.send(listen, headers...)
	eventually(t, "the upstream is listened to", func() bool { now, _ := radio.listeners(); return now == 1 })
	r.cancel()
	eventually(t, "nobody listens", func() bool { now, _ := radio.listeners(); return now == 0 })
}

// GOV-004 10.2 and 10.4 "SSE upstream disconnect",
// 10.5 "Upstream SSE reconnect success", "Upstream SSE reconnect exhausted": a stream that is lost is taken up again, and what is said
// then is heard; an upstream that stays away is left alone after some attempts,
// and said so; the gate's own news go on all the while. F-010.5, NF-003.4.
func TestUpstreamLost(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next()
	next()
	eventually(t, "the upstream is listened to", func() bool { now, _ := radio.listeners(); return now == 1 })
	radio.cut(false)
	eventually(t, "it is listened to again", func() bool { now, ever := radio.listeners(); return now == 1 && ever == 2 })
	toldUntil(t, next, own, func() { radio.say(modernStatus(upstreams, "working", "back again")) }, "back again")
	eventually(t, "it is counted", func() bool {
		return strings.Contains(scrape(p.gateway), `thoughtgate_sse_reconnections_total{result="success"} 1`)
	})

	radio.cut(true)
	eventually(t, "it is given up", func() bool { return strings.Contains(p.log.String(), "no more notifications from an upstream") })
	if _, ever := radio.listeners(); ever != 2+3 {
		t.Errorf("%d attempts; want three more", ever)
	}
	wantText(t, "metrics", scrape(p.gateway), `thoughtgate_sse_reconnections_total{result="failed"} 3`)
	cancel, headers := about("tasks/cancel", own)
	p.ask(cancel, headers...)
	toldUntil(t, next, own, nil, `"status":"cancelled"`)
}

// GOV-004 10.1 "SSE capability check: not supported",
// "SSE client subscribe: SSE not advertised", 10.2 "No upstream SSE: client attempt",
// 10.5 "SSE not advertised, client subscribes": an upstream that has no such streams is asked for one once; what
// the gate itself knows is told all the same.
// GOV-004 F-009.1, F-010.1 as design 6 has them: the client may listen all the same.
func TestUpstreamSilent(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	radio.refuses = http.StatusNotFound
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next()
	wantText(t, "how it stands", next(), own, `"status":"working"`)
	eventually(t, "it was asked", func() bool { _, ever := radio.listeners(); return ever == 1 })
	cancel, headers := about("tasks/cancel", own)
	p.ask(cancel, headers...)
	toldUntil(t, next, own, nil, `"status":"cancelled"`)
	if _, ever := radio.listeners(); ever != 1 {
		t.Errorf("asked %d times; want once", ever)
	}
}

// GOV-004 10.4 "Mass SSE reconnect": many tasks whose upstream streams all break are
// listened to again, and not all at the same moment. F-011.5.
func TestUpstreamLostByMany(t *testing.T) {
	const many, delay = 30, 300 * time.Millisecond
	p, radio := newRadioFixture(t, delay)
	each(many, func(i int) {
		own := taskID(t, p.ask(modernCall("hold_optional", tasksExtension), as(modernHeaders("hold_optional"), i)...))
		p.approve(task.ID(own))
		listen, headers := listenTo(own)
		p.stream(t, http.MethodPost, listen, as(headers, i)...)
	})
	eventually(t, "all are listened to", func() bool { now, _ := radio.listeners(); return now == many })
	for tries := 1; ; tries++ { // if the machine stops for a moment, all come at once
		_, before := radio.listeners()
		radio.cut(false)
		eventually(t, "all are listened to again", func() bool { now, ever := radio.listeners(); return now == many && ever == before+many })
		spread := radio.spread(before)
		if spread >= delay/3 {
			break
		}
		if tries == 3 {
			t.Fatalf("all came again within %s", spread)
		}
	}
}

// GOV-004 10.5 "Lazy SSE: multiple tasks": of ten tasks that run upstream, those two are listened
// to there that somebody listens to here.
func TestUpstreamHeardOfFewAmongMany(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
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
	eventually(t, "two are listened to", func() bool { now, _ := radio.listeners(); return now == 2 })
	if _, ever := radio.listeners(); ever != 2 {
		t.Errorf("%d were listened to; want two", ever)
	}
}

// GOV-004 10.5 "Task fails via SSE": an upstream that says that its task has failed is asked why, and
// the client is told.
func TestUpstreamFailureHeard(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	own, upstreams := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, headers...)
	next()
	next()
	eventually(t, "the upstream is listened to", func() bool { now, _ := radio.listeners(); return now == 1 })
	p.server.done("out of paper!")
	eventually(t, "the upstream has failed", func() bool { return p.server.ended(upstreams) })
	radio.say(modernStatus(upstreams, "failed", ""))
	toldUntil(t, next, own, nil, `"status":"failed"`, "out of paper")
}

// as returns the headers of one of many modern clients.
func as(headers []string, i int) []string {
	headers[9] = fmt.Sprintf("Bearer agent %d", i)
	return headers
}

// A legacy upstream's report on the task that it made of a held call reaches the
// client as a report on the held call, with its id; reports on other tasks pass
// unchanged.
func TestUpstreamHeardOnGetStream(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	radio.greets = false
	next := p.stream(t, http.MethodGet, "")
	own := taskID(t, p.ask(toolCall("3", "hold_required", `,"task":{}`)))
	wantText(t, "held", next(), own)
	p.approve(task.ID(own))
	p.ask(legacyAbout("tasks/get", own))
	wantText(t, "approved", next(), own, "Approved")
	wantText(t, "running", next(), own)
	eventually(t, "the upstream has the task", func() bool { return len(p.server.made()) == 1 })
	eventually(t, "the gate knows", func() bool {
		now, err := p.desk.Get(t.Context(), task.AnyOwner().Ref(task.ID(own)))
		return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	upstreams := p.server.made()[0]
	say := func(id, status, message string) {
		radio.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications\/tasks\/status","params":{"taskId":%q,"status":%q,"statusMessage":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null}}`, id, status, message))
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
		t.Errorf("the upstream's id is told: %s", told)
	}
	p.server.done(`{"content":[{"type":"text","text":"made"}]}`)
	wantText(t, "result", p.ask(legacyAbout("tasks/result", own)), "made")
}

// An upstream that cannot be asked at the moment is no reason not to tell a
// client of its task: that goes on.
func TestListenWhileUpstreamCannotBeAsked(t *testing.T) {
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

// Listening to an upstream's task takes nothing of a client's headers but its
// credentials: the approver of the call saw none of the others.
func TestListeningTakesCredentialsOnly(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	got := make(chan http.Header, 1)
	p.server.mu.Lock()
	p.server.speak = func(w http.ResponseWriter, r *http.Request) {
		select {
		case got <- r.Header.Clone():
		default: // the upstream was listened to before
		}
		radio.serve(w, r)
	}
	p.server.mu.Unlock()
	own, _ := p.runs(t)
	listen, headers := listenTo(own)
	next := p.stream(t, http.MethodPost, listen, append(headers, "X-Tenant", "another")...)
	next() // acknowledgement
	select {
	case h := <-got:
		if h.Get("X-Tenant") != "" {
			t.Error("the upstream got a header that is no credential")
		}
		if method := h.Get("Mcp-Method"); method != "subscriptions/listen" {
			t.Errorf("the upstream got the method %q", method)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the upstream was not listened to")
	}
}
