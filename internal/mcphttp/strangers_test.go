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

// nobody are the headers of a client that shows neither session nor credentials.
var nobody = []string{"Mcp-Session-Id", ""}

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/hello\"}\n\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// Clients that cannot be told apart use the same ids, and must not withdraw
// each other's requests.
func TestStrangerCancelsNothing(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("1", "hold_x", ""), nobody...)
	id := h.pending(1)[0]
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	h.ask(cancelled, nobody...)
	h.pending(1)

	// A modern client cannot cancel that way either, not even what it may share
	// credentials with.
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

// The id of a task that anybody with the id may use is not told to anybody.
func TestStrangerHearsNothing(t *testing.T) {
	h := newFixture(t, nil)
	h.get = hello
	next := h.stream(t, http.MethodGet, "", nobody...)
	wantText(t, "the upstream's", next(), "notifications/hello")
	for range 100 { // by the end of which they would have been told of the first
		id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`), nobody...))
		h.reject(task.ID(id), "no")
	}
	h.hub.ListsChanged()
	if got := next(); !strings.Contains(got, "list_changed") {
		t.Errorf("a stranger was told %s", got)
	}
}

// Everybody who listens is told of changed lists, also those who look the same.
func TestStrangersHearOfLists(t *testing.T) {
	h := newFixture(t, nil)
	h.get = hello
	var listening []func() string
	for range 3 {
		next := h.stream(t, http.MethodGet, "", nobody...)
		wantText(t, "the upstream's", next(), "notifications/hello")
		listening = append(listening, next)
	}
	h.hub.ListsChanged()
	for _, next := range listening {
		wantText(t, "stranger", next(), "notifications/tools/list_changed")
	}
}

// Strangers' calls are never the same call, and what one was shown finds
// nothing of another's but with the id.
func TestStrangersDoNotShare(t *testing.T) {
	h := newFixture(t, nil)
	a := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`), nobody...))
	b := taskID(t, h.ask(toolCall("1", "hold_x", `,"task":{}`), nobody...))
	if a == b {
		t.Error("two clients share a task")
	}
	list := h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`, nobody...)
	if strings.Contains(list, a) || strings.Contains(list, b) {
		t.Errorf("anybody can list: %s", list)
	}
	h.approve(task.ID(a))
	wantText(t, "a", h.ask(legacyAbout("tasks/result", a), nobody...), "done hold_x")
	wantText(t, "b", h.ask(legacyAbout("tasks/get", b), nobody...), "Waiting for approval")
}

// A brokenPipe takes the beginning of an answer and then no more, while the
// request goes on.
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

// A modern client whose connection fails has withdrawn its call, however the
// gate comes to know of it.
func TestBrokenPipeWithdraws(t *testing.T) {
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

// Of two modern clients with the same credentials and the same call, one that
// leaves takes only itself away.
func TestOneOfTwoLeaves(t *testing.T) {
	h := newFixture(t, nil)
	left := h.begin(t, modernCall("hold_x", ""), modernHeaders("hold_x")...)
	stays := h.begin(t, modernCall("hold_x", ""), modernHeaders("hold_x")...)
	id := h.pending(1)[0]
	left.Body.Close()
	eventually(t, "the gate notices", func() bool {
		return strings.Contains(scrape(h.gateway), `thoughtgate_mcp_requests_total{method="tools/call",status="error"} 1`)
	})
	h.approve(id)
	wantText(t, "the one who stays", readBody(t, stays), "done hold_x")
	h.wantRan(`hold_x {"x":1}`)
}

// The last thing that a client is told of a task is true.
func TestStatusInOrder(t *testing.T) {
	const tasks = 300
	h := newFixture(t, nil)
	h.get = hello
	next := h.stream(t, http.MethodGet, "")
	wantText(t, "the upstream's", next(), "notifications/hello")
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
			t.Errorf("after the end of a task its client was told %s", message)
		}
	}
	<-done
}

// A panic while a held call is made is no crash, and nobody is told more than
// is known.
func TestPanicWhileCalling(t *testing.T) {
	h := newFixture(t, nil)
	h.gateway = startGate(t, "http://127.0.0.1:1", func(s settings) {
		s.upstream.URL = nil
		s.handler.Gate, s.handler.Desk, s.handler.Waiting = h.gate, h.desk, conversation.Waiting{Hold: time.Minute, Beat: time.Second}
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
