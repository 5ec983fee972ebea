package mcphttp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// raw sends a message with exactly the given headers, and returns status and body.
func (h *fixture) raw(message string, lines ...[2]string) (int, string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, line := range lines {
		r.Header.Add(line[0], line[1])
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Headers that gate and upstream could read differently are refused, and the upstream gets
// nothing.
func TestAmbiguousHeaders(t *testing.T) {
	tests := []struct {
		name  string
		lines [][2]string
	}{
		{"two sessions", [][2]string{{"Mcp-Session-Id", "a"}, {"Mcp-Session-Id", "b"}}},
		{"two credentials", [][2]string{{"Authorization", "Bearer a"}, {"Authorization", "Bearer b"}}},
		{"second encoding", [][2]string{{"Content-Encoding", "identity"}, {"Content-Encoding", "deflate"}}},
		{"list of encodings", [][2]string{{"Content-Encoding", "identity, deflate"}}},
		{"two types", [][2]string{{"Content-Type", "text/plain"}}},
		{"session for the gate only", [][2]string{{"Mcp-Session-Id", "a"}, {"Connection", "keep-alive, mcp-session-id"}}},
		{"credentials for the gate only", [][2]string{{"Authorization", "Bearer a"}, {"Connection", "Authorization"}}},
		{"type for the gate only", [][2]string{{"Connection", "content-type"}}},
		{"proxy's name for the gate only", [][2]string{{"X-Forwarded-User", "a"}, {"Connection", "close, x-forwarded-user"}}},
		{"credential for the gate only", [][2]string{{"Cookie", "a=b"}, {"Connection", "cookie"}}},
		{"any header for the gate only", [][2]string{{"X-Custom", "a"}, {"Connection", "x-custom"}}},
		{"session by another spelling", [][2]string{{"Mcp-Session-Id", "a"}, {"Mcp_Session_Id", "b"}}},
		{"session only by another spelling", [][2]string{{"Mcp_session-id", "b"}}},
		{"encoding by another spelling", [][2]string{{"Content_Encoding", "deflate"}}},
		{"type by another spelling", [][2]string{{"Content.Type", "text/plain"}}},
		{"credentials by another spelling", [][2]string{{"X-Api-Key", "a"}, {"X_Api_Key", "b"}}},
		{"configured header by another spelling", [][2]string{{"X_Tenant", "b"}}},
		{"any header in two spellings", [][2]string{{"X-Forwarded-User", "a"}, {"X_forwarded_user", "b"}}},
		{"another method", [][2]string{{"Mcp-Method", "ping"}}},
		{"another name", [][2]string{{"Mcp-Name", "get_y"}}},
		{"two names", [][2]string{{"Mcp-Name", "get_x"}, {"Mcp-Name", "get_y"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.gateway = startGate(t, h.target, func(s settings) {
				s.handler.Catalog, s.handler.Approvals = h.catalog, h.approvals
				s.upstream.Headers = http.Header{"X-Tenant": {"a"}}
			})
			status, body := h.raw(toolCall("1", "get_x", ""), tt.lines...)
			if status < 400 || status >= 500 {
				t.Errorf("status %d, body %s; want it refused", status, body)
			}
			wantText(t, "answer", body, `"correlation_id"`)
			if ran := h.ran(); len(ran) != 0 {
				t.Errorf("ran %v; want nothing", ran)
			}
		})
	}
}

func TestUnambiguousHeadersPass(t *testing.T) {
	h := newFixture(t, nil)
	for _, lines := range [][][2]string{
		{{"Mcp-Method", "tools/call"}, {"Mcp-Name", "get_x"}},
		{{"X_Request_Id", "a"}, {"Mcp-Session-Id", "b"}},
	} {
		if status, body := h.raw(toolCall("1", "get_x", ""), lines...); status != http.StatusOK {
			t.Errorf("%v: %d %s", lines, status, body)
		}
	}
}

// Headers that name one method or name contradict the rest of the batch.
func TestBatchWithMirroredHeadersIsRefused(t *testing.T) {
	h := newFixture(t, nil)
	for _, name := range []string{"Mcp-Method", "Mcp-Name"} {
		_, body := h.raw(batch(toolCall("1", "get_x", "")), [2]string{name, "tools/call"})
		wantText(t, name, body, `"error_type":"header_mismatch"`)
	}
	h.wantRan()
}

func TestDisguisedCallsObeyPolicy(t *testing.T) {
	denied := func(s string) string { return strings.ReplaceAll(s, "NAME", "drop_all") }
	tests := []struct{ name, message string }{
		{"escaped method", denied(`{"jsonrpc":"2.0","id":1,"method":"t\u006fols\/call","params":{"name":"NAME"}}`)},
		{"escaped member", denied(`{"jsonrpc":"2.0","id":1,"m\u0065thod":"tools/call","params":{"n\u0061me":"NAME"}}`)},
		{"notification", denied(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"NAME"}}`)},
		{"null id", denied(`{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"NAME"}}`)},
		{"batch of one", denied(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"NAME"}}]`)},
		{"batch of notifications", denied(`[{"jsonrpc":"2.0","method":"tools/call","params":{"name":"NAME"}}]`)},
		{"params by position", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["NAME",{}]}`)},
		{"name in an array", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["NAME"]}}`)},
		{"no name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`},
		{"empty name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":""}}`},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`},
		{"two names", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","name":"NAME"}}`)},
		{"two methods", denied(`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"NAME"}}`)},
		{"name in another case", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","Name":"NAME"}}`)},
		{"name with a long s", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","argument` + "\u017f" + `":{}}}`)},
		{"request and response", denied(`{"jsonrpc":"2.0","id":1,"result":{},"method":"tools/call","params":{"name":"NAME"}}`)},
		{"two messages", denied(`{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"NAME"}}`)},
		{"sealed state without a client", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"NAME","requestState":"tg1.AAAA"}}`)},
		{"name of a tool that passes, as seen by C", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"NAME\u0000get_x"}}`)},
		{"two names, as seen by C", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name\u0000":"NAME","name":"get_x"}}`)},
		{"two methods, as seen by C", denied(`{"jsonrpc":"2.0","id":1,"method\u0000":"tools/call","method":"ping","params":{"name":"NAME"}}`)},
		{"two params, as seen by C", denied(`{"jsonrpc":"2.0","id":1,"params\u0000x":{"name":"NAME"},"method":"tools/call","params":{"name":"get_x"}}`)},
		{"held as a notification", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"hold_x"}}`},
		{"task of a denied tool", denied(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"NAME","task":{}}}`)},
	}
	h := newFixture(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			answer := h.ask(tt.message)
			if ran := h.ran(); len(ran) != 0 {
				t.Fatalf("ran %v, answered %s", ran, answer)
			}
			if !strings.Contains(answer, `"error"`) && !strings.Contains(answer, "Denied by policy") && answer != "" {
				t.Errorf("answered %s", answer)
			}
		})
	}
	h.pending(0)
}

// The surroundings of the message stay unchanged.
func TestCursorIsReplacedInPlace(t *testing.T) {
	var got []string
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, string(body))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":8,"result":{"tasks":[],"nextCursor":"theirs"}}`)
	})
	h := newFixture(t, nil)
	g := startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{}
	})
	h.gateway = g
	h.catalog.LearnHandshake(t.Context(), catalog.Client{Upstream: "test", Key: "session s-1"}, catalog.Handshake{Tasks: true, ListTasks: true, Session: met})
	for _, want := range []string{
		`{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"x":1}}`,
		`{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"cursor":"theirs","x":1}}`,
	} {
		list := `{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"cursor":"CURSOR","x":1}}`
		first := strings.Replace(list, `"cursor":"CURSOR",`, "", 1)
		asked := first
		if strings.Contains(want, "theirs") {
			asked = strings.Replace(list, "CURSOR", cursorIn(t, h.ask(first)), 1)
		}
		got = nil
		wantText(t, "padded", h.ask(" \n\t"+asked+"  "), `"result"`)
		if diff := cmp.Diff([]string{want}, got); diff != "" {
			t.Errorf("the upstream got (-want +got):\n%s", diff)
		}
	}
}

func cursorIn(t *testing.T, answer string) string {
	t.Helper()
	_, rest, ok := strings.Cut(answer, `"nextCursor":"`)
	cursor, _, _ := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("no cursor in %s", answer)
	}
	return cursor
}

func TestRequiredTaskWithoutListedTools(t *testing.T) {
	h := newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) {
		s.ForceRequired = []string{"get_x", "hold_x"}
	})
	for _, name := range []string{"get_x", "hold_x"} {
		wantText(t, name, h.ask(toolCall("1", name, "")), `"code":-32601`, `"task_required"`)
	}
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

// Client name and version are also used when policy is asked again.
func TestSessionCountsAtRecheck(t *testing.T) {
	h := newFixture(t, nil)
	h.catalog.LearnHandshake(t.Context(), catalog.Client{Upstream: "test", Key: "session s-1"}, catalog.Handshake{Session: policy.Session{Client: "rogue"}})
	req := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	tightened, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "*", Action: policy.AskPolicies}}, Default: policy.Rule{Action: policy.Deny},
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
		Cedar: []policy.Source{{Name: "p.cedar", Text: []byte(`@approval permit (principal, action, resource);
forbid (principal, action, resource) when { context.session has client && context.session.client == "rogue" };`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.catalog.Configure(&catalog.Settings{Policy: tightened})
	h.approve(id)
	wantText(t, "answer", req.wait(t), "policy_drift", "did not run")
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

// The upstream of the fixture complains about any task request.
func TestCallIsSentWithoutTaskRequest(t *testing.T) {
	h := newFixture(t, nil)
	call := toolCall("24", "hold_x", `,"task":{"ttl":1},`+modernMeta(tasksExtension))
	id := taskID(t, h.ask(call, modernHeaders("hold_x")...))
	h.approve(task.ID(id))
	message, headers := about("tasks/get", id)
	eventually(t, "the task has ended", func() bool {
		return strings.Contains(h.ask(message, headers...), `"status":"completed"`)
	})
}

func TestContactCannotChangeCall(t *testing.T) {
	var got *http.Request
	h := newFixture(t, nil)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"tools/list"`) {
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(string(body))+`,"result":{"tools":[]}}`)
			return
		}
		got = r.Clone(t.Context())
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(string(body))+`,"result":{"content":[]}}`)
	})
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Heartbeat: time.Second}
	})
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), append(modernHeaders("hold_x"), "Mcp-Param-Region", "eu")...))
	message, headers := about("tasks/get", id)
	headers = append(headers, "Mcp-Param-Region", "us", "Last-Event-ID", "1", "Content-Type", "application/json; charset=utf-8")
	h.ask(message, headers...)
	h.approve(task.ID(id))
	eventually(t, "the task has ended", func() bool {
		return strings.Contains(h.ask(message, headers...), `"status":"completed"`)
	})
	for name, want := range map[string]string{
		"Mcp-Method": "tools/call", "Mcp-Name": "hold_x", "Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Param-Region": "", "Last-Event-Id": "", "Content-Type": "application/json",
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("the upstream got %s: %q; want %q", name, value, want)
		}
	}
}

func TestUpstreamBatchAnswersAreKept(t *testing.T) {
	const object = `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
	tests := []struct {
		name, answer string
		want         []string
	}{
		{"array", "[" + object + "]", []string{object, `"task_not_found"`}},
		{"object", object, []string{object, `"task_not_found"`}},
		{"nothing", "", []string{`"upstream_invalid_response"`}},
		{"nonsense", "<html>", []string{`"upstream_invalid_response"`}},
		{"half an array", "[" + object, []string{`"upstream_invalid_response"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.answer = func(w http.ResponseWriter, _ string) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, tt.answer)
			}
			wantText(t, "batch", h.ask(batch(toolCall("1", "get_a", ""), askResult("2", "tg_none"))), tt.want...)
		})
	}
}

// 2025-03-26 has batches but no tasks.
func TestBatchIgnoresTaskRequests(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 1 })
	answer := h.ask(`[` + toolCall("1", "hold_a", `,"task":{}`) + `]`)
	wantText(t, "batch", answer, "has not run")
	if got := h.ask(`[` + toolCall("1", "hold_a", `,"task":{"ttl":0}`) + `]`); strings.Contains(got, "is being run") {
		t.Errorf("answered %s", got)
	}
}

func TestInvalidProgressTokensAreIgnored(t *testing.T) {
	for _, token := range []string{"null", "{\n\"a\":\n1}", "[]", "true"} {
		h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) {
			w.Hold = 100 * time.Millisecond
		})
		req := h.send(toolCall("1", "hold_x", `,"_meta":{"progressToken":`+token+`}`))
		wantText(t, token, req.wait(t), "has not run")
		if strings.Contains(req.body, "notifications/progress") {
			t.Errorf("progress was sent to %s: %s", token, req.body)
		}
	}
}

// In a session, 404 would mean that the session has ended.
func TestUpstreamErrorVerbatim(t *testing.T) {
	const theirs = `{"code":-32050,"message":"no","data":{"error_type":"x","n":1.0},"more":[1]}`
	for _, status := range []int{200, 400, 404} {
		h := newFixture(t, nil)
		h.answer = func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, id, theirs)
		}
		req := h.send(toolCall("7", "hold_x", ""), unidentified...)
		h.approve(h.pending(1)[0])
		wantText(t, "held request", req.wait(t), `"error":`+theirs)
		id := taskID(t, h.ask(toolCall("3", "hold_y", `,"task":{}`), unidentified...))
		h.approve(task.ID(id))
		wantText(t, "tasks/result", h.ask(legacyAbout("tasks/result", id), unidentified...), `"error":`+theirs)
		if strings.Contains(scrape(h.gateway), `"x"`) {
			t.Error("a metric has text of the upstream as a label")
		}
	}
}

// A modern notification without metadata passes a gate with tracing.
func TestTracedNotification(t *testing.T) {
	collector := serve(t, func(http.ResponseWriter, *http.Request) {})
	traces, err := tracing.New(tracing.Config{Endpoint: collector, Sample: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = traces.Close(t.Context()) })
	g := startGate(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }),
		func(s settings) { s.handler.Tracing = traces })
	for _, message := range []string{`{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","method":"notifications/x","params":[]}`} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(message))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		resp, err := g.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Errorf("%s: status %d", message, resp.StatusCode)
		}
	}
}

func TestRemovedPolicyStopsHeldCalls(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("7", "hold_x", ""))
	id := h.pending(1)[0]
	governed := &catalog.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})}
	stop := make(chan struct{})
	flipping := make(chan struct{})
	go func() {
		defer close(flipping)
		for {
			select {
			case <-stop:
				return
			default:
				h.catalog.Configure(new(catalog.Settings))
				h.catalog.Configure(governed)
			}
		}
	}()
	for range 200 {
		if answer := h.ask(toolCall("1", "get_x", "")); strings.Contains(answer, "internal_error") {
			t.Errorf("answered %s", answer)
			break
		}
	}
	close(stop)
	<-flipping
	h.catalog.Configure(new(catalog.Settings))
	h.approve(id)
	wantText(t, "held", req.wait(t), "policy_drift", "did not run")
	if ran := h.ran(); slices.Contains(ran, `hold_x {"x":1}`) {
		t.Errorf("ran %v", ran)
	}
}

func TestRepeatedBatchGetsOutcome(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 1 })
	h.batch = newBatchFixture(t, tellArray).batch
	batch := func(name string) string { return `[` + toolCall("1", name, "") + `]` }
	wantText(t, "first", h.ask(batch("hold_a")), "has not run")
	h.reject(h.pending(1)[0], "no")
	wantText(t, "rejected", h.ask(batch("hold_a")), `"code":-32007`, "did not run")
	wantText(t, "a new call", h.ask(batch("hold_a")), "has not run")
	h.reject(h.pending(1)[0], "no")

	wantText(t, "first", h.ask(batch("hold_b")), "has not run")
	h.approve(h.pending(1)[0])
	eventually(t, "the result is available", func() bool { return strings.Contains(h.ask(batch("hold_b")), "done hold_b") })
	if n := h.times("hold_b"); n != 1 {
		t.Errorf("ran %d times", n)
	}
	wantText(t, "a new call", h.ask(batch("hold_b")), "has not run")
}

// design 12: the shutdown status must not end sessions.
func TestShutdownStatusKeepsSessions(t *testing.T) {
	h := newFixture(t, nil)
	if err := h.approvals.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, capabilities := range []string{"", tasksExtension} {
		req := h.send(modernCall("hold_x", capabilities), modernHeaders("hold_x")...)
		wantText(t, "modern", req.wait(t), `"code":-32603`, `"shutting_down"`, `"correlation_id"`)
		if req.status != http.StatusServiceUnavailable {
			t.Errorf("status %d; want 503", req.status)
		}
	}
	req := h.send(toolCall("1", "hold_x", ""))
	wantText(t, "legacy", req.wait(t), `"code":-32013`)
	if req.status != http.StatusOK {
		t.Errorf("status %d; want 200", req.status)
	}
}

// The headers of a held call depend neither on other members of the message nor on the request
// that starts it.
func TestHeadersMirrorHeldCall(t *testing.T) {
	h := newFixture(t, nil)
	headers := make(chan http.Header, 1)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") {
			headers <- r.Header.Clone()
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(string(body))+`,"result":{"content":[]}}`)
	})
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Hold: time.Minute, Heartbeat: time.Second}
	})
	modern := h.send(toolCall("24", "hold_x", `,"uri":"get_x","taskId":"get_x",`+modernMeta("")), modernHeaders("hold_x")...)
	h.approve(h.pending(1)[0])
	if got := (<-headers).Get("Mcp-Name"); got != "hold_x" {
		t.Errorf("Mcp-Name is %q; want the tool", got)
	}
	wantText(t, "modern", modern.wait(t), `"result"`)

	// A legacy call, and a contact by the same client in the modern era.
	id := taskID(t, h.ask(toolCall("24", "hold_y", `,"task":{}`), "Mcp-Session-Id", "", "Authorization", "Bearer agent"))
	message, contact := about("tasks/get", id)
	h.ask(message, contact...)
	h.approve(task.ID(id))
	h.ask(message, contact...)
	got := <-headers
	for _, name := range []string{"Mcp-Name", "Mcp-Method", "Mcp-Protocol-Version"} {
		if value, ok := got[name]; ok {
			t.Errorf("%s is %q; a legacy call has none", name, value)
		}
	}
}
