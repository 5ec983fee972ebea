package app_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// reject rejects a call with a correction.
func (r *grantRig) reject(id, correction string) (int, string) {
	r.Helper()
	_, call := r.api(0, "GET", "/api/approvals/"+id+"?arguments=all", "")
	var shown review.Approval
	decode(r.T, call, &shown)
	return r.api(0, "POST", "/api/approvals/"+id+"/reject", `{"reason":"other path","shownDigest":"`+shown.ShownDigest+`","correction":`+correction+`}`)
}

// plain calls the tool as a client without tasks, and returns the answer.
func (r *grantRig) plain(arguments, meta string, headers ...string) string {
	r.Helper()
	_, answer, _ := request(r.T, http.DefaultClient, "POST", "http://"+r.gates[0].AgentAddr()+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_x","arguments":`+arguments+meta+`}}`,
		append([]string{"Authorization", "Bearer tga_token_of_the_agent_ann", "Accept", "application/json, text/event-stream"}, headers...)...)
	return answer
}

// pending returns the id of the only pending call.
func (r *grantRig) pending() string {
	r.Helper()
	_, text := r.api(0, "GET", "/api/approvals", "")
	var page review.Page
	decode(r.T, text, &page)
	if len(page.Approvals) != 1 {
		r.Fatalf("pending: %s", text)
	}
	return string(page.Approvals[0].ID)
}

// toolCalls returns the calls of tools that reached the upstream.
func (r *grantRig) toolCalls() []string {
	return slices.DeleteFunc(r.calls(), func(call string) bool { return !strings.Contains(call, `"tools/call"`) })
}

// An agent of any kind reads the correction of its call, and the corrected call runs at once, once.
// Nothing else runs.
func TestCorrectionReachesEveryAgent(t *testing.T) {
	modern := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "hold_x"}
	asTask := `,` + modernMeta + `"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	for name, agent := range map[string]struct {
		call   func(r *grantRig, arguments string) string // returns an answer, perhaps one with a task
		result func(r *grantRig, id, arguments string) string
	}{
		"legacy with tasks": {
			func(r *grantRig, arguments string) string { return r.call(0, "ann", arguments, "") },
			func(r *grantRig, id, _ string) string { return r.result(0, id) },
		},
		"legacy without tasks": {
			func(r *grantRig, arguments string) string { return r.plain(arguments, "") },
			func(r *grantRig, _, arguments string) string { return r.plain(arguments, "") },
		},
		"modern with tasks": {
			func(r *grantRig, arguments string) string { return r.plain(arguments, asTask, modern...) },
			func(r *grantRig, id, _ string) string {
				_, answer, _ := request(r.T, http.DefaultClient, "POST", "http://"+r.gates[0].AgentAddr()+"/mcp",
					`{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"`+id+`"`+asTask+`}}`, "Authorization", "Bearer tga_token_of_the_agent_ann",
					"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tasks/get", "Mcp-Name", id)
				return answer
			},
		},
		"modern without tasks": {
			func(r *grantRig, arguments string) string { return r.plain(arguments, `,`+modernMeta+`}}`, modern...) },
			func(r *grantRig, _, arguments string) string {
				return r.plain(arguments, `,`+modernMeta+`}}`, modern...)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startGrantRig(t, "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), 1)
			agent.call(r, `{"path":"/a"}`)
			id := r.pending()
			if status, text := r.reject(id, `{"path":"/a"}`); status != http.StatusUnprocessableEntity || !strings.Contains(text, "correction_refused") {
				t.Errorf("the same arguments: %d %s", status, text)
			}
			if status, text := r.reject(id, `{ "path": "/b" }`); status != http.StatusOK || !strings.Contains(text, `"correction":{"arguments":{"path":"/b"}`) {
				t.Fatalf("reject: %d %s", status, text)
			}
			told := agent.result(r, id, `{"path":"/a"}`)
			for _, want := range []string{`other path`, `until 20`, `:\n{\"path\":\"/b\"}"`, `"corrected_arguments":{"path":"/b"}`, `"structuredContent":{"corrected_arguments":`} {
				if !strings.Contains(told, want) {
					t.Errorf("the agent reads %s; want %s", told, want)
				}
			}
			if calls := r.toolCalls(); len(calls) != 0 {
				t.Fatalf("the upstream got %q", calls)
			}
			again := agent.call(r, `{"path":"/b"}`)
			if strings.HasPrefix(again, "tg_") {
				again = r.result(0, again)
			} else if _, rest, found := strings.Cut(again, `"taskId":"`); found {
				made, _, _ := strings.Cut(rest, `"`)
				for again = ""; !strings.Contains(again, `"completed"`) && t.Context().Err() == nil; {
					again = agent.result(r, made, "")
				}
			}
			for !strings.Contains(again, "done") && t.Context().Err() == nil { // it attaches while the call runs
				if strings.Contains(again, "isError") && !strings.Contains(again, "is running") {
					t.Fatalf("the corrected call is answered %s", again)
				}
				again = agent.call(r, `{"path":"/b"}`)
			}
			if calls := r.toolCalls(); len(calls) != 1 || !strings.Contains(calls[0], `{"path":"/b"}`) {
				t.Errorf("the upstream got %q", calls)
			}
			agent.call(r, `{"path":"/b"}`)
			if !r.waits(r.pending()) {
				t.Error("the corrected call runs twice")
			}
		})
	}
}

// A client that checks structured results gets the correction of a tool with an output schema as text only.
func TestCorrectionForToolWithOutputSchema(t *testing.T) {
	r := startGrantRig(t, "memory:", 1)
	r.more.Store(`,"outputSchema":{"type":"object","required":["n"]}`)
	r.plain(`{"path":"/a"}`, "")
	if status, text := r.reject(r.pending(), `{"path":"/b"}`); status != http.StatusOK {
		t.Fatalf("reject: %d %s", status, text)
	}
	told := r.plain(`{"path":"/a"}`, "")
	if !strings.Contains(told, `:\n{\"path\":\"/b\"}"`) || strings.Contains(told, "structuredContent") {
		t.Errorf("the agent reads %s", told)
	}
}
