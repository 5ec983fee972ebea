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
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A fixture is a gate that holds calls. Its upstream records the calls that it ran.
type fixture struct {
	*gateway

	t         *testing.T
	approvals *approval.Service
	catalog   *catalog.Catalog
	store     *memstore.Store
	waiting   conversation.Waiting
	texts     *keyring.Ring
	rules     *catalog.Settings

	mu      sync.Mutex
	ledger  []string
	asked   []string // queries of the requests
	heard   []string // requests to listen
	answer  func(w http.ResponseWriter, id string)
	record  func(body string) // may be nil
	tools   string            // the tools that the upstream lists, as JSON
	listing func()            // called before the tools are listed; may be nil

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
	if strings.HasPrefix(string(m.ID.Bytes), `"tg-`) { // a query of the gate
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

// define sets the upstream's tools, as JSON without brackets.
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

// newFixture starts a gate that forwards get_*, holds hold_* and denies everything else.
func newFixture(t *testing.T, adjust func(*catalog.Settings, *approval.Config, *conversation.Waiting)) *fixture {
	t.Helper()
	h := &fixture{t: t, store: memstore.New(memstore.Options{})}
	rules := &catalog.Settings{Policy: compile(t,
		policy.Rule{Match: "get_*", Action: policy.Forward},
		policy.Rule{Match: "hold_two_*", Action: policy.Approve, Workflow: "two"},
		policy.Rule{Match: "hold_*", Action: policy.Approve})}
	approvals := approval.Config{
		Store: h.store,
		Workflow: func(name string) (approval.Workflow, bool) {
			w := approval.Workflow{Timeout: time.Hour}
			if name == "two" {
				w.Quorum = 2
			}
			return w, true
		},
		Judge: func(c policy.Call) policy.Verdict { return h.catalog.Recheck(c) },
	}
	waiting := conversation.Waiting{Hold: testTimeout, HoldWithProgress: time.Hour, Heartbeat: 20 * time.Millisecond, Drafts: true}
	if adjust != nil {
		adjust(rules, &approvals, &waiting)
	}
	log := slog.New(slog.DiscardHandler)
	h.rules = rules
	h.catalog = catalog.New(rules, time.Now, log, nil)
	var err error
	if h.approvals, err = approval.New(approvals); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.approvals.Run(ctx) }()
	t.Cleanup(func() {
		_ = h.approvals.Close(context.Background())
		stop()
		<-done
		h.store.Close()
	})
	h.waiting = waiting
	h.gateway = startGate(t, serve(t, h.serve), func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Records, s.handler.Waiting = h.catalog, h.approvals, h.store, waiting
	})
	return h
}

// A request is sent without waiting for its answer.
type request struct {
	done   chan struct{}
	status int
	body   string
	broken bool // the body ended with an error
	cancel context.CancelFunc
}

// send sends a message as the client of a session, with additional headers as name and value in
// turn.
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
		if req.broken = err != nil; req.broken {
			req.body += err.Error()
		}
	}()
	return req
}

// wait returns the answer without event framing and comments.
func (r *request) wait(t *testing.T) string {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(2 * testTimeout):
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

// pending waits for n pending calls, and returns their task IDs.
func (h *fixture) pending(n int) []task.ID {
	h.t.Helper()
	var ids []task.ID
	eventually(h.t, fmt.Sprintf("%d calls are pending", n), func() bool {
		page, err := h.approvals.Viewer().Pending(h.t.Context(), review.Filter{})
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
	if _, err := decide(h.t.Context(), h.approvals, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err != nil {
		h.t.Fatal(err)
	}
}

func (h *fixture) reject(id task.ID, reason string) {
	h.t.Helper()
	if _, err := decide(h.t.Context(), h.approvals, id, approval.Approver{Name: "alice"}, approval.Reject, reason); err != nil {
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
func TestHeldRequestRunsAfterApproval(t *testing.T) {
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
				t.Errorf("ran %v; want the call once, unchanged", ran)
			}
		})
	}
}

// CORE-003 5.4: rejection, for both kinds of waiting.
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

// CORE-003 5.4: approval received, client disconnected.
func TestCallOfDisconnectedClientDoesNotRun(t *testing.T) {
	abandoned := make(chan struct{}, 1)
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Observe = func(_ context.Context, e approval.Event) {
			if e.Step == approval.OwnerAbsent {
				abandoned <- struct{}{}
			}
		}
	})
	req := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	req.cancel()
	<-req.done
	eventually(t, "the gate notices the disconnect", func() bool {
		return strings.Contains(scrape(h.gateway), `thoughtgate_mcp_requests_total{method="tools/call",status="error"} 1`)
	})
	h.approve(id)
	<-abandoned
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}

	// The client repeats the call and gets the approved one.
	wantText(t, "retry", h.ask(toolCall("8", "hold_x", "")), `"id":8`, "done hold_x")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// After the wait, the client is told to call again. An identical call attaches, first to the
// decision and then to the result, and only once.
func TestPendingAnswerAndAttach(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 30 * time.Millisecond })
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

// A slowStore answers waiting readers only when their time is over.
type slowStore struct {
	gatestore.Store

	slow atomic.Bool
}

// Get implements [task.Store].
func (s *slowStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if _, bounded := ctx.Deadline(); bounded && s.slow.Load() {
		<-ctx.Done()
		return task.Task{}, ctx.Err()
	}
	return s.Store.Get(ctx, ref)
}

// The client is told to call again, and finds its call.
func TestShortWaitFindsCall(t *testing.T) {
	var store slowStore
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		store.Store = c.Store
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

// askUntil repeats the request while the client is told to call again, and checks that the
// final answer contains a text.
func (h *fixture) askUntil(want string, ask func() string) {
	h.t.Helper()
	answer := ""
	eventually(h.t, want, func() bool {
		answer = ask()
		return !strings.Contains(answer, `"requestState"`) && !strings.Contains(answer, "Call the tool again")
	})
	wantText(h.t, "the answer", answer, want)
}

// notifications/cancelled withdraws only the client's own request.
func TestCancelHeldRequest(t *testing.T) {
	h := newFixture(t, nil)
	req := h.sendHeld(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	h.ask(cancelled, "Mcp-Session-Id", "s-2") // another session: forwarded
	h.pending(1)
	other := h.send(cancelled)
	wantNoAnswer(t, req, "7")
	other.wait(t)
	if _, err := decide(t.Context(), h.approvals, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err == nil {
		t.Error("a cancelled call was approved")
	}
	if ran := h.ran(); slices.Contains(ran, `hold_x {"x":1}`) {
		t.Errorf("ran %v", ran)
	}
}

func TestTightenedPolicyStopsHeldCall(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	h.catalog.Configure(&catalog.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})})
	h.approve(id)
	wantText(t, "answer", req.wait(t), `"code":-32011`, "policy_drift", "did not run")
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

func TestQuorumNeedsTwoApprovers(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_two_x", ""))
	id := h.pending(1)[0]
	h.approve(id)
	if _, err := decide(t.Context(), h.approvals, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err == nil {
		t.Error("alice approved twice")
	}
	if _, err := decide(t.Context(), h.approvals, id, approval.Approver{Name: "bob"}, approval.Approve, ""); err != nil {
		t.Error(err)
	}
	wantText(t, "answer", req.wait(t), "done hold_two_x")
}

// EC-TASK-016: held clients get a retryable answer at shutdown. Their tasks end, since this
// store is not persistent.
func TestShutdownWhileHeld(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_x", ""))
	h.pending(1)
	if err := h.approvals.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantText(t, "answer", req.wait(t), `"code":-32013`)
}

// A modern client that requests its task during shutdown gets a retryable status, so that a
// load balancer tries another replica.
func TestTaskDuringShutdown(t *testing.T) {
	var later atomic.Int64
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Durable, c.Now = true, func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	later.Store(int64(30 * time.Minute)) // so that the client counts as absent
	h.approve(task.ID(id))
	if err := h.approvals.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	message, headers := about("tasks/get", id)
	get := h.send(message, headers...)
	wantText(t, "answer", get.wait(t), `"code":-32603`, `"shutting_down"`)
	if get.status != http.StatusServiceUnavailable {
		t.Errorf("status %d; want 503", get.status)
	}
}

// A 2025-11-25 client resumes the stream of its held request. Other clients cannot.
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
		t.Fatalf("first event %+v, %v; want an event ID", first, err)
	}
	resp.Body.Close()
	id := h.pending(1)[0]

	other := h.sendAs(http.MethodGet, "", "Last-Event-ID", first.ID, "Mcp-Session-Id", "s-2")
	if other.wait(t); other.status != http.StatusBadRequest {
		t.Errorf("another session resumed the stream: %d %s", other.status, other.body)
	}
	back := h.sendAs(http.MethodGet, "", append(version, "Last-Event-ID", first.ID)...)
	h.approve(id)
	wantText(t, "resumed", back.wait(t), `"id":7`, "done hold_x")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// decide views a call and decides it, as an approver does.
func decide(ctx context.Context, approvals *approval.Service, id task.ID, who approval.Approver, what approval.Decision, reason string) (task.Task, error) {
	r := approval.Ruling{Decision: what, Reason: reason}
	if shown, err := approvals.Viewer().ShowAll(ctx, id); err == nil {
		r.Shown = shown.ShownDigest
	}
	return approvals.Decide(ctx, id, who, r)
}

// A client that attaches to a running call gets the answer in the form that its headers
// announce.
func TestAnswerOfRunningCallHasItsForm(t *testing.T) {
	h := newFixture(t, nil)
	answer := make(chan struct{})
	h.answer = func(w http.ResponseWriter, id string) {
		<-answer
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, id)
	}
	first := h.send(toolCall("7", "hold_x", ""))
	h.approve(h.pending(1)[0])
	eventually(t, "the call runs", func() bool { return len(h.ran()) == 1 })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/mcp", strings.NewReader(toolCall("8", "hold_x", "")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {"s-1"}}
	time.AfterFunc(10*time.Millisecond, func() { close(answer) })
	resp, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := readBody(t, resp)
	if events := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"); events == strings.HasPrefix(body, "{") {
		t.Errorf("%s: %s", resp.Header.Get("Content-Type"), body)
	}
	wantText(t, "the first client", first.wait(t), "done")
}
