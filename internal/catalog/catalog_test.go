package catalog_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func newCatalog(t *testing.T, adjust func(*catalog.Settings), rules ...policy.Rule) *catalog.Catalog {
	t.Helper()
	snapshot, _, err := policy.Compile(policy.Config{Rules: rules, Default: policy.Rule{Action: policy.Deny}})
	if err != nil {
		t.Fatal(err)
	}
	s := &catalog.Settings{Policy: snapshot, HideDenied: true}
	if adjust != nil {
		adjust(s)
	}
	return catalog.New(s, time.Now, slog.New(slog.DiscardHandler), nil)
}

func client(key string) catalog.Client {
	return catalog.Client{Upstream: "up", Key: key, Principal: policy.Principal{Anonymous: true}}
}

func value(json string) jsonrpc.Value { return jsonrpc.Value{Bytes: []byte(json)} }

func message(t *testing.T, text string) *jsonrpc.Message {
	t.Helper()
	p, err := jsonrpc.Parse([]byte(text), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return &p.Messages[0]
}

var rules = []policy.Rule{
	{Match: "read_*", Action: policy.Forward},
	{Match: "hold_*", Action: policy.Approve},
}

// 9.1 "Annotation", CORE-007 F-003.2, F-003.4: the task support that a client sees, by policy and
// by the declarations of the upstream.
func TestShownTaskSupport(t *testing.T) {
	tests := []struct {
		name, tool, declared string
		tasks                bool // the upstream does tasks
		adjust               func(*catalog.Settings)
		wantHidden           bool
		want                 string // "" leaves the tool unchanged
	}{
		{"upstream no tasks + no approval", "read_x", "optional", false, nil, false, "forbidden"},
		{"upstream no tasks + nothing declared", "read_x", "", false, nil, false, ""},
		{"upstream no tasks + approval possible", "hold_x", "", false, nil, false, "optional"},
		{"upstream has tasks + no approval", "read_x", "required", true, nil, false, "required"},
		{"upstream has tasks + forbidden", "read_x", "forbidden", true, nil, false, "forbidden"},
		{"upstream has tasks + approval possible", "hold_x", "forbidden", true, nil, false, "optional"},
		{"denied is hidden", "other", "", true, nil, true, ""},
		{"denied is shown", "other", "optional", true, func(s *catalog.Settings) { s.HideDenied = false }, false, "forbidden"},
		{"tasks only", "hold_x", "", true, func(s *catalog.Settings) { s.TasksOnly = true }, false, "required"},
		{"force_required override", "read_x", "", true, func(s *catalog.Settings) { s.ForceRequired = []string{"read_x"} }, false, "required"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newCatalog(t, tt.adjust, rules...)
			g.LearnHandshake(t.Context(), client("a"), catalog.Handshake{Tasks: tt.tasks})
			entry := `{"name":"` + tt.tool + `"}`
			if tt.declared != "" {
				entry = `{"name":"` + tt.tool + `","execution":{"taskSupport":"` + tt.declared + `"}}`
			}
			hidden, support := g.View(client("a"), "tools/list").Entry(tt.tool, "", value(entry))
			if hidden != tt.wantHidden || support != tt.want {
				t.Errorf("hidden %v, support %q; want %v, %q", hidden, support, tt.wantHidden, tt.want)
			}
		})
	}
}

// EC-SEP-010, F-007.4, CORE-007 F-002.3, F-003.6, F-007.6: the cache is separate for each client.
// A new initialize, or a new first page of a list, replaces the cached data.
func TestCacheIsSeparateForEachClient(t *testing.T) {
	g := newCatalog(t, nil, rules...)
	list := func(c catalog.Client, cursor, tools string) {
		g.LearnPage(t.Context(), c, catalog.Page{Method: "tools/list", Cursor: cursor, Result: []byte(`{"tools":` + tools + `}`)}, value(tools))
	}
	support := func(c catalog.Client) string {
		j, err := g.Judge(t.Context(), c, message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_x","task":{}}}`), catalog.RequestInfo{Task: policy.WantsTask})
		if err != nil {
			t.Fatal(err)
		}
		return string(j.Handling)
	}
	alice, bob := client("alice"), client("bob")
	for _, c := range []catalog.Client{alice, bob} {
		g.LearnHandshake(t.Context(), c, catalog.Handshake{Tasks: true})
		list(c, "", `[{"name":"read_x","execution":{"taskSupport":"optional"}}]`)
	}
	if got := support(alice); got != string(policy.PassOn) {
		t.Errorf("a task that the upstream supports is handled as %q", got)
	}

	g.LearnHandshake(t.Context(), alice, catalog.Handshake{Tasks: false}) // the upstream came back without tasks
	if got := support(alice); got != string(policy.ReadyTask) {
		t.Errorf("after a new handshake it is handled as %q; want the gate to keep the task", got)
	}
	if _, ok := g.CachedPage(alice, "tools/list", ""); ok {
		t.Error("the old list is cached after a new handshake")
	}
	if got := support(bob); got != string(policy.PassOn) {
		t.Errorf("the other client is affected: %q", got)
	}

	list(bob, "2", `[{"name":"read_y"}]`)
	list(bob, "", `[]`) // a list that begins anew
	if got := support(bob); got != string(policy.ReadyTask) {
		t.Errorf("a tool that is no longer listed is handled as %q", got)
	}
	if _, ok := g.CachedPage(bob, "tools/list", "2"); ok {
		t.Error("a page of the old list is cached")
	}
}

func TestCacheDropsLeastRecentlyUsedClient(t *testing.T) {
	g := newCatalog(t, nil, rules...)
	page := catalog.Page{Method: "tools/list", Result: bytes.Repeat([]byte(" "), 1<<20)}
	for i := range 100 {
		g.LearnPage(t.Context(), client(fmt.Sprint(i)), page, value("[]"))
		g.CachedPage(client("0"), "tools/list", "") // stays in use
	}
	kept := 0
	for i := range 100 {
		if _, ok := g.CachedPage(client(fmt.Sprint(i)), "tools/list", ""); ok {
			kept++
		}
	}
	if kept > 32 || kept < 25 {
		t.Errorf("%d pages of 1 MiB are kept; want about 31", kept)
	}
	if _, ok := g.CachedPage(client("0"), "tools/list", ""); !ok {
		t.Error("the client in use was dropped")
	}
}

func TestMessageWithoutSubjectIsRefused(t *testing.T) {
	g := newCatalog(t, nil, rules...)
	for _, params := range []string{`{}`, `{"name":7}`, `[1]`, `{"name":null}`} {
		_, err := g.Judge(t.Context(), client("a"), message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`), catalog.RequestInfo{Task: policy.NoTask})
		if err == nil || !strings.Contains(err.Error(), "name") {
			t.Errorf("params %s: %v; want an error", params, err)
		}
	}
}

// The client information in a message overrides that of the handshake, for the subject of the
// message and for the things that it refers to. Long texts are truncated.
func TestMessageOverridesHandshake(t *testing.T) {
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "*", Action: policy.AskPolicies}}, Default: policy.Rule{Action: policy.Deny},
		Cedar: []policy.Source{{Name: "p.cedar", Text: []byte(`permit (principal, action, resource) when { context.session.client == "` + strings.Repeat("x", 256) + `" };`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := newCatalog(t, func(s *catalog.Settings) { s.Policy = snapshot })
	long := policy.Session{Client: strings.Repeat("x", 300)}
	g.LearnHandshake(t.Context(), client("met"), catalog.Handshake{Session: long})
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a"}}}`,
	} {
		for _, tt := range []struct {
			key  string
			said policy.Session
			want policy.Handling
		}{
			{"met", policy.Session{}, policy.PassOn},
			{"met", policy.Session{Protocol: "2026-07-28"}, policy.RefuseDenied},
			{"new", policy.Session{}, policy.RefuseDenied},
			{"new", long, policy.PassOn},
		} {
			j, err := g.Judge(t.Context(), client(tt.key), message(t, text), catalog.RequestInfo{Session: tt.said})
			if err != nil || j.Handling != tt.want {
				t.Errorf("%s of client %q that says %.20v: %v, %v; want %v", text, tt.key, tt.said, j.Handling, err, tt.want)
			}
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	var many []policy.Rule
	for i := range 1000 {
		many = append(many, policy.Rule{Match: fmt.Sprintf("tool_%d_*", i), Action: policy.Forward})
	}
	snapshot, _, err := policy.Compile(policy.Config{Rules: many, Default: policy.Rule{Action: policy.Deny}})
	if err != nil {
		b.Fatal(err)
	}
	g := catalog.New(&catalog.Settings{Policy: snapshot}, time.Now, slog.New(slog.DiscardHandler), nil)
	p, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool_999_x","arguments":{"a":1}}}`), jsonrpc.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if j, err := g.Judge(b.Context(), client("a"), &p.Messages[0], catalog.RequestInfo{Task: policy.NoTask}); err != nil || j.Handling != policy.PassOn {
			b.Fatal(j, err)
		}
	}
}

// Rules that match no listed tool are logged once for each policy, when all lists are complete.
func TestUnusedRulesAreLoggedOnce(t *testing.T) {
	snapshot, _, err := policy.Compile(policy.Config{
		Rules:   []policy.Rule{{Match: "read_*", Action: policy.Forward}, {Match: "reed_*", Action: policy.Forward, Kind: policy.Tool}},
		Default: policy.Rule{Action: policy.Deny},
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g := catalog.New(&catalog.Settings{Policy: snapshot, Upstreams: []string{"up"}}, time.Now, slog.New(slog.NewTextHandler(&log, nil)), nil)
	list := func(cursor, result string) {
		page := catalog.Page{Method: "tools/list", Cursor: cursor, Result: []byte(result)}
		g.LearnPage(t.Context(), client("a"), page, value(result).Member("tools"))
	}
	list("", `{"tools":[{"name":"other"}],"nextCursor":"2"}`)
	if log.Len() > 0 {
		t.Errorf("after half of the list: %s", &log)
	}
	list("2", `{"tools":[{"name":"read_x"}]}`)
	if got := log.String(); strings.Count(got, "matches nothing") != 1 || !strings.Contains(got, "reed_*") {
		t.Errorf("log: %s\nwant a warning about reed_*", got)
	}
	log.Reset()
	list("", `{"tools":[{"name":"read_x"}]}`)
	if log.Len() > 0 {
		t.Errorf("logged twice: %s", &log)
	}
}
