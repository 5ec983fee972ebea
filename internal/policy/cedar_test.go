package policy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// asking returns a configuration in which the policies judge every call.
func asking(policies string) policy.Config {
	return policy.Config{
		Default: policy.Rule{Action: policy.AskPolicies},
		Workflows: map[string]policy.Workflow{
			"default": {Quorum: 1, Timeout: time.Hour},
			"two":     {Quorum: 2, Timeout: time.Hour, SelfApproval: true},
			"self":    {Quorum: 1, Timeout: time.Minute, SelfApproval: true},
			"quick":   {Quorum: 1, Timeout: time.Minute},
			"rapid":   {Quorum: 1, Timeout: time.Minute},
			"keys":    {Quorum: 1, Timeout: time.Hour, SelfApproval: true, Passkey: true},
		},
		Cedar: []policy.Source{{Name: "test.cedar", Text: []byte(policies)}},
	}
}

const (
	any1 = "(principal, action, resource)"
	pay  = `(principal, action, resource == ThoughtGate::Tool::"pay")`
)

func payCall(arguments string) policy.Call {
	c := toolCall("pay")
	c.Arguments = []byte(arguments)
	c.Upstream = "bank"
	c.Principal.Groups = []string{"staff"}
	c.Time = time.Date(2026, 11, 3, 22, 30, 0, 0, time.UTC) // a Tuesday
	return c
}

func TestCedarVerdicts(t *testing.T) {
	tests := []struct {
		name, policies, arguments string
		want, reason              string
	}{
		{"permit forwards", `@id("p") permit ` + any1 + `;`, `{}`, "forward", "permitted by policy p"},
		{"no permit denies", `permit ` + any1 + ` when { false };`, `{}`, "deny", "no policy permits it"},
		{"forbid beats permit", `permit ` + any1 + `; @id("f") @reason("no") forbid ` + any1 + `;`, `{}`, "deny", "forbidden by policy f (no)"},
		{"a policy without an id is called by its place", "\npermit " + any1 + `;`, `{}`, "forward", "permitted by policy test.cedar:2:1"},
		{"approval", `@id("p") @approval("two") @reason("big") permit ` + any1 + `;`, `{}`, "approve two", "permitted by policy p (big), with approval by workflow two"},
		{"approval without a name", `@id("p") @approval permit ` + any1 + `;`, `{}`, "approve default", "permitted by policy p, with approval by workflow default"},
		{"approval beats a plain permit", `@id("a") permit ` + any1 + `; @id("b") @approval("quick") permit ` + any1 + `;`, `{}`, "approve quick", "permitted by policy a, policy b, with approval by workflow quick"},
		{"approval that does not apply", `@id("a") permit ` + any1 + `; @approval("quick") permit ` + any1 + ` when { false };`, `{}`, "forward", "permitted by policy a"},
		{"higher quorum is stricter", `@id("a") @approval("quick") permit ` + any1 + `; @id("b") @approval("two") permit ` + any1 + `;`, `{}`, "approve two", "permitted by policy a, policy b, with approval by workflow two"},
		{"a passkey is stricter", `@id("a") @approval("two") permit ` + any1 + `; @id("b") @approval("keys") permit ` + any1 + `;`, `{}`, "approve keys", "permitted by policy a, policy b, with approval by workflow keys"},
		{"no self-approval is stricter", `@id("a") @approval("self") permit ` + any1 + `; @id("b") @approval("default") permit ` + any1 + `;`, `{}`, "approve default", "permitted by policy a, policy b, with approval by workflow default"},
		{"shorter timeout is stricter", `@id("a") @approval("quick") permit ` + any1 + `; @id("b") @approval("default") permit ` + any1 + `;`, `{}`, "approve quick", "permitted by policy a, policy b, with approval by workflow quick"},
		{"the first name is stricter", `@id("a") @approval("rapid") permit ` + any1 + `; @id("b") @approval("quick") permit ` + any1 + `;`, `{}`, "approve quick", "permitted by policy a, policy b, with approval by workflow quick"},
		{
			"a broken forbid denies", `permit ` + any1 + `; @id("f") forbid ` + pay + ` when { context.arguments.amount > 100 };`, `{"amount":"many"}`,
			"deny", "denied because a policy could not be evaluated: f",
		},
		{
			"a broken permit denies", `@id("a") permit ` + any1 + `; @id("b") permit ` + pay + ` when { context.arguments.amount > 100 };`, `{}`,
			"deny", "denied because a policy could not be evaluated: b",
		},
		{"overflow denies", `@id("a") permit ` + pay + ` when { context.arguments.n - 1 < 0 };`, `{"n":-9223372036854775808}`, "deny", "denied because a policy could not be evaluated: a"},
		{"a number that is rounded denies", `@id("a") permit ` + pay + ` when { context.arguments.n > 0 };`, `{"n":9007199254740993}`, "deny", "the policies cannot be evaluated: the arguments have a number that servers round to another one"},
		{"a name in another case denies", `@id("a") permit ` + pay + `; forbid ` + pay + ` when { context.arguments has path };`, `{"pATH":1}`, "deny", "the policies cannot be evaluated: the arguments have a name that differs only by case from one that policies read"},
		{"a name in another case, inside", `@id("a") permit ` + pay + `; forbid ` + pay + ` when { context.arguments has o && context.arguments.o has path };`, `{"o":{"Path":1}}`, "deny", "the policies cannot be evaluated: the arguments have a name that differs only by case from one that policies read"},
		{"a name in another case, with a letter that is not ASCII", `@id("a") permit ` + pay + `; forbid ` + pay + ` when { context.arguments has task };`, `{"tas\u212a":1}`, "deny", "the policies cannot be evaluated: the arguments have a name that differs only by case from one that policies read"},
		{"a name in another case that is not read", `@id("a") permit ` + pay + ` when { resource.name == "pay" && context.session.client != "x" && !(context.arguments has o) };`, `{"Name":1,"Client":2}`, "forward", "permitted by policy a"},
		{"other tools' policies cannot fail", `@id("a") permit ` + any1 + `; forbid (principal, action, resource == ThoughtGate::Tool::"other") when { context.arguments.amount > 100 };`, `{}`, "forward", "permitted by policy a"},
		{"group", `@id("a") permit (principal in ThoughtGate::Group::"staff", action, resource);`, `{}`, "forward", "permitted by policy a"},
		{"another group", `permit (principal in ThoughtGate::Group::"boss", action, resource);`, `{}`, "deny", "no policy permits it"},
		{"upstream", `@id("a") permit (principal, action, resource in ThoughtGate::Upstream::"bank");`, `{}`, "forward", "permitted by policy a"},
		{"type in upstream", `@id("a") permit (principal, action, resource is ThoughtGate::Tool in ThoughtGate::Upstream::"bank");`, `{}`, "forward", "permitted by policy a"},
		{"another upstream", `permit (principal, action, resource in ThoughtGate::Upstream::"crm");`, `{}`, "deny", "no policy permits it"},
		{"another type", `permit (principal, action, resource is ThoughtGate::Prompt);`, `{}`, "deny", "no policy permits it"},
		{"actions", `@id("a") permit (principal, action in [ThoughtGate::Action::"call", ThoughtGate::Action::"get"], resource);`, `{}`, "forward", "permitted by policy a"},
		{"attributes", `@id("a") permit ` + any1 + ` when { principal.id == "alice" && !principal.anonymous && resource.name like "p*" };`, `{}`, "forward", "permitted by policy a"},
		{
			"context", `@id("a") permit ` + any1 + ` when { context.upstream == "bank" && context.method == "tools/call" && context.hour == 22 && context.weekday == 2
			&& context.time == datetime("2026-11-03T22:30:00Z") && context.session == {client: "", version: "", protocol: ""} };`,
			`{}`, "forward", "permitted by policy a",
		},
		{"unmappable argument that is read", `permit ` + pay + ` when { context.arguments.n == 1 };`, `{"n":0.00001}`, "deny", "the policies cannot be evaluated: the arguments have a number with more than four decimals"},
		{"unmappable argument that is not read", `@id("a") permit ` + pay + ` when { context.arguments.n == 1 };`, `{"n":1,"m":0.00001}`, "forward", "permitted by policy a"},
		{"unmappable argument that another tool's policy reads", `@id("a") permit ` + pay + `; permit (principal, action, resource == ThoughtGate::Tool::"other") when { context.arguments.n == 1 };`, `{"n":0.00001}`, "forward", "permitted by policy a"},
		{"all arguments are read", `permit ` + pay + ` when { context.arguments == {n: 1} };`, `{"n":1,"m":1e99}`, "deny", "the policies cannot be evaluated: the arguments have a number beyond 64 bits"},
		{"the context as a whole is read", `permit ` + pay + ` when { {c: context}.c.arguments.n == 1 };`, `{"n":1,"m":1e99}`, "deny", "the policies cannot be evaluated: the arguments have a number beyond 64 bits"},
		{"has reads", `permit ` + pay + ` when { context.arguments has n };`, `{"n":1e99}`, "deny", "the policies cannot be evaluated: the arguments have a number beyond 64 bits"},
		{"has of a record", `@id("a") permit ` + pay + ` when { context has arguments && !(context.arguments has n) };`, `{"m":1e99}`, "forward", "permitted by policy a"},
		{"decimals", `@id("a") permit ` + pay + ` when { context.decimals.n.lessThan(decimal("2.0")) && context.decimals.m.lessThan(decimal("2.0")) };`, `{"n":1,"m":1.5}`, "forward", "permitted by policy a"},
		{"decimals keep texts", `@id("a") permit ` + pay + ` when { context.decimals.n.lessThan(decimal("2.0")) };`, `{"n":"1"}`, "deny", "denied because a policy could not be evaluated: a"},
		{"null is a value", `@id("a") permit ` + pay + ` when { context.arguments has n && context.arguments.n == ThoughtGate::Null::"null" };`, `{"n":null}`, "forward", "permitted by policy a"},
		{"null is not a boolean", `@id("a") permit ` + pay + ` unless { context.arguments.n };`, `{"n":null}`, "deny", "denied because a policy could not be evaluated: a"},
		{"arguments cannot create entities", `permit ` + pay + ` when { context.arguments.who == ThoughtGate::Principal::"root" };`, `{"who":{"__entity":{"type":"ThoughtGate::Principal","id":"root"}}}`, "deny", "no policy permits it"},
		{"no arguments", `@id("a") permit ` + pay + ` when { !(context.arguments has n) };`, ``, "forward", "permitted by policy a"},
		{"arguments that are null", `@id("a") permit ` + pay + ` when { context.arguments == {} };`, ` null `, "forward", "permitted by policy a"},
		{"arguments that are not an object", `permit ` + pay + ` when { !(context.arguments has n) };`, `[]`, "deny", "the policies cannot be evaluated: the arguments have no members: they are not a JSON object"},
		{"duplicate names", `permit ` + pay + ` when { context.arguments.n == 1 };`, `{"n":1,"m":{"a":1,"a":2}}`, "deny", "the policies cannot be evaluated: the arguments have invalid JSON or a duplicate name"},
		{"cut off", `permit ` + pay + ` when { context.arguments.n == 1 };`, `{"n":1`, "deny", "the policies cannot be evaluated: the arguments have invalid JSON or a duplicate name"},
		{"two values", `permit ` + pay + ` when { context.arguments.n == 1 };`, `{"n":1}{"n":2}`, "deny", "the policies cannot be evaluated: the arguments have text after their end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := compile(t, asking(tt.policies)).Judge(payCall(tt.arguments))
			if diff := cmp.Diff([]string{tt.want, tt.reason}, []string{short(v), v.Reason}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCedarWorkflowOfTheRule(t *testing.T) {
	cfg := asking(`@approval permit ` + any1 + `; @approval("default") permit (principal, action, resource == ThoughtGate::Tool::"named");`)
	cfg.Rules = []policy.Rule{{Match: "*", Action: policy.AskPolicies, Workflow: "self"}}
	s := compile(t, cfg)
	for name, want := range map[string]string{"other": "approve self", "named": "approve default"} {
		v := s.Judge(toolCall(name))
		if short(v) != want || v.Rule != 0 || v.Match != "*" {
			t.Errorf("%s: %s by rules[%d] %q, want %s by rules[0]", name, short(v), v.Rule, v.Match, want)
		}
	}
}

func TestCedarResourcesAndPrompts(t *testing.T) {
	s := compile(t, asking(`
permit (principal, action == ThoughtGate::Action::"read", resource == ThoughtGate::Resource::"file:///a") when { context.method == "resources/read" };
permit (principal, action == ThoughtGate::Action::"get", resource) when { context.arguments.lang == "de" && resource.name == "greet" };
permit (principal, action == ThoughtGate::Action::"call", resource) when { context has annotations && resource is ThoughtGate::Tool };
forbid (principal, action, resource) when { principal.anonymous };`))
	alice := policy.Principal{ID: "alice"}
	tests := []struct {
		call policy.Call
		want policy.Action
	}{
		{policy.Call{Method: "resources/read", Name: "file:///a", Principal: alice}, policy.Forward},
		{policy.Call{Method: "resources/subscribe", Name: "file:///a", Principal: alice}, policy.Deny},
		{policy.Call{Method: "resources/read", Name: "file:///b", Principal: alice}, policy.Deny},
		{policy.Call{Method: "prompts/get", Name: "greet", Arguments: []byte(`{"lang":"de"}`), Principal: alice}, policy.Forward},
		{policy.Call{Method: "prompts/get", Name: "greet", Arguments: []byte(`{"lang":"en"}`), Principal: alice}, policy.Deny},
		{policy.Call{Method: "tools/call", Name: "greet", Principal: alice}, policy.Forward},
		{policy.Call{Method: "tools/call", Name: "greet", Principal: policy.Principal{ID: "alice", Anonymous: true}}, policy.Deny},
	}
	for _, tt := range tests {
		if v := s.Judge(tt.call); v.Action != tt.want {
			t.Errorf("%s %s: %s (%s), want %s", tt.call.Method, tt.call.Name, v.Action, v.Reason, tt.want)
		}
	}
}

// An anonymous principal has an empty id and no groups.
func TestCedarAnonymous(t *testing.T) {
	s := compile(t, asking(`permit (principal == ThoughtGate::Principal::"alice", action, resource);
permit (principal in ThoughtGate::Group::"staff", action, resource);`))
	call := payCall(`{}`)
	if v := s.Judge(call); v.Action != policy.Forward {
		t.Errorf("alice: %s", v.Reason)
	}
	call.Principal.Anonymous = true
	if v := s.Judge(call); v.Action != policy.Deny {
		t.Errorf("an anonymous principal with the id and group of alice: %s", v.Reason)
	}
}

func TestCedarAnnotations(t *testing.T) {
	s := compile(t, asking(`
@id("read") permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.readOnlyHint };
@id("destroy") permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.destructiveHint };
@id("again") permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.idempotentHint };
@id("open") permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.openWorldHint };
@id("title") permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.title != "" };`))
	yes, no := true, false
	tests := []struct {
		annotations policy.Annotations
		want        string
	}{
		{policy.Annotations{}, "destroy open"},
		{policy.Annotations{ReadOnly: &yes}, "open read"},
		{policy.Annotations{ReadOnly: &yes, Destructive: &yes}, "destroy open read"},
		{policy.Annotations{ReadOnly: &no, Destructive: &no, OpenWorld: &no, Idempotent: &yes}, "again"},
		{policy.Annotations{ReadOnly: &no, OpenWorld: &no, Title: "x"}, "destroy title"},
	}
	for _, tt := range tests {
		call := toolCall("x")
		call.Annotations = tt.annotations
		if got := strings.Join(s.Judge(call).Policies, " "); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.annotations, got, tt.want)
		}
	}
}

func TestCedarZone(t *testing.T) {
	cfg := asking(`@id("night") permit ` + any1 + ` when { context.hour < 6 && context.weekday == 3 };`)
	zone := time.FixedZone("east", 3*3600)
	if v := compile(t, cfg).Judge(payCall(`{}`)); v.Action != policy.Deny {
		t.Errorf("22:30 UTC on a Tuesday: %s", v.Reason)
	}
	cfg.Zone = zone
	if v := compile(t, cfg).Judge(payCall(`{}`)); v.Action != policy.Forward {
		t.Errorf("01:30 in the east on a Wednesday: %s", v.Reason)
	}
}

func TestCedarRefused(t *testing.T) {
	tests := []struct{ name, policies, want string }{
		{"no Cedar", "permit (", `test.cedar:1:9: not Cedar: expected "principal" at the end`},
		{"unknown annotation", `@approvals("two") permit ` + any1 + `;`, "test.cedar:1: @approvals is not @id, @approval, @reason or @description"},
		{"unknown workflow", `@approval("tow") permit ` + any1 + `;`, `test.cedar:1: @approval: "tow" is not one of default, keys, quick, rapid, self, two`},
		{"approval of a forbid", `@approval("two") forbid ` + any1 + `;`, "test.cedar:1: @approval has no meaning on a forbid: write a permit with @approval instead"},
		{"an id twice", `@id("a") permit ` + any1 + ";\n" + `@id("a") forbid ` + any1 + `;`, `cedar: test.cedar:1 and test.cedar:2 have the same @id "a"`},
		{"unknown entity type", `permit (principal == User::"a", action, resource);`, "test.cedar:1: unrecognized entity type `User`"},
		{"unknown action", `permit (principal, action == ThoughtGate::Action::"delete", resource);`, "test.cedar:1: unrecognized action `ThoughtGate::Action::\"delete\"`"},
		{"impossible scope", `permit (principal == ThoughtGate::Tool::"a", action, resource);`, "test.cedar:1: unable to find an applicable action given the policy scope constraints"},
		{"unknown attribute of the context", `permit ` + any1 + ` when { context.tome == 3 };`, "test.cedar:1: attribute `tome` "},
		{"unknown attribute beside an argument", `permit ` + any1 + ` when { context.arguments.a == 1 && context.tome == 3 };`, "test.cedar:1: attribute `tome` "},
		{"unknown attribute compared with an argument", `permit ` + any1 + ` when { context.arguments.a == context.tome };`, "test.cedar:1: attribute `tome` "},
		{"annotations of a resource", `permit (principal, action == ThoughtGate::Action::"read", resource) when { context.annotations.readOnlyHint };`, "test.cedar:1: attribute `annotations` "},
		{"wrong type", `permit ` + any1 + ` when { context.hour == "9" };`, "test.cedar:1: the types Long and String are not compatible"},
		{"wrong type in the condition of an if", `permit ` + any1 + ` when { if context.hour then context.arguments.a else true };`, "test.cedar:1: unexpected type: expected Bool but saw Long"},
		{"bad literal", `permit ` + any1 + ` when { context.decimals.a == decimal("x") };`, "test.cedar:1: error during extension function argument validation"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _, err := policy.Compile(asking(tt.policies))
			if err == nil || s != nil {
				t.Fatal("the policies compile; want an error")
			}
			if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.HasPrefix(first, strings.TrimSpace(tt.want)) {
				t.Errorf("%s\nwant %s", first, tt.want)
			}
			if strings.Contains(err.Error(), "none are configured") {
				t.Errorf("the error also names the rules: %v", err)
			}
		})
	}
}

// Policies may use arguments of any name and type.
func TestCedarAccepted(t *testing.T) {
	for _, condition := range []string{
		`context.arguments.a`, `!context.arguments.a`, `context.arguments.a && context.arguments.b.c`, `context.arguments.a < 3`, `3 < context.arguments.a + 1`,
		`-context.arguments.a * 2 == 4`, `context.arguments.a like "x*"`, `["a", "b"].contains(context.arguments.a)`, `context.arguments.a.contains("x")`,
		`context.arguments.a.containsAny(["x"])`, `context.arguments.a.isEmpty()`, `context.arguments has a.b.c`, `context.arguments.a == context.arguments.b`,
		`(if context.arguments.a then 1 else 2) == 2`, `if context.arguments has a then context.arguments.a == 1 else context.hour > 3`,
		`ip(context.arguments.ip).isInRange(ip("10.0.0.0/8"))`, `decimal(context.arguments.x).lessThan(decimal("1.0"))`, `{a: context.arguments.b}.a == 1`,
		`context.arguments["a b"] == 9223372036854775807`, `context.arguments.a == ThoughtGate::Null::"null"`, `context.arguments.a is ThoughtGate::Null`,
		`context.arguments == {a: 1}`, `{"==": {left: context.arguments.a}} has "=="`, `context == context`, `datetime(context.arguments.day) < context.time`,
	} {
		if _, _, err := policy.Compile(asking(`permit ` + pay + ` when { ` + condition + ` };`)); err != nil {
			t.Errorf("%s: %v", condition, err)
		}
	}
}

func TestCedarWarnings(t *testing.T) {
	cfg := asking(`permit ` + any1 + ` when { context.arguments.a == 1 && context.decimals.b == decimal("1.0") && context.arguments has c && context.arguments.c == 1 };
permit ` + pay + ` when { context.arguments.a == 1 };`)
	want := []string{"test.cedar:1: reads context.arguments.a and context.decimals.b without a has check: matching calls that lack it are denied"}
	if diff := cmp.Diff(want, warningsOf(t, cfg)); diff != "" {
		t.Error(diff)
	}
	cfg = asking(`permit ` + any1 + `;`)
	cfg.Default.Action = policy.Deny
	if diff := cmp.Diff([]string{"cedar: no rule has the action policy, so the policies are never evaluated"}, warningsOf(t, cfg)); diff != "" {
		t.Error(diff)
	}
}

func TestCedarSources(t *testing.T) {
	cfg := asking(`permit ` + any1 + `;`)
	cfg.Cedar = append(cfg.Cedar, cfg.Cedar[0])
	if _, _, err := policy.Compile(cfg); err == nil || err.Error() != "test.cedar: two sources have this name" {
		t.Errorf("a source twice: %v", err)
	}
	cfg.Cedar = []policy.Source{{Name: "empty.cedar", Text: []byte("// nothing\n")}}
	if _, _, err := policy.Compile(cfg); err == nil || err.Error() != "default.action: policy needs Cedar policies, but none are configured" {
		t.Errorf("no policy in the source: %v", err)
	}
	cfg.Cedar = nil
	if _, _, err := policy.Compile(cfg); err == nil || err.Error() != "default.action: policy needs Cedar policies, but none are configured" {
		t.Errorf("no source: %v", err)
	}
	cfg = asking(`@approval permit ` + any1 + `;`)
	delete(cfg.Workflows, "default")
	if _, _, err := policy.Compile(cfg); err == nil || !strings.HasPrefix(err.Error(), `default.workflow: "default" is not one of`) {
		t.Errorf("@approval without a name, and no default workflow: %v", err)
	}
}

// The request that policies get conforms to the schema against which they are checked.
func TestRequestFitsSchema(t *testing.T) {
	var text schema.Schema
	if err := text.UnmarshalCedar(policy.Schema()); err != nil {
		t.Fatal(err)
	}
	resolved, err := text.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	v := validate.New(resolved)
	s := compile(t, asking(`permit `+any1+`;`))
	for _, method := range []string{"tools/call", "resources/read", "prompts/get"} {
		call := payCall(``)
		call.Method = method
		request, entities, err := s.Question(call)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Request(request); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if err := v.Entities(entities); err != nil || len(entities) != 4 {
			t.Errorf("%s: %d entities, %v", method, len(entities), err)
		}
	}
}

// A file of policies is compiled or refused, and compiled policies can be evaluated.
func FuzzPolicies(f *testing.F) {
	files, err := filepath.Glob("../../docs/policies/*.cedar")
	if err != nil || len(files) == 0 {
		f.Fatal("the samples are missing")
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), `{"amount":5,"path":"/data/a"}`)
	}
	f.Add(`permit `+any1+` when { if context.arguments.a then {b: context}.b == context else [context.decimals.c, 1].contains(-2) };`, `{"a":true}`)
	f.Fuzz(func(t *testing.T, text, arguments string) {
		s, _, err := policy.Compile(asking(text))
		if err != nil {
			return
		}
		v := s.Judge(payCall(arguments))
		if v.Reason == "" || v.Action != policy.Deny && len(v.Policies) == 0 {
			t.Errorf("%+v", v)
		}
	})
}

// randomPolicies generates policies with all kinds of scopes, some of which fail.
func randomPolicies(t *rapid.T) string {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	var b strings.Builder
	for i := range rapid.IntRange(1, 8).Draw(t, "policies") {
		fmt.Fprintf(&b, "@id(\"%d\") %s (%s, %s, %s)%s;\n", i,
			pick("effect", "permit", "permit", `@approval("two") permit`, "@approval permit", "forbid"),
			pick("principal", "principal", `principal == ThoughtGate::Principal::"a"`, `principal in ThoughtGate::Group::"b"`, "principal is ThoughtGate::Principal"),
			pick("action", "action", `action == ThoughtGate::Action::"call"`, `action in [ThoughtGate::Action::"read", ThoughtGate::Action::"get"]`),
			pick("resource", "resource", `resource == ThoughtGate::Tool::"a"`, `resource in ThoughtGate::Tool::"a"`, `resource in ThoughtGate::Upstream::"a"`,
				"resource is ThoughtGate::Tool", "resource is ThoughtGate::Prompt", `resource is ThoughtGate::Resource in ThoughtGate::Upstream::"a"`, `resource == ThoughtGate::Prompt::"b"`),
			pick("condition", "", "", " when { context.arguments.n > 1 }", " unless { context.arguments has n }", ` when { resource in ThoughtGate::Upstream::"b" }`),
		)
	}
	return b.String()
}

func randomCall(t *rapid.T) policy.Call {
	ab := rapid.SampledFrom([]string{"a", "b"})
	return policy.Call{
		Method: rapid.SampledFrom([]string{"tools/call", "resources/read", "prompts/get"}).Draw(t, "method"),
		Name:   ab.Draw(t, "name"), Upstream: ab.Draw(t, "upstream"),
		Arguments: []byte(rapid.SampledFrom([]string{``, `{}`, `{"n":1}`, `{"n":2}`, `{"n":"x"}`, `{"n":1e99}`}).Draw(t, "arguments")),
		Principal: policy.Principal{
			ID: ab.Draw(t, "id"), Groups: rapid.SliceOfN(ab, 0, 2).Draw(t, "groups"), Anonymous: rapid.Bool().Draw(t, "anonymous"),
		},
	}
}

// Selecting policies by their scope gives the same verdict as evaluating all of them with
// Cedar.
func TestCedarIndexKeepsVerdicts(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(t *rapid.T) {
		text, call := randomPolicies(t), randomCall(t)
		s, _, err := policy.Compile(asking(text))
		if err != nil {
			return // the scope contains no resource
		}
		compiled++
		v := s.Judge(call)
		all, err := cedar.NewPolicySetFromBytes("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(call.Arguments), "1e99") {
			call.Arguments = nil // so that policies that read them fail
		}
		decision, diagnostic := cedar.Authorize(all, entitiesOf(call), requestOf(call))
		var ids []string
		for _, e := range diagnostic.Errors {
			ids = append(ids, string(all.Get(e.PolicyID).Annotations()["id"]))
		}
		if len(diagnostic.Errors) == 0 {
			for _, r := range diagnostic.Reasons {
				ids = append(ids, string(all.Get(r.PolicyID).Annotations()["id"]))
			}
		}
		slices.Sort(ids)
		allowed := decision == cedar.Allow && len(diagnostic.Errors) == 0
		unmappable := strings.HasPrefix(v.Reason, "the policies cannot be evaluated")
		if unmappable {
			if v.Action != policy.Deny {
				t.Errorf("%s", v.Reason)
			}
			return
		}
		if (v.Action != policy.Deny) != allowed || !slices.Equal(v.Policies, ids) {
			t.Errorf("%s %v %q, but Cedar says %v %v\n%s", v.Action, v.Policies, v.Reason, decision, ids, text)
		}
	})
	if compiled < 20 {
		t.Errorf("only %d sets of policies were compared", compiled)
	}
}

func requestOf(c policy.Call) cedar.Request {
	types := map[string][2]cedar.EntityType{"tools/call": {"ThoughtGate::Tool", "call"}, "resources/read": {"ThoughtGate::Resource", "read"}, "prompts/get": {"ThoughtGate::Prompt", "get"}}
	arguments, err := policy.MapAll(c.Arguments)
	if err != nil {
		arguments = cedar.Record{}
	}
	id := c.Principal.ID
	if c.Principal.Anonymous {
		id = ""
	}
	return cedar.Request{
		Principal: cedar.NewEntityUID("ThoughtGate::Principal", cedar.String(id)),
		Action:    cedar.NewEntityUID("ThoughtGate::Action", cedar.String(types[c.Method][1])),
		Resource:  cedar.NewEntityUID(types[c.Method][0], cedar.String(c.Name)),
		Context:   cedar.NewRecord(cedar.RecordMap{"arguments": arguments}),
	}
}

func entitiesOf(c policy.Call) cedar.EntityMap {
	r := requestOf(c)
	var groups []cedar.EntityUID
	if !c.Principal.Anonymous {
		for _, g := range c.Principal.Groups {
			groups = append(groups, cedar.NewEntityUID("ThoughtGate::Group", cedar.String(g)))
		}
	}
	upstream := cedar.NewEntityUID("ThoughtGate::Upstream", cedar.String(c.Upstream))
	return cedar.EntityMap{
		r.Principal: {UID: r.Principal, Parents: cedar.NewEntityUIDSet(groups...)},
		r.Resource:  {UID: r.Resource, Parents: cedar.NewEntityUIDSet(upstream)},
	}
}
