package mcphttp_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// rounds is the number of repetitions of each race.
const rounds = 100

// race runs both functions concurrently.
func race(one, other func()) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for _, do := range []func(){one, other} {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			do()
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

func (h *fixture) decide(id task.ID, who string, what approval.Decision) error {
	_, err := decide(context.Background(), h.approvals, id, approval.Approver{Name: who}, what, "")
	return err
}

// times returns how often a tool has run.
func (h *fixture) times(tool string) int {
	n := 0
	for _, call := range h.ran() {
		if strings.HasPrefix(call, tool+" ") {
			n++
		}
	}
	return n
}

// One decision wins, and it is carried out.
func TestDisagreeingApproversRace(t *testing.T) {
	h := newFixture(t, nil)
	for i := range rounds {
		tool := fmt.Sprintf("hold_%d", i)
		req := h.send(toolCall("7", tool, ""))
		id := h.pending(1)[0]
		var approved, rejected error
		race(func() { approved = h.decide(id, "alice", approval.Approve) }, func() { rejected = h.decide(id, "bob", approval.Reject) })
		answer, ran := req.wait(t), h.times(tool)
		switch {
		case (approved == nil) == (rejected == nil):
			t.Fatalf("round %d: approve = %v, reject = %v; want one of them to count", i, approved, rejected)
		case approved == nil && (ran != 1 || !strings.Contains(answer, "done "+tool)):
			t.Fatalf("round %d: approved, ran %d times, client got %s", i, ran, answer)
		case rejected == nil && (ran != 0 || !strings.Contains(answer, "-32007") || !strings.Contains(answer, "did not run")):
			t.Fatalf("round %d: rejected, ran %d times, client got %s", i, ran, answer)
		}
	}
}

// Two concurrent approvals, and two concurrent requests for the result, run the call once.
func TestApprovalsRaceToOneRun(t *testing.T) {
	h := newFixture(t, nil)
	for i := range rounds {
		tool := fmt.Sprintf("hold_%d", i)
		id := taskID(t, h.ask(toolCall("7", tool, `,"task":{}`)))
		results := []*request{h.send(legacyAbout("tasks/result", id)), h.send(legacyAbout("tasks/result", id))}
		race(func() { _ = h.decide(task.ID(id), "alice", approval.Approve) }, func() { _ = h.decide(task.ID(id), "bob", approval.Approve) })
		h.ask(legacyAbout("tasks/get", id))
		for _, r := range results {
			wantText(t, tool, r.wait(t), "done "+tool)
		}
		if n := h.times(tool); n != 1 {
			t.Fatalf("round %d: ran %d times", i, n)
		}
	}
}

// If the client gets the answer that the tool did not run, it never runs.
func TestDecisionAndCancelRace(t *testing.T) {
	h := newFixture(t, nil)
	ran := 0
	for i := range rounds {
		tool := fmt.Sprintf("hold_%d", i)
		id := taskID(t, h.ask(toolCall("7", tool, `,"task":{}`)))
		var approved error
		var cancelled string
		race(func() { approved = h.decide(task.ID(id), "alice", approval.Approve) },
			func() { cancelled = h.ask(legacyAbout("tasks/cancel", id)) })
		result := h.ask(legacyAbout("tasks/result", id))
		n := h.times(tool)
		ran += n
		wasCancelled := strings.Contains(cancelled, `"status":"cancelled"`)
		switch {
		case n > 1:
			t.Fatalf("round %d: ran %d times", i, n)
		case n == 1 && strings.Contains(result, "did not run"):
			t.Fatalf("round %d: it ran, and the client got %s", i, result)
		case approved != nil && n > 0:
			t.Fatalf("round %d: ran without approval", i)
		case wasCancelled && !strings.Contains(result, "task_cancelled"):
			t.Fatalf("round %d: cancelled, and then got %s", i, result)
		case !wasCancelled && !strings.Contains(result, "done "+tool):
			t.Fatalf("round %d: not cancelled (%s), and got %s", i, cancelled, result)
		}
	}
	t.Logf("%d of %d ran", ran, rounds)
}

// A decision at the moment of expiry either counts or does not.
func TestDecisionAndExpiryRace(t *testing.T) {
	const timeout = 5 * time.Millisecond
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Workflow = func(string) (approval.Workflow, bool) { return approval.Workflow{Timeout: timeout}, true }
	})
	ran := 0
	for i := range rounds {
		tool := fmt.Sprintf("hold_%d", i)
		id := taskID(t, h.ask(toolCall("7", tool, `,"task":{}`)))
		held, err := h.store.Get(t.Context(), task.AnyOwner().Ref(task.ID(id)))
		if err != nil {
			t.Fatal(err)
		}
		early := time.Duration(i) * 30 * time.Microsecond // timers are late by about as much
		<-time.After(time.Until(held.Approval.Deadline) - early)
		var approved error
		var result string
		race(func() { approved = h.decide(task.ID(id), "alice", approval.Approve) },
			func() { result = h.ask(legacyAbout("tasks/result", id)) })
		n := h.times(tool)
		ran += n
		switch {
		case approved == nil && (n != 1 || !strings.Contains(result, "done "+tool)):
			t.Fatalf("round %d: approved, ran %d times, client got %s", i, n, result)
		case approved != nil && (n != 0 || !strings.Contains(result, `"code":-32008`) || !strings.Contains(result, "did not run")):
			t.Fatalf("round %d: %v, ran %d times, client got %s", i, approved, n, result)
		}
	}
	t.Logf("%d of %d ran", ran, rounds)
}

// The call runs at most once, and only if approved. If it ran, the client gets the result when
// it returns.
func TestDisconnectAtEveryStep(t *testing.T) {
	h := newFixture(t, nil)
	for i := range rounds {
		tool := fmt.Sprintf("hold_%d", i)
		call := toolCall("7", tool, "")
		release := make(chan struct{})
		h.mu.Lock()
		h.answer = func(w http.ResponseWriter, id string) {
			<-release
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"tool":"%s"}}`, id, tool)
		}
		h.mu.Unlock()
		approvals := 0
		approve := func(id task.ID) {
			if h.decide(id, "alice", approval.Approve) == nil {
				approvals++
			}
		}
		req := h.send(call)
		steps := []func(){
			func() {},
			func() { h.pending(1) },
			func() { approve(h.pending(1)[0]) },
			func() {
				approve(h.pending(1)[0])
				eventually(t, "the call runs", func() bool { return h.times(tool) == 1 })
			},
			func() {
				approve(h.pending(1)[0])
				eventually(t, "the call runs", func() bool { return h.times(tool) == 1 })
				close(release)
			},
		}
		step := i % len(steps)
		steps[step]()
		req.cancel()
		<-req.done
		if step < 4 {
			close(release)
		}

		back := h.send(call)
		eventually(t, "the call is answered or pending again", func() bool {
			page, err := h.approvals.Viewer().Pending(t.Context(), review.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page.Approvals {
				approve(a.ID)
			}
			select {
			case <-back.done:
				return true
			default:
				return false
			}
		})
		wantText(t, fmt.Sprintf("step %d", step), back.wait(t), `"tool":"`+tool+`"`)
		// An answer that was sent just before the disconnect counts as delivered. The client
		// and the approver were then asked anew.
		if n := h.times(tool); n > approvals {
			t.Fatalf("step %d: ran %d times with %d approvals", step, n, approvals)
		}
	}
}

// With 2000 pending calls and hundreds of waiting clients, an approval wakes only its client.
// The test of this name in package approval has 10,000 calls.
func TestManyPending(t *testing.T) {
	const tasks, waiters, approved = 2000, 300, 100
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Heartbeat = time.Minute })
	ids := make([]task.ID, tasks)
	verdict := policy.Verdict{Action: policy.Approve, Workflow: "default"}
	for i := range ids {
		held, _, err := h.approvals.Hold(t.Context(), approval.Call{
			Owner: fmt.Sprintf("test session s-%d", i%waiters), Principal: policy.Principal{Anonymous: true}, Upstream: "test",
			Message: []byte(toolCall("1", fmt.Sprintf("hold_%d", i), "")), Verdict: verdict,
		})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = held.ID
	}
	results := make([]*http.Response, waiters)
	for i := range results {
		results[i] = h.begin(t, legacyAbout("tasks/result", string(ids[i])), "Mcp-Session-Id", fmt.Sprintf("s-%d", i))
	}
	start := time.Now()
	for _, id := range ids[:approved] {
		h.approve(id)
	}
	for i, resp := range results[:approved] {
		wantText(t, "waiter", readBody(t, resp), fmt.Sprintf("done hold_%d\"", i))
	}
	t.Logf("%d approvals among %d tasks and %d waiters took %v", approved, tasks, waiters, time.Since(start))
	if n := len(h.ran()); n != approved {
		t.Errorf("ran %d calls; want %d", n, approved)
	}
	if still := slices.ContainsFunc(ids[approved:], func(id task.ID) bool { return h.state(id) != task.InputRequired }); still {
		t.Error("an undecided call is no longer pending")
	}
}

// begin sends a message and returns the response once it has begun, so the client is waiting.
func (h *fixture) begin(t *testing.T, message string, headers ...string) *http.Response {
	t.Helper()
	return h.beginUntil(t.Context(), t, message, headers...)
}

// beginUntil is begin for a request that is cancelled with ctx.
func (h *fixture) beginUntil(ctx context.Context, t *testing.T, message string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return resp
}

// Clients get memory for the bytes that they have sent, not for those they announce.
func TestAnnouncedBodies(t *testing.T) {
	const clients = 200
	g := startGate(t, "http://127.0.0.1:1", nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range clients {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", g.addr, 1<<20)
		// The gate sends 100 Continue when it begins to read the body.
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / clients; each > 256<<10 {
		t.Errorf("%d bytes for each client that has sent nothing", each)
	}
}
