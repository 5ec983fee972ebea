package mcphttp_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An unreliableFixture is a taskFixture whose upstream and network can fail.
type unreliableFixture struct {
	*taskFixture

	network *testenv.Proxy
	addr    string // of the upstream
	kill    func()
}

func newUnreliableFixture(t *testing.T, adjust func(*approval.Config, *conversation.Waiting)) *unreliableFixture {
	t.Helper()
	p := newTaskFixture(t, adjust)
	s := &unreliableFixture{taskFixture: p, addr: "127.0.0.1:0"}
	s.open(p.server)
	t.Cleanup(func() { s.kill() })
	var err error
	if s.network, err = testenv.StartProxy(t.Context(), s.addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.network.Close() })
	p.gateway = startGate(t, "http://"+s.network.Addr(), func(c settings) {
		c.handler.Catalog, c.handler.Approvals, c.handler.Waiting = p.catalog, p.approvals, p.waiting
		c.upstream.Metrics = c.handler.Metrics
	})
	p.ask(initialize)
	return s
}

// open starts a task server at the old address.
func (s *unreliableFixture) open(server *taskServer) {
	s.t.Helper()
	var listener net.Listener
	eventually(s.t, "its address is free", func() bool {
		var err error
		listener, err = new(net.ListenConfig).Listen(s.t.Context(), "tcp", s.addr)
		return err == nil
	})
	s.addr, s.server = listener.Addr().String(), server
	httpServer := &http.Server{Handler: http.HandlerFunc(server.serve), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- httpServer.Serve(listener) }()
	s.kill = func() {
		_ = httpServer.Close()
		<-done
		s.kill = func() {}
	}
}

// replace kills the upstream and starts a new one without its state.
func (s *unreliableFixture) replace(plain bool) {
	s.t.Helper()
	s.kill()
	server := newTaskServer(s.t)
	server.plain = plain
	s.t.Cleanup(server.close)
	s.open(server)
}

// eras has the calls of both generations that create and query a task.
var eras = map[string]struct {
	call  []string
	about func(method, id string) []string
}{
	"legacy": {
		[]string{toolCall("7", "hold_required", `,"task":{}`)},
		func(method, id string) []string { return []string{legacyAbout(method, id)} },
	},
	"modern": {
		append([]string{modernCall("hold_required", tasksExtension)}, modernHeaders("hold_required")...),
		func(method, id string) []string {
			message, headers := about(method, id)
			return append([]string{message}, headers...)
		},
	},
}

// startTask makes a call and returns its task once the upstream has one, and the request that
// queries it.
func (s *unreliableFixture) startTask(era string) (id string, get func() string) {
	s.t.Helper()
	call := eras[era].call
	id = s.start(call[0], call[1:]...)
	eventually(s.t, "the upstream has a task", func() bool { return s.state(id).Execution.UpstreamTask != "" })
	asks := eras[era].about("tasks/get", id)
	return id, func() string { return s.ask(asks[0], asks[1:]...) }
}

// outcome returns a result once it is available.
func (s *unreliableFixture) outcome(era, id string) string {
	s.t.Helper()
	method := map[string]string{"legacy": "tasks/result", "modern": "tasks/get"}[era]
	asks := eras[era].about(method, id)
	var answer string
	eventually(s.t, "the outcome is available", func() bool {
		answer = s.ask(asks[0], asks[1:]...)
		return jsontext.Value(answer).IsValid() && !strings.Contains(answer, `"status":"working"`) && !strings.Contains(answer, `"retry_after"`)
	})
	return answer
}

// 10.4 "Upstream crash after task created", NF-003.1, NF-003.2: a client that asks meanwhile is
// told to ask again. An upstream that returns with its tasks has the result; one that has lost
// them has not.
func TestUpstreamCrashKeepsTask(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			s := newUnreliableFixture(t, nil)
			id, get := s.startTask(era)
			s.kill()
			for range 3 {
				wantText(t, "get", get(), `"error":{`, `"error_type":"upstream_`, `"retry_after"`)
			}
			if state := s.state(id).State; state != task.Executing {
				t.Fatalf("state %s; want it to go on", state)
			}
			s.open(s.server)
			eventually(t, "the task continues", func() bool { return strings.Contains(get(), `"status":"working"`) })
			s.server.done(madeIt)
			wantText(t, "outcome", s.outcome(era, id), "made it")

			id, _ = s.startTask(era)
			calls := len(s.server.heard("tools/call"))
			s.replace(false)
			wantText(t, "outcome", s.outcome(era, id), `"error_type":"upstream_task_not_found"`)
			if again := s.server.heard("tools/call"); calls != 2 || len(again) != 0 {
				t.Errorf("%d calls, and then %v; want two, and no repetition", calls, again)
			}
		})
	}
}

// 10.4 "Network partition during stream", NF-003.3: a reader notices that a result broke off,
// and gets all of it by asking again.
func TestBrokenResultIsFetchedAgain(t *testing.T) {
	text := strings.Repeat("made it ", 80_000)
	result := `{"resultType":"complete","content":[{"type":"text","text":"` + text + `"}]}`
	const half = 300 << 10
	faults := map[string]testenv.Fault{
		"early":     {Down: testenv.Way{Reset: 100 << 10}},
		"reset":     {Down: testenv.Way{Reset: half}},
		"truncated": {Down: testenv.Way{Truncate: half}},
	}
	for era := range eras {
		for name, fault := range faults {
			for _, accept := range []string{asJSON, asJSON + ", " + asEvents} {
				t.Run(era+" "+name+" "+accept, func(t *testing.T) {
					t.Parallel()
					s := newUnreliableFixture(t, nil)
					id, _ := s.startTask(era)
					s.server.done(result)
					eventually(t, "the upstream is done", func() bool { return s.server.ended(s.server.made()[0]) })
					s.network.Set(fault)
					method := map[string]string{"legacy": "tasks/result", "modern": "tasks/get"}[era]
					asks := eras[era].about(method, id)
					reading := s.send(asks[0], append(asks[1:], "Accept", accept)...)
					// A reset may discard bytes that the gate has not read. The gate then
					// fetches the result again while the client waits.
					eventually(t, "the result is cut", func() bool { return s.network.Lost() > 0 })
					s.network.Heal()
					got := reading.wait(t)
					whole := strings.Contains(got, text)
					again := strings.Contains(got, `"retry_after"`) || era == "modern" && strings.Contains(got, `"status":"working"`)
					if !whole && !reading.broken && (strings.Contains(got, "made it") || !again) {
						t.Errorf("%d bytes end like a complete answer: %.400q", len(got), got)
					}
					if answer := s.outcome(era, id); !strings.Contains(answer, text) {
						t.Errorf("asked again: %d bytes %.300q; want all", len(answer), answer)
					}
				})
			}
		}
	}
}

// 10.4, F-005.12: the client is told about a poll that took too long.
func TestSlowPollKeepsTask(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			s := newUnreliableFixture(t, func(c *approval.Config, _ *conversation.Waiting) { c.Poll = 200 * time.Millisecond })
			id, get := s.startTask(era)
			s.network.Set(testenv.Fault{Down: testenv.Way{Delay: testTimeout}})
			wantText(t, "get", get(), `"error_type":"upstream_timeout"`, `"retry_after"`)
			s.network.Set(testenv.Partition())
			wantText(t, "get", get(), `"error_type":"upstream_timeout"`, `"retry_after"`)
			s.network.Heal()
			eventually(t, "the task continues", func() bool { return strings.Contains(get(), `"status":"working"`) })
			s.server.done(madeIt)
			wantText(t, "outcome", s.outcome(era, id), "made it")
		})
	}
}

// 10.4 "SSE upstream disconnect": the gate subscribes again after a break in the middle of a
// message. The partial message is not forwarded.
func TestBrokenSubscriptionIsResumed(t *testing.T) {
	r := &notifier{acknowledges: true}
	s := newUnreliableFixture(t, func(_ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{ReconnectDelay: 20 * time.Millisecond, ReconnectAttempts: 1000}
		w.Heartbeat = time.Hour // a client that listens must cause no queries
	})
	s.server.mu.Lock()
	s.server.speak = r.serve
	s.server.mu.Unlock()
	own, theirs := s.runs(t)
	listen, headers := listenTo(own)
	next := s.stream(t, http.MethodPost, listen, headers...)
	next()
	wantText(t, "status", next(), own)
	eventually(t, "the gate subscribes", func() bool { now, _ := r.listeners(); return now == 1 })
	s.network.Set(testenv.Fault{Down: testenv.Way{Reset: 100}, Refuse: true})
	r.say(modernStatus(theirs, "working", "half done"))
	eventually(t, "the upstream is lost", func() bool { now, _ := r.listeners(); return now == 0 })
	s.network.Heal()
	eventually(t, "the gate subscribes again", func() bool { now, _ := r.listeners(); return now == 1 })
	told := toldUntil(t, next, own, func() { r.say(modernStatus(theirs, "working", "nearly done")) }, "nearly done")
	if strings.Contains(told, "half done") {
		t.Errorf("a partial message was forwarded: %s", told)
	}

	s.network.Set(testenv.Fault{Down: testenv.Way{Reset: 100}, Refuse: true})
	s.server.done(madeIt)
	eventually(t, "the upstream is done", func() bool { return s.server.ended(theirs) })
	r.say(modernStatus(theirs, "completed", ""))
	eventually(t, "the upstream is lost", func() bool { now, _ := r.listeners(); return now == 0 })
	s.network.Heal()
	toldUntil(t, next, own, nil, `"status":"completed"`, "made it")
}

// A legacy client resumes its broken GET stream itself.
func TestBrokenLegacyStreamIsResumed(t *testing.T) {
	r := new(notifier)
	s := newUnreliableFixture(t, nil)
	s.server.mu.Lock()
	s.server.speak = r.serve
	s.server.mu.Unlock()
	id, _ := s.startTask("legacy")
	theirs := s.server.made()[0]
	say := func(message string) {
		r.say(strings.Replace(strings.Replace(modernStatus(theirs, "working", message), "notifications/tasks", "notifications/tasks/status", 1), "ttlMs", "ttl", 1))
	}
	listening := s.sendAs(http.MethodGet, "")
	eventually(t, "the gate subscribes", func() bool { now, _ := r.listeners(); return now == 1 })
	s.network.Set(testenv.Fault{Down: testenv.Way{Reset: 100}})
	say("half done")
	if got := listening.wait(t); strings.Contains(got, "half done") || strings.Contains(got, theirs) {
		t.Errorf("a partial message was forwarded: %s", got)
	}
	s.network.Heal()
	next := s.stream(t, http.MethodGet, "")
	eventually(t, "the gate subscribes again", func() bool { now, _ := r.listeners(); return now == 1 })
	say("nearly done")
	told := toldUntil(t, next, id, nil, "nearly done")
	if strings.Contains(told, theirs) {
		t.Errorf("the client got the task ID of the upstream: %s", told)
	}
}

// support returns the task support of a tool as the client sees it.
func (s *unreliableFixture) support(tool string) string {
	s.t.Helper()
	list := s.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	_, rest, ok := strings.Cut(list, `"name":"`+tool+`"`)
	if !ok {
		s.t.Fatalf("no %s in %s", tool, list)
	}
	rest, _, _ = strings.Cut(rest, `"name":`)
	_, rest, _ = strings.Cut(rest, `"taskSupport":"`)
	support, _, _ := strings.Cut(rest, `"`)
	return support
}

// createsTask makes a call as a task, and reports whether the upstream made a task of it.
func (s *unreliableFixture) createsTask(era string) bool {
	s.t.Helper()
	made, called := len(s.server.made()), len(s.server.heard("tools/call"))
	call := eras[era].call
	id := taskID(s.t, s.ask(call[0], call[1:]...))
	s.approve(task.ID(id))
	eventually(s.t, "the call is made", func() bool { return len(s.server.heard("tools/call")) > called })
	s.server.done(madeIt)
	wantText(s.t, "outcome", s.outcome(era, id), "made it")
	return len(s.server.made()) > made
}

// 10.2 "No upstream SSE: handshake": the gate offers tasks and notifications, whatever the
// upstream can do. After the client's next handshake it uses the upstream's new capabilities.
func TestUpstreamReturnsWithOtherCapabilities(t *testing.T) {
	for era := range eras {
		t.Run(era, func(t *testing.T) {
			s := newUnreliableFixture(t, nil)
			meet := func(plain bool) {
				message, want := initialize, `"tasks":{`
				var headers []string
				if era == "modern" {
					message = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta("") + `}}`
					headers, want = modernHeaders(""), `"io.modelcontextprotocol/tasks":{`
					headers[3] = "server/discover"
				}
				eventually(t, "the upstream is back", func() bool { return strings.Contains(s.ask(message, headers...), want) })
				published := "required"
				if plain {
					published = "forbidden"
				}
				if got := s.support("get_required"); era == "legacy" && got != published {
					t.Errorf("get_required is published as %q; want %q", got, published)
				}
				if got := s.createsTask(era); got == plain {
					t.Errorf("upstream task %t; want %t", got, !plain)
				}
			}
			meet(false)
			for _, plain := range []bool{true, false, true} {
				s.replace(plain)
				meet(plain)
			}
		})
	}
}

// 10.5 "Upstream gains SSE on reconnect", "Upstream loses SSE on reconnect", "Client subscribes
// after SSE lost", "Existing SSE clients when SSE lost": the gate serves its clients all the
// time, and relays the upstream's notifications when there are any.
func TestUpstreamGainsAndLosesNotifications(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	set := func(status int) {
		notifier.mu.Lock()
		notifier.refuses = status
		notifier.mu.Unlock()
		notifier.cut(false)
	}
	own, theirs := p.runs(t)
	listen, headers := listenTo(own)
	subscribe := func() (next func() string, leave func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		resp := p.answering(ctx, listen, headers...)
		events := jsonrpc.NewEventReader(resp.Body, 1<<20)
		next = func() string {
			t.Helper()
			for {
				e, err := events.Next()
				if err != nil {
					t.Fatal(err)
				}
				if len(e.Data) > 0 {
					return string(e.Data)
				}
			}
		}
		next()
		wantText(t, "status", next(), own, `"status":"working"`)
		return next, func() { cancel(); resp.Body.Close() }
	}
	asked := func() int { _, ever := notifier.listeners(); return ever }
	askedAgain := func(before int) {
		t.Helper()
		eventually(t, "the upstream is asked", func() bool { return asked() > before })
	}

	set(http.StatusNotFound)
	_, leave := subscribe()
	askedAgain(0)
	leave()

	before := asked()
	set(0)
	early, _ := subscribe()
	askedAgain(before)
	eventually(t, "the gate subscribes", func() bool { now, _ := notifier.listeners(); return now == 1 })
	toldUntil(t, early, own, func() { notifier.say(modernStatus(theirs, "working", "half done")) }, "half done")

	before = asked()
	set(http.StatusNotFound)
	askedAgain(before)
	late, _ := subscribe()
	cancel, about := about("tasks/cancel", own)
	p.ask(cancel, about...)
	for name, next := range map[string]func() string{"before it was lost": early, "afterwards": late} {
		t.Log(name)
		toldUntil(t, next, own, nil, `"status":"cancelled"`)
	}
}
