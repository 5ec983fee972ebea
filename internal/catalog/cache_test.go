package catalog_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// listPage learns a page of tools for a client.
func listPage(t *testing.T, g *catalog.Catalog, c catalog.Client, cursor, tools string) {
	t.Helper()
	page := catalog.Page{Method: "tools/list", Cursor: cursor, Result: []byte(`{"tools":` + tools + `}`)}
	g.LearnPage(t.Context(), c, page, value(tools))
}

// The lists of one upstream for many clients do not replace cached lists of another upstream.
func TestCacheIsSeparateForEachUpstream(t *testing.T) {
	g := newCatalog(t, func(s *catalog.Settings) { s.Upstreams = []string{"good", "bad"} }, policy.Rule{Match: "*", Action: policy.Forward})
	good := catalog.Client{Upstream: "good", Key: "a"}
	listPage(t, g, good, "", `[{"name":"read","annotations":{"readOnlyHint":true}}]`)
	padding := strings.Repeat("d", 8<<10)
	for i := range 50 {
		var tools []string
		for n := range 100 {
			tools = append(tools, fmt.Sprintf(`{"name":"t%d","description":%q}`, n, padding))
		}
		listPage(t, g, catalog.Client{Upstream: "bad", Key: fmt.Sprint(i)}, "", "["+strings.Join(tools, ",")+"]")
	}
	if tool, ok := g.Tool(good, "read"); !ok || tool.Annotations.ReadOnly == nil {
		t.Errorf("what is known of the good upstream's tool: %+v, %v", tool, ok)
	}
	known := 0
	for i := range 50 {
		if _, ok := g.Tool(catalog.Client{Upstream: "bad", Key: fmt.Sprint(i)}, "t0"); ok {
			known++
		}
	}
	if known == 0 || known > 25 {
		t.Errorf("800 KiB of tools are known for %d clients; want some, but no more than 16 MiB", known)
	}
}

// Long texts of a tool are not kept. A tool with a long title counts as dangerous. A tool that
// cannot be kept completely is unknown, so policy assumes the worst.
func TestToolsHaveBoundedSize(t *testing.T) {
	g := newCatalog(t, nil, policy.Rule{Match: "*", Action: policy.Forward})
	c := client("a")
	long := strings.Repeat("x", 15<<20)
	some := strings.Repeat("y", 100<<10)
	listPage(t, g, c, "", `[{"name":"a","annotations":{"readOnlyHint":true,"title":"`+long+`"},"execution":{"taskSupport":"`+long+`"}},
		{"name":"b","annotations":{"readOnlyHint":true,"title":"`+some+`"},"description":"`+some+`"},
		{"name":"c","annotations":{"readOnlyHint":true,"title":"C"},"execution":{"taskSupport":"required"}},
		{"name":"`+some+`"},
		{"name":"d","inputSchema":{"x-mcp-header":"`+long+`"}}]`)
	for _, name := range []string{"a", "b", "c"} {
		tool, ok := g.Tool(c, name)
		if size := len(tool.Annotations.Title) + len(tool.TaskSupport) + len(tool.Description) + len(tool.Mirrored); !ok || size > 10<<10 {
			t.Errorf("%s: %d bytes are kept, %v", name, size, ok)
		}
		if readOnly := tool.Annotations.ReadOnly != nil && *tool.Annotations.ReadOnly; readOnly != (name == "c") {
			t.Errorf("%s counts as read-only: %v", name, readOnly)
		}
	}
	if tool, _ := g.Tool(c, "a"); tool.TaskSupport != "forbidden" {
		t.Errorf("task support %q; want forbidden", tool.TaskSupport)
	}
	if tool, _ := g.Tool(c, "c"); tool.TaskSupport != "required" || tool.Annotations.Title != "C" {
		t.Errorf("an ordinary tool is cached as %+v", tool)
	}
	for _, name := range []string{some, some[:1<<10], "d"} {
		if _, ok := g.Tool(c, name); ok {
			t.Errorf("a tool that is too large is known; its name begins with %.10s", name)
		}
	}
}

// A server that answers any cursor with new tools fills only the share of one client. That is
// logged once and counted. A tool is dropped if its new definition does not fit.
func TestEndlessListFillsOneShare(t *testing.T) {
	snapshot, _, err := policy.Compile(policy.Config{Rules: rules, Default: policy.Rule{Action: policy.Deny}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := metrics.New()
	g := catalog.New(&catalog.Settings{Policy: snapshot, Upstreams: []string{"up"}}, time.Now, slog.New(slog.NewTextHandler(&log, nil)), m)
	c := client("a")
	description := strings.Repeat("d", 4<<10)
	listPage(t, g, c, "", `[{"name":"changes","annotations":{"readOnlyHint":true}}]`)
	for page := range 100 {
		var tools []string
		for n := range 100 {
			tools = append(tools, fmt.Sprintf(`{"name":"t%d_%d","description":%q}`, page, n, description))
		}
		listPage(t, g, c, fmt.Sprint(page), "["+strings.Join(tools, ",")+"]")
	}
	known := 0
	for i := range 10_000 {
		if _, ok := g.Tool(c, fmt.Sprintf("t%d_%d", i/100, i%100)); ok {
			known++
		}
	}
	if known < 1000 || known > 2000 {
		t.Errorf("%d tools of 4 KiB are known; want about 8 MiB", known)
	}
	if n := strings.Count(log.String(), "limit=client"); n != 1 {
		t.Errorf("logged %d times; want 1: %s", n, &log)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(w.Body.String(), `thoughtgate_catalog_overflows_total{limit="client",upstream="up"}`) {
		t.Error("not counted")
	}
	listPage(t, g, c, "last", `[{"name":"changes","description":"`+description+description+`"}]`)
	if tool, ok := g.Tool(c, "changes"); ok {
		t.Errorf("what was known of a tool before it changed is still known: %+v", tool)
	}
	listPage(t, g, c, "", `[{"name":"changes"}]`)
	if _, ok := g.Tool(c, "changes"); !ok {
		t.Error("the cache did not notice that the list begins again")
	}
}

// A client with many cursors, or with long client information, does not exceed its share.
func TestCacheIsBoundedForOneClient(t *testing.T) {
	const bound = 40 << 20
	g := newCatalog(t, nil, policy.Rule{Match: "*", Action: policy.Forward})
	c := catalog.Client{Upstream: "test", Key: "one"}
	page := []byte(strings.Repeat("x", 1<<20)) // shared, so that a gate which keeps all does not need more than that
	size := 0
	for i := range 203 {
		g.LearnPage(t.Context(), c, catalog.Page{Method: "tools/list", Cursor: fmt.Sprint(i), Result: page}, jsonrpc.Value{})
	}
	for i := range 203 {
		if kept, ok := g.CachedPage(c, "tools/list", fmt.Sprint(i)); ok {
			size += len(kept)
		}
	}
	if size == 0 || size > bound {
		t.Errorf("%d bytes of one client's pages are kept", size)
	}

	cursor, size := strings.Repeat("c", 1<<20), 0
	for i := range 203 {
		g.LearnPage(t.Context(), c, catalog.Page{Method: "tools/list", Cursor: cursor + fmt.Sprint(i)}, jsonrpc.Value{})
	}
	for i := range 203 {
		if _, ok := g.CachedPage(c, "tools/list", cursor+fmt.Sprint(i)); ok {
			size += len(cursor)
		}
	}
	if size > bound {
		t.Errorf("%d bytes of one client's cursors are kept", size)
	}

	name := strings.Repeat("n", 1<<20)
	for i := range 203 {
		g.LearnHandshake(t.Context(), catalog.Client{Upstream: "test", Key: fmt.Sprint(i)}, catalog.Handshake{Session: policy.Session{Client: name, Version: name, Protocol: name}})
	}
	size = 0
	for i := range 203 {
		s := g.Handshake(catalog.Client{Upstream: "test", Key: fmt.Sprint(i)}).Session
		size += len(s.Client) + len(s.Version) + len(s.Protocol)
	}
	if size == 0 || size > 1<<20 {
		t.Errorf("%d bytes of names of clients are kept", size)
	}
}
