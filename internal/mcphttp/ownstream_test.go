package mcphttp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func methodNotAllowed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", "POST")
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// CORE-003 F-006.3, GOV-004 F-012, CORE-007 F-001.6: if the upstream has no GET stream, the
// gate offers one, since it declares notifications about tasks and list changes. A client gets
// only notifications about its own tasks.
func TestStandaloneStreamNotifies(t *testing.T) {
	h := newFixture(t, nil)
	h.get = methodNotAllowed
	next := h.stream(t, http.MethodGet, "")
	other := h.stream(t, http.MethodGet, "", "Mcp-Session-Id", "s-2")
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	wantText(t, "held", next(), `"method":"notifications/tasks/status"`, id, `"status":"working"`)
	h.reject(task.ID(id), "no")
	wantText(t, "rejected", next(), id, `"status":"failed"`)
	h.conversations.ListsChanged()
	for _, stream := range []func() string{next, other} {
		wantText(t, "tools", stream(), "notifications/tools/list_changed")
		wantText(t, "prompts", stream(), "notifications/prompts/list_changed")
		wantText(t, "resources", stream(), "notifications/resources/list_changed")
	}
}

// A client sees that its upstream has no GET stream if the gate has nothing to send: without a
// policy, in the modern era, without event streams, or when resuming a stream of the upstream.
func TestStandaloneStreamIsRefused(t *testing.T) {
	tests := []struct {
		name    string
		rules   bool
		headers []string
	}{
		{"no policy", false, nil},
		{"modern", true, []string{"Mcp-Protocol-Version", "2026-07-28"}},
		{"takes no events", true, []string{"Accept", "application/json"}},
		{"resumes", true, []string{"Last-Event-ID", "7"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) {
				if !tt.rules {
					s.Policy = nil
				}
			})
			h.get = methodNotAllowed
			req := h.sendAs(http.MethodGet, "", tt.headers...)
			if req.wait(t); req.status != http.StatusMethodNotAllowed {
				t.Errorf("status %d; want 405", req.status)
			}
		})
	}
}

// The metrics count the stream.
func TestStandaloneStreamEndsAtShutdown(t *testing.T) {
	h := newFixture(t, nil)
	h.get = methodNotAllowed
	req := h.sendAs(http.MethodGet, "")
	eventually(t, "the stream is counted", func() bool { return strings.Contains(scrape(h.gateway), `sse_streams_active{kind="get"} 1`) })
	h.handler.EndStreams()
	if req.wait(t); req.status != http.StatusOK {
		t.Errorf("status %d; want 200", req.status)
	}
}

// A client can subscribe to list changes although the upstream does not know subscriptions.
func TestSubscriptionToListsWithoutUpstreams(t *testing.T) {
	h := newFixture(t, nil)
	h.listen = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		w.Write([]byte(`{"jsonrpc":"2.0","id":"l1","error":{"code":-32601,"message":"Method not found"}}`))
	}
	message, headers := listenFor(`"toolsListChanged":true,"promptsListChanged":false`)
	next := h.stream(t, http.MethodPost, message, headers...)
	wantText(t, "acknowledged", next(), "subscriptions/acknowledged", `"notifications":{"toolsListChanged":true}`)
	h.conversations.ListsChanged()
	wantText(t, "changed", next(), "notifications/tools/list_changed", `"l1"`)

	message, headers = listenFor(`"promptsListChanged":false`)
	wantText(t, "nothing to tell", h.ask(message, headers...), `-32601`)
}

// A method of another era that names nothing to be judged is forwarded. One that names a
// resource is judged.
func TestRemovedMethodReachesUpstream(t *testing.T) {
	h := newFixture(t, nil)
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		w.Write([]byte(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"Method not found"}}`))
	}
	headers := modernHeaders("")[:4]
	headers[3] = "resources/subscribe"
	ask := func(params string) *request {
		req := h.send(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{`+params+modernMeta("")+`}}`, headers...)
		req.wait(t)
		return req
	}
	if got := ask(""); got.status != http.StatusNotFound || !strings.Contains(got.body, "-32601") {
		t.Errorf("without a URI: %d %s; want the upstream's 404", got.status, got.body)
	}
	headers = append(headers, "Mcp-Name", "file:///etc/passwd")
	if got := ask(`"uri":"file:///etc/passwd",`); !strings.Contains(got.body, "policy_denied") {
		t.Errorf("with a URI that is denied: %d %s", got.status, got.body)
	}
	headers = headers[:4]
	if got := ask(`"uri":["file:///etc/passwd"],`); got.status == http.StatusNotFound {
		t.Errorf("with a URI that is not a string: %d %s; it reached the upstream", got.status, got.body)
	}
}
