package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// find returns the names of the tools that find_tools returns.
func find(t *testing.T, cs *mcp.ClientSession, query string) string {
	t.Helper()
	result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "find_tools", Arguments: map[string]any{"query": query, "limit": 50}})
	if err != nil {
		t.Fatal(err)
	}
	if text, structured := result.Content[0].(*mcp.TextContent).Text, result.StructuredContent; !sameJSON(t, text, structured) {
		t.Errorf("the text is %s; the structured content is %v", text, structured)
	}
	var names []string
	for _, tool := range result.StructuredContent.(map[string]any)["tools"].([]any) {
		entry := tool.(map[string]any)
		names = append(names, entry["name"].(string))
		if schema := fmt.Sprint(entry["inputSchema"]); !strings.Contains(schema, "type:object") {
			t.Errorf("%s has the schema %s", entry["name"], schema)
		}
	}
	return strings.Join(names, " ")
}

func sameJSON(t *testing.T, text string, value any) bool {
	t.Helper()
	var other any
	if err := json.Unmarshal([]byte(text), &other); err != nil {
		t.Fatal(err)
	}
	return cmp.Equal(other, value)
}

// Clients find the tools that they may call, and call them directly or with the tool of the gate.
func TestEndpointSearch(t *testing.T) {
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			r := startThreeWith(t, version, "search: true, ",
				"rules: [{match: delete, upstream: crm, action: deny, reason: not in the crm}, {match: '*', action: forward}]\ndefault: deny\n")
			cs := r.connect(version, nil)
			defer cs.Close()
			if got := cs.InitializeResult().Instructions; !strings.Contains(got, "find_tools") || !strings.Contains(got, "Use crm.") {
				t.Errorf("instructions: %s", got)
			}
			tools, err := cs.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 2 || tools.Tools[0].Name != "find_tools" || tools.Tools[1].Name != "call_tool" {
				t.Fatalf("tools: %+v, %v", tools, err)
			}
			for query, want := range map[string]string{
				"search":       "search n__search",                                     // crm excludes it
				"delete":       "delete n__delete",                                     // policy denies that of crm
				"customers":    "customers",                                            // renamed
				"only notes":   "n__only_notes only_files n__delete n__hold n__search", // by their titles
				"no such word": "",
			} {
				if got := find(t, cs, query); got != want {
					t.Errorf("%q finds %s; want %s", query, got, want)
				}
			}
			for arguments, want := range map[string]string{
				`{"name":"search","arguments":{"a":1.50}}`:           `files search {"a":1.50}`,
				`{"arguments":{"a":1.50},"name":"n__search"}`:        `notes search {"a":1.50}`,
				`{"name":"customers"}`:                               `crm only_crm {}`,
				`{"name":"crm__delete","arguments":{}}`:              "not in the crm",
				`{"name":"crm__search"}`:                             "name must be",
				`{"name":"find_tools"}`:                              "name must be",
				`{"name":"call_tool","arguments":{"name":"search"}}`: "name must be",
				`{}`:                                 "name must be",
				`{"name":"search","arguments":"{}"}`: "arguments must be an object",
				`{"name":"search","args":{}}`:        "the only arguments are name and arguments",
				`{"name":"search","name\u0020":"delete"}`: "the only arguments are name and arguments",
			} {
				result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "call_tool", Arguments: jsonText(arguments)})
				if got := textOf(t, result, err); !strings.Contains(got, want) {
					t.Errorf("%s: %s; want %s", arguments, got, want)
				}
			}
			for arguments, want := range map[string]string{
				`{}`:                           "query must be",
				`{"query":7}`:                  "query must be",
				`{"query":"a","limit":"7"}`:    "limit must be",
				`{"query":"a","upstream":"b"}`: "the only arguments",
				`{"query":"only","limit":1}`:   "More tools match",
				`{"query":"only","limit":-1}`:  "More tools match",
				`{"query":"!"}`:                "No tool matches",
			} {
				result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "find_tools", Arguments: jsonText(arguments)})
				if got := textOf(t, result, err); !strings.Contains(got, want) {
					t.Errorf("%s: %s; want %s", arguments, got, want)
				}
			}
			result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "n__search", Arguments: jsonText(`{"a":1.50}`)})
			if got := textOf(t, result, err); got != `notes search {"a":1.50}` {
				t.Errorf("a call of a tool that is not in the list: %s", got)
			}
		})
	}
}

// The approver, the grant and the record have the tool of the server, not the one of the gate.
func TestEndpointSearchHoldsCalls(t *testing.T) {
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			r := startThreeWith(t, version, "search: true, ", "rules: [{match: hold, action: approve}, {match: '*', action: forward}]\ndefault: deny\n")
			cs := r.connect(version, nil)
			defer cs.Close()
			answer := make(chan string, 1)
			go func() {
				result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "call_tool", Arguments: jsonText(`{"name":"n__hold","arguments":{"b":2.0}}`)})
				answer <- textOf(t, result, err)
			}()
			id := awaitPending(t, r.gate)
			_, shown, _ := request(t, http.DefaultClient, "GET", "http://"+r.gate.OperatorAddr()+"/api/approvals/"+id, "", "Authorization", "Bearer "+adminToken)
			has(t, shown, `"tool":"hold"`, `"upstream":"notes"`, `{"b":2.0}`)
			if strings.Contains(shown, "call_tool") {
				t.Errorf("the approver sees %s", shown)
			}
			approveCall(t, r.gate, id)
			select {
			case got := <-answer:
				if got != `notes hold {"b":2.0}` {
					t.Errorf("got %s", got)
				}
			case <-time.After(time.Minute):
				t.Fatal("no answer")
			}
			recorded := ""
			eventually(t, "the call is recorded", func() bool {
				_, recorded, _ = request(t, http.DefaultClient, "GET", "http://"+r.gate.OperatorAddr()+"/api/calls", "", "Authorization", "Bearer "+adminToken)
				return strings.Contains(recorded, `"hold"`)
			})
			if strings.Contains(recorded, "call_tool") || strings.Contains(recorded, "find_tools") {
				t.Errorf("the record has %s", recorded)
			}
		})
	}
}

// A call is cancelled, or becomes a task, under the id of its message.
func TestEndpointSearchTasksAndCancellation(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	r := startPlainEndpoint(t, "search: true, ", "rules: [{match: x, upstream: b, action: approve}, {match: '*', action: forward}]\ndefault: deny\n", a, b)
	_, created, _ := r.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","arguments":{"name":"b__x"},"task":{}}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !strings.HasPrefix(id, "tg_") {
		t.Fatalf("the call is answered with %s", created)
	}
	_, cancelled, _ := r.post(`{"jsonrpc":"2.0","id":5,"method":"tasks/cancel","params":{"taskId":"` + id + `"}}`)
	has(t, cancelled, `"status":"cancelled"`)

	answer := make(chan string, 1)
	go func() {
		_, text, _ := r.post(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"call_tool","arguments":{"name":"b__x"}}}`)
		answer <- text
	}()
	listed := func(state string) string {
		_, list, _ := request(t, http.DefaultClient, "GET", "http://"+r.gate.OperatorAddr()+"/api/approvals?state="+state, "", "Authorization", "Bearer "+adminToken)
		return list
	}
	eventually(t, "the call is held", func() bool { return strings.Contains(listed("pending"), `"tool":"x"`) })
	r.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`)
	eventually(t, "the call is cancelled", func() bool { return !strings.Contains(listed("pending"), `"tool":"x"`) })
	select {
	case <-answer:
	case <-time.After(time.Minute):
		t.Fatal("the request has no end")
	}
}

// A tool of a server that has the name of one of the gate has a prefix, also in an endpoint of one server.
// A server that does not answer is named.
func TestEndpointSearchOfServersWithTheSameNames(t *testing.T) {
	a, b := newPlainServer(t, "a", "find_tools", "x"), newPlainServer(t, "b", "call_tool")
	r := startPlainEndpoint(t, "search: true, ", "rules: [{match: '*', action: forward}]\ndefault: deny\n", a, b)
	found := func(query string) string {
		_, answer, _ := r.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"find_tools","arguments":{"query":"` + query + `"}}}`)
		return answer
	}
	has(t, found("tools"), `"structuredContent":{"tools":[{"name":"a__find_tools","inputSchema":{"type":"object"}}`)
	has(t, found("call"), `{"name":"b__call_tool",`)
	has(t, r.call("a__find_tools"), "done by a")
	has(t, r.call("b__call_tool"), "done by b")
	has(t, r.call("a__call_tool"), "done by a") // which has none, and would say so
	b.stop()
	has(t, r.call("b__call_tool"), "upstream_unreachable")
	has(t, found("call"), `{"name":"b__call_tool",`, `"thoughtgate/stale":["b"]`)
	r.begin()
	has(t, found("tools"), `a__find_tools`, `"unavailableServers":["b"]`, `"thoughtgate/unavailable":[{"server":"b"`)

	one := startPlainEndpoint(t, "search: true, ", "rules: [{match: '*', action: forward}]\ndefault: deny\n", a)
	if list := one.list(); strings.Count(list, `"name":"`) != 2 {
		t.Errorf("the list is %s", list)
	}
	_, answer, _ := one.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"call_tool","arguments":{"name":"x"}}}`)
	has(t, answer, "done by a")
}

// A server of 2026-07-28 gets the call in its headers and body as if the client had called its tool.
func TestEndpointSearchForwardsModernCalls(t *testing.T) {
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"tools/list"`) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"x","inputSchema":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}]}}`, idOf(body))
			return
		}
		mu.Lock()
		got = append(got, r.Header.Get("Mcp-Name")+" "+r.Header.Get("Mcp-Param-N")+" "+string(body))
		mu.Unlock()
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[]}}`, idOf(body))
	}))
	defer server.Close()
	gate, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nstore: 'memory:'\n"+
		"rules: [{match: denied, action: deny}, {match: '*', action: forward}]\ndefault: deny\n"+
		"upstreams: [{name: up, url: '"+server.URL+"'}]\nendpoints: [{path: /mcp, search: true, servers: [{upstream: up, prefix: p}]}]\n")
	defer stop()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{},"progressToken":"t"}`
	post := func(name, params string, more ...string) string {
		t.Helper()
		headers := append([]string{"Mcp-Protocol-Version", modernVersion, "Mcp-Method", "tools/call", "Mcp-Name", name, "Accept", "application/json, text/event-stream"}, more...)
		_, answer, _ := request(t, http.DefaultClient, "POST", "http://"+gate.AgentAddr()+"/mcp", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{`+meta+`,`+params+`}}`, headers...)
		return answer
	}
	has(t, post("call_tool", `"name":"call_tool","arguments":{"name":"p__x","arguments":{"n":7,"e":1.50}}`), `"content":[]`)
	has(t, post("p__x", `"name":"p__x","arguments":{"n":7,"e":1.50}`), `"content":[]`)
	want := `x 7 {"jsonrpc":"2.0","id":9,"method":"tools/call","params":{` + meta + `,"name":"x","arguments":{"n":7,"e":1.50}}}`
	mu.Lock()
	if diff := cmp.Diff([]string{want, want}, got); diff != "" {
		t.Errorf("the server got (-want +got):\n%s", diff)
	}
	got = nil
	mu.Unlock()

	has(t, post("p__x", `"name":"call_tool","arguments":{"name":"p__x"}`), "header_mismatch")
	has(t, post("call_tool", `"name":"call_tool","arguments":{"name":"p__x","arguments":{"n":7}}`, "Mcp-Param-N", "8"), "header_mismatch")
	mu.Lock()
	defer mu.Unlock()
	if len(got) > 0 {
		t.Errorf("the server got %s", got)
	}
	http.DefaultClient.CloseIdleConnections()
}
