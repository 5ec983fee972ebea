package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

func varied(t *testing.T) *policy.Snapshot {
	t.Helper()
	return compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "read_*", Action: policy.Forward},
			{Match: "delete_*", Principals: []string{"root", "group:ops"}, Action: policy.Forward, Name: "admins"},
			{Match: "*_keys", Secrets: []string{"swordfish"}, Action: policy.Deny},
			{Match: "delete_*", Action: policy.Approve},
			{Match: "pay", Action: policy.AskPolicies},
		},
		Default: policy.Rule{Action: policy.Deny},
		Cedar: []policy.Source{{Name: "pay.cedar", Text: []byte(`
@id("support") permit (principal in ThoughtGate::Group::"support", action, resource == ThoughtGate::Tool::"pay");
@id("small") permit (principal, action, resource == ThoughtGate::Tool::"pay")
when { context.upstream == "crm" && context.arguments has amount && context.arguments.amount <= 100 } unless { context.hour < 8 };
@id("other") permit (principal, action, resource == ThoughtGate::Tool::"other");
@id("forced") forbid (principal, action, resource) when { context.arguments has force && context.arguments.force };`)}},
	})
}

// Alternatives name what would have to differ for another verdict, and the verdict then. Each is
// tried in a test of its own below.
func TestOtherwise(t *testing.T) {
	s := varied(t)
	noon := time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name, arguments string
		want            []string
	}{
		{"read_x", `{}`, []string{"deny by the default without rules[0]"}},
		{"delete_user", `{"id":1}`, []string{"forward by rule admins if it fitted principals: root, group:ops, of rule admins", "deny by the default without rules[3]"}},
		{"delete_keys", `{"a":"swordfish","b":1}`, []string{
			"forward by rule admins if it fitted principals: root, group:ops, of rule admins",
			"approve default by rules[3] without rules[2]",
			`approve default by rules[3] without the argument "a"`,
		}},
		{"pay", `{"amount":50,"force":true}`, []string{`forward by policy small without the argument "force"`}},
		{"pay", `{"amount":50}`, []string{"deny by the default without rules[4]", `deny by rules[4] without the argument "amount"`}},
		{"nothing", `{}`, nil},
		{"", `{}`, nil},
	} {
		var got []string
		for _, a := range s.Otherwise(policy.Call{Upstream: "crm", Method: "tools/call", Name: test.name, Arguments: []byte(test.arguments), Principal: policy.Principal{ID: "alice"}, Time: noon}) {
			got = append(got, strings.ReplaceAll(fmt.Sprintf("%s %s by %s %s", a.Action, a.Workflow, a.By, a.If), "  ", " "))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s %s:\n%s", test.name, test.arguments, diff)
		}
	}
}

// Policies that do not apply are listed with the first part that is not met.
func TestExplainUnmetPolicies(t *testing.T) {
	s := varied(t)
	for arguments, want := range map[string]string{
		`{"amount":500}`:            "support: it is about other principals; small: context.arguments.amount <= 100 is false; forced: context.arguments has force is false",
		`{}`:                        "support: it is about other principals; small: context.arguments has amount is false; forced: context.arguments has force is false",
		`{"amount":5,"force":true}`: "support: it is about other principals; small: context.hour < 8 is true",
	} {
		var got []string
		e := s.Explain(policy.Call{Upstream: "crm", Method: "tools/call", Name: "pay", Arguments: []byte(arguments), Principal: policy.Principal{ID: "alice"}})
		for _, p := range e.Unmet {
			got = append(got, p.ID+": "+p.Unmet)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: got %q; want %q", arguments, got, want)
		}
	}
}

// Without arguments, an explanation says what may decide, and has a verdict only if it is certain.
func TestExplainWithoutArguments(t *testing.T) {
	s := varied(t)
	call := func(name string) policy.Call {
		return policy.Call{Upstream: "crm", Method: "tools/call", Name: name, Principal: policy.Principal{ID: "alice"}}
	}
	if e := s.ExplainWithoutArguments(call("delete_user")); e.Unknown || e.Verdict.Action != policy.Approve {
		t.Errorf("%+v; want a verdict, since no rule reads the arguments", e)
	}
	text := s.ExplainWithoutArguments(call("delete_keys")).Text()
	for _, want := range []string{"rules[2]   *_keys → deny: depends on the arguments\n", "rules[3]   delete_* → approve: matches\n", "verdict    unknown: "} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	text = s.ExplainWithoutArguments(call("pay")).Text()
	if !strings.Contains(text, "policy     small (pay.cedar:3): permit: depends on the call\n") || strings.Contains(text, "other") {
		t.Error(text)
	}
}

// The cost of alternatives does not grow with the number of arguments.
func TestOtherwiseIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"x":1`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"a%d":1`, i)
	}
	b.WriteString(`}`)
	found := varied(t).Otherwise(policy.Call{Upstream: "crm", Method: "tools/call", Name: "delete_keys", Arguments: []byte(b.String()), Principal: policy.Principal{ID: "alice"}})
	if len(found) > 22 {
		t.Errorf("%d alternatives", len(found))
	}
}
