package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
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
	if err := mcp.MirrorArguments(h, tool, arguments); err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Mcp-Param-Region": {"us west 1"}, "Mcp-Param-Count": {"42"}, "Mcp-Param-Dry-Run": {"true"},
		"Mcp-Param-Path": {"=?base64?L3RtcC/DpA==?="}, "Other": {"kept"},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// A definition with invalid marks is refused: protocol.md 1.2.
func TestMirrorsRefused(t *testing.T) {
	property := func(schema string) string { return `{"properties":{"a":` + schema + `}}` }
	tests := []struct{ name, schema, want string }{
		{"empty", property(`{"type":"string","x-mcp-header":""}`), "not the name"},
		{"a space", property(`{"type":"string","x-mcp-header":"a b"}`), "not the name"},
		{"a line break", property(`{"type":"string","x-mcp-header":"a\r\nHost: x"}`), "not the name"},
		{"not ASCII", property(`{"type":"string","x-mcp-header":"ä"}`), "not the name"},
		{"a number", property(`{"type":"string","x-mcp-header":7}`), "not the name"},
		{"null", property(`{"type":"string","x-mcp-header":null}`), "not the name"},
		{"twice", `{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"REGION"}}}`, "twice"},
		{"an object", property(`{"type":"object","x-mcp-header":"A"}`), "not a string"},
		{"a number type", property(`{"type":"number","x-mcp-header":"A"}`), "not a string"},
		{"no type", property(`{"x-mcp-header":"A"}`), "not a string"},
		{"the root", `{"type":"string","x-mcp-header":"A"}`, "not at a property"},
		{"in items", property(`{"type":"array","items":{"type":"string","x-mcp-header":"A"}}`), "not at a property"},
		{"in anyOf", property(`{"anyOf":[{"type":"string","x-mcp-header":"A"}]}`), "not at a property"},
		{"in $defs", `{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`, "not at a property"},
		{"below items", property(`{"items":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}`), "not at a property"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tool := jsonrpc.Value{Bytes: []byte(`{"name":"t","inputSchema":` + tt.schema + `}`)}
			_, err := mcp.Mirrors(tool)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want one with %q", err, tt.want)
			}
			if err := mcp.MirrorArguments(http.Header{}, tool, jsonrpc.Value{Bytes: []byte(`{"a":"x"}`)}); err == nil {
				t.Error("the headers are set in spite of the error")
			}
		})
	}
}

func TestMarksOutsideSchemasAreIgnored(t *testing.T) {
	for _, schema := range []string{
		`{"properties":{"x-mcp-header":{"type":"string"}}}`,
		`{"properties":{"a":{"type":"object","default":{"x-mcp-header":""},"enum":[{"x-mcp-header":""}]}}}`,
	} {
		found, err := mcp.Mirrors(jsonrpc.Value{Bytes: []byte(`{"inputSchema":` + schema + `}`)})
		if err != nil || len(found) != 0 {
			t.Errorf("%s: %v, %v; want no marks", schema, found, err)
		}
	}
}

func TestCheckMirrors(t *testing.T) {
	tool := jsonrpc.Value{Bytes: []byte(`{"inputSchema":{"properties":{
		"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"},
		"dry":{"type":"boolean","x-mcp-header":"Dry"}}}}`)}
	arguments := jsonrpc.Value{Bytes: []byte(`{"region":"eu","count":42,"big":1,"dry":null}`)}
	tests := []struct {
		name string
		h    http.Header
		ok   bool
	}{
		{"none", http.Header{}, true},
		{"the same", http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-Count": {"42"}}, true},
		{"encoded", http.Header{"Mcp-Param-Region": {"=?base64?ZXU=?="}}, true},
		{"the same number", http.Header{"Mcp-Param-Count": {"42.0"}}, true},
		{"unknown", http.Header{"Mcp-Param-Other": {"x"}}, true},
		{"another", http.Header{"Mcp-Param-Region": {"us"}}, false},
		{"another case", http.Header{"Mcp-Param-Region": {"EU"}}, false},
		{"another number", http.Header{"Mcp-Param-Count": {"43"}}, false},
		{"twice", http.Header{"Mcp-Param-Region": {"eu", "eu"}}, false},
		{"of null", http.Header{"Mcp-Param-Dry": {"true"}}, false},
		{"badly encoded", http.Header{"Mcp-Param-Region": {"=?base64?ZXU?="}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if problem := mcp.CheckMirrors(tt.h, tool, arguments); (problem == nil) != tt.ok {
				t.Errorf("problem %v; want one: %v", problem, !tt.ok)
			}
		})
	}
}
