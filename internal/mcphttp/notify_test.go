package mcphttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// newListenedHouse is newHouse with a gate that tells clients of their tasks,
// and an upstream that has streams.
func newListenedHouse(t *testing.T) *house {
	var h *house
	h = newHouse(t, func(_ *gate.Settings, c *approval.Config, _ *mcphttp.Waiting) {
		c.Observe = func(ctx context.Context, e approval.Event) {
			if e.Task.ID != "" {
				h.handler.TaskChanged(ctx, e.Task)
			}
		}
	})
	return h
}

// stream opens a stream and returns a function that reads its next message.
func (h *house) stream(t *testing.T, method, message string, headers ...string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	return func() string {
		t.Helper()
		for {
			e, err := events.Next()
			if err != nil {
				t.Fatalf("the stream ended: %v", err)
			}
			if len(e.Data) > 0 {
				return string(e.Data)
			}
		}
	}
}

// F-006.3: a legacy client hears of its tasks on its GET stream, between the
// upstream's own events, and of nobody else's.
func TestStatusOnGetStream(t *testing.T) {
	h := newListenedHouse(t)
	h.get = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/hello\"}\n\ndata: {\"unfini")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	next := h.stream(t, http.MethodGet, "")
	other := h.stream(t, http.MethodGet, "", "Mcp-Session-Id", "s-2")
	wantText(t, "the upstream's", next(), "notifications/hello")
	wantText(t, "the upstream's", other(), "notifications/hello")

	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	wantText(t, "held", next(), `"method":"notifications/tasks/status"`, id, `"status":"working"`)
	h.reject(task.ID(id), "no")
	for message := ""; !strings.Contains(message, `"status":"failed"`); {
		message = next()
		wantText(t, "later", message, id)
	}

	foreign := taskID(t, h.ask(toolCall("3", "hold_y", `,"task":{}`), "Mcp-Session-Id", "s-2"))
	wantText(t, "the other client's own", other(), foreign)
}

// A modern client hears of the tasks it names, first how they stand, and only
// if they are its own.
func TestStatusOnSubscription(t *testing.T) {
	h := newListenedHouse(t)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	foreignHeaders := modernHeaders("hold_x")
	foreignHeaders[9] = "Bearer somebody else"
	foreign := taskID(t, h.ask(modernCall("hold_x", tasksExtension), foreignHeaders...))
	headers := modernHeaders("")
	headers[3] = "subscriptions/listen"
	listen := `{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":{"notifications":{"taskIds":["` + id + `","` + foreign + `"]},` + modernMeta(tasksExtension) + `}}`

	next := h.stream(t, http.MethodPost, listen, headers...)
	acknowledged := next()
	wantText(t, "acknowledgement", acknowledged, `"notifications/subscriptions/acknowledged"`, `"taskIds":["`+id+`"]`, `"io.modelcontextprotocol/subscriptionId":"l1"`)
	wantText(t, "how it stands", next(), `"method":"notifications/tasks"`, id, `"status":"working"`)
	h.approve(task.ID(id)) // the subscription counts as contact, so it runs
	last := ""
	for !strings.Contains(last, `"status":"completed"`) {
		last = next()
		wantText(t, "later", last, id, `"io.modelcontextprotocol/subscriptionId":"l1"`)
	}
	wantText(t, "result", last, "done hold_x")

	undeclared := h.send(strings.Replace(listen, tasksExtension, "", 1), headers...)
	wantText(t, "without the extension", undeclared.wait(t), `"code":-32021`)
}

// After a change of policy clients are told that lists have changed: once on a
// legacy session, and on modern subscriptions that asked.
func TestListsChanged(t *testing.T) {
	h := newListenedHouse(t)
	quiet := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/hello\"}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	h.get = quiet
	h.answer = nil
	legacy := h.stream(t, http.MethodGet, "")
	wantText(t, "legacy", legacy(), "hello")
	headers := modernHeaders("")
	headers[3] = "subscriptions/listen"
	h.listen = quiet
	modern := h.stream(t, http.MethodPost, `{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true},`+modernMeta("")+`}}`, headers...)
	wantText(t, "modern", modern(), "hello")

	h.handler.ListsChanged()

	for _, kind := range []string{"tools", "prompts", "resources"} {
		wantText(t, "legacy", legacy(), `{"jsonrpc":"2.0","method":"notifications/`+kind+`/list_changed"}`)
	}
	wantText(t, "modern", modern(), `"notifications/prompts/list_changed"`, `"io.modelcontextprotocol/subscriptionId":"l1"`)
}
