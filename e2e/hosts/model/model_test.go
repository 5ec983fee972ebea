package model_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/e2e/hosts/model"
)

// requests are one conversation in each API: the first request, and the request after the tool
// has returned RESULT.
var requests = []struct {
	api, path   string
	first, then string
	call        string // in the answer that calls the tool
}{
	{
		api: "anthropic", path: "/v1/messages",
		first: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"go"}],"tools":[{"name":"mcp__gate__remove"}]}`,
		then: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"mcp__gate__remove","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"RESULT"}]}]}],"tools":[{"name":"mcp__gate__remove"}]}`,
		call: `"type":"tool_use"`,
	},
	{
		api: "chat", path: "/v1/chat/completions",
		first: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"remove"}}]}`,
		then: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"go"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"remove","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"1","content":"RESULT"}],"tools":[{"type":"function","function":{"name":"remove"}}]}`,
		call: `"tool_calls"`,
	},
	{
		api: "responses", path: "/v1/responses",
		first: `{"model":"m","stream":STREAM,"input":[{"role":"user","content":"go"}],"tools":[{"type":"namespace","name":"mcp__gate","tools":[{"name":"remove"}]}]}`,
		then: `{"model":"m","stream":STREAM,"input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"1","name":"remove"},
			{"type":"function_call_output","call_id":"1","output":"RESULT"}],"tools":[{"type":"namespace","name":"mcp__gate","tools":[{"name":"remove"}]}]}`,
		call: `"namespace":"mcp__gate"`,
	},
	{
		api: "gemini", path: "/v1beta/models/m:METHOD",
		first: `{"contents":[{"role":"user","parts":[{"text":"go"}]}],"tools":[{"functionDeclarations":[{"name":"mcp_gate_remove"}]}]}`,
		then: `{"contents":[{"role":"user","parts":[{"text":"go"}]},
			{"role":"user","parts":[{"functionResponse":{"name":"mcp_gate_remove","response":{"output":"RESULT"}}}]}],"tools":[{"functionDeclarations":[{"name":"mcp_gate_remove"}]}]}`,
		call: `"functionCall"`,
	},
}

// In every API, streamed and not, the model calls the tool, repeats its result, and calls it
// again if the result asks for that.
func TestConversations(t *testing.T) {
	for _, r := range requests {
		for _, stream := range []string{"true", "false"} {
			t.Run(r.api+"/"+stream, func(t *testing.T) {
				m := model.New(model.Script{Tool: "remove", Arguments: `{"path":"/a"}`, MaxCalls: 2}, time.Now)
				ask := func(body, result string) string {
					method := map[string]string{"true": "streamGenerateContent", "false": "generateContent"}[stream]
					body = strings.NewReplacer("STREAM", stream, "RESULT", result).Replace(body)
					return post(t, m, strings.Replace(r.path, "METHOD", method, 1), body)
				}
				contains(t, ask(r.first, ""), r.call)
				contains(t, ask(r.first, ""), "/a")
				contains(t, ask(r.then, "it is gone"), "The tool said: it is gone")
				contains(t, ask(r.then, "Call the tool again with the same arguments."), r.call)
				contains(t, ask(r.then, "Do not call the tool again with the same arguments."), "The tool said: Do not")
				turns := m.Turns()
				if n := len(turns); n != 5 || turns[2].Results[0] != "it is gone" || !turns[3].Called || turns[4].Called {
					t.Errorf("turns: %+v", turns)
				}
			})
		}
	}
}

// The model searches for a tool that is named only in the prompt.
func TestHiddenTool(t *testing.T) {
	m := model.New(model.Script{Tool: "remove", Arguments: `{}`, MaxCalls: 2}, time.Now)
	contains(t, post(t, m, "/v1/messages", `{"messages":[{"role":"user","content":"there is mcp__gate__remove"}],"tools":[{"name":"ToolSearch"}]}`),
		`select:mcp__gate__remove`)
	contains(t, post(t, m, "/v1/messages", `{"messages":[{"role":"user","content":"there is mcp__gate__remove"},
		{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"ToolSearch","input":{}}]}],"tools":[{"name":"ToolSearch"}]}`),
		`"name":"mcp__gate__remove"`)
}

// The model repeats a call after the host's time limit, if its script allows it.
func TestTimedOut(t *testing.T) {
	for retry, want := range map[bool]string{true: `"tool_calls"`, false: "The tool said"} {
		m := model.New(model.Script{Tool: "remove", Arguments: `{}`, MaxCalls: 2, Retry: retry}, time.Now)
		contains(t, post(t, m, "/v1/chat/completions", strings.NewReplacer("STREAM", "false", "RESULT", "Request timed out").Replace(requests[1].then)), want)
	}
}

// The model reports unknown requests.
func TestUnknownRequest(t *testing.T) {
	m := model.New(model.Script{Tool: "remove", Arguments: `{}`, MaxCalls: 2}, time.Now)
	post(t, m, "/v1/pictures", `{}`)
	if got := m.Unknown(); len(got) != 1 || got[0] != "POST /v1/pictures" {
		t.Errorf("unknown: %q", got)
	}
}

func post(t *testing.T, h http.Handler, path, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q lacks %q", text, part)
	}
}
