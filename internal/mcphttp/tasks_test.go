package mcphttp_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const tasksExtension = `"extensions":{"io.modelcontextprotocol/tasks":{}}`

func modernMeta(capabilities string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{` + capabilities + `}}`
}

func modernCall(name, capabilities string) string {
	return toolCall("24", name, ","+modernMeta(capabilities))
}

func modernHeaders(name string) []string {
	return []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", name, "Mcp-Session-Id", "", "Authorization", "Bearer agent"}
}

// about returns a request of a modern client about a task, and its headers.
func about(method, id string) (string, []string) {
	message := `{"jsonrpc":"2.0","id":25,"method":"` + method + `","params":{"taskId":"` + id + `",` + modernMeta(tasksExtension) + `}}`
	headers := modernHeaders(id)
	headers[3] = method
	return message, headers
}

func legacyAbout(method, id string) string {
	return `{"jsonrpc":"2.0","id":5,"method":"` + method + `","params":{"taskId":"` + id + `"}}`
}

// EC-TASK-001, EC-TASK-002, EC-TASK-004, EC-TASK-005, EC-SEP-009, GOV-001 F-004.3: a legacy
// client creates a task, polls it, waits for the result while it is pending, and can fetch it
// again.
func TestLegacyTask(t *testing.T) {
	h := newFixture(t, nil)
	created := h.ask(toolCall("3", "hold_x", `,"task":{"ttl":60000}`))
	wantText(t, "create", created, `"id":3,"result":{"task":{`, `"status":"working"`, `"statusMessage":"Waiting for approval by default · tg_`,
		`"io.modelcontextprotocol/model-immediate-response":"The call is waiting for human approval."`, `"server.approval":{"state":"pending"`)
	if strings.Contains(created, `"ttl":60000,`) {
		t.Error("a ttl that does not cover the approval was not raised")
	}
	id := taskID(t, created)
	wantText(t, "get", h.ask(legacyAbout("tasks/get", id)), `"taskId":"`+id+`"`, `"status":"working"`, `"pollInterval":`)
	result := h.send(legacyAbout("tasks/result", id))
	h.approve(task.ID(id))
	for range 2 {
		wantText(t, "result", result.wait(t), `"id":5`, "done hold_x", `"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}`)
		result = h.send(legacyAbout("tasks/result", id))
	}
	wantText(t, "get", h.ask(legacyAbout("tasks/get", id)), `"status":"completed"`)
	if ran := h.ran(); !slices.Equal(ran, []string{`hold_x {"x":1}`}) {
		t.Errorf("ran %v; want the call once, unchanged", ran)
	}
}

// design 5: after approval, the owner's next request starts the call.
func TestTaskStartsOnContact(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.approve(task.ID(id)) // created a moment ago: the client counts as there
	eventually(t, "the task has ended", func() bool {
		return strings.Contains(h.ask(legacyAbout("tasks/get", id)), `"status":"completed"`)
	})
}

// EC-TASK-006: the reason has the form of each era.
func TestFailedTaskHasReason(t *testing.T) {
	upstreamError := func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":"no such user"}}`, id)
	}
	toolError := func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n"+
			"data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"bad id\"}],\"isError\":true}}\n\n", id)
	}
	refused := func(w http.ResponseWriter, _ string) { http.Error(w, "session not found", http.StatusNotFound) }
	broken := func(w http.ResponseWriter, _ string) { http.Error(w, "oops", http.StatusBadGateway) }
	asking := func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","inputRequests":{"q":{}}}}`, id)
	}
	tests := []struct {
		name                            string
		answer                          func(http.ResponseWriter, string)
		legacyGet, legacyResult, modern []string
	}{
		{"JSON-RPC error", upstreamError, []string{`"status":"failed"`}, []string{`"code":-32050`, "no such user"}, []string{`"status":"failed"`, `"error":{"code":-32050`}},
		{"tool error", toolError, []string{`"status":"failed"`}, []string{`"isError":true`, "bad id"}, []string{`"status":"completed"`, `"isError":true`, "bad id"}},
		{"refused by the upstream", refused, []string{`"status":"failed"`}, []string{`"code":-32002`}, []string{`"status":"failed"`, `"code":-32603`}},
		{"upstream asks back", asking, []string{`"status":"failed"`, "may have run"}, []string{`"code":-32002`, "may have run"}, []string{`"status":"input_required"`, `"inputRequests":{"q":{}}`}},
		{"upstream broken", broken, []string{`"status":"failed"`, "may have run"}, []string{`"code":-32002`, "may have run"}, []string{`"status":"failed"`, "may have run"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.answer = tt.answer
			id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
			h.approve(task.ID(id))
			wantText(t, "tasks/result", h.ask(legacyAbout("tasks/result", id)), tt.legacyResult...)
			wantText(t, "tasks/get", h.ask(legacyAbout("tasks/get", id)), tt.legacyGet...)

			modern := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
			h.approve(task.ID(modern))
			message, headers := about("tasks/get", modern)
			var answer string
			eventually(t, "the task has ended", func() bool {
				answer = h.ask(message, headers...)
				return !strings.Contains(answer, `"status":"working"`)
			})
			wantText(t, "modern", answer, tt.modern...)
		})
	}
}

// EC-TASK-003, EC-SEP-005, EC-SEP-006, EC-SEP-007, GOV-001 F-003.4 with the code of design 12:
// unknown, foreign and malformed IDs get the same answer.
func TestUnknownTasksLookAlike(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		unknown := h.ask(legacyAbout(method, "tg_00000000-0000-4000-8000-000000000000"))
		foreign := h.ask(legacyAbout(method, id), "Mcp-Session-Id", "s-2")
		malformed := h.ask(legacyAbout(method, "tg_x"))
		wantText(t, method, unknown, `"code":-32602`, `"task_not_found"`)
		if a, b := correlation.ReplaceAllString(unknown, ""), correlation.ReplaceAllString(foreign, ""); a != b {
			t.Errorf("%s distinguishes a task of another client from an unknown one:\n%s\n%s", method, a, b)
		}
		if a, b := correlation.ReplaceAllString(unknown, ""), correlation.ReplaceAllString(malformed, ""); a != b {
			t.Errorf("%s distinguishes a malformed id from an unknown one:\n%s\n%s", method, a, b)
		}
	}
	wantText(t, "its owner", h.ask(legacyAbout("tasks/get", id)), `"status":"working"`)
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("the upstream was asked about tasks that are not its own: %v", ran)
	}
}

// EC-TASK-007, EC-TASK-008, EC-SEP-008.
func TestCancelTask(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	wantText(t, "cancel", h.ask(legacyAbout("tasks/cancel", id)), `"status":"cancelled"`)
	wantText(t, "again", h.ask(legacyAbout("tasks/cancel", id)), `"code":-32602`)
	if _, err := decide(t.Context(), h.approvals, task.ID(id), approval.Approver{Name: "alice"}, approval.Approve, ""); err == nil {
		t.Error("a cancelled call was approved")
	}

	modern := taskID(t, h.ask(modernCall("hold_y", tasksExtension), modernHeaders("hold_y")...))
	message, headers := about("tasks/cancel", modern)
	for range 2 {
		wantText(t, "modern", h.ask(message, headers...), `"result":{"resultType":"complete"}`)
	}
	message, headers = about("tasks/get", modern)
	wantText(t, "modern get", h.ask(message, headers...), `"status":"cancelled"`)
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

// A modern task is durable before the answer, which has the modern form.
func TestModernTask(t *testing.T) {
	h := newFixture(t, nil)
	created := h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...)
	wantText(t, "create", created, `"id":24,"result":{"resultType":"task","taskId":"tg_`, `"status":"working"`, `"ttlMs":`, `"pollIntervalMs":`)
	id := taskID(t, created)
	message, headers := about("tasks/get", id)
	wantText(t, "get", h.ask(message, headers...), `"resultType":"complete"`, `"status":"working"`)
	h.approve(task.ID(id))
	var done string
	eventually(t, "the task has ended", func() bool {
		done = h.ask(message, headers...)
		return strings.Contains(done, `"status":"completed"`)
	})
	wantText(t, "result", done, "done hold_x")

	undeclared := h.send(strings.Replace(message, tasksExtension, "", 1), headers...)
	wantText(t, "without the extension", undeclared.wait(t), `"code":-32021`, `"requiredCapabilities"`)
	if undeclared.status != http.StatusBadRequest {
		t.Errorf("status %d; want 400", undeclared.status)
	}
	message, headers = about("tasks/result", id)
	removed := h.send(message, headers...)
	if wantText(t, "tasks/result", removed.wait(t), `"code":-32601`); removed.status != http.StatusNotFound {
		t.Errorf("status %d; want 404", removed.status)
	}
	message, headers = about("tasks/update", id)
	wantText(t, "tasks/update", h.ask(message, headers...), `"result":{"resultType":"complete"}`)
}

// otherDigit returns another base64 digit than r.
func otherDigit(r rune) rune {
	if r == 'A' {
		return 'Q'
	}
	return 'A'
}

// A modern client without tasks gets a sealed state and returns to the same task. After the
// last round it gets the pending answer.
func TestModernRounds(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 10 * time.Millisecond })
	headers := modernHeaders("hold_x")
	answer := h.ask(modernCall("hold_x", ""), headers...)
	wantText(t, "first round", answer, `"resultType":"input_required"`, `"inputRequests":{}`, `"requestState":"tg1.`)
	state := stateIn(t, answer)
	again := func(state string) string {
		return toolCall("26", "hold_x", `,"requestState":"`+state+`",`+modernMeta(""))
	}
	id := h.pending(1)[0]

	tampered := strings.TrimSuffix(state, state[len(state)/2:]) + strings.Map(otherDigit, state[len(state)/2:])
	wantText(t, "tampered", h.ask(again(tampered), headers...), `"code":-32602`)
	other := slices.Clone(headers)
	other[9] = "Bearer other"
	wantText(t, "another client", h.ask(again(state), other...), `"code":-32602`)
	wantText(t, "other arguments", h.ask(strings.Replace(again(state), `"x":1`, `"x":2`, 1), headers...), `"code":-32602`)
	h.pending(1)

	rounds := 1
	for ; strings.Contains(answer, "requestState"); rounds++ {
		state = stateIn(t, answer)
		answer = h.ask(again(state), headers...)
	}
	wantText(t, "last round", answer, `"isError":true`, "has not run")
	if rounds > 11 {
		t.Errorf("%d rounds; clients give up after 11", rounds)
	}
	h.approve(id)
	h.askUntil("done hold_x", func() string { return h.ask(again(state), headers...) })
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

func stateIn(t *testing.T, answer string) string {
	t.Helper()
	_, rest, ok := strings.Cut(answer, `"requestState":"`)
	state, _, _ := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("no state in %s", answer)
	}
	return state
}

func TestModernDisconnectWithdraws(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(modernCall("hold_x", ""), modernHeaders("hold_x")...)
	id := h.pending(1)[0]
	req.cancel()
	<-req.done
	eventually(t, "the task is cancelled", func() bool {
		got, err := h.store.Get(t.Context(), task.AnyOwner().Ref(id))
		return err == nil && got.State == task.Cancelled
	})
}

// EC-TASK-010, EC-TASK-011, CORE-007 F-006.6: a client lists its own tasks page by page, and
// then the upstream's, which begin on the gate's last page. Cursors belong to one client.
func TestListTasks(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) { c.Limits.PerOwner = 100 })
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tasks":[{"taskId":"up-1"}],"nextCursor":"theirs"}}`, id)
	}
	h.catalog.LearnHandshake(t.Context(), catalog.Client{Upstream: "test", Key: "session s-1"}, catalog.Handshake{Tasks: true, ListTasks: true, Session: met})
	for i := range 25 {
		h.ask(toolCall("3", fmt.Sprintf("hold_%d", i), `,"task":{}`))
	}
	h.ask(toolCall("3", "hold_foreign", `,"task":{}`), "Mcp-Session-Id", "s-2")
	list := func(cursor string) string {
		params := "{}"
		if cursor != "" {
			params = `{"cursor":"` + cursor + `"}`
		}
		return `{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":` + params + `}`
	}
	next := func(page string) string {
		_, rest, _ := strings.Cut(page, `"nextCursor":"`)
		cursor, _, _ := strings.Cut(rest, `"`)
		return cursor
	}
	first := h.ask(list(""))
	second := h.ask(list(next(first)))
	third := h.ask(list(next(second)))
	if a, b := strings.Count(first, `"taskId":"tg_`), strings.Count(second, `"taskId":"tg_`); a != 20 || b != 5 {
		t.Errorf("pages of %d and %d tasks; want 20 and 5", a, b)
	}
	wantText(t, "the upstream's first", second, `"up-1"`)
	wantText(t, "the upstream's second", third, `"up-1"`)
	if strings.Contains(second+third, "theirs") {
		t.Error("the upstream's cursor is not sealed")
	}
	wantText(t, "the upstream's next", h.ask(list(next(third))), `"up-1"`)
	inBatch := h.ask(batch(list(next(h.ask(batch(list("")))))))
	if n := strings.Count(inBatch, `"taskId":"tg_`); n != 5 || !strings.Contains(inBatch, `"up-1"`) {
		t.Errorf("in a batch the second page is %s; want 5 tasks of the gate and those of the upstream", inBatch)
	}
	wantText(t, "the upstream's in a batch", h.ask(batch(list(next(inBatch)))), `"error_type":"invalid_request"`, "by itself")
	wantText(t, "the upstream's after a batch", h.ask(list(next(inBatch))), `"up-1"`)
	wantText(t, "forged cursor in a batch", h.ask(batch(list("tg1.AAAA"))), `"code":-32602`)
	wantText(t, "foreign cursor", h.ask(list(next(first)), "Mcp-Session-Id", "s-2"), `"code":-32602`)
	wantText(t, "forged cursor", h.ask(list("tg1.AAAA")), `"code":-32602`)
	wantText(t, "foreign list", h.ask(list(""), "Mcp-Session-Id", "s-2"), `"taskId":"tg_`)
	if n := strings.Count(h.ask(list(""), "Mcp-Session-Id", "s-2"), `"taskId":"tg_`); n != 1 {
		t.Errorf("the other client sees %d tasks; want its own one", n)
	}
}

// met is the handshake of client and upstream.
var met = policy.Session{Protocol: "2025-11-25"}

// CORE-007 F-006.5: a client without tasks of the gate sees the upstream's on the first page.
// If the upstream cannot list tasks, the client gets the gate's tasks and no cursor.
func TestListTasksOfUpstream(t *testing.T) {
	const listed = `{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`
	reply := func(status int, kind, body string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, strings.ReplaceAll(body, "ID", id))
		}
	}
	tasks := `{"jsonrpc":"2.0","id":ID,"result":{"tasks":[{"taskId":"up-1"},{"taskId":"tg_forged"}]}}`
	tests := []struct {
		name   string
		facts  catalog.Handshake
		answer func(http.ResponseWriter, string)
		want   string // of the upstream's
	}{
		{"JSON", catalog.Handshake{Tasks: true, ListTasks: true, Session: met}, reply(200, "application/json", tasks), "up-1"},
		{"events", catalog.Handshake{Tasks: true, ListTasks: true, Session: met}, reply(200, "text/event-stream", "data: "+tasks+"\n\n"), "up-1"},
		{"never met", catalog.Handshake{}, reply(200, "application/json", tasks), "up-1"},
		{"without tasks/list", catalog.Handshake{Tasks: true, Session: met}, reply(200, "application/json", tasks), ""},
		{"method not found", catalog.Handshake{Tasks: true, ListTasks: true, Session: met}, reply(200, "application/json",
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"Method not found"}}`), ""},
		{"server error", catalog.Handshake{Tasks: true, ListTasks: true, Session: met}, reply(500, "text/plain", "oops"), ""},
		{"nonsense", catalog.Handshake{Tasks: true, ListTasks: true, Session: met}, reply(200, "application/json", `{"tasks":`), ""},
		{"breaks off", catalog.Handshake{Tasks: true, ListTasks: true, Session: met}, func(http.ResponseWriter, string) {
			panic(http.ErrAbortHandler)
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.answer = tt.answer
			h.catalog.LearnHandshake(t.Context(), catalog.Client{Upstream: "test", Key: "session s-1"}, tt.facts)
			for _, own := range []int{0, 1} {
				if own > 0 {
					h.ask(toolCall("3", "hold_x", `,"task":{}`))
				}
				page := h.ask(listed)
				wantText(t, "a list", page, `"id":8`, `"result":{`, `"tasks":[`)
				if n := strings.Count(page, `"taskId":"tg_`); n != own || strings.Contains(page, "forged") {
					t.Errorf("%d of the gate's tasks, want %d: %s", n, own, page)
				}
				if got := strings.Contains(page, "up-1"); got != (tt.want != "") || strings.Contains(page, "nextCursor") {
					t.Errorf("the upstream's tasks are listed: %v, want %q and no cursor: %s", got, tt.want, page)
				}
			}
		})
	}
}

// EC-TASK-014, EC-TASK-015, GOV-001 F-009.1, F-009.5: limits on pending calls.
func TestTooManyPending(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Limits = task.Limits{PerOwner: 1, Total: 2}
	})
	h.ask(toolCall("1", "hold_a", `,"task":{}`))
	wantText(t, "per owner", h.ask(toolCall("1", "hold_b", `,"task":{}`)), `"code":-32009`, `"rate_limited"`, `"retry_after"`)
	h.ask(modernCall("hold_c", tasksExtension), modernHeaders("hold_c")...)
	wantText(t, "global", h.ask(toolCall("1", "hold_d", `,"task":{}`), "Mcp-Session-Id", "s-3"), `"code":-32009`, `"capacity_exceeded"`)
	wantText(t, "modern", h.ask(modernCall("hold_e", tasksExtension), modernHeaders("hold_e")...), `"isError":true`, "did not run")
}

// F-005.6, accelerated path: a task request for a forwarded tool becomes a task of the gate
// without approval if the upstream has no tasks.
func TestAcceleratedTask(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "get_x", `,"task":{"ttl":60000}`)))
	wantText(t, "result", h.ask(legacyAbout("tasks/result", id)), "done get_x")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

func TestStrictModeRequiresTask(t *testing.T) {
	h := newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) { s.TasksOnly = true })
	wantText(t, "legacy", h.ask(toolCall("3", "hold_x", "")), `"code":-32601`, `"task_required"`)
	modern := h.send(modernCall("hold_x", ""), modernHeaders("hold_x")...)
	wantText(t, "modern", modern.wait(t), `"code":-32021`, `"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	if modern.status != http.StatusBadRequest {
		t.Errorf("status %d; want 400", modern.status)
	}
	taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
}

// EC-SEP-003, CORE-003 F-003.2, CORE-007 F-004.3, F-004.5: a ttl above the maximum is reduced,
// reported to the client and logged; a ttl below the approval time is raised.
func TestTTLLimits(t *testing.T) {
	log := new(logBuffer)
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.MaxTTL, c.Log = 24*time.Hour, logging.New(log, "json", slog.LevelInfo)
	})
	wantText(t, "within the limit", h.ask(toolCall("1", "hold_a", `,"task":{"ttl":86400000}`)), `"ttl":86400000,`)
	if text := log.String(); strings.Contains(text, "time to live limited") {
		t.Errorf("log: %s; want no warning yet", text)
	}
	wantText(t, "too long", h.ask(toolCall("1", "hold_a", `,"task":{"ttl":999999999999}`)), `"ttl":86400000,`)
	wantText(t, "log", log.String(), `"level":"WARN","msg":"time to live limited"`)
	wantText(t, "too short", h.ask(toolCall("1", "hold_b", `,"task":{"ttl":1}`)), `"ttl":`)
	if created := h.ask(toolCall("1", "hold_c", `,"task":{"ttl":1}`)); strings.Contains(created, `"ttl":1,`) {
		t.Errorf("a ttl of 1 ms was granted: %s", created)
	}
}
