package mcphttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The gate lists the tools before it holds a call of an unknown tool, for its approver.
func TestToolIsDescribedWithoutList(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			p.server.intercepted(replying("tools/list", defining("hold_plain", "Deletes files.")))
			p.callAs(era, "hold_plain")
			seen, err := p.approvals.Viewer().Show(t.Context(), p.pending(1)[0])
			if err != nil {
				t.Fatal(err)
			}
			if seen.Description != "Deletes files." || seen.ToolDigest == "" || seen.Hints == nil || seen.Hints.Destructive == nil || !*seen.Hints.Destructive {
				t.Errorf("the approver sees %q, %q, %+v", seen.Description, seen.ToolDigest, seen.Hints)
			}
		})
	}
}

// THOUGHTGATE_TOOLS_FETCH_TIMEOUT_MS, THOUGHTGATE_TOOLS_MAX_PAGES: a tool is not called if its
// task support cannot be determined.
func TestUnreadableToolsList(t *testing.T) {
	tests := map[string]struct {
		list intercept
		want string
	}{
		"hangs": {func(_ http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool {
			if m.Method == "tools/list" {
				<-r.Context().Done()
			}
			return m.Method == "tools/list"
		}, "upstream_timeout"},
		"endless":        {replying("tools/list", `{"tools":[],"nextCursor":"more"}`), "upstream_invalid_response"},
		"404":            {statusing("tools/list", http.StatusNotFound, ""), "session_gone"},
		"500":            {statusing("tools/list", http.StatusInternalServerError, "oh"), "upstream_invalid_response"},
		"nonsense":       {statusing("tools/list", http.StatusOK, `{"tools":`), "upstream_invalid_response"},
		"no list":        {replying("tools/list", `{"tools":"none"}`), "upstream_invalid_response"},
		"an error":       {erring("tools/list", -32603), "upstream_invalid_response"},
		"unknown method": {erring("tools/list", -32601), "upstream_invalid_response"}, // although the upstream declares tasks
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			p.gateway = startGate(t, p.up, func(s settings) {
				s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = p.catalog, p.approvals, p.waiting
				s.upstream.ToolsTimeout, s.upstream.ToolsPages = testTimeout, 5
				if name == "hangs" {
					s.upstream.ToolsTimeout = 300 * time.Millisecond
				}
			})
			p.server.intercepted(tt.list)
			req := p.send(toolCall("7", "hold_required", ""))
			p.approve(p.pending(1)[0])
			wantText(t, "answer", req.wait(t), tt.want, "did not run")
			if heard := p.server.heard("tools/call"); len(heard) != 0 {
				t.Errorf("the upstream heard %v", heard)
			}
		})
	}
}

// statusing returns an intercept that answers a method with a status and a body.
func statusing(method string, status int, body string) intercept {
	return func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
		if m.Method == method {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
		return m.Method == method
	}
}

// erring returns an intercept that answers a method with an error.
func erring(method string, code int) intercept {
	return func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
		if m.Method == method {
			w.Header().Set("Content-Type", "application/json")
			w.Write(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: code, Message: "no"}))
		}
		return m.Method == method
	}
}

// The client can repeat the call with a new approval, and it then runs.
func TestUnreadableToolsListIsRetriable(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.server.intercepted(erring("tools/list", -32603))
	req := p.send(toolCall("7", "hold_required", ""))
	id := p.pending(1)[0]
	p.approve(id)
	wantText(t, "answer", req.wait(t), "upstream_invalid_response", "did not run")
	seen, err := p.approvals.Viewer().Show(t.Context(), id)
	if err != nil || seen.Failure == nil || !seen.Failure.Retriable || seen.Failure.Ran != task.RanNo {
		t.Errorf("the approver sees %+v, %v", seen.Failure, err)
	}
	p.server.intercepted(nil)
	again := p.send(toolCall("8", "hold_required", ""))
	p.approve(p.pending(1)[0])
	p.server.done(`{"content":[{"type":"text","text":"made it"}]}`)
	wantText(t, "again", again.wait(t), "made it")
}

// The gate cannot store the whole definition, but uses its task support.
func TestLargeToolRequiresTask(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.server.intercepted(replying("tools/list", `{"tools":[{"name":"hold_required","inputSchema":{"type":"object","x-mcp-header":"`+
		strings.Repeat("x", 300<<10)+`"},"execution":{"taskSupport":"required"}}]}`))
	req := p.send(toolCall("7", "hold_required", ""))
	p.approve(p.pending(1)[0])
	p.server.done(`{"content":[{"type":"text","text":"made it"}]}`)
	wantText(t, "answer", req.wait(t), "made it")
}

// An upstream that lists no tools and declares no tasks is called plainly. The client of the
// legacy call is new to the gate.
func TestUpstreamWithoutToolsListIsCalled(t *testing.T) {
	p := newTaskFixture(t, nil)
	p.server.plain = true
	unlisted := erring("tools/list", -32601)
	plain := replying("tools/call", `{"resultType":"complete","content":[{"type":"text","text":"made it"}]}`)
	p.server.intercepted(func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool {
		if m.Params.Task.Present() || strings.Contains(string(m.Params.Meta.Bytes), "io.modelcontextprotocol/tasks") && m.Method == "tools/call" {
			t.Errorf("the upstream was asked for a task: %s", m.Raw)
		}
		return unlisted(w, r, m) || plain(w, r, m)
	})
	legacy := p.send(toolCall("7", "hold_plain", ""), "Mcp-Session-Id", "s-9")
	p.approve(p.pending(1)[0])
	wantText(t, "legacy", legacy.wait(t), "made it")
	modern := p.callAs("modern", "hold_forbidden")
	p.approve(p.pending(1)[0])
	wantText(t, "modern", modern.wait(t), "made it")
}

// If a modern upstream fails to declare its capabilities, the gate declares the tasks
// extension, so that a tool that requires a task runs.
func TestUndiscoveredTasks(t *testing.T) {
	tests := map[string]intercept{
		"500": statusing("server/discover", http.StatusInternalServerError, ""), "an error": erring("server/discover", -32603),
		"nonsense": statusing("server/discover", http.StatusOK, `{`),
	}
	for name, discover := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			p.server.intercepted(discover)
			req := p.send(modernCall("hold_required", ""), modernHeaders("hold_required")...)
			p.approve(p.pending(1)[0])
			p.server.done(`{"resultType":"complete","content":[{"type":"text","text":"made it"}]}`)
			wantText(t, "answer", req.wait(t), "made it")
		})
	}
}
