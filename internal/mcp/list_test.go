package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func response(t *testing.T, text string) *jsonrpc.Message {
	t.Helper()
	p, err := jsonrpc.Parse([]byte(text), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return &p.Messages[0]
}

// F-003: the rest of tools/list keeps its bytes and its order.
func TestRewriteList(t *testing.T) {
	view := func(l mcp.ListEntry) mcp.View {
		return mcp.View{
			Hidden:      strings.Contains(l.Name+l.URI, "secret"),
			TaskSupport: map[string]string{"hold": "optional", "must": "required"}[l.Name],
		}
	}
	tests := []struct{ name, method, in, want string }{
		{"nothing to do", "tools/list", `{"tools":[ {"name":"a", "x":1.0} ],"nextCursor":"c"}`, `{"tools":[ {"name":"a", "x":1.0} ],"nextCursor":"c"}`},
		{"EC-SEP-004: no tools", "tools/list", `{"tools":[]}`, `{"tools":[]}`},
		{"support is added", "tools/list", `{"tools":[{"name":"a"}, {"name":"hold", "x":1.0}]}`, `{"tools":[{"name":"a"}, {"name":"hold", "x":1.0,"execution":{"taskSupport":"optional"}}]}`},
		{"support is changed", "tools/list", `{"tools":[{"execution":{"y":2,"taskSupport":"forbidden"},"name":"must"}]}`, `{"tools":[{"execution":{"y":2,"taskSupport":"required"},"name":"must"}]}`},
		{"some are hidden", "tools/list", `{"tools":[{"name":"secret1"}, {"name":"a"},{"name":"secret2"},{"name":"hold"},{"name":"secret3"}],"z":0}`, `{"tools":[{"name":"a"},{"name":"hold","execution":{"taskSupport":"optional"}}],"z":0}`},
		{"all are hidden", "tools/list", `{"tools":[{"name":"secret"}]}`, `{"tools":[]}`},
		{"resources by URI", "resources/list", `{"resources":[{"uri":"file:///secret","name":"n"},{"uri":"file:///a","name":"n"}]}`, `{"resources":[{"uri":"file:///a","name":"n"}]}`},
		{"templates by template", "resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"x://secret/{id}","name":"n"}]}`, `{"resourceTemplates":[]}`},
		{"prompts by name", "prompts/list", `{"prompts":[{"name":"secret"},{"name":"p"}]}`, `{"prompts":[{"name":"p"}]}`},
		{"a filtered list is private", "tools/list", `{"tools":[{"name":"secret"}],"cacheScope":"public","ttlMs":5}`, `{"tools":[],"cacheScope":"private","ttlMs":5}`},
		{"an unfiltered one stays public", "tools/list", `{"tools":[{"name":"a"}],"cacheScope":"public"}`, `{"tools":[{"name":"a"}],"cacheScope":"public"}`},
		{"no list at all", "tools/list", `{"resultType":"complete"}`, `{"resultType":"complete"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const head, tail = `{"jsonrpc": "2.0","id":1,"result":`, `}`
			got := mcp.RewriteList(response(t, head+tt.in+tail), tt.method, view)
			if diff := cmp.Diff(head+tt.want+tail, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// F-001: the capability is merged with the upstream's.
func TestDeclare(t *testing.T) {
	tests := []struct {
		name     string
		era      mcp.Era
		list     bool
		in, want string

		noTasks, changes bool
	}{
		{"F-001.4: upstream has none", mcp.Legacy, true, `{"tools":{"listChanged":true}}`, `{"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`, false, false},
		{"without lists", mcp.Legacy, false, `{}`, `{"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`, false, false},
		{"F-001.6: upstream has tasks", mcp.Legacy, true, `{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`, `{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`, false, false},
		{"upstream has some", mcp.Legacy, true, `{"tasks":{"requests":{"tools":{},"x":1}}}`, `{"tasks":{"requests":{"tools":{"call":{}},"x":1},"list":{},"cancel":{}}}`, false, false},
		{"upstream has an old shape", mcp.Legacy, true, `{"tasks":true}`, `{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`, false, false},
		{"modern, none", mcp.Modern, true, `{"tools":{}}`, `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`, false, false},
		{"modern, other extensions", mcp.Modern, true, `{"extensions":{"x/y":{"a":1}}}`, `{"extensions":{"x/y":{"a":1},"io.modelcontextprotocol/tasks":{}}}`, false, false},
		{"modern, there already", mcp.Modern, true, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, false, false},
		{"nothing", mcp.Legacy, true, `{"tools":{}}`, `{"tools":{}}`, true, false},
		{"lists that can change", mcp.Legacy, true, `{"tools":{},"prompts":{"listChanged":false,"x":1},"logging":{}}`, `{"tools":{"listChanged":true},"prompts":{"listChanged":true,"x":1},"logging":{}}`, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const head, tail = `{"jsonrpc":"2.0","id":1,"result":{"capabilities":`, `,"serverInfo":{}}}`
			got := mcp.Declare(response(t, head+tt.in+tail), tt.era, mcp.Capabilities{Tasks: !tt.noTasks, ListTasks: tt.list, ListChanged: tt.changes})
			if diff := cmp.Diff(head+tt.want+tail, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// CORE-007 NF-001.1: initialize is rewritten within a millisecond.
func BenchmarkDeclare(b *testing.B) {
	text := []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},` +
		`"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}},"serverInfo":{"name":"files","title":"Files",` +
		`"version":"1.2.3"},"instructions":"` + strings.Repeat("words ", 100) + `"}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		p, err := jsonrpc.Parse(text, jsonrpc.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		mcp.Declare(&p.Messages[0], mcp.Legacy, mcp.Capabilities{Tasks: true, ListTasks: true, ListChanged: true})
	}
}

// CORE-007 NF-001.2: lists are rewritten within 5 ms.
func BenchmarkRewriteList(b *testing.B) { benchmarkRewriteList(b, 200) }

// BenchmarkGrowth rewrites lists of 10 to 5,000 tools.
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprintf("tools/list/%d", n), func(b *testing.B) { benchmarkRewriteList(b, n) })
	}
}

func benchmarkRewriteList(b *testing.B, n int) {
	var tools []string
	for range n {
		tools = append(tools, `{"name":"hold","description":"`+strings.Repeat("words ", 20)+`","inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"where"},"n":{"type":"integer"}},"required":["path"]},"annotations":{"destructiveHint":true}}`)
	}
	text := `{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Join(tools, ",") + `]}}`
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		p, err := jsonrpc.Parse([]byte(text), jsonrpc.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		mcp.RewriteList(&p.Messages[0], "tools/list", func(mcp.ListEntry) mcp.View { return mcp.View{TaskSupport: "optional"} })
	}
}

func TestListedBy(t *testing.T) {
	for result, want := range map[string]string{
		`{"tools":[]}`:                   "tools/list",
		`{"nextCursor":"","prompts":[]}`: "prompts/list",
		`{"resources":[{}]}`:             "resources/list",
		`{"resourceTemplates":[]}`:       "resources/templates/list",
		`{"tools":{}}`:                   "",
		`{"tools":[],"content":[]}`:      "",
		`{"content":[],"tools":[]}`:      "",
		`{}`:                             "",
	} {
		packet, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":`+result+`}`), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := mcp.ListedBy(&packet.Messages[0]); got != want || ok != (want != "") {
			t.Errorf("ListedBy(%s) = %q, %t; want %q", result, got, ok, want)
		}
	}
}
