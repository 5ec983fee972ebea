package gate_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// listPage has a client be told of tools.
func listPage(t *testing.T, g *gate.Gate, c gate.Client, cursor, tools string) {
	t.Helper()
	page := gate.Page{Method: "tools/list", Cursor: cursor, Result: []byte(`{"tools":` + tools + `}`)}
	g.Learn(t.Context(), c, page, value(tools))
}

// An upstream's lists do not push out what is known of another's tools, however
// many clients it lists them to.
func TestCatalogIsPerUpstream(t *testing.T) {
	g := newGate(t, func(s *gate.Settings) { s.Upstreams = []string{"good", "bad"} }, policy.Rule{Match: "*", Action: policy.Forward})
	good := gate.Client{Upstream: "good", Key: "a"}
	listPage(t, g, good, "", `[{"name":"read","annotations":{"readOnlyHint":true}}]`)
	padding := strings.Repeat("d", 8<<10)
	for i := range 200 {
		var tools []string
		for n := range 100 {
			tools = append(tools, fmt.Sprintf(`{"name":"t%d","description":%q}`, n, padding))
		}
		listPage(t, g, gate.Client{Upstream: "bad", Key: fmt.Sprint(i)}, "", "["+strings.Join(tools, ",")+"]")
	}
	if tool, ok := g.Tool(good, "read"); !ok || tool.Annotations.ReadOnly == nil {
		t.Errorf("what is known of the good upstream's tool: %+v, %v", tool, ok)
	}
	known := 0
	for i := range 200 {
		if _, ok := g.Tool(gate.Client{Upstream: "bad", Key: fmt.Sprint(i)}, "t0"); ok {
			known++
		}
	}
	if known == 0 || known > 25 {
		t.Errorf("800 KiB of tools are known for %d clients; want some, but no more than 16 MiB", known)
	}
}

// No text of a tool is kept that is longer than any tool needs. Annotations with
// such a text count for nothing, and of a tool that cannot be kept nothing is
// known: policy takes the worse for true.
func TestToolsAreBounded(t *testing.T) {
	g := newGate(t, nil, policy.Rule{Match: "*", Action: policy.Forward})
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
		if readOnly := tool.Annotations.ReadOnly != nil; readOnly != (name == "c") {
			t.Errorf("%s counts as read-only: %v", name, readOnly)
		}
	}
	if tool, _ := g.Tool(c, "a"); tool.TaskSupport != "forbidden" {
		t.Errorf("task support %q; want forbidden", tool.TaskSupport)
	}
	if tool, _ := g.Tool(c, "c"); tool.TaskSupport != "required" || tool.Annotations.Title != "C" {
		t.Errorf("a tool like any other is known as %+v", tool)
	}
	for _, name := range []string{some, some[:1<<10], "d"} {
		if _, ok := g.Tool(c, name); ok {
			t.Errorf("something is kept of a tool that is too large, of which the name begins with %.10s", name)
		}
	}
}

// A server that answers to any cursor, always with other tools, makes the gate
// keep no more than a share. That is logged once, and counted. The gate
// forgets a tool that is listed otherwise when there is no room.
func TestEndlessPages(t *testing.T) {
	snapshot, _, err := policy.Compile(policy.Config{Rules: rules, Default: policy.Rule{Action: policy.Deny}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := metrics.New()
	g := gate.New(&gate.Settings{Policy: snapshot, Upstreams: []string{"up"}}, time.Now, slog.New(slog.NewTextHandler(&log, nil)), m)
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
		t.Errorf("it is logged %d times: %s", n, &log)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(w.Body.String(), `thoughtgate_catalog_overflows_total{limit="client",upstream="up"}`) {
		t.Error("it is not counted")
	}
	listPage(t, g, c, "last", `[{"name":"changes","description":"`+description+description+`"}]`)
	if tool, ok := g.Tool(c, "changes"); ok {
		t.Errorf("what was known of a tool before it changed is still known: %+v", tool)
	}
	listPage(t, g, c, "", `[{"name":"changes"}]`)
	if _, ok := g.Tool(c, "changes"); !ok {
		t.Error("a list that begins anew is not noted")
	}
}

// A client that makes up cursors, or says more of itself than anybody wants to
// know, makes the gate remember no more than others do.
func TestCatalogIsBoundedForOneClient(t *testing.T) {
	const bound = 40 << 20
	g := newGate(t, nil, policy.Rule{Match: "*", Action: policy.Forward})
	c := gate.Client{Upstream: "test", Key: "one"}
	page := []byte(strings.Repeat("x", 1<<20)) // shared, so that a gate which keeps all does not need more than that
	size := 0
	for i := range 203 {
		g.Learn(t.Context(), c, gate.Page{Method: "tools/list", Cursor: fmt.Sprint(i), Result: page}, jsonrpc.Value{})
	}
	for i := range 203 {
		if kept, ok := g.Remembered(c, "tools/list", fmt.Sprint(i)); ok {
			size += len(kept)
		}
	}
	if size == 0 || size > bound {
		t.Errorf("%d bytes of one client's pages are kept", size)
	}

	cursor, size := strings.Repeat("c", 1<<20), 0
	for i := range 203 {
		g.Learn(t.Context(), c, gate.Page{Method: "tools/list", Cursor: cursor + fmt.Sprint(i)}, jsonrpc.Value{})
	}
	for i := range 203 {
		if _, ok := g.Remembered(c, "tools/list", cursor+fmt.Sprint(i)); ok {
			size += len(cursor)
		}
	}
	if size > bound {
		t.Errorf("%d bytes of one client's cursors are kept", size)
	}

	name := strings.Repeat("n", 1<<20)
	for i := range 203 {
		g.Meet(t.Context(), gate.Client{Upstream: "test", Key: fmt.Sprint(i)}, gate.Facts{Session: policy.Session{Client: name, Version: name, Protocol: name}})
	}
	size = 0
	for i := range 203 {
		s := g.About(gate.Client{Upstream: "test", Key: fmt.Sprint(i)}).Session
		size += len(s.Client) + len(s.Version) + len(s.Protocol)
	}
	if size == 0 || size > 1<<20 {
		t.Errorf("%d bytes of names of clients are kept", size)
	}
}
