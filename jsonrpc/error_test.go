package jsonrpc_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func TestAppendErrorResponse(t *testing.T) {
	tests := []struct {
		name, id string
		e        jsonrpc.Error
		want     string
	}{
		{
			"with data", `"x"`,
			jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "internal error", Data: []byte(`{"correlation_id":"c"}`)},
			`{"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":"internal error","data":{"correlation_id":"c"}}}`,
		},
		{
			"without data", `1.0`,
			jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method", Data: []byte{}},
			`{"jsonrpc":"2.0","id":1.0,"error":{"code":-32601,"message":"no such method"}}`,
		},
		{
			"without id", ``,
			jsonrpc.Error{Code: jsonrpc.CodeParse, Message: "incomplete JSON"},
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"incomplete JSON"}}`,
		},
		{
			"text that needs escapes", `1`,
			jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a \"b\"\n\x01 é \xff"},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"a \"b\"\n\u0001 é ` + "\ufffd" + `"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := string(jsonrpc.AppendErrorResponse([]byte("before"), []byte(tt.id), &tt.e))
			if got != "before"+tt.want {
				t.Errorf("got  %s\nwant %s", got, "before"+tt.want)
			}
			if m := mustParseOne(t, got[len("before"):]); m.Kind != jsonrpc.Response || !m.Error.Present() {
				t.Errorf("it is read as %s with error %s", m.Kind, m.Error.Bytes)
			}
			if tt.e.Error() != tt.e.Message {
				t.Errorf("Error() = %q", tt.e.Error())
			}
		})
	}
}

func TestAppendResult(t *testing.T) {
	for id, want := range map[string]string{
		`"x"`: `{"jsonrpc":"2.0","id":"x","result":{"a":[]}}`,
		``:    `{"jsonrpc":"2.0","id":null,"result":{"a":[]}}`,
	} {
		if got := string(jsonrpc.AppendResult(nil, []byte(id), []byte(`{"a":[]}`))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
