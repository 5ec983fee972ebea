package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// exactServer answers equal requests with equal bytes.
func exactServer() *mcp.Server {
	server := newServer(&mcp.ServerOptions{Instructions: "Be exact."})
	addTool(server, "echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{
			Meta:              mcp.Meta{"example.com/x": json.RawMessage(`{"n":1.0,"big":9007199254740993}`)},
			Content:           []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}},
			StructuredContent: r.Params.Arguments,
		}, nil
	})
	return server
}

// A wireCase is one request with its exact bytes.
type wireCase struct {
	name    string
	method  string // POST if empty
	headers []string
	body    string
}

// compare sends each request to the same server directly and through the gate, in separate
// sessions, and passes both answers to the test.
func compare(t *testing.T, version string, cases []wireCase, judge func(t *testing.T, direct, gate answer)) {
	t.Helper()
	for _, jsonAnswers := range []bool{false, true} {
		name := "answers by stream"
		if jsonAnswers {
			name = "answers by JSON"
		}
		t.Run(name, func(t *testing.T) {
			direct := setting{version: version}.serveWith(t, exactServer(), mcp.StreamableHTTPOptions{JSONResponse: jsonAnswers})
			gate := &site{setting: setting{version, true}, url: gateTo(t, direct.url)}
			directHeaders, gateHeaders := direct.open(t), gate.open(t)
			for _, tt := range cases {
				t.Run(tt.name, func(t *testing.T) {
					method := tt.method
					if method == "" {
						method = http.MethodPost
					}
					judge(t,
						direct.send(t, method, tt.body, slices.Concat(directHeaders, tt.headers)...),
						gate.send(t, method, tt.body, slices.Concat(gateHeaders, tt.headers)...))
				})
			}
		})
	}
}

// same requires equal statuses, bytes and relevant headers.
func same(t *testing.T, direct, gate answer) {
	t.Helper()
	if direct.status != gate.status {
		t.Errorf("status %d directly, %d through the gate", direct.status, gate.status)
	}
	if diff := cmp.Diff(direct.body, gate.body); diff != "" {
		t.Errorf("body (-direct +gate):\n%s", diff)
	}
	if d, g := direct.header["Mcp-Session-Id"], gate.header["Mcp-Session-Id"]; len(d) != len(g) {
		t.Errorf("session ids %q directly, %q through the gate", d, g)
	}
	for _, name := range []string{"Content-Type", "Cache-Control", "Allow"} {
		if d, g := direct.header.Values(name), gate.header.Values(name); !cmp.Equal(d, g) {
			t.Errorf("%s: %q directly, %q through the gate", name, d, g)
		}
	}
}

// sameError requires equal statuses, ids and codes; messages may differ.
func sameError(t *testing.T, direct, gate answer) {
	t.Helper()
	type verdict struct {
		Status int
		ID     string
		Code   int
	}
	judge := func(a answer) verdict {
		var body struct {
			ID    json.RawMessage
			Error struct{ Code int }
		}
		_ = json.Unmarshal([]byte(a.body), &body) // a server may answer with plain text
		return verdict{a.status, string(body.ID), body.Error.Code}
	}
	want := judge(direct)
	if want.Status < 400 {
		t.Errorf("the server itself accepts this: %d %s", direct.status, direct.body)
	}
	if diff := cmp.Diff(want, judge(gate)); diff != "" {
		t.Errorf("verdict (-direct +gate):\n%s\ndirect: %s\ngate: %s", diff, direct.body, gate.body)
	}
}

// sameRefusal requires equal statuses. The SDK refuses unreadable input with plain text, the
// gate with a JSON-RPC error.
func sameRefusal(t *testing.T, direct, gate answer) {
	t.Helper()
	if direct.status < 400 || gate.status != direct.status {
		t.Errorf("%d directly (%s), %d through the gate (%s)", direct.status, direct.body, gate.status, gate.body)
	}
}

// legacyCases need only a session.
var legacyCases = []wireCase{
	{name: "call", body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + awkward + `}}`},
	{name: "odd spelling", body: " {\n\t\"params\" : {\"arguments\":{ \"a\" : 1.50e+3 },\"name\":\"echo\", \"x\":[1 , 2]} , \"method\":\"tools\\/call\",\"id\":\"\\u0031\" ,\"jsonrpc\":\"2.0\"}\r\n"},
	{name: "EC-MCP-013 integer id", body: `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`},
	{name: "EC-MCP-014 text id", body: `{"jsonrpc":"2.0","id":"1","method":"ping"}`},
	{name: "list", body: `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"progressToken":1.0}}}`},
	{name: "unknown tool", body: `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"nothing"}}`},
	{name: "EC-MCP-004 notification", body: `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}`},
	{name: "EC-MCP-007 unknown method", body: `{"jsonrpc":"2.0","id":6,"method":"no/such","params":{}}`},
	{name: "response nobody asked for", body: `{"jsonrpc":"2.0","id":99,"result":{}}`},
	{name: "initialize again", body: `{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`},
	{name: "dead session", headers: []string{"Mcp-Session-Id", "gone"}, body: `{"jsonrpc":"2.0","id":5,"method":"ping"}`},
	{name: "GET without session", method: http.MethodGet, headers: []string{"Mcp-Session-Id", ""}},
	{name: "GET of a dead session", method: http.MethodGet, headers: []string{"Mcp-Session-Id", "gone"}},
	{name: "DELETE without session", method: http.MethodDelete, headers: []string{"Mcp-Session-Id", ""}},
	{name: "DELETE of a dead session", method: http.MethodDelete, headers: []string{"Mcp-Session-Id", "gone"}},
	{name: "resuming what cannot be resumed", method: http.MethodGet, headers: []string{"Last-Event-ID", "x_1"}},
}

func TestSameBytesLegacy(t *testing.T) {
	for _, version := range legacyVersions {
		t.Run(version, func(t *testing.T) { compare(t, version, legacyCases, same) })
	}
}

// EC-MCP-005, F-007.4.
func TestSameBytesBatch(t *testing.T) {
	cases := []wireCase{
		{name: "one request", body: `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`},
		{name: "request and notification", body: ` [ {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}} , {"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"n":1.0}}}]`},
		{name: "notifications only", body: `[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}]`},
	}
	compare(t, "2025-03-26", cases, same)
	t.Run("unsupported in later versions", func(t *testing.T) {
		compare(t, "2025-06-18", cases, sameRefusal)
	})
}

func modernCase(name, body string, headers ...string) wireCase {
	return wireCase{name: name, body: body, headers: headers}
}

func TestSameBytesModern(t *testing.T) {
	request := (&site{setting: setting{version: modernVersion}}).request
	compare(t, modernVersion, []wireCase{
		modernCase("discover", request(`"d"`, "server/discover", ""), "Mcp-Method", "server/discover"),
		modernCase("call", request(`9007199254740993`, "tools/call", `"name":"echo","arguments":`+awkward), "Mcp-Method", "tools/call", "Mcp-Name", "echo"),
		modernCase("list", request(`1`, "tools/list", ""), "Mcp-Method", "tools/list"),
		modernCase("session id that means nothing", request(`1`, "tools/list", ""), "Mcp-Method", "tools/list", "Mcp-Session-Id", "gone"),
		modernCase("notification", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`),
		modernCase("unknown tool", request(`2`, "tools/call", `"name":"nothing"`), "Mcp-Method", "tools/call", "Mcp-Name", "nothing"),
		modernCase("unknown method", request(`"u"`, "no/such", ""), "Mcp-Method", "no/such"),
		modernCase("removed method", request(`3`, "ping", ""), "Mcp-Method", "ping"),
		{name: "GET", method: http.MethodGet},
		{name: "DELETE", method: http.MethodDelete},
	}, same)
}

func TestSameErrorsModern(t *testing.T) {
	request := (&site{setting: setting{version: modernVersion}}).request
	call := request(`"c"`, "tools/call", `"name":"echo","arguments":{}`)
	compare(t, modernVersion, []wireCase{
		modernCase("another method", call, "Mcp-Method", "tools/list", "Mcp-Name", "echo"),
		modernCase("no method", call, "Mcp-Name", "echo"),
		modernCase("method in capitals", call, "Mcp-Method", "TOOLS/CALL", "Mcp-Name", "echo"),
		modernCase("another name", call, "Mcp-Method", "tools/call", "Mcp-Name", "other"),
		modernCase("encoded name, which the SDK does not decode", call, "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?ZWNobw==?="),
		modernCase("no name", call, "Mcp-Method", "tools/call"),
		modernCase("another version", call, "Mcp-Method", "tools/call", "Mcp-Name", "echo", "Mcp-Protocol-Version", "2025-11-25"),
		modernCase("no version header", call, "Mcp-Method", "tools/call", "Mcp-Name", "echo", "Mcp-Protocol-Version", ""),
		modernCase("version unknown to all", strings.ReplaceAll(call, modernVersion, "2099-01-01"), "Mcp-Method", "tools/call", "Mcp-Name", "echo", "Mcp-Protocol-Version", "2099-01-01"),
		modernCase("no metadata", `{"jsonrpc":"2.0","id":"m","method":"tools/list","params":{}}`, "Mcp-Method", "tools/list"),
		modernCase("no capabilities", strings.Replace(request(`"k"`, "tools/list", ""), `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1), "Mcp-Method", "tools/list"),
	}, sameError)
}

// The gate refuses messages that every server must refuse, like the server does.
func TestSameRefusals(t *testing.T) {
	cases := []wireCase{
		{name: "EC-MCP-002 no JSON", body: `{"jsonrpc":`},
		{name: "EC-MCP-003 no JSON-RPC", body: `{"id":1,"method":"ping"}`},
		{name: "EC-MCP-006 empty batch", body: `[]`},
		{name: "no content type", headers: []string{"Content-Type", ""}, body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{name: "foreign host", headers: []string{"Host", "evil.example"}, body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
	}
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			compare(t, version, cases, sameRefusal)
		})
	}
}
