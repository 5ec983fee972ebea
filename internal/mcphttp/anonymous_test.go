package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// unidentified has the headers of a client without session and credentials.
var unidentified = []string{"Mcp-Session-Id", ""}

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/hello\"}\n\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// Anonymous clients use equal request IDs.
func TestAnonymousClientsCannotCancelEachOther(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("1", "hold_x", ""), unidentified...)
	id := h.pending(1)[0]
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	h.ask(cancelled, unidentified...)
	h.pending(1)

	// A modern client cannot cancel another one's request either, even with equal credentials.
	modern := h.send(strings.Replace(modernCall("hold_y", ""), `"id":24`, `"id":1`, 1), modernHeaders("hold_y")...)
	h.pending(2)
	h.ask(cancelled, "MCP-Protocol-Version", "2026-07-28", "Mcp-Session-Id", "", "Authorization", "Bearer agent")
	for _, pending := range h.pending(2) {
		h.approve(pending)
	}
	wantText(t, "held request", req.wait(t), "done hold_x")
	wantText(t, "modern", modern.wait(t), "done hold_y")
	if id == "" || len(h.ran()) != 4 { // two notifications among them
		t.Errorf("ran %v", h.ran())
	}
}

// Anyone with the ID may use such a task, so the ID must stay secret.
func TestTasksOfAnonymousClientsAreNotAnnounced(t *testing.T) {
	h := newFixture(t, nil)
	h.get = hello
	next := h.stream(t, http.MethodGet, "", unidentified...)
	wantText(t, "a notification of the upstream", next(), "notifications/hello")
	for range 100 { // long enough for a notification about the first task to arrive
		id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`), unidentified...))
		h.reject(task.ID(id), "no")
	}
	h.conversations.ListsChanged()
	if got := next(); !strings.Contains(got, "list_changed") {
		t.Errorf("another client got %s", got)
	}
}

// The gate notifies every anonymous client about list changes, also those with equal credentials.
func TestAnonymousClientsGetListChanges(t *testing.T) {
	h := newFixture(t, nil)
	h.get = hello
	var listening []func() string
	for range 3 {
		next := h.stream(t, http.MethodGet, "", unidentified...)
		wantText(t, "a notification of the upstream", next(), "notifications/hello")
		listening = append(listening, next)
	}
	h.conversations.ListsChanged()
	for _, next := range listening {
		wantText(t, "anonymous client", next(), "notifications/tools/list_changed")
	}
}

// Anonymous calls are never identical, and a client finds another one's task only by its ID.
func TestAnonymousCallsDoNotAttach(t *testing.T) {
	h := newFixture(t, nil)
	a := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`), unidentified...))
	b := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`), unidentified...))
	if a == b {
		t.Error("two clients share a task")
	}
	list := h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`, unidentified...)
	if strings.Contains(list, a) || strings.Contains(list, b) {
		t.Errorf("an anonymous client lists the task: %s", list)
	}
	h.approve(task.ID(a))
	wantText(t, "a", h.ask(legacyAbout("tasks/result", a), unidentified...), "done hold_x")
	wantText(t, "b", h.ask(legacyAbout("tasks/get", b), unidentified...), "Waiting for approval")
}

// A brokenPipe accepts the beginning of an answer and then fails, while the request continues.
type brokenPipe struct {
	http.ResponseWriter

	writes int
}

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.writes++; b.writes > 2 {
		return 0, io.ErrClosedPipe
	}
	return b.ResponseWriter.Write(p)
}

func (*brokenPipe) SetWriteDeadline(time.Time) error { return nil }
func (*brokenPipe) SetReadDeadline(time.Time) error  { return nil }
func (*brokenPipe) FlushError() error                { return nil }

// The gate may learn about the broken connection from a write or from the request context.
func TestBrokenConnectionWithdrawsModernCall(t *testing.T) {
	h := newFixture(t, nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(modernCall("hold_x", "")))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	headers := modernHeaders("hold_x")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Header.Del("Mcp-Session-Id")
	func() {
		defer func() {
			if cause := recover(); fmt.Sprint(cause) != fmt.Sprint(http.ErrAbortHandler) {
				t.Errorf("panicked with %v", cause)
			}
		}()
		h.handler.ServeHTTP(&brokenPipe{ResponseWriter: httptest.NewRecorder()}, r)
	}()
	h.pending(0)
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

// Two modern clients have equal credentials and the same call.
func TestLeavingClientWithdrawsOnlyItself(t *testing.T) {
	h := newFixture(t, nil)
	left := h.begin(t, modernCall("hold_x", ""), modernHeaders("hold_x")...)
	stays := h.begin(t, modernCall("hold_x", ""), modernHeaders("hold_x")...)
	id := h.pending(1)[0]
	left.Body.Close()
	eventually(t, "the gate notices the disconnect", func() bool {
		return strings.Contains(scrape(h.gateway), `thoughtgate_mcp_requests_total{method="tools/call",status="error"} 1`)
	})
	h.approve(id)
	wantText(t, "the remaining client", readBody(t, stays), "done hold_x")
	h.wantRan(`hold_x {"x":1}`)
}

func TestLastStatusIsCurrent(t *testing.T) {
	const tasks = 300
	h := newFixture(t, nil)
	h.get = hello
	next := h.stream(t, http.MethodGet, "")
	wantText(t, "a notification of the upstream", next(), "notifications/hello")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range tasks {
			answer := h.ask(toolCall("3", fmt.Sprintf("hold_%d", i), `,"task":{}`))
			_, rest, _ := strings.Cut(answer, `"taskId":"`)
			id, _, _ := strings.Cut(rest, `"`)
			_ = h.decide(task.ID(id), "alice", approval.Approve)
		}
	}()
	ended := make(map[string]bool)
	for len(ended) < tasks {
		message := next()
		id := taskID(t, message)
		if strings.Contains(message, `"status":"completed"`) {
			ended[id] = true
		} else if ended[id] {
			t.Errorf("after the end of a task its client got %s", message)
		}
	}
	<-done
}

// A panic during a held call does not crash the gate, and the client gets an answer that
// says only what is certain.
func TestPanicDuringCallIsContained(t *testing.T) {
	h := newFixture(t, nil)
	h.gateway = startGate(t, "http://127.0.0.1:1", func(s settings) {
		s.upstream.URL = nil
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Hold: time.Minute, Heartbeat: time.Second}
	})
	wantText(t, "forwarded", h.ask(toolCall("1", "get_x", "")), `"internal_error"`)
	unlisted := h.send(toolCall("1", "hold_x", ""))
	h.approve(h.pending(1)[0])
	wantText(t, "while its tool is looked up", unlisted.wait(t), `"error"`, "did not run")
	h.forgetTools() // the upstream has no tasks, so the tool need not be looked up
	req := h.send(toolCall("1", "hold_x", ""))
	h.approve(h.pending(1)[0])
	wantText(t, "held", req.wait(t), `"error"`, "may have run")
}
