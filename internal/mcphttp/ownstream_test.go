package mcphttp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func methodNotAllowed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", "POST")
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// CORE-003 F-006.3, GOV-004 F-012, CORE-007 F-001.6: the gate declares that it
// tells of tasks and of changed lists. A legacy client whose upstream has no GET
// stream hears of both on one of the gate's own, and of nobody else's tasks.
func TestStreamWithoutUpstreams(t *testing.T) {
	h := newFixture(t, nil)
	h.get = methodNotAllowed
	next := h.stream(t, http.MethodGet, "")
	other := h.stream(t, http.MethodGet, "", "Mcp-Session-Id", "s-2")
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	wantText(t, "held", next(), `"method":"notifications/tasks/status"`, id, `"status":"working"`)
	h.reject(task.ID(id), "no")
	wantText(t, "rejected", next(), id, `"status":"failed"`)
	h.hub.ListsChanged()
	for _, stream := range []func() string{next, other} {
		wantText(t, "tools", stream(), "notifications/tools/list_changed")
		wantText(t, "prompts", stream(), "notifications/prompts/list_changed")
		wantText(t, "resources", stream(), "notifications/resources/list_changed")
	}
}

// A client that the gate has nothing to tell sees that its upstream has no GET
// stream: one without a policy, of the modern era, that does not take events, or
// that wants to go on with a stream of the upstream's.
func TestStreamRefused(t *testing.T) {
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
			h := newFixture(t, func(s *gate.Settings, _ *approval.Config, _ *conversation.Waiting) {
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

// The gate ends a stream of its own when it shuts down, and counts it as one.
func TestOwnStreamEnds(t *testing.T) {
	h := newFixture(t, nil)
	h.get = methodNotAllowed
	req := h.sendAs(http.MethodGet, "")
	eventually(t, "the stream is counted", func() bool { return strings.Contains(scrape(h.gateway), `sse_streams_active{kind="get"} 1`) })
	h.handler.EndStreams()
	if req.wait(t); req.status != http.StatusOK {
		t.Errorf("status %d; want 200", req.status)
	}
}

// A modern client that wants to hear of changed lists, which the gate declares to
// tell of, hears of them also if its upstream does not know subscriptions.
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
	h.hub.ListsChanged()
	wantText(t, "changed", next(), "notifications/tools/list_changed", `"l1"`)

	message, headers = listenFor(`"promptsListChanged":false`)
	wantText(t, "nothing to tell", h.ask(message, headers...), `-32601`)
}

// A modern request for a method that its era does not have, and that names
// nothing to be judged, reaches the upstream, which does not know it. One that
// names a resource is judged.
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
		t.Errorf("with a URI that is no text: %d %s; it reached the upstream", got.status, got.body)
	}
}
