package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A fixture is a gate that holds calls, in front of an upstream that keeps a
// ledger of what it ran.
type fixture struct {
	*gateway

	t       *testing.T
	desk    *approval.Desk
	gate    *gate.Gate
	store   *memstore.Store
	waiting conversation.Waiting
	texts   *keyring.Ring
	rules   *gate.Settings

	mu      sync.Mutex
	ledger  []string
	asked   []string // queries of the requests
	heard   []string // requests to listen
	answer  func(w http.ResponseWriter, id string)
	record  func(body string) // may be nil
	tools   string            // the tools that the gate is told of when it asks, as JSON; none if empty
	listing func()            // is called before the gate is told of tools; nil does nothing

	get    http.HandlerFunc // answers GET
	listen http.HandlerFunc // answers subscriptions/listen
	batch  func(w http.ResponseWriter, p jsonrpc.Packet)
}

func (h *fixture) ran() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ledger)
}

func (h *fixture) queries() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

func (h *fixture) listened() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.heard)
}

func (h *fixture) serve(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		h.get(w, r)
		return
	case http.MethodDelete:
		return
	}
	body, _ := io.ReadAll(r.Body)
	p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if err == nil && p.Messages[0].Method == "subscriptions/listen" {
		h.mu.Lock()
		h.heard = append(h.heard, string(body))
		h.mu.Unlock()
		h.listen(w, r)
		return
	}
	if err != nil {
		h.t.Errorf("the upstream got %q: %v", body, err)
		return
	}
	m := &p.Messages[0]
	if h.record != nil && !strings.HasPrefix(string(m.ID.Bytes), `"tg-`) {
		h.record(string(body))
	}
	if strings.HasPrefix(string(m.ID.Bytes), `"tg-`) { // the gate asks what there is
		h.mu.Lock()
		tools, listing := h.tools, h.listing
		h.mu.Unlock()
		if listing != nil {
			listing()
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s],"capabilities":{}}}`, m.ID.Bytes, tools)
		return
	}
	name, _ := m.Params.Name.Text()
	h.mu.Lock()
	h.asked = append(h.asked, r.URL.RawQuery)
	for i := range p.Messages {
		called, _ := p.Messages[i].Params.Name.Text()
		h.ledger = append(h.ledger, called+" "+string(p.Messages[i].Params.Arguments.Bytes))
	}
	answer := h.answer
	h.mu.Unlock()
	if m.Params.Task.Present() || strings.Contains(string(m.Params.Meta.Bytes), "io.modelcontextprotocol/tasks") {
		h.t.Errorf("the upstream was asked for a task: %s", body)
	}
	if p.Batch && h.batch != nil {
		h.batch(w, p)
		return
	}
	if answer != nil {
		answer(w, string(m.ID.Bytes))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done %s"}]}}`, m.ID.Bytes, name)
}

// define has the upstream tell the gate of tools, as JSON without brackets.
func (h *fixture) define(tools string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tools = tools
}

func compile(t *testing.T, rules ...policy.Rule) *policy.Snapshot {
	t.Helper()
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: rules, Default: policy.Rule{Action: policy.Deny},
		Workflows: map[string]policy.Workflow{
			"default": {Quorum: 1, Timeout: time.Hour}, "two": {Quorum: 2, Timeout: time.Hour},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// newFixture starts a gate that forwards get_*, holds hold_* and denies the rest.
func newFixture(t *testing.T, adjust func(*gate.Settings, *approval.Config, *conversation.Waiting)) *fixture {
	t.Helper()
	h := &fixture{t: t, store: memstore.New(memstore.Options{})}
	rules := &gate.Settings{Policy: compile(t,
		policy.Rule{Match: "get_*", Action: policy.Forward},
		policy.Rule{Match: "hold_two_*", Action: policy.Approve, Workflow: "two"},
		policy.Rule{Match: "hold_*", Action: policy.Approve})}
	desk := approval.Config{
		Store: h.store,
		Workflow: func(name string) (approval.Workflow, bool) {
			w := approval.Workflow{Timeout: time.Hour}
			if name == "two" {
				w.Quorum = 2
			}
			return w, true
		},
		Judge: func(c policy.Call) policy.Verdict { return h.gate.Recheck(c) },
	}
	waiting := conversation.Waiting{Hold: patience, Longest: time.Hour, Beat: 20 * time.Millisecond, Drafts: true}
	if adjust != nil {
		adjust(rules, &desk, &waiting)
	}
	log := slog.New(slog.DiscardHandler)
	h.rules = rules
	h.gate = gate.New(rules, time.Now, log, nil)
	var err error
	if h.desk, err = approval.New(desk); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.desk.Run(ctx) }()
	t.Cleanup(func() {
		_ = h.desk.Close(context.Background())
		stop()
		<-done
		h.store.Close()
	})
	h.waiting = waiting
	h.gateway = startGate(t, serve(t, h.serve), func(s settings) {
		s.handler.Gate, s.handler.Desk, s.handler.Records, s.handler.Waiting = h.gate, h.desk, h.store, waiting
	})
	return h
}

// A request is one that a test sends without waiting for the answer.
type request struct {
	done   chan struct{}
	status int
	body   string
	cancel context.CancelFunc
}

// send sends a message as the client of a session, with more headers as
// name and value in turn.
func (h *fixture) send(message string, headers ...string) *request {
	return h.sendAs(http.MethodPost, message, headers...)
}

func (h *fixture) sendAs(method, message string, headers ...string) *request {
	ctx, cancel := context.WithCancel(h.t.Context())
	r, err := http.NewRequestWithContext(ctx, method, h.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	req := &request{done: make(chan struct{}), cancel: cancel}
	h.t.Cleanup(cancel)
	go func() {
		defer close(req.done)
		resp, err := h.Client().Do(r)
		if err != nil {
			req.body = err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		req.status, req.body = resp.StatusCode, string(body)
		if err != nil {
			req.body += err.Error()
		}
	}()
	return req
}

// wait returns the answer, without the framing of events and without comments.
func (r *request) wait(t *testing.T) string {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(2 * patience):
		t.Fatal("no answer")
	}
	var data string
	for line := range strings.Lines(r.body) {
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			data = strings.TrimSpace(text)
		}
	}
	if data == "" {
		data = strings.TrimSpace(r.body)
	}
	return data
}

func (h *fixture) ask(message string, headers ...string) string {
	h.t.Helper()
	return h.send(message, headers...).wait(h.t)
}

// pending waits until n calls are pending, and returns the ids of their tasks.
func (h *fixture) pending(n int) []task.ID {
	h.t.Helper()
	var ids []task.ID
	eventually(h.t, fmt.Sprintf("%d calls are pending", n), func() bool {
		page, err := h.desk.Cases().Pending(h.t.Context(), casefile.Filter{})
		if err != nil {
			h.t.Fatal(err)
		}
		ids = nil
		for _, a := range page.Approvals {
			ids = append(ids, a.ID)
		}
		return len(ids) == n
	})
	return ids
}

func (h *fixture) approve(id task.ID) {
	h.t.Helper()
	if _, err := decide(h.t.Context(), h.desk, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err != nil {
		h.t.Fatal(err)
	}
}

func (h *fixture) reject(id task.ID, reason string) {
	h.t.Helper()
	if _, err := decide(h.t.Context(), h.desk, id, approval.Approver{Name: "alice"}, approval.Reject, reason); err != nil {
		h.t.Fatal(err)
	}
}

func toolCall(id, name, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{"x":1}` + more + `}}`
}

func wantText(t *testing.T, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s: got %s\nwant it to have %s", what, got, w)
		}
	}
}

func taskID(t *testing.T, answer string) string {
	t.Helper()
	_, rest, ok := strings.Cut(answer, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !ok || !strings.HasPrefix(id, "tg_") {
		t.Fatalf("no task in %s", answer)
	}
	return id
}

// CORE-003 5.4, first row: approval received, client connected.
func TestHeldRequest(t *testing.T) {
	for _, accept := range []string{"application/json, text/event-stream", "application/json"} {
		t.Run(accept, func(t *testing.T) {
			h := newFixture(t, nil)
			req := h.send(toolCall("7", "hold_x", ""), "Accept", accept)
			id := h.pending(1)[0]
			if ran := h.ran(); len(ran) != 0 {
				t.Fatalf("ran before it was approved: %v", ran)
			}
			h.approve(id)
			wantText(t, "answer", req.wait(t), `"id":7`, "done hold_x")
			if ran := h.ran(); !slices.Equal(ran, []string{`hold_x {"x":1}`}) {
				t.Errorf("ran %v; want the call once, as it was", ran)
			}
		})
	}
}

// CORE-003 5.4: rejection, on both faces.
func TestHeldRequestRejected(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_x", ""))
	h.reject(h.pending(1)[0], "too early")
	wantText(t, "legacy", req.wait(t), `"code":-32007`, `"approval_rejected"`, "did not run")

	modern := h.send(modernCall("hold_x", ""), modernHeaders("hold_x")...)
	h.reject(h.pending(1)[0], "too early")
	wantText(t, "modern", modern.wait(t), `"isError":true`, `"resultType":"complete"`, "did not run")
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

// CORE-003 5.4: approval received, client disconnected: it is not run.
func TestClientGoneBeforeApproval(t *testing.T) {
	abandoned := make(chan struct{}, 1)
	h := newFixture(t, func(_ *gate.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Observe = func(_ context.Context, e approval.Event) {
			if e.Step == approval.Abandoned {
				abandoned <- struct{}{}
			}
		}
	})
	req := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	req.cancel()
	<-req.done
	eventually(t, "the gate notices", func() bool {
		return strings.Contains(scrape(h.gateway), `thoughtgate_mcp_requests_total{method="tools/call",status="error"} 1`)
	})
	h.approve(id)
	<-abandoned
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}

	// The client comes back with the same call, and gets what was approved.
	wantText(t, "retry", h.ask(toolCall("8", "hold_x", "")), `"id":8`, "done hold_x")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// A client that has waited long enough is told to come again; an identical call
// attaches, to the decision and then to the result, and only once.
func TestPendingAnswerAndAttach(t *testing.T) {
	h := newFixture(t, func(_ *gate.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 30 * time.Millisecond })
	for i := range 2 {
		wantText(t, "pending", h.ask(toolCall(fmt.Sprint(i), "hold_x", "")), `"isError":true`, "has not run", "same arguments")
	}
	id := h.pending(1)[0]
	wantText(t, "other arguments", h.ask(strings.Replace(toolCall("9", "hold_x", ""), `"x":1`, `"x":2`, 1)), "has not run")
	h.pending(2)
	wantText(t, "another client", h.ask(toolCall("9", "hold_x", ""), "Mcp-Session-Id", "s-2"), "has not run")
	h.pending(3)
	h.approve(id)
	h.askUntil("done hold_x", func() string {
		answer := h.ask(toolCall("10", "hold_x", ""))
		if strings.Contains(answer, "has not run") {
			t.Fatalf("after the approval: %s", answer)
		}
		return answer
	})
	wantText(t, "again", h.ask(toolCall("11", "hold_x", "")), "has not run")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// A slowStore does not answer those who look while they wait before their time
// is over.
type slowStore struct {
	task.GateStore

	slow atomic.Bool
}

// Get implements [task.Store].
func (s *slowStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if _, bounded := ctx.Deadline(); bounded && s.slow.Load() {
		<-ctx.Done()
		return task.Task{}, ctx.Err()
	}
	return s.GateStore.Get(ctx, ref)
}

// A client whose wait ends before the store has answered once is sent round, or
// told to call again, like any other, and finds its call.
func TestWaitOverBeforeTheFirstLook(t *testing.T) {
	var store slowStore
	h := newFixture(t, func(_ *gate.Settings, c *approval.Config, w *conversation.Waiting) {
		store.GateStore = c.Store
		c.Store, w.Hold = &store, 20*time.Millisecond
	})
	store.slow.Store(true)
	wantText(t, "legacy", h.ask(toolCall("1", "hold_x", "")), `"isError":true`, "has not run", "same arguments")
	state := stateIn(t, h.ask(modernCall("hold_x", ""), modernHeaders("hold_x")...))
	store.slow.Store(false)
	for _, id := range h.pending(2) {
		h.approve(id)
	}
	h.askUntil("done hold_x", func() string {
		return h.ask(toolCall("26", "hold_x", `,"requestState":"`+state+`",`+modernMeta("")), modernHeaders("hold_x")...)
	})
}

// askUntil asks again as long as the client is sent round or told to call again,
// as clients of a gate that holds requests briefly do, and demands that the
// answer then has a text in it.
func (h *fixture) askUntil(want string, ask func() string) {
	h.t.Helper()
	answer := ""
	eventually(h.t, want, func() bool {
		answer = ask()
		return !strings.Contains(answer, `"requestState"`) && !strings.Contains(answer, "Call the tool again")
	})
	wantText(h.t, "the answer", answer, want)
}

// notifications/cancelled withdraws a held request, and only the client's own.
func TestCancelHeldRequest(t *testing.T) {
	h := newFixture(t, nil)
	req := h.sendHeld(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	h.ask(cancelled, "Mcp-Session-Id", "s-2") // somebody else's: goes to the upstream
	h.pending(1)
	other := h.send(cancelled)
	wantNoAnswer(t, req, "7")
	other.wait(t)
	if _, err := decide(t.Context(), h.desk, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err == nil {
		t.Error("a cancelled call was approved")
	}
	if ran := h.ran(); slices.Contains(ran, `hold_x {"x":1}`) {
		t.Errorf("ran %v", ran)
	}
}

// Policy that tightens while a call waits stops it.
func TestPolicyDrift(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	h.gate.Swap(&gate.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})})
	h.approve(id)
	wantText(t, "answer", req.wait(t), `"code":-32011`, "policy_drift", "did not run")
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

// A quorum of two takes two people.
func TestQuorum(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_two_x", ""))
	id := h.pending(1)[0]
	h.approve(id)
	if _, err := decide(t.Context(), h.desk, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err == nil {
		t.Error("alice approved twice")
	}
	if _, err := decide(t.Context(), h.desk, id, approval.Approver{Name: "bob"}, approval.Approve, ""); err != nil {
		t.Error(err)
	}
	wantText(t, "answer", req.wait(t), "done hold_two_x")
}

// Held clients get a retryable answer at once when the gate stops, and their
// tasks are ended, since this store forgets (EC-TASK-016).
func TestShutdownWhileHeld(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_x", ""))
	h.pending(1)
	if err := h.desk.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantText(t, "answer", req.wait(t), `"code":-32013`)
}

// A modern client that asks for its task while the gate stops is told to try again by the
// status too, so that a balancer sends it to another replica.
func TestTaskDuringShutdown(t *testing.T) {
	var later atomic.Int64
	h := newFixture(t, func(_ *gate.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Durable, c.Now = true, func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	later.Store(int64(30 * time.Minute)) // so that its client is not there
	h.approve(task.ID(id))
	if err := h.desk.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	message, headers := about("tasks/get", id)
	get := h.send(message, headers...)
	wantText(t, "answer", get.wait(t), `"code":-32603`, `"shutting_down"`)
	if get.status != http.StatusServiceUnavailable {
		t.Errorf("status %d; want 503", get.status)
	}
}

// A client of 2025-11-25 that loses the stream of a held request resumes it,
// and only that client can.
func TestResumeHeldRequest(t *testing.T) {
	h := newFixture(t, nil)
	version := []string{"MCP-Protocol-Version", "2025-11-25"}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/mcp", strings.NewReader(toolCall("7", "hold_x", "")))
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": "s-1", version[0]: version[1],
	} {
		r.Header.Set(name, value)
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	first, err := jsonrpc.NewEventReader(resp.Body, 1<<20).Next()
	if err != nil || !first.HasID || len(first.Data) != 0 {
		t.Fatalf("first event %+v, %v; want a place to resume from", first, err)
	}
	resp.Body.Close()
	id := h.pending(1)[0]

	stranger := h.sendAs(http.MethodGet, "", "Last-Event-ID", first.ID, "Mcp-Session-Id", "s-2")
	if stranger.wait(t); stranger.status != http.StatusBadRequest {
		t.Errorf("somebody else resumed it: %d %s", stranger.status, stranger.body)
	}
	back := h.sendAs(http.MethodGet, "", append(version, "Last-Event-ID", first.ID)...)
	h.approve(id)
	wantText(t, "resumed", back.wait(t), `"id":7`, "done hold_x")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// decide looks at a call and then decides, as an approver does.
func decide(ctx context.Context, desk *approval.Desk, id task.ID, who approval.Approver, what approval.Decision, reason string) (task.Task, error) {
	r := approval.Ruling{Decision: what, Reason: reason}
	if shown, err := desk.Cases().ShowAll(ctx, id); err == nil {
		r.Shown = shown.ShownDigest
	}
	return desk.Decide(ctx, id, who, r)
}
