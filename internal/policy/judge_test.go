package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

func compile(t testing.TB, cfg policy.Config) *policy.Snapshot {
	t.Helper()
	s, _, err := policy.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// short returns the most important facts of a verdict in one line.
func short(v policy.Verdict) string {
	text := strings.TrimSpace(string(v.Action) + " " + v.Workflow)
	if v.Would != nil {
		text += " (would " + short(*v.Would) + ")"
	}
	return text
}

func TestJudgeRules(t *testing.T) {
	s := compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "get_*", Action: policy.Forward},
			{Match: "delete_*", Action: policy.Approve, Workflow: "ops"},
			{Match: "wipe", Action: policy.Approve},
			{Match: "drop_*", Action: policy.Deny, Reason: "not through agents"},
			{Match: "*", Kind: policy.Prompt, Action: policy.Forward},
			{Match: "file:///pub/*", Kind: policy.Resource, Action: policy.Forward},
			{Match: "run", Upstream: "crm-*", Action: policy.Forward},
			{Match: "pay", Principals: []string{"bob", "group:fin*"}, Action: policy.Forward},
			{Match: "try", Action: policy.Deny, Mode: policy.Observe},
			{Match: "write", Secrets: []string{"known"}, Action: policy.Approve},
		},
		Default:   policy.Rule{Action: policy.Deny, Reason: "ask first"},
		Workflows: map[string]policy.Workflow{"ops": {Quorum: 1, Timeout: time.Hour}, "default": {Quorum: 1, Timeout: time.Hour}},
	})
	alice := policy.Principal{ID: "alice"}
	tests := []struct {
		name         string
		call         policy.Call
		want, reason string
		rule         int
	}{
		{"first match forwards", toolCall("get_user"), "forward", `rules[0] "get_*" forwards it`, 0},
		{"approval by the named workflow", toolCall("delete_user"), "approve ops", `rules[1] "delete_*" needs approval by workflow ops`, 1},
		{"approval by the default workflow", toolCall("wipe"), "approve default", `rules[2] "wipe" needs approval by workflow default`, 2},
		{"denial with its reason", toolCall("drop_table"), "deny", `rules[3] "drop_*" denies it: not through agents`, 3},
		{"default", toolCall("other"), "deny", "the default denies it: ask first", policy.ByDefault},
		{"a rule without a kind is about prompts too", policy.Call{Method: "prompts/get", Name: "drop_it", Principal: alice}, "deny", `rules[3] "drop_*" denies it: not through agents`, 3},
		{"a rule with a kind is about that only", policy.Call{Method: "prompts/get", Name: "other", Principal: alice}, "forward", `rules[4] "*" forwards it`, 4},
		{"resource by its URI", policy.Call{Method: "resources/read", Name: "file:///pub/a", Principal: alice}, "forward", `rules[5] "file:///pub/*" forwards it`, 5},
		{"subscription by its URI", policy.Call{Method: "resources/subscribe", Name: "file:///etc/a", Principal: alice}, "deny", "the default denies it: ask first", policy.ByDefault},
		{"upstream", policy.Call{Method: "tools/call", Name: "run", Upstream: "crm-1", Principal: alice}, "forward", `rules[6] "run" forwards it`, 6},
		{"another upstream", policy.Call{Method: "tools/call", Name: "run", Upstream: "files", Principal: alice}, "deny", "the default denies it: ask first", policy.ByDefault},
		{"principal by id", policy.Call{Method: "tools/call", Name: "pay", Principal: policy.Principal{ID: "bob"}}, "forward", `rules[7] "pay" forwards it`, 7},
		{"principal by group", policy.Call{Method: "tools/call", Name: "pay", Principal: policy.Principal{ID: "eve", Groups: []string{"x", "finance"}}}, "forward", `rules[7] "pay" forwards it`, 7},
		{"another principal", toolCall("pay"), "deny", "the default denies it: ask first", policy.ByDefault},
		{"a group's name as an id", policy.Call{Method: "tools/call", Name: "pay", Principal: policy.Principal{ID: "group:finance"}}, "deny", "the default denies it: ask first", policy.ByDefault},
		{"anonymous with a known id", policy.Call{Method: "tools/call", Name: "pay", Principal: policy.Principal{ID: "bob", Anonymous: true}}, "deny", "the default denies it: ask first", policy.ByDefault},
		{"anonymous and no principals in the rule", policy.Call{Method: "tools/call", Name: "get_x", Principal: policy.Principal{Anonymous: true}}, "forward", `rules[0] "get_*" forwards it`, 0},
		{"observed rule", toolCall("try"), "forward (would deny)", `only observed: rules[8] "try" denies it`, 8},
		{"a secret in the arguments", policy.Call{Method: "tools/call", Name: "write", Arguments: []byte(`{"text":"AKIAABCDEFGHIJKLMNOP"}`), Principal: alice}, "approve default", `rules[9] "write" needs approval by workflow default`, 9},
		{"no secret in the arguments", policy.Call{Method: "tools/call", Name: "write", Arguments: []byte(`{"text":"AKIA"}`), Principal: alice}, "deny", "the default denies it: ask first", policy.ByDefault},
		{"no arguments", toolCall("write"), "deny", "the default denies it: ask first", policy.ByDefault},
		{"unknown method", policy.Call{Method: "tools/list", Name: "get_x", Principal: alice}, "deny", "unknown method", policy.ByGate},
		{"no name", toolCall(""), "deny", "the call has no name", policy.ByGate},
		{"name that is not UTF-8", toolCall("get_\xff"), "deny", "the call has no name", policy.ByGate},
		{"long name", toolCall("get_" + strings.Repeat("x", 1021)), "deny", "the name is too long", policy.ByGate},
		{"principal without an id", policy.Call{Method: "tools/call", Name: "get_x"}, "deny", "the principal has no id", policy.ByGate},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := s.Judge(tt.call)
			if short(v) != tt.want || v.Reason != tt.reason || v.Rule != tt.rule {
				t.Errorf("%s, rules[%d], %q\nwant %s, rules[%d], %q", short(v), v.Rule, v.Reason, tt.want, tt.rule, tt.reason)
			}
			if v.Snapshot != s.ID() {
				t.Errorf("snapshot %q, want %q", v.Snapshot, s.ID())
			}
		})
	}
}

// If all policy was removed while a call waited for its verdict, the call is not forwarded.
func TestJudgeWithoutPolicy(t *testing.T) {
	var none *policy.Snapshot
	if v := none.Judge(toolCall("x")); v.Action != policy.Deny {
		t.Errorf("the verdict is %+v", v)
	}
}

func TestJudgeUnknownUpstream(t *testing.T) {
	s := compile(t, policy.Config{Default: policy.Rule{Action: policy.Forward}, Upstreams: []string{"crm"}})
	call := toolCall("a")
	if v := s.Judge(call); v.Action != policy.Deny {
		t.Errorf("call to an unknown upstream: %s", short(v))
	}
	if call.Upstream = "crm"; s.Judge(call).Action != policy.Forward {
		t.Error("call to a known upstream is not forwarded")
	}
}

// A URI with dot segments could be matched as one resource and read as another.
func TestJudgeDotSegments(t *testing.T) {
	s := compile(t, policy.Config{
		Rules:   []policy.Rule{{Match: "file:///pub/*", Action: policy.Forward}},
		Default: policy.Rule{Action: policy.Deny},
	})
	for uri, want := range map[string]policy.Action{
		"file:///pub/a.txt": policy.Forward, "file:///pub/..a/b..": policy.Forward, "file:///pub/a?x=../y#/../": policy.Forward,
		"file:///pub/a%2Fb": policy.Forward, "file:///pub/...": policy.Forward,
		"file:///pub/../etc/passwd": policy.Deny, "file:///pub/a/..": policy.Deny, "file:///pub/./a": policy.Deny,
		"file:///pub/%2e%2E/etc": policy.Deny, "file:///pub/.%2e/etc": policy.Deny, "file:///pub/a%2f..%2Fb": policy.Deny,
		`file:///pub/..\etc`: policy.Deny, "file:///pub/..%5cetc": policy.Deny,
	} {
		v := s.Judge(policy.Call{Method: "resources/read", Name: uri, Principal: policy.Principal{ID: "a"}})
		if v.Action != want {
			t.Errorf("%s: %s, want %s", uri, v.Action, want)
		}
	}
	if v := s.Judge(toolCall("file:///pub/../x")); v.Action != policy.Forward {
		t.Error("the name of a tool is treated as a URI")
	}
}

// A rule that denies a URI cannot be evaded by writing the URI differently.
func TestJudgeNeedlessEscapes(t *testing.T) {
	s := compile(t, policy.Config{
		Rules:   []policy.Rule{{Match: "file:///etc/*", Action: policy.Deny}},
		Default: policy.Rule{Action: policy.Forward},
	})
	for uri, want := range map[string]policy.Action{
		"file:///a%20b%C3%A9%25": policy.Forward, "file:///100%": policy.Deny, "file:///a%zz%2": policy.Deny,
		"x://owner%2Fname?q=%3A": policy.Forward, "file:///+1%+1": policy.Deny,
		"file:///%65tc/passwd": policy.Deny, "file:///et%63/passwd": policy.Deny, "%66ile:///etc/passwd": policy.Deny,
		"file:///a%20%30": policy.Deny, "file:///%7E": policy.Deny, "file:///%5f": policy.Deny, "file:///a%2d": policy.Deny,
		"file:///%%65": policy.Deny,
	} {
		v := s.Judge(policy.Call{Method: "resources/read", Name: uri, Principal: policy.Principal{ID: "a"}})
		if v.Action != want {
			t.Errorf("%s: %s, want %s", uri, v.Action, want)
		}
	}
	if v := s.Judge(toolCall("%65")); v.Action != policy.Forward {
		t.Error("the name of a tool is treated as a URI")
	}
}

func TestJudgeObserves(t *testing.T) {
	s := compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "get", Action: policy.Forward},
			{Match: "delete", Action: policy.Approve},
			{Match: "ask", Action: policy.AskPolicies},
		},
		Default: policy.Rule{Action: policy.Deny},
		Cedar:   []policy.Source{{Name: "a.cedar", Text: []byte(`@id("p") @approval permit (principal, action, resource);`)}},
		Observe: true,
	})
	for name, want := range map[string]string{
		"get": "forward", "delete": "forward (would approve default)", "ask": "forward (would approve default)", "x": "forward (would deny)",
	} {
		if got := short(s.Judge(toolCall(name))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	read := policy.Call{Method: "resources/read", Name: "file:///../a", Principal: policy.Principal{ID: "a"}}
	if got := short(s.Judge(read)); got != "forward (would deny)" {
		t.Errorf("dot segments: %s", got)
	}
	if got := short(s.Judge(policy.Call{Method: "nothing", Name: "a"})); got != "deny" {
		t.Errorf("a call of an unknown method: %s", got)
	}
}

// For any list of rules, the first matching rule decides, as found by trying them in order.
func TestFirstMatchWins(t *testing.T) {
	optional := func(g *rapid.Generator[string]) *rapid.Generator[string] { return rapid.OneOf(rapid.Just(""), g) }
	kinds := rapid.SampledFrom([]policy.Kind{"", policy.Tool, policy.Resource, policy.Prompt})
	principals := rapid.SampledFrom([][]string{nil, {"a"}, {"b*"}, {"group:c"}, {"a", "group:?"}})
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policy.Rule {
			return policy.Rule{
				Match: patterns().Draw(t, "match"), Upstream: optional(patterns()).Draw(t, "upstream"),
				Kind: kinds.Draw(t, "kind"), Principals: principals.Draw(t, "principals"),
				Action: rapid.SampledFrom([]policy.Action{policy.Forward, policy.Approve, policy.Deny}).Draw(t, "action"),
			}
		}), 0, 12).Draw(t, "rules")
		s, _, err := policy.Compile(policy.Config{Rules: rules, Default: policy.Rule{Action: policy.Deny}})
		if err != nil {
			t.Fatal(err)
		}
		method := rapid.SampledFrom([]string{"tools/call", "resources/read", "prompts/get"}).Draw(t, "method")
		call := policy.Call{
			Method: method, Name: names().Draw(t, "name"), Upstream: names().Draw(t, "to"),
			Principal: policy.Principal{ID: names().Draw(t, "id"), Groups: rapid.SliceOfN(names(), 0, 2).Draw(t, "groups")},
		}
		want := slices.IndexFunc(rules, func(r policy.Rule) bool { return slowRule(r, call) })
		v := s.Judge(call)
		if v.Rule != want {
			t.Fatalf("rules[%d] decided, want rules[%d]", v.Rule, want)
		}
		if want >= 0 && (v.Action != rules[want].Action || v.Match != rules[want].Match) {
			t.Fatalf("%s by %q, want %s by %q", v.Action, v.Match, rules[want].Action, rules[want].Match)
		}
	})
}

func slowRule(r policy.Rule, c policy.Call) bool {
	glob := func(pattern, text string) bool { return slowMatch([]rune(pattern), []rune(text)) }
	kind, _ := policy.Governed(c.Method)
	if r.Kind != "" && r.Kind != kind || r.Upstream != "" && !glob(r.Upstream, c.Upstream) || !glob(r.Match, c.Name) {
		return false
	}
	if r.Principals == nil {
		return true
	}
	for _, p := range r.Principals {
		group, isGroup := strings.CutPrefix(p, "group:")
		if !isGroup && glob(p, c.Principal.ID) {
			return true
		}
		if isGroup && slices.ContainsFunc(c.Principal.Groups, func(g string) bool { return glob(group, g) }) {
			return true
		}
	}
	return false
}

// A verdict to forward allocates no memory, because every forwarded call pays for it.
func TestJudgeForwardAllocatesNothing(t *testing.T) {
	s := compile(t, manyRules(1000))
	call := toolCall("tool_500_x")
	if n := testing.AllocsPerRun(100, func() { s.Judge(call) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func manyRules(n int) policy.Config {
	cfg := policy.Config{Default: policy.Rule{Action: policy.Deny}}
	for i := range n {
		cfg.Rules = append(cfg.Rules, policy.Rule{Match: fmt.Sprintf("tool_%d_*", i), Action: policy.Forward})
	}
	return cfg
}

func TestCompileReportsEverything(t *testing.T) {
	_, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{
			{Match: "[", Action: policy.Forward},
			{Match: "a", Action: "maybe"},
			{Match: "a"},
			{Match: "a", Action: policy.Approve, Workflow: "nobody"},
			{Match: "a", Action: policy.Approve},
			{Match: "a", Action: policy.Deny, Workflow: "ops"},
			{Match: "a", Action: policy.AskPolicies},
			{Match: "a", Action: policy.Deny, Kind: "tools", Upstream: "c[", Principals: []string{"]"}},
			{Match: "a", Action: policy.Deny, Upstream: "crn", Principals: []string{}},
			{Match: "a", Action: policy.Approve, Workflow: "ops", Upstream: "c*"},
		},
		Default:   policy.Rule{Match: "*"},
		Workflows: map[string]policy.Workflow{"ops": {Quorum: 1, Timeout: time.Hour}, "none": {Timeout: time.Hour}, "never": {Quorum: 1}},
		Upstreams: []string{"crm", "files"},
	})
	want := `workflows.never: the timeout must be more than 0
workflows.none: the quorum must be at least 1
rules[0].match: unclosed '['; write '\[' for a literal bracket
rules[1].action: "maybe" is not forward, approve, deny or policy
rules[2].action: is required: forward, approve, deny or policy
rules[3].workflow: "nobody" is not one of never, none, ops
rules[4].workflow: "default" is not one of never, none, ops
rules[5].workflow: action deny takes no workflow
rules[6].action: policy needs Cedar policies, but none are configured
rules[7].kind: "tools" is not tool, resource or prompt
rules[7].upstream: unclosed '['; write '\[' for a literal bracket
rules[7].principals: "]": write '\]' for a literal ']'
rules[8].upstream: "crn" matches none of crm, files
rules[8].principals: an empty list matches no principal; remove it to match all
default: applies to every call, so it cannot have match
default.action: is required: forward, approve, deny or policy`
	if err == nil {
		t.Fatal("the configuration compiles; want an error")
	}
	if diff := cmp.Diff(strings.ReplaceAll(want, "'", "`"), err.Error()); diff != "" {
		t.Error(diff)
	}
}

func warningsOf(t *testing.T, cfg policy.Config) []string {
	t.Helper()
	_, warnings, err := policy.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	return got
}

func TestCompileWarnsOfShadowedRules(t *testing.T) {
	deny := func(match string) policy.Rule { return policy.Rule{Match: match, Action: policy.Deny} }
	got := warningsOf(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "get_*", Action: policy.Forward, Kind: policy.Tool},
			deny("get_user"),
			{Match: "get_user", Action: policy.Deny, Kind: policy.Tool},
			{Match: "x*", Upstream: "crm-*", Action: policy.Deny},
			{Match: "xy", Upstream: "crm-1", Action: policy.Deny},
			{Match: "xy", Upstream: "crm*", Action: policy.Deny},
			{Match: "p*", Principals: []string{"a*", "group:g"}, Action: policy.Deny},
			{Match: "p?", Principals: []string{"ab"}, Action: policy.Deny},
			{Match: "p?", Principals: []string{"ab", "group:h"}, Action: policy.Deny},
			{Match: "p?", Action: policy.Deny},
			{Match: "[a-m]?*", Action: policy.Deny},
			{Match: "[bc]*?z", Action: policy.Deny},
			{Match: "[!q]", Action: policy.Deny},
			{Match: "[!qr]", Action: policy.Deny},
			{Match: "r", Action: policy.Deny},
			{Match: "q", Action: policy.Deny},
		},
		Default: policy.Rule{Action: policy.Deny},
	})
	want := []string{
		`rules[2]: never matches: rules[0] "get_*" comes first and matches the same calls`,
		`rules[4]: never matches: rules[3] "x*" comes first and matches the same calls`,
		`rules[7]: never matches: rules[6] "p*" comes first and matches the same calls`,
		`rules[11]: never matches: rules[10] "[a-m]?*" comes first and matches the same calls`,
		`rules[14]: never matches: rules[12] "[!q]" comes first and matches the same calls`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSnapshotID(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	base := func() policy.Config {
		return policy.Config{
			Rules:     []policy.Rule{{Match: "a", Action: policy.Deny, Principals: []string{"x"}}, {Match: "b", Action: policy.Forward}},
			Default:   policy.Rule{Action: policy.Deny},
			Workflows: map[string]policy.Workflow{"a": {Quorum: 1, Timeout: time.Hour}, "default": {Quorum: 1, Timeout: time.Hour}},
			Cedar:     []policy.Source{{Name: "a", Text: []byte("permit (principal, action, resource);")}},
			Upstreams: []string{"u"},
		}
	}
	id := compile(t, base()).ID()
	if len(id) != 12 || compile(t, base()).ID() != id {
		t.Errorf("id %q is not stable, or too long", id)
	}
	seen := map[string]int{id: -1}
	for i, change := range []func(*policy.Config){
		func(c *policy.Config) { c.Rules[0].Match = "c" },
		func(c *policy.Config) { c.Rules[0].Principals[0] = "y" },
		func(c *policy.Config) { c.Rules[0].Reason = "r" },
		func(c *policy.Config) { c.Rules[0].Mode = policy.Observe },
		func(c *policy.Config) { c.Rules[0].Kind = policy.Tool },
		func(c *policy.Config) { c.Rules[0].Upstream = "u" },
		func(c *policy.Config) { slices.Reverse(c.Rules) },
		func(c *policy.Config) { c.Default.Action = policy.Forward },
		func(c *policy.Config) { c.Workflows["a"] = policy.Workflow{Quorum: 2, Timeout: time.Hour} },
		func(c *policy.Config) { c.Workflows["a"] = policy.Workflow{Quorum: 1, Timeout: time.Minute} },
		func(c *policy.Config) {
			c.Workflows["a"] = policy.Workflow{Quorum: 1, Timeout: time.Hour, SelfApproval: true}
		},
		func(c *policy.Config) { c.Cedar[0].Text = append(c.Cedar[0].Text, ' ') },
		func(c *policy.Config) { c.Cedar[0].Name = "b" },
		func(c *policy.Config) { c.Observe = true },
		func(c *policy.Config) { c.Zone = berlin },
		func(c *policy.Config) { c.Upstreams = []string{"u", "v"} },
	} {
		cfg := base()
		change(&cfg)
		other := compile(t, cfg).ID()
		if j, ok := seen[other]; ok {
			t.Errorf("change %d has the id of %d", i, j)
		}
		seen[other] = i
	}
}

// Changing the configuration does not change a compiled snapshot.
func TestSnapshotIsIndependentOfConfig(t *testing.T) {
	cfg := asking(`@approval("two") permit ` + any1 + `; @approval("quick") permit ` + any1 + `;`)
	cfg.Rules = []policy.Rule{{Match: "*", Principals: []string{"alice"}, Action: policy.AskPolicies}}
	cfg.Upstreams = []string{"bank"}
	s := compile(t, cfg)
	before := s.Judge(payCall(`{}`))
	cfg.Rules[0] = policy.Rule{Match: "x", Action: policy.Deny}
	cfg.Workflows["two"] = policy.Workflow{Quorum: 1, Timeout: time.Hour}
	cfg.Upstreams[0] = "crm"
	clear(cfg.Cedar[0].Text)
	if diff := cmp.Diff(before, s.Judge(payCall(`{}`))); diff != "" || before.Workflow != "two" {
		t.Errorf("%s %s", short(before), diff)
	}
}

func TestUnused(t *testing.T) {
	s := compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "get_*", Action: policy.Forward},
			{Match: "delte_*", Action: policy.Deny},
			{Match: "get_user", Upstream: "files", Action: policy.Deny},
			{Match: "*", Kind: policy.Prompt, Action: policy.Deny},
			{Match: "file://*", Action: policy.Deny},
			{Match: "ask", Action: policy.AskPolicies},
		},
		Default: policy.Rule{Action: policy.Deny},
		Cedar: []policy.Source{{Name: "a.cedar", Text: []byte(`permit (principal, action, resource == ThoughtGate::Tool::"ask");
forbid (principal, action, resource == ThoughtGate::Tool::"aks");
forbid (principal, action, resource == ThoughtGate::Prompt::"p");
permit (principal, action, resource);`)}},
	})
	offered := []policy.Named{{Upstream: "crm", Kind: policy.Tool, Name: "get_user"}, {Upstream: "crm", Kind: policy.Tool, Name: "ask"}}
	var got []string
	for _, w := range s.Unused(offered) {
		got = append(got, w.String())
	}
	want := []string{
		`rules[1]: "delte_*" matches nothing that the upstreams offer`,
		`rules[2]: "get_user" matches nothing that the upstreams offer`,
		`a.cedar:2: is about ThoughtGate::Tool::"aks", which no upstream offers`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	offered = append(offered, policy.Named{Upstream: "crm", Kind: policy.Prompt, Name: "q"}, policy.Named{Upstream: "crm", Kind: policy.Resource, Name: "http://a"})
	if n := len(s.Unused(offered)); n != 5 {
		t.Errorf("%d warnings once there are prompts and resources, want 5", n)
	}
}

// A pattern in the form of a regular expression causes a warning that names it. A glob causes
// none.
func TestCompileWarnsOfRegularExpressions(t *testing.T) {
	warns := func(r policy.Rule) []string {
		r.Action = policy.Deny
		return warningsOf(t, policy.Config{Rules: []policy.Rule{r}, Default: policy.Rule{Action: policy.Forward}})
	}
	for _, pattern := range []string{
		"^delete_.*", "^delete", "delete_$", "delete_|drop_", "(delete|drop)_x", ".*", ".*delete", "delete_.*", "delete.*", `user_\d`, `\w*`, "[0-9]+", "x.+", "a(b)", `file:///x\d`, "^file:///etc/*",
	} {
		if got := warns(policy.Rule{Match: pattern}); len(got) != 1 || !strings.Contains(got[0], "rules[0].match") {
			t.Errorf("%q: %q", pattern, got)
		}
	}
	for _, pattern := range []string{
		"delete_*", "*", "*.*", `github\.*`, "github[.]*", "file:///srv/a.*", `[$|(]`, "c++", `\^x`, `x\$`, `a\|b`, "a.b", "a$b", "[a-z]*", "a?",
	} {
		if got := warns(policy.Rule{Match: pattern}); len(got) != 0 {
			t.Errorf("%q: %q", pattern, got)
		}
	}
	for principal, want := range map[string]int{"auth0|*": 0, "alice@corp.*": 0, "group:^ops": 1, ".*": 1, `alice\d`: 1} {
		if got := warns(policy.Rule{Match: "*", Principals: []string{principal}}); len(got) != want {
			t.Errorf("the principal %q: %q", principal, got)
		}
	}
	if got := warns(policy.Rule{Match: "*", Upstream: "crm|erp"}); len(got) != 1 {
		t.Errorf("an upstream: %q", got)
	}
	for pattern, want := range map[string]int{"^delete_.*": 1, "delete_*": 0} {
		got := warningsOf(t, asking(`permit (principal, action, resource) unless { resource.name like "`+pattern+`" };`))
		if len(got) != want {
			t.Errorf("a Cedar policy with the pattern %q: %q", pattern, got)
		}
	}
}
