package mcphttp_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

const madeIt = `{"content":[{"type":"text","text":"made it"}]}`

// start creates and approves a task, and queries it until it runs.
func (p *taskFixture) start(call string, headers ...string) string {
	p.t.Helper()
	id := taskID(p.t, p.ask(call, headers...))
	p.approve(task.ID(id))
	eventually(p.t, "the call is made", func() bool { return len(p.server.heard("tools/call")) > 0 })
	return id
}

// 10.1 "Sync path selection", "Task path selection", 10.2 "Optional uses task path"; F-002.1,
// F-002.2: the tool and the client's way of waiting decide how a call is made.
func TestExecutionPath(t *testing.T) {
	tests := []struct {
		tool         string
		byTask, held bool // whether the upstream gets a task, for either way of waiting
	}{
		{"hold_required", true, true},
		{"hold_optional", true, false},
		{"hold_forbidden", false, false},
		{"hold_plain", false, false},
	}
	for _, tt := range tests {
		for _, waits := range []string{"by task", "in a request"} {
			t.Run(tt.tool+" "+waits, func(t *testing.T) {
				p := newTaskFixture(t, nil)
				more, want := `,"task":{}`, tt.byTask
				if waits == "in a request" {
					more, want = "", tt.held
				}
				req := p.send(toolCall("7", tt.tool, more))
				p.approve(p.pending(1)[0])
				p.server.done(madeIt)
				answer := req.wait(t)
				if waits == "by task" {
					answer = p.ask(legacyAbout("tasks/result", taskID(t, answer)))
				}
				wantText(t, "answer", answer, "made it")
				if nested := len(p.server.made()) == 1; nested != want {
					t.Errorf("nested %t; want %t", nested, want)
				}
				if calls := p.server.heard("tools/call"); len(calls) != 1 {
					t.Errorf("called %v; want once", calls)
				}
			})
		}
	}
}

// F-001.2: an unknown tool is looked up once.
func TestUnknownToolIsLookedUpOnce(t *testing.T) {
	p := newTaskFixture(t, nil)
	for range 2 {
		id := taskID(t, p.ask(toolCall("7", "hold_required", `,"task":{}`)))
		p.approve(task.ID(id))
		p.server.done(madeIt)
		wantText(t, "result", p.ask(legacyAbout("tasks/result", id)), "made it")
	}
	if lists := p.server.heard("tools/list"); len(lists) != 1 || len(p.server.made()) != 2 {
		t.Errorf("listed %v, made %v; want one list and two tasks", lists, p.server.made())
	}
}

// 10.2 "Full task flow", "Upstream slow", 10.1 "Task creation", "Lazy poll: working", "Lazy
// poll: completed", "Stream result: success", "tasks/result routing: task path"; F-004,
// F-005.11, GOV-004 F-004.3, F-004.5, F-005.1, F-005.8, F-006.8, F-006.9, NF-003.5: the gate
// queries the upstream when a legacy client asks, and fetches the result when the client wants
// it. Without streams the client learns everything by polling.
func TestNestedLegacyTask(t *testing.T) {
	p := newTaskFixture(t, nil)
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "the upstream was asked how it stands", func() bool {
		wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"status":"working"`)
		return len(p.server.heard("tasks/get")) > 0
	})
	wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"pollInterval":20,`)
	p.server.done(madeIt)
	eventually(t, "the upstream is done", func() bool {
		return strings.Contains(p.ask(legacyAbout("tasks/get", id)), `"status":"completed"`)
	})
	if fetched := p.server.heard("tasks/result"); len(fetched) != 0 {
		t.Errorf("the result was fetched before the client asked for it: %v", fetched)
	}
	for range 2 { // the result can be fetched again
		wantText(t, "result", p.ask(legacyAbout("tasks/result", id)), "made it", `"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}`)
	}
	if fetched := p.server.heard("tasks/result"); len(fetched) != 1 {
		t.Errorf("fetched %v; want once", fetched)
	}
	wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"status":"completed"`)
}

// A modern upstream sends the result of a task together with its status.
func TestNestedModernTask(t *testing.T) {
	p := newTaskFixture(t, nil)
	id := p.start(modernCall("hold_required", tasksExtension), modernHeaders("hold_required")...)
	message, headers := about("tasks/get", id)
	wantText(t, "get", p.ask(message, headers...), `"status":"working"`)
	p.server.done(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("made it ", 50_000) + `"}]}`)
	var answer string
	eventually(t, "the task has ended", func() bool {
		answer = p.ask(message, headers...)
		return !strings.Contains(answer, `"status":"working"`)
	})
	wantText(t, "get", answer[:1000], `"status":"completed"`, `"result":{"resultType":"complete","content":[`)
	if n := strings.Count(answer, "made it "); n != 50_000 {
		t.Errorf("%d of 50000 words came through", n)
	}
	polls := len(p.server.heard("tasks/get"))
	if again := p.ask(message, headers...); again != answer || len(p.server.heard("tasks/get")) != polls {
		t.Error("the result was not kept")
	}
}

// F-004.1, 5.3: the upstream's task lives at most as long as the gate's.
func TestNestedTTL(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.start(toolCall("7", "hold_required", `,"task":{"ttl":7200000}`))
	eventually(t, "the upstream has a task", func() bool { return len(p.server.made()) == 1 })
	made, err := p.server.tasks.Store.Get(t.Context(), task.AnyOwner().Ref(task.ID(p.server.made()[0])))
	if ttl := made.TTL(); err != nil || ttl > 2*time.Hour || ttl < 2*time.Hour-time.Minute {
		t.Errorf("ttl %v, %v; want what is left of two hours", ttl, err)
	}
}

// GOV-004 5.3: it lives at most as long as the gate queries it.
func TestNestedTTLLimited(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.gateway = startGate(t, p.up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = p.catalog, p.approvals, p.waiting
		s.upstream.MaxTaskTTL = 30 * time.Minute
	})
	p.ask(initialize)
	p.start(toolCall("7", "hold_required", `,"task":{"ttl":7200000}`))
	eventually(t, "the upstream has a task", func() bool { return len(p.server.made()) == 1 })
	made, err := p.server.tasks.Store.Get(t.Context(), task.AnyOwner().Ref(task.ID(p.server.made()[0])))
	if ttl := made.TTL(); err != nil || ttl != 30*time.Minute {
		t.Errorf("ttl %v, %v; want 30m", ttl, err)
	}
}

// 10.1 "Lazy poll: failed", F-005.10, GOV-004 F-006.10, and cancellation by the upstream.
func TestNestedTaskFails(t *testing.T) {
	p := newTaskFixture(t, nil)
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	p.server.done(`out of paper!`)
	var answer string
	eventually(t, "the task has ended", func() bool {
		answer = p.ask(legacyAbout("tasks/get", id))
		return !strings.Contains(answer, `"status":"working"`)
	})
	wantText(t, "get", answer, `"status":"failed"`, "out of paper")
	wantText(t, "result", p.ask(legacyAbout("tasks/result", id)), `"error_type":"upstream_error"`, "out of paper")
	if now := p.state(id); now.State != task.Failed || strings.Contains(now.Failure.Reason, "paper") {
		t.Errorf("state %s, and approvers read %q", now.State, now.Failure.Reason)
	}

	p = newTaskFixture(t, nil)
	id = p.start(toolCall("7", "hold_required", `,"task":{}`)) // a client that waits for the result gets the error unchanged
	result := p.send(legacyAbout("tasks/result", id))
	p.server.done(`out of paper!`)
	wantText(t, "result", result.wait(t), `"code":-32050`, "out of paper")

	p = newTaskFixture(t, nil)
	id = p.start(modernCall("hold_required", tasksExtension), modernHeaders("hold_required")...)
	p.server.done(`out of paper!`)
	message, headers := about("tasks/get", id)
	eventually(t, "the task has ended", func() bool {
		answer = p.ask(message, headers...)
		return !strings.Contains(answer, `"status":"working"`)
	})
	wantText(t, "get", answer, `"status":"failed"`, `"code":-32050`)

	p = newTaskFixture(t, nil)
	id = p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "the upstream has a task", func() bool { return len(p.server.made()) == 1 })
	theirs := task.AnyOwner().Ref(task.ID(p.server.made()[0]))
	if _, err := lifecycle.Advance(t.Context(), p.server.tasks.Store, theirs, lifecycle.Cancel{By: "an operator"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task has ended", func() bool {
		return p.state(id).State == task.Failed || strings.Contains(p.ask(legacyAbout("tasks/get", id)), "failed")
	})
	wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), "failed", "Cancelled by the requestor")
	if why := p.state(id).Failure.Reason; strings.Contains(why, "requestor") {
		t.Errorf("approvers read %q", why)
	}
}

// sender reaches the upstream with the gate's credentials.
func (p *taskFixture) sender(t task.Task) approval.Sender {
	u, err := url.Parse(p.target)
	if err != nil {
		p.t.Fatal(err)
	}
	own := httpclient.New(httpclient.Config{Name: "test", URL: u, ConnectTimeout: testTimeout})
	p.t.Cleanup(own.Close)
	return own.Upstream().Sender(t, p.catalog)
}

func (p *taskFixture) state(id string) task.Task {
	p.t.Helper()
	got, err := p.store.Get(p.t.Context(), task.AnyOwner().Ref(task.ID(id)))
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// F-005.12, NF-003.1, GOV-004 F-005.7: the client may ask again.
func TestFailedPollKeepsTask(t *testing.T) {
	p := newTaskFixture(t, func(c *approval.Config, _ *conversation.Waiting) { c.Poll = 2 * time.Second })
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "the upstream has a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
	stuck := make(chan struct{})
	p.server.fail(func(method string) {
		if method == "tasks/get" {
			<-stuck
		}
	}, nil)
	wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"code":-32001`, `"error_type":"upstream_timeout"`, `"retry_after"`)
	close(stuck)
	p.server.fail(nil, func(method string) *jsonrpc.Error {
		if method == "tasks/get" {
			return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "oops"}
		}
		return nil
	})
	eventually(t, "the client is told the error", func() bool {
		answer := p.ask(legacyAbout("tasks/get", id))
		return strings.Contains(answer, `"code":-32002`) && strings.Contains(answer, `"error_type":"upstream_invalid_response"`)
	})
	p.server.fail(nil, nil)
	if state := p.state(id).State; state != task.Executing {
		t.Fatalf("state %s; want it to go on", state)
	}
	p.server.done(madeIt)
	eventually(t, "the result is available", func() bool { // a poll may take longer than it may on a busy machine
		return strings.Contains(p.ask(legacyAbout("tasks/result", id)), "made it")
	})
	for _, line := range []string{
		`thoughtgate_upstream_execution_total{path="task",status="success"} 1`,
		`thoughtgate_upstream_lazy_polls_total{status="timeout"} `, // more than one on a slow machine
		`thoughtgate_upstream_lazy_polls_total{status="error"} 1`,
	} {
		wantText(t, "metrics", scrape(p.gateway), line)
	}
}

// 10.2 "Upstream purges result", 10.1 "Stream result: upstream gone", NF-003.2: the outcome is
// then unknown.
func TestLostUpstreamTaskHasUnknownOutcome(t *testing.T) {
	for _, method := range []string{"tasks/get", "tasks/result"} {
		t.Run(method, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			id := p.start(toolCall("7", "hold_required", `,"task":{}`))
			p.server.fail(nil, func(asked string) *jsonrpc.Error {
				if asked == method {
					return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Task not found"}
				}
				return nil
			})
			p.server.done(madeIt)
			wantText(t, "result", p.ask(legacyAbout("tasks/result", id)), `"error_type":"upstream_task_not_found"`)
			wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"status":"failed"`, "no longer knows")
		})
	}
}

// 10.1 "Stream result: not ready", GOV-004 F-006.11 as design 5 has it: readers wait for the
// result, and share one fetch.
func TestOneFetchForAllReaders(t *testing.T) {
	p := newTaskFixture(t, nil)
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	var readers []*request
	for range 10 {
		readers = append(readers, p.send(legacyAbout("tasks/result", id)))
	}
	p.server.done(madeIt)
	for _, r := range readers {
		wantText(t, "result", r.wait(t), "made it")
	}
	if fetched := p.server.heard("tasks/result"); len(fetched) != 1 {
		t.Errorf("fetched %v; want once", fetched)
	}
}

// 10.4 "ThoughtGate restart": after a crash, any replica can continue to query the upstream's
// task. Its outcome is not unknown.
func TestAnotherReplicaContinuesTask(t *testing.T) {
	p := newTaskFixture(t, func(c *approval.Config, _ *conversation.Waiting) { c.Durable, c.Lease = true, time.Second })
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "the upstream has a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
	if x := p.state(id).Execution; !x.Detached() || x.Executor != "" {
		t.Errorf("execution %+v; want no lease holder", x)
	}
	if err := p.approvals.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cancelled := p.server.heard("tasks/cancel"); len(cancelled) != 0 {
		t.Errorf("a restarted gate cancelled %v", cancelled)
	}
	next, err := approval.New(approval.Config{
		Store: p.store, Judge: p.catalog.Recheck, Settings: approval.Settings{Polling: task.Polling{Min: 10 * time.Millisecond, Max: time.Minute}},
		Workflow: func(string) (approval.Workflow, bool) { return approval.Workflow{}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close(t.Context())
	p.approvals = next
	p.gateway = startGate(t, p.target, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = p.catalog, next, conversation.Waiting{Hold: time.Minute, Heartbeat: time.Second}
	})
	wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"status":"working"`)
	p.server.done(madeIt)
	wantText(t, "result", p.ask(legacyAbout("tasks/result", id)), "made it")
	if calls := p.server.heard("tools/call"); len(calls) != 1 {
		t.Errorf("called %v; want once", calls)
	}
}

// F-007.1, F-007.2, 10.1 "Cancellation": the client does not wait until the upstream is told.
func TestNestedCancellation(t *testing.T) {
	for era, call := range map[string]func(p *taskFixture) (string, string){
		"legacy": func(p *taskFixture) (string, string) {
			id := p.start(toolCall("7", "hold_required", `,"task":{}`))
			eventually(p.t, "the upstream has a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
			return id, p.ask(legacyAbout("tasks/cancel", id))
		},
		"modern": func(p *taskFixture) (string, string) {
			id := p.start(modernCall("hold_required", tasksExtension), modernHeaders("hold_required")...)
			eventually(p.t, "the upstream has a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
			message, headers := about("tasks/cancel", id)
			return id, p.ask(message, headers...)
		},
	} {
		t.Run(era, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			id, answer := call(p)
			wantText(t, "cancel", answer, `"result"`)
			if state := p.state(id).State; state != task.Cancelled {
				t.Errorf("state %s; want cancelled", state)
			}
			eventually(t, "the upstream is told", func() bool {
				return slices.Equal(p.server.heard("tasks/cancel"), []string{"tasks/cancel " + p.server.made()[0]})
			})
			eventually(t, "the metrics count it", func() bool {
				return strings.Contains(scrape(p.gateway), `thoughtgate_upstream_cancellations_total{result="success"} 1`)
			})
		})
	}
}

// lists returns all task pages of the client, and of a client that looks the same.
func (p *taskFixture) lists(ask func(message string, headers ...string)) {
	cursor := regexp.MustCompile(`"nextCursor":"([^"]+)"`)
	for next := ""; ; {
		list := `{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{` + next + `}}`
		ask(list)
		found := cursor.FindStringSubmatch(p.ask(list))
		if found == nil {
			break
		}
		next = `"cursor":"` + found[1] + `"`
	}
	if lists := p.server.heard("tasks/list"); len(lists) == 0 {
		p.t.Error("the gate did not request the list of the upstream")
	}
}

func TestUpstreamIDsNeverReachClient(t *testing.T) {
	p := newTaskFixture(t, nil)
	var received strings.Builder
	ask := func(message string, headers ...string) {
		req := p.send(message, headers...)
		req.wait(t)
		received.WriteString(req.body)
	}
	legacy := p.start(toolCall("7", "hold_optional", `,"task":{}`))
	held := p.send(toolCall("8", "hold_required", `,"_meta":{"progressToken":1}`))
	p.approve(p.pending(1)[0])
	modern := taskID(t, p.ask(modernCall("hold_required", tasksExtension), modernHeaders("hold_required")...))
	p.approve(task.ID(modern))
	get, headers := about("tasks/get", modern)
	eventually(t, "there are three tasks", func() bool {
		ask(get, headers...)
		return len(p.server.made()) == 3
	})
	for range 3 {
		ask(legacyAbout("tasks/get", legacy))
		p.server.done(madeIt)
	}
	held.wait(t)
	received.WriteString(held.body)
	for range 5 {
		ask(legacyAbout("tasks/get", legacy))
		ask(legacyAbout("tasks/result", legacy))
		ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`)
		p.lists(ask)
		ask(get, headers...)
	}
	if text := received.String(); !strings.Contains(text, "made it") {
		t.Errorf("the client got no result: %s", text)
	}
	for _, id := range p.server.made() {
		if before, _, told := strings.Cut(received.String(), id); told {
			t.Errorf("the client got the id %s after %s", id, before[max(0, len(before)-200):])
		}
	}
}

// F-005.6, F-007.1, F-008, 10.1 "Lazy poll: expired TG task", 10.2 "Client abandons task",
// GOV-004 F-005.5, F-007.6, F-008.1, F-008.2, F-008.4: the upstream is told that a task has
// expired. A hanging upstream delays neither the client nor other expiries.
func TestExpiryCancelsUpstream(t *testing.T) {
	var shift atomic.Int64
	var p *taskFixture
	p = newTaskFixture(t, func(c *approval.Config, _ *conversation.Waiting) {
		c.Send = func(held task.Task) approval.Sender { return p.sender(held) }
		c.Now = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
		c.Sweep = 20 * time.Millisecond
		c.Cancel = time.Hour // only the test ends the hanging request
	})
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "the upstream has a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
	stuck, arrived := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(release)
	p.server.fail(func(method string) {
		if method == "tasks/cancel" {
			close(arrived)
			<-stuck
		}
	}, nil)
	shift.Store(int64(48 * time.Hour))
	eventually(t, "it has expired", func() bool { return p.state(id).State == task.Expired })
	<-arrived
	wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"status":"failed"`, "it may have run")
	other := taskID(t, p.ask(toolCall("8", "hold_optional", `,"task":{}`)))
	shift.Store(int64(96 * time.Hour))
	eventually(t, "another has expired", func() bool { return p.state(other).State == task.Expired })
	release()
	eventually(t, "the upstream is told", func() bool {
		return slices.Equal(p.server.heard("tasks/cancel"), []string{"tasks/cancel " + p.server.made()[0]})
	})
}

// F-007.2: a legacy call in progress is cancelled by a notification.
func TestCancelCallUnderWay(t *testing.T) {
	p := newTaskFixture(t, nil)
	id := taskID(t, p.ask(toolCall(`"the id"`, "hold_forbidden", `,"task":{}`)))
	p.approve(task.ID(id))
	eventually(t, "the call is made", func() bool { return len(p.server.heard("tools/call")) == 1 })
	wantText(t, "cancel", p.ask(legacyAbout("tasks/cancel", id)), `"status":"cancelled"`)
	eventually(t, "the upstream is told", func() bool { return len(p.server.heard("notifications/cancelled")) == 1 })
	eventually(t, "the metrics count it", func() bool {
		return strings.Contains(scrape(p.gateway), `thoughtgate_upstream_cancellations_total{result="success"} 1`)
	})

	held := p.send(toolCall("8", "hold_forbidden", ""))
	p.approve(p.pending(1)[0])
	eventually(t, "the call is made", func() bool { return len(p.server.heard("tools/call")) == 2 })
	p.ask(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
	wantNoAnswer(t, held, "8")
	eventually(t, "the upstream is told", func() bool { return len(p.server.heard("notifications/cancelled")) == 2 })
}

// F-007.3: a store in memory loses its tasks at shutdown, so their upstreams are told.
func TestShutdownCancelsUpstream(t *testing.T) {
	var p *taskFixture
	p = newTaskFixture(t, func(c *approval.Config, _ *conversation.Waiting) {
		c.Send = func(held task.Task) approval.Sender { return p.sender(held) }
	})
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "the upstream has a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
	if err := p.approvals.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if heard := p.server.heard("tasks/cancel"); !slices.Equal(heard, []string{"tasks/cancel " + p.server.made()[0]}) {
		t.Errorf("heard %v; want its task cancelled", heard)
	}
}

// REQ-CORE-007 F-005, F-006, CORE-007 F-005.5: the task of a call without approval belongs to
// the upstream, unless the upstream has no tasks.
func TestPassthroughOwnership(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	for _, tool := range []string{"get_required", "get_optional"} {
		created := p.ask(toolCall("7", tool, `,"task":{"ttl":60000}`))
		theirs := p.server.made()[len(p.server.made())-1]
		wantText(t, tool, created, `"taskId":"`+theirs+`"`, `"ttl":60000`)
		wantText(t, "get", p.ask(legacyAbout("tasks/get", theirs)), `"taskId":"`+theirs+`"`, `"status":"working"`)
		p.server.done(madeIt)
		wantText(t, "result", p.ask(legacyAbout("tasks/result", theirs)), "made it", theirs)
		wantText(t, "cancel", p.ask(legacyAbout("tasks/cancel", theirs)), `"code":-32602`)
	}
	accelerated := taskID(t, p.ask(toolCall("7", "get_forbidden", `,"task":{}`)))
	p.server.done(madeIt)
	wantText(t, "result", p.ask(legacyAbout("tasks/result", accelerated)), "made it", accelerated)
	if n := len(p.server.made()); n != 2 {
		t.Errorf("the upstream made %d tasks; want 2", n)
	}
	if asked := p.state(accelerated).Approval; asked != nil {
		t.Errorf("approvers were asked: %+v", asked)
	}

	modern := p.ask(modernCall("get_required", tasksExtension), modernHeaders("get_required")...)
	theirs := p.server.made()[2]
	wantText(t, "modern", modern, `"resultType":"task"`, `"taskId":"`+theirs+`"`)
	p.server.done(madeIt)
	message, headers := about("tasks/get", theirs)
	eventually(t, "the task has ended", func() bool { return strings.Contains(p.ask(message, headers...), "made it") })
}
