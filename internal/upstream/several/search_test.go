package several

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"crm__create_Issue2":     "crm create Issue 2",
		"listPullRequests":       "list Pull Requests",
		"HTTP-status, of \"a\".": "HTTP status of a",
		"删除file":                 "删 除 file",
		"löschen Ärger":          "löschen Ärger",
	} {
		if got := strings.Join(slices.Collect(words(text)), " "); got != want {
			t.Errorf("%q has the words %q; want %q", text, got, want)
		}
	}
}

func TestRank(t *testing.T) {
	tool := func(name, description string) []byte {
		return fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, description)
	}
	entries := [][]byte{
		tool("create_issue", "Create an issue in a repository."),
		tool("list_issues", "List the issues of a repository."),
		tool("issue", "Show one."),
		tool("send_mail", "Send a message, "+strings.Repeat("issue issue issue ", 100)),
		tool("deleteFile", "Remove it."),
		tool("crm__search", "Search customers."),
		tool("xwrite", "文件を削除する"),
		[]byte(`{"name":7}`),
	}
	for query, want := range map[string]string{
		"issue":                   "issue create_issue list_issues send_mail",
		"create an issue":         "create_issue issue list_issues send_mail",
		"LIST_ISSUES":             "list_issues create_issue issue send_mail",
		"file deletion":           "deleteFile",
		"search of a customer":    "crm__search",
		"crm__search":             "crm__search",
		"削除":                      "xwrite",
		"":                        "",
		"!":                       "",
		"unknown words only here": "",
	} {
		var got []string
		for _, entry := range rank(query, entries) {
			name, _ := (jsonrpc.Value{Bytes: entry}).Member("name").Text()
			got = append(got, name)
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}

func TestOwnTools(t *testing.T) {
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		m, err := jsonrpc.ParseMessage(jsonrpc.AppendResult(nil, []byte("1"), OwnTools(era)), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for tool := range m.Result.Member("tools").Elements() {
			name, _ := tool.Member("name").Text()
			names = append(names, name)
		}
		if diff := cmp.Diff([]string{FindTools, CallTool}, names); diff != "" {
			t.Error(diff)
		}
	}
}

// manyTools returns the lists of some servers.
func manyTools(servers, tools int) (*Endpoint, []Part) {
	configs := make([]ServerConfig, servers)
	for i := range configs {
		configs[i].Client = httpclient.New(httpclient.Config{Name: fmt.Sprintf("server%d", i)})
		if i > 0 {
			configs[i].Prefix = configs[i].Client.Name()
		}
	}
	e := New("/mcp", configs, nil, time.Second, slog.New(slog.DiscardHandler))
	parts := make([]Part, servers)
	verbs, things := strings.Fields("create delete list update search move copy archive"), strings.Fields("issue file customer invoice calendar message project user page build")
	for i, s := range e.Servers {
		var list [][]byte
		for n := range tools {
			verb, thing := verbs[n%len(verbs)], things[n/len(verbs)%len(things)]
			list = append(list, fmt.Appendf(nil, `{"name":"%s_%s_%d","description":"%s a %s of the workspace. Returns the identifier of the %s and when it was changed last. Fails if the user may not %s it.",`+
				`"inputSchema":{"type":"object","properties":{"id":{"type":"string","description":"The identifier of the %s"},"limit":{"type":"integer","minimum":1,"maximum":100},`+
				`"fields":{"type":"array","items":{"type":"string"},"description":"The fields to return"}},"required":["id"]}}`, verb, thing, n, verb, thing, thing, verb, thing))
		}
		result := jsonrpc.AppendObject(nil, jsonrpc.Member{Name: "tools", JSON: jsonrpc.Array(list)})
		parts[i] = Part{Server: s, Results: []jsonrpc.Value{{Bytes: result}}}
	}
	return e, parts
}

// Twenty servers with 2,000 tools in all.
func BenchmarkLists(b *testing.B) {
	e, parts := manyTools(20, 100)
	defer e.Close()
	b.Run("merge", func(b *testing.B) {
		for b.Loop() {
			e.MergeLists("client", "tools/list", mcp.Modern, parts)
		}
	})
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			e.Found(mcp.Modern, "delete an invoice of a customer", 8, parts)
		}
	})
	entries := e.merge("", "tools/list", parts).entries
	b.Run("rank", func(b *testing.B) {
		for b.Loop() {
			rank("delete an invoice of a customer", entries)
		}
	})
}
