package wire_test

import (
	"errors"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func TestClassify(t *testing.T) {
	tests := []struct {
		name, message string
		version       string // of the header; empty means none
		want          wire.Era
		wantProblem   wire.Type
	}{
		{"a request without anything is of the oldest version", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "", wire.Legacy, ""},
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}`, "", wire.Legacy, ""},
		{"a version of the past", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "2025-11-25", wire.Legacy, ""},
		{"a version that never was", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "1900-01-01", wire.Legacy, ""},
		{"the header alone makes it modern, and malformed", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "2026-07-28", wire.Modern, wire.InvalidParams},
		{"a response has no place in modern", `{"jsonrpc":"2.0","id":1,"result":{}}`, "2026-07-28", wire.Modern, wire.InvalidRequest},
		{"a response of a legacy client", `{"jsonrpc":"2.0","id":1,"result":{}}`, "2025-11-25", wire.Legacy, ""},
		{"headers of modern notifications are not checked", `{"jsonrpc":"2.0","method":"notifications/x","params":{` + modernMeta + `}}`, "", wire.Modern, ""},
		{"the body makes it modern, without the header", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, "", wire.Modern, wire.HeaderMismatch},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, "", wire.Legacy, ""},
		{"a batch with a modern message in it", `[{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}]`, "", wire.Legacy, wire.InvalidRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := jsonrpc.Parse([]byte(tt.message), jsonrpc.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			var h wire.Headers
			if tt.version != "" {
				h.Version = []string{tt.version}
			}
			era, err := wire.Classify(p, h)
			if era != tt.want {
				t.Errorf("era = %s; want %s", era, tt.want)
			}
			if got := typeOf(err); got != tt.wantProblem {
				t.Errorf("problem = %q (%v); want %q", got, err, tt.wantProblem)
			}
		})
	}
}

// The encodings are those of the specification's own table.
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
		_, err = wire.Classify(p, wire.Headers{
			Version: []string{"2026-07-28"},
			Method:  []string{"tools/call"},
			Name:    []string{tt.header},
		})
		if match := err == nil; match != tt.match {
			t.Errorf("name %q, header %q: %v; want match = %v", tt.name, tt.header, err, tt.match)
		}
	}
}

// The method that the headers name must be the one of the message, and the only
// one.
func TestMirroredMethod(t *testing.T) {
	p, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		methods []string
		want    wire.Type
	}{
		{[]string{"tools/list"}, ""},
		{[]string{"tools/call"}, wire.HeaderMismatch},
		{[]string{"Tools/List"}, wire.HeaderMismatch},
		{[]string{"tools/list", "tools/list"}, wire.HeaderMismatch},
		{nil, wire.HeaderMismatch},
	} {
		_, err := wire.Classify(p, wire.Headers{Version: []string{"2026-07-28"}, Method: tt.methods})
		if got := typeOf(err); got != tt.want {
			t.Errorf("Mcp-Method %q: problem %q; want %q", tt.methods, got, tt.want)
		}
	}
}

func typeOf(err error) wire.Type {
	problem, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return ""
	}
	return problem.Type
}
