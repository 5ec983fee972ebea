package mcphttp_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// watch requests the events of a task.
func (h *fixture) watch(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", "s-1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func eventsOf(id string) string { return "/mcp/tasks/" + id + "/events" }

// status checks the next event of a task.
func status(t *testing.T, events *jsonrpc.EventReader, id string, want ...string) {
	t.Helper()
	wantText(t, "event", statusOf(t, events, id), append(want, `"timestamp":"2`)...)
}

// statusOf returns the next event of a task, which must have the given ID.
func statusOf(t *testing.T, events *jsonrpc.EventReader, id string) string {
	t.Helper()
	for {
		e, err := events.Next()
		if err != nil {
			t.Fatalf("the events ended: %v; want one with id %s", err, id)
		}
		if len(e.Data) == 0 {
			continue
		}
		if e.Name != "task_status" || e.ID != id {
			t.Errorf("event %q with id %q; want task_status and %q", e.Name, e.ID, id)
		}
		return string(e.Data)
	}
}

// F-009, F-012, GOV-004 10.1 "SSE client subscribe: valid", "SSE broadcast", 10.2 "SSE +
// polling hybrid", 10.5 "Multiple clients same task", GOV-004 F-009.5, F-012.7: every
// subscriber gets every step until the end. Watching does not start the call.
func TestTaskEvents(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	var all []*jsonrpc.EventReader
	for _, path := range []string{eventsOf(id), "/mcp/v1/tasks/" + id + "/events", eventsOf(id)} {
		resp := h.watch(t, path)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%s: %s %v", path, resp.Status, resp.Header)
		}
		all = append(all, jsonrpc.NewEventReader(resp.Body, 1<<20))
	}
	for _, events := range all {
		status(t, events, "1", `{"taskId":"`+id+`","status":"working","statusMessage":"Waiting for approval by default`)
	}
	wantText(t, "get", h.ask(legacyAbout("tasks/get", id)), `"status":"working","statusMessage":"Waiting for approval by default`)
	h.approve(task.ID(id))
	wantText(t, "result", h.ask(legacyAbout("tasks/result", id)), "done hold_x")
	for _, events := range all {
		status(t, events, "2", `"status":"working","statusMessage":"Approved`)
		status(t, events, "3", `"status":"working","statusMessage":"Running`)
		status(t, events, "4", `"status":"completed"`)
		if e, err := events.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %+v, %v; want the end of the stream", e, err)
		}
	}
	wantText(t, "get", h.ask(legacyAbout("tasks/get", id)), `"status":"completed"`)
	eventually(t, "no client watches", func() bool {
		return strings.Contains(scrape(h.gateway), `thoughtgate_sse_streams_active{kind="events"} 0`)
	})
}

// F-009.4, 10.1 "SSE client subscribe: terminal": an ended task is reported once. A browser
// that reconnects is told to stop, unless it missed something.
func TestTaskEventsResumed(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	h.reject(task.ID(id), "")
	read := func(headers ...string) (int, string) {
		resp := h.watch(t, eventsOf(id), headers...)
		return resp.StatusCode, readBody(t, resp)
	}
	code, body := read()
	if code != http.StatusOK || strings.Count(body, "data: ") != 1 || !strings.HasPrefix(body, "retry: ") {
		t.Errorf("%d %q; want one event", code, body)
	}
	wantText(t, "the end", body, "event: task_status\nid: 2\n", `"status":"failed","statusMessage":"Rejected`)
	if code, body := read("Last-Event-Id", "2"); code != http.StatusNoContent || body != "" {
		t.Errorf("reconnected: %d %q; want 204", code, body)
	}
	if _, body := read("Last-Event-Id", "0"); strings.Count(body, "data: ") != 2 {
		t.Errorf("without a seen event: %q; want both steps", body)
	}
	if _, body := read("Last-Event-Id", "nonsense"); strings.Count(body, "data: ") != 1 {
		t.Errorf("invalid event ID: %q; want the current status", body)
	}
}

// F-009.2, F-009.3, 10.1 "SSE client subscribe: passthrough task", 10.5 "Passthrough task SSE":
// unknown tasks, tasks of others, and tasks of the upstream.
func TestTaskEventsRefused(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	for name, tt := range map[string]struct {
		path    string
		headers []string
		status  int
		want    string
	}{
		"unknown":     {eventsOf("tg_unknown"), nil, 404, `"error_type":"task_not_found"`},
		"foreign":     {eventsOf(id), []string{"Mcp-Session-Id", "s-2"}, 404, `"error_type":"task_not_found"`},
		"passthrough": {eventsOf("theirs"), nil, 400, `"error_type":"passthrough_task"`},
		"two owners":  {eventsOf(id), []string{"Connection", "Mcp-Session-Id"}, 400, `"error_type":"invalid_request"`},
		"no id":       {"/mcp/tasks//events", nil, 404, `"error_type":"not_found"`},
		"deeper":      {"/mcp/tasks/" + id + "/more/events", nil, 404, `"error_type":"not_found"`},
		"elsewhere":   {"/tasks/" + id + "/events", nil, 404, `"error_type":"not_found"`},
	} {
		t.Run(name, func(t *testing.T) {
			resp := h.watch(t, tt.path, tt.headers...)
			if resp.StatusCode != tt.status {
				t.Errorf("%s; want %d", resp.Status, tt.status)
			}
			wantText(t, name, readBody(t, resp), tt.want)
		})
	}
	resp, err := h.Client().Post(h.URL+eventsOf(id), "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST: %s, Allow %q", resp.Status, resp.Header.Get("Allow"))
	}
}

// F-009.6, F-009.8: keep-alive comments, an end after long inactivity, and a limit on the
// streams of one owner.
func TestTaskEventsBounded(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{Idle: time.Hour, PerOwner: 2}
	})
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	other := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`), "Mcp-Session-Id", "s-2"))
	first, second := h.watch(t, eventsOf(id)), h.watch(t, eventsOf(id))
	third := h.watch(t, eventsOf(id))
	if third.StatusCode != http.StatusTooManyRequests || third.Header.Get("Retry-After") == "" {
		t.Errorf("a third stream: %s, Retry-After %q", third.Status, third.Header.Get("Retry-After"))
	}
	wantText(t, "a third stream", readBody(t, third), `"error_type":"client_limit"`)
	if resp := h.watch(t, eventsOf(other), "Mcp-Session-Id", "s-2"); resp.StatusCode != http.StatusOK {
		t.Errorf("another owner's stream: %s", resp.Status)
	}
	for _, resp := range []*http.Response{first, second} {
		var seen strings.Builder
		for lines := bufio.NewReader(resp.Body); strings.Count(seen.String(), ": ping\n") < 3; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("after %q: %v; want signs of life", seen.String(), err)
			}
			seen.WriteString(line)
		}
		resp.Body.Close()
	}
	eventually(t, "the owner may watch again", func() bool { return h.watch(t, eventsOf(id)).StatusCode == http.StatusOK })
}

// F-009.6: a stream without events ends after a time limit.
func TestTaskEventsIdle(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) {
		w.Events = conversation.Events{Idle: 3 * time.Second, PerOwner: 2}
	})
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	if body := readBody(t, h.watch(t, eventsOf(id))); strings.Count(body, "data: ") != 1 {
		t.Errorf("idle: %q; want one event, and then the end", body)
	}
}
