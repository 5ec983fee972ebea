package wire_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func TestMirrorArguments(t *testing.T) {
	tool := jsonrpc.Value{Bytes: []byte(`{"name":"t","inputSchema":{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"count":{"type":"integer","x-mcp-header":"Count"},
		"dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
		"none":{"type":"string","x-mcp-header":"None"},
		"absent":{"type":"string","x-mcp-header":"Absent"},
		"plain":{"type":"string"},
		"nested":{"type":"object","properties":{"path":{"type":"string","x-mcp-header":"Path"}}}}}}`)}
	arguments := jsonrpc.Value{Bytes: []byte(`{"region":"us west 1","count":42,"dry":true,"none":null,"plain":"x","nested":{"path":"/tmp/ä"}}`)}
	h := http.Header{"Mcp-Param-Region": {"old"}, "Mcp-Param-Stale": {"old"}, "Other": {"kept"}}
	wire.MirrorArguments(h, tool, arguments)
	want := http.Header{
		"Mcp-Param-Region": {"us west 1"}, "Mcp-Param-Count": {"42"}, "Mcp-Param-Dry-Run": {"true"},
		"Mcp-Param-Path": {"=?base64?L3RtcC/DpA==?="}, "Other": {"kept"},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}
