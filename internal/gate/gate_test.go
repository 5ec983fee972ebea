package gate_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func newGate(t *testing.T, adjust func(*gate.Settings), rules ...policy.Rule) *gate.Gate {
	t.Helper()
	snapshot, _, err := policy.Compile(policy.Config{Rules: rules, Default: policy.Rule{Action: policy.Deny}})
	if err != nil {
		t.Fatal(err)
	}
	s := &gate.Settings{Policy: snapshot, HideDenied: true}
	if adjust != nil {
		adjust(s)
	}
	return gate.New(s, time.Now, slog.New(slog.DiscardHandler), nil)
}

func client(key string) gate.Client {
	return gate.Client{Upstream: "up", Key: key, Principal: policy.Principal{Anonymous: true}}
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

// 9.1 "Annotation": what a client is shown of a tool, by what policy says and
// by what the upstream does, as one table.
// CORE-007 F-003.2, F-003.4.
func TestView(t *testing.T) {
	tests := []struct {
		name, tool, declared string
		tasks                bool // the upstream does tasks
		adjust               func(*gate.Settings)
		wantHidden           bool
		want                 string // "" leaves the tool as it is
	}{
		{"upstream no tasks + no approval", "read_x", "optional", false, nil, false, "forbidden"},
		{"upstream no tasks + nothing declared", "read_x", "", false, nil, false, ""},
		{"upstream no tasks + approval possible", "hold_x", "", false, nil, false, "optional"},
		{"upstream has tasks + no approval", "read_x", "required", true, nil, false, "required"},
		{"upstream has tasks + forbidden", "read_x", "forbidden", true, nil, false, "forbidden"},
		{"upstream has tasks + approval possible", "hold_x", "forbidden", true, nil, false, "optional"},
		{"denied is hidden", "other", "", true, nil, true, ""},
		{"denied is shown", "other", "optional", true, func(s *gate.Settings) { s.HideDenied = false }, false, "forbidden"},
		{"tasks only", "hold_x", "", true, func(s *gate.Settings) { s.TasksOnly = true }, false, "required"},
		{"force_required override", "read_x", "", true, func(s *gate.Settings) { s.ForceRequired = []string{"read_x"} }, false, "required"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t, tt.adjust, rules...)
			g.Meet(t.Context(), client("a"), gate.Facts{Tasks: tt.tasks})
			entry := `{"name":"` + tt.tool + `"}`
			if tt.declared != "" {
				entry = `{"name":"` + tt.tool + `","execution":{"taskSupport":"` + tt.declared + `"}}`
			}
			hidden, support := g.View(client("a"), "tools/list").See(tt.tool, "", value(entry))
			if hidden != tt.wantHidden || support != tt.want {
				t.Errorf("hidden %v, support %q; want %v, %q", hidden, support, tt.wantHidden, tt.want)
			}
		})
	}
}

// EC-SEP-010, F-007.4: what was learned of an upstream is per client, and gone
// when they meet anew.
// CORE-007 F-002.3, F-003.6, F-007.6: what is known is kept, and forgotten with a
// new initialize or a list that begins anew.
func TestCatalogIsPerClient(t *testing.T) {
	g := newGate(t, nil, rules...)
	list := func(c gate.Client, cursor, tools string) {
		g.Learn(t.Context(), c, gate.Page{Method: "tools/list", Cursor: cursor, Result: []byte(`{"tools":` + tools + `}`)}, value(tools))
	}
	support := func(c gate.Client) string {
		j, err := g.Judge(t.Context(), c, message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_x","task":{}}}`), gate.Claims{Wish: policy.WantsTask})
		if err != nil {
			t.Fatal(err)
		}
		return string(j.Handling)
	}
	alice, bob := client("alice"), client("bob")
	for _, c := range []gate.Client{alice, bob} {
		g.Meet(t.Context(), c, gate.Facts{Tasks: true})
		list(c, "", `[{"name":"read_x","execution":{"taskSupport":"optional"}}]`)
	}
	if got := support(alice); got != string(policy.PassOn) {
		t.Errorf("a task that the upstream supports is handled as %q", got)
	}

	g.Meet(t.Context(), alice, gate.Facts{Tasks: false}) // the upstream came back without tasks
	if got := support(alice); got != string(policy.ReadyTask) {
		t.Errorf("after meeting anew it is handled as %q; want the gate to keep the task", got)
	}
	if _, ok := g.Remembered(alice, "tools/list", ""); ok {
		t.Error("the old list is remembered after meeting anew")
	}
	if got := support(bob); got != string(policy.PassOn) {
		t.Errorf("the other client is affected: %q", got)
	}

	list(bob, "2", `[{"name":"read_y"}]`)
	list(bob, "", `[]`) // a list that begins anew
	if got := support(bob); got != string(policy.ReadyTask) {
		t.Errorf("a tool that is no longer listed is handled as %q", got)
	}
	if _, ok := g.Remembered(bob, "tools/list", "2"); ok {
		t.Error("a page of the old list is remembered")
	}
}

// The catalog forgets those who were silent longest rather than growing.
func TestCatalogIsBounded(t *testing.T) {
	g := newGate(t, nil, rules...)
	page := gate.Page{Method: "tools/list", Result: bytes.Repeat([]byte(" "), 1<<20)}
	for i := range 100 {
		g.Learn(t.Context(), client(fmt.Sprint(i)), page, value("[]"))
		g.Remembered(client("0"), "tools/list", "") // stays in use
	}
	kept := 0
	for i := range 100 {
		if _, ok := g.Remembered(client(fmt.Sprint(i)), "tools/list", ""); ok {
			kept++
		}
	}
	if kept > 32 || kept < 25 {
		t.Errorf("%d pages of 1 MiB are kept; want about 31", kept)
	}
	if _, ok := g.Remembered(client("0"), "tools/list", ""); !ok {
		t.Error("the one in use was forgotten")
	}
}

func TestUnnamed(t *testing.T) {
	g := newGate(t, nil, rules...)
	for _, params := range []string{`{}`, `{"name":7}`, `[1]`, `{"name":null}`} {
		_, err := g.Judge(t.Context(), client("a"), message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`), gate.Claims{Wish: policy.NoTask})
		if err == nil || !strings.Contains(err.Error(), "name") {
			t.Errorf("params %s: %v; want an error", params, err)
		}
	}
}

// What a message says of its client counts more than what the client said when it met the
// upstream, for what the message is about and for what it refers to. Of long texts, the
// beginning counts.
func TestClaimedSession(t *testing.T) {
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "*", Action: policy.AskPolicies}}, Default: policy.Rule{Action: policy.Deny},
		Cedar: []policy.Source{{Name: "p.cedar", Text: []byte(`permit (principal, action, resource) when { context.session.client == "` + strings.Repeat("x", 256) + `" };`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(t, func(s *gate.Settings) { s.Policy = snapshot })
	long := policy.Session{Client: strings.Repeat("x", 300)}
	g.Meet(t.Context(), client("met"), gate.Facts{Session: long})
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
			j, err := g.Judge(t.Context(), client(tt.key), message(t, text), gate.Claims{Session: tt.said})
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
	g := gate.New(&gate.Settings{Policy: snapshot}, time.Now, slog.New(slog.DiscardHandler), nil)
	p, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool_999_x","arguments":{"a":1}}}`), jsonrpc.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if j, err := g.Judge(b.Context(), client("a"), &p.Messages[0], gate.Claims{Wish: policy.NoTask}); err != nil || j.Handling != policy.PassOn {
			b.Fatal(j, err)
		}
	}
}

// Rules that match nothing of what the upstream offers are told, once for each
// policy, when the whole list is known.
func TestUnusedRules(t *testing.T) {
	snapshot, _, err := policy.Compile(policy.Config{
		Rules:   []policy.Rule{{Match: "read_*", Action: policy.Forward}, {Match: "reed_*", Action: policy.Forward, Kind: policy.Tool}},
		Default: policy.Rule{Action: policy.Deny},
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g := gate.New(&gate.Settings{Policy: snapshot, Upstreams: []string{"up"}}, time.Now, slog.New(slog.NewTextHandler(&log, nil)), nil)
	list := func(cursor, result string) {
		page := gate.Page{Method: "tools/list", Cursor: cursor, Result: []byte(result)}
		g.Learn(t.Context(), client("a"), page, value(result).Member("tools"))
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
		t.Errorf("told twice: %s", &log)
	}
}
