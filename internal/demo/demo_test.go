package demo_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

// modernMeta is the metadata of a modern request.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// modernTail has the members that the server adds to a modern result.
const modernTail = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"thoughtgate-demo","version":"1.0.0"}}`

// exchange sends one request and returns the answer. Headers are given as name and value in turn;
// an empty value removes a default.
func exchange(t *testing.T, s *demo.Server, method, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	seen := map[string]bool{}
	for i := 0; i < len(headers); i += 2 {
		if !seen[headers[i]] {
			r.Header.Del(headers[i])
		}
		if seen[headers[i]] = true; headers[i+1] != "" {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// open starts a legacy session and returns its id.
func open(t *testing.T, s *demo.Server, version string) string {
	t.Helper()
	resp := exchange(t, s, "POST", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if resp.Code != http.StatusOK {
		t.Fatalf("initialize: %s", resp.Body)
	}
	return resp.Header().Get("Mcp-Session-Id")
}

func TestInitialize(t *testing.T) {
	tests := []struct{ ask, want string }{
		{"2025-03-26", "2025-03-26"},
		{"2025-06-18", "2025-06-18"},
		{"2025-11-25", "2025-11-25"},
		{"2024-11-05", "2025-11-25"},
		{"2026-07-28", "2025-11-25"}, // this version has no handshake
	}
	for _, tt := range tests {
		t.Run(tt.ask, func(t *testing.T) {
			resp := exchange(t, demo.New(), "POST", `{"jsonrpc":"2.0","id":1.0,"method":"initialize","params":{"protocolVersion":"`+tt.ask+`"}}`)

			want := `{"jsonrpc":"2.0","id":1.0,"result":{"protocolVersion":"` + tt.want + `","capabilities":{"tools":{}},"serverInfo":{"name":"thoughtgate-demo","version":"1.0.0"},"instructions":"A file tree to play with. It lives in memory; deleting is allowed and real."}}`
			if diff := cmp.Diff(want, resp.Body.String()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if id := resp.Header().Get("Mcp-Session-Id"); len(id) < 20 {
				t.Errorf("session id %q is guessable", id)
			}
		})
	}
}

func TestLegacy(t *testing.T) {
	const readme = `{"name":"read_file","arguments":{"path":"README.txt"}}`
	const readmeResult = `{"isError":false,"content":[{"type":"text","text":"Everything here lives in memory. Break what you like: a restart brings it back.\n"}]}`
	tests := []struct {
		name    string
		version string
		body    string
		status  int
		want    string
	}{
		{"ping", "2025-06-18", `{"jsonrpc":"2.0","id":"p","method":"ping"}`, 200, `{"jsonrpc":"2.0","id":"p","result":{}}`},
		{"call", "2025-11-25", `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":` + readme + `}`, 200, `{"jsonrpc":"2.0","id":9007199254740993,"result":` + readmeResult + `}`},
		{"notification", "2025-06-18", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202, ``},
		{"response", "2025-06-18", `{"jsonrpc":"2.0","id":1,"result":{}}`, 202, ``},
		{"unknown method stays in band", "2025-06-18", `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown method \"resources/list\""}}`},
		{"unknown tool", "2025-06-18", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"unknown tool \"rm\""}}`},
		{"unknown page", "2025-06-18", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"there is only one page of tools"}}`},
		{"malformed params", "2025-06-18", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the parameters are malformed"}}`},
		{"params by position", "2025-06-18", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["read_file"]}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the parameters are malformed"}}`},
		{
			"batch", "2025-03-26",
			`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + readme + `}]`, 200,
			"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":" + readmeResult + "}\n\n",
		},
		{"batch without requests", "2025-03-26", `[{"jsonrpc":"2.0","method":"notifications/initialized"}]`, 202, ``},
		{"batch that initializes", "2025-03-26", `[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}]`, 200, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"unknown method \\\"initialize\\\"\"}}\n\n"},
		{"notifications in a batch of a later version", "2025-11-25", `[{"jsonrpc":"2.0","method":"notifications/initialized"}]`, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"this protocol version has no batches"}}`},
		{"batch in a later version", "2025-06-18", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"this protocol version has no batches"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := demo.New()
			resp := exchange(t, s, "POST", tt.body, "Mcp-Session-Id", open(t, s, tt.version), "Mcp-Protocol-Version", tt.version)
			if resp.Code != tt.status {
				t.Errorf("status %d; want %d", resp.Code, tt.status)
			}
			if diff := cmp.Diff(tt.want, resp.Body.String()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestModern(t *testing.T) {
	request := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + params + `}}`
	}
	const version, method, name = "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"
	tests := []struct {
		name    string
		headers []string
		body    string
		status  int
		want    string
	}{
		{
			"discover",
			[]string{version, "2026-07-28", method, "server/discover"},
			request("server/discover", modernMeta),
			200,
			`{"jsonrpc":"2.0","id":7,"result":{` + modernTail + `,"ttlMs":300000,"cacheScope":"public","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"capabilities":{"tools":{}},"instructions":"A file tree to play with. It lives in memory; deleting is allowed and real."}}`,
		},
		{
			"call, and a session id that means nothing",
			[]string{version, "2026-07-28", method, "tools/call", name, "delete_file", "Mcp-Session-Id", "gone"},
			request("tools/call", `"name":"delete_file","arguments":{"path":"/payroll/bonuses.csv"},`+modernMeta),
			200,
			`{"jsonrpc":"2.0","id":7,"result":{` + modernTail + `,"isError":false,"content":[{"type":"text","text":"deleted /payroll/bonuses.csv"}]}}`,
		},
		{
			"encoded name",
			[]string{version, "2026-07-28", method, "tools/call", name, "=?base64?ZGVsZXRlX2ZpbGU=?="},
			request("tools/call", `"name":"delete_file","arguments":{"path":"x"},`+modernMeta),
			200,
			`{"jsonrpc":"2.0","id":7,"result":{` + modernTail + `,"isError":true,"content":[{"type":"text","text":"/x: no such file"}]}}`,
		},
		{
			"badly encoded name",
			[]string{version, "2026-07-28", method, "tools/call", name, "=?base64?ZGVsZXRlX2ZpbGU?="},
			request("tools/call", `"name":"delete_file",`+modernMeta),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"Mcp-Name differs from the body"}}`,
		},
		{
			"other name",
			[]string{version, "2026-07-28", method, "tools/call", name, "read_file"},
			request("tools/call", `"name":"delete_file",`+modernMeta),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"Mcp-Name differs from the body"}}`,
		},
		{
			"two names",
			[]string{version, "2026-07-28", method, "tools/call", name, "delete_file", name, "read_file"},
			request("tools/call", `"name":"delete_file",`+modernMeta),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"Mcp-Name differs from the body"}}`,
		},
		{
			"other method",
			[]string{version, "2026-07-28", method, "TOOLS/LIST"},
			request("tools/list", modernMeta),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"Mcp-Method differs from the body"}}`,
		},
		{
			"no version header",
			[]string{method, "tools/list"},
			request("tools/list", modernMeta),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"MCP-Protocol-Version differs from the body"}}`,
		},
		{
			"version only in the header",
			[]string{version, "2026-07-28", method, "tools/list"},
			request("tools/list", ""),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"_meta lacks the protocol version or the client's capabilities"}}`,
		},
		{
			"no capabilities",
			[]string{version, "2026-07-28", method, "tools/list"},
			request("tools/list", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"_meta lacks the protocol version or the client's capabilities"}}`,
		},
		{
			"unsupported version",
			[]string{version, "1900-01-01", method, "tools/list"},
			request("tools/list", strings.ReplaceAll(modernMeta, "2026-07-28", "1900-01-01")),
			400,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":"1900-01-01"}}}`,
		},
		{
			"initialize belongs to the other era",
			[]string{version, "2026-07-28", method, "initialize"},
			request("initialize", modernMeta),
			404,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"unknown method \"initialize\""}}`,
		},
		{"notification", []string{version, "2026-07-28"}, `{"jsonrpc":"2.0","method":"notifications/whatever"}`, 202, ``},
		{"response", []string{version, "2026-07-28"}, `{"jsonrpc":"2.0","id":1,"result":{}}`, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"this server sends no requests"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := exchange(t, demo.New(), "POST", tt.body, tt.headers...)
			if resp.Code != tt.status {
				t.Errorf("status %d; want %d", resp.Code, tt.status)
			}
			if diff := cmp.Diff(tt.want, resp.Body.String()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if id := resp.Header().Get("Mcp-Session-Id"); id != "" {
				t.Errorf("a modern answer carries session id %q", id)
			}
		})
	}
}

func TestToolsListInBothEras(t *testing.T) {
	s := demo.New()
	old := exchange(t, s, "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id", open(t, s, "2025-11-25")).Body.String()
	fresh := exchange(t, s, "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list").Body.String()

	want := strings.Replace(old, `"result":{`, `"result":{`+modernTail+`,"ttlMs":300000,"cacheScope":"public",`, 1)
	if diff := cmp.Diff(want, fresh); diff != "" {
		t.Errorf("modern list (-want +got):\n%s", diff)
	}
}

func TestHTTPErrors(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	tests := []struct {
		name    string
		method  string
		body    string
		headers []string
		status  int
	}{
		{"GET", "GET", "", nil, 405},
		{"PUT", "PUT", ping, nil, 405},
		{"modern DELETE", "DELETE", "", []string{"Mcp-Protocol-Version", "2026-07-28"}, 405},
		{"DELETE without session", "DELETE", "", nil, 400},
		{"DELETE of a dead session", "DELETE", "", []string{"Mcp-Session-Id", "gone"}, 404},
		{"no session", "POST", ping, nil, 400},
		{"dead session", "POST", ping, []string{"Mcp-Session-Id", "gone"}, 404},
		{"not JSON", "POST", `{"jsonrpc"`, nil, 400},
		{"trailing bytes", "POST", ping + "x", nil, 400},
		{"duplicate member", "POST", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"pong"}`, nil, 400},
		{"not JSON-RPC", "POST", `{"id":1,"method":"ping"}`, nil, 400},
		{"null id", "POST", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, 400},
		{"empty batch", "POST", `[]`, nil, 400},
		{"wrong content type", "POST", ping, []string{"Content-Type", "text/plain"}, 415},
		{"only JSON accepted", "POST", ping, []string{"Accept", "application/json"}, 406},
		{"anything accepted", "POST", ping, []string{"Accept", "*/*"}, 400},
		{"no preference", "POST", ping, []string{"Accept", ""}, 400},
		{"families accepted", "POST", ping, []string{"Accept", "application/*;q=0.5, text/*"}, 400},
		{"too large", "POST", ping + strings.Repeat(" ", 1<<20), nil, 413},
		{"foreign origin", "POST", ping, []string{"Origin", "http://evil.example"}, 403},
		{"opaque origin", "POST", ping, []string{"Origin", "null"}, 403},
		{"local origin", "POST", ping, []string{"Origin", "http://localhost:6274"}, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := exchange(t, demo.New(), tt.method, tt.body, tt.headers...)
			if resp.Code != tt.status {
				t.Errorf("status %d; want %d: %s", resp.Code, tt.status, resp.Body.String())
			}
			if allow := resp.Header().Get("Allow"); (tt.status == 405) != (allow == "POST, DELETE") {
				t.Errorf("Allow: %q", allow)
			}
		})
	}
}

func TestUnsupportedVersionHeader(t *testing.T) {
	s := demo.New()
	resp := exchange(t, s, "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", open(t, s, "2025-06-18"), "Mcp-Protocol-Version", "2025-01-01")
	if resp.Code != http.StatusBadRequest {
		t.Errorf("status %d; want 400", resp.Code)
	}
}

// A page whose host name resolves to the loopback address is refused.
func TestForeignHostOnLoopbackIsRefused(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://rebound.example/mcp", strings.NewReader(`{}`))
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}))
	w := httptest.NewRecorder()
	demo.New().ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("status %d; want 403", w.Code)
	}
}

func TestSessionEnds(t *testing.T) {
	s := demo.New()
	id := open(t, s, "2025-06-18")
	if resp := exchange(t, s, "DELETE", "", "Mcp-Session-Id", id); resp.Code != http.StatusNoContent {
		t.Errorf("DELETE: status %d; want 204", resp.Code)
	}
	resp := exchange(t, s, "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", id)
	if resp.Code != http.StatusNotFound {
		t.Errorf("afterwards: status %d; want 404", resp.Code)
	}
}

func TestOldestSessionIsForgotten(t *testing.T) {
	s := demo.New()
	first := open(t, s, "2025-06-18")
	var last string
	for range 1000 {
		last = open(t, s, "2025-06-18")
	}
	for id, want := range map[string]int{first: 404, last: 200} {
		if resp := exchange(t, s, "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", id); resp.Code != want {
			t.Errorf("status %d; want %d", resp.Code, want)
		}
	}
}
