package mcp_test

import (
	"errors"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func TestClassify(t *testing.T) {
	tests := []struct {
		name, message string
		version       string // of the header; empty means none
		want          mcp.Era
		wantProblem   mcp.Type
	}{
		{"a request without anything is of the oldest version", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "", mcp.Legacy, ""},
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}`, "", mcp.Legacy, ""},
		{"a version of the past", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "2025-11-25", mcp.Legacy, ""},
		{"a version that never was", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "1900-01-01", mcp.Legacy, ""},
		{"the header alone makes it modern, and malformed", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "2026-07-28", mcp.Modern, mcp.InvalidParams},
		{"a response is not allowed in modern", `{"jsonrpc":"2.0","id":1,"result":{}}`, "2026-07-28", mcp.Modern, mcp.InvalidRequest},
		{"a response of a legacy client", `{"jsonrpc":"2.0","id":1,"result":{}}`, "2025-11-25", mcp.Legacy, ""},
		{"headers of modern notifications are not checked", `{"jsonrpc":"2.0","method":"notifications/x","params":{` + modernMeta + `}}`, "", mcp.Modern, ""},
		{"the body makes it modern, without the header", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, "", mcp.Modern, mcp.HeaderMismatch},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, "", mcp.Legacy, ""},
		{"a batch with a modern message in it", `[{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}]`, "", mcp.Legacy, mcp.InvalidRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := jsonrpc.Parse([]byte(tt.message), jsonrpc.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			var h mcp.Headers
			if tt.version != "" {
				h.Version = []string{tt.version}
			}
			era, err := mcp.Classify(p, h)
			if era != tt.want {
				t.Errorf("era = %s; want %s", era, tt.want)
			}
			if got := typeOf(err); got != tt.wantProblem {
				t.Errorf("problem = %q (%v); want %q", got, err, tt.wantProblem)
			}
		})
	}
}

// The encodings are those of the specification's table.
func TestMirroredNames(t *testing.T) {
	tests := []struct {
		name, header string
		match        bool
	}{
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?=", true},
		{" padded ", "=?base64?IHBhZGRlZCA=?=", true},
		{"=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", true},
		{"us west 1", "us west 1", true},
		{"Hello", "=?base64?SGVsbG8?=", false},
		{"=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?=", true},
		{"=?base64?SGVsbG8=", "=?base64?SGVsbG8=", true},
		{"x", "=?base64?eA=?=", false},
		{"\xff", "=?base64?/w==?=", false},
		{"x", "=?base64?eR==?=", false},
		{"x", "y", false},
	}
	for _, tt := range tests {
		message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + string(jsonrpc.AppendString(nil, tt.name)) + `,` + modernMeta + `}}`
		p, err := jsonrpc.Parse([]byte(message), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = mcp.Classify(p, mcp.Headers{
			Version: []string{"2026-07-28"},
			Method:  []string{"tools/call"},
			Name:    []string{tt.header},
		})
		if match := err == nil; match != tt.match {
			t.Errorf("name %q, header %q: %v; want match = %v", tt.name, tt.header, err, tt.match)
		}
	}
}

func TestMirroredMethod(t *testing.T) {
	p, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		methods []string
		want    mcp.Type
	}{
		{[]string{"tools/list"}, ""},
		{[]string{"tools/call"}, mcp.HeaderMismatch},
		{[]string{"Tools/List"}, mcp.HeaderMismatch},
		{[]string{"tools/list", "tools/list"}, mcp.HeaderMismatch},
		{nil, mcp.HeaderMismatch},
	} {
		_, err := mcp.Classify(p, mcp.Headers{Version: []string{"2026-07-28"}, Method: tt.methods})
		if got := typeOf(err); got != tt.want {
			t.Errorf("Mcp-Method %q: problem %q; want %q", tt.methods, got, tt.want)
		}
	}
}

func typeOf(err error) mcp.Type {
	problem, ok := errors.AsType[*mcp.Problem](err)
	if !ok {
		return ""
	}
	return problem.Type
}
