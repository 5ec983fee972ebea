package policy_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// The prospect of a call includes its later verdict.
func TestProspectIncludesEveryVerdict(t *testing.T) {
	denied := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := asking(randomPolicies(t))
		cfg.Rules = []policy.Rule{{
			Match: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "match"), Principals: rapid.SampledFrom([][]string{nil, {"a"}}).Draw(t, "principals"),
			Action: rapid.SampledFrom([]policy.Action{policy.Forward, policy.Approve, policy.Deny}).Draw(t, "action"),
			Mode:   rapid.SampledFrom([]policy.Mode{"", policy.Observe, policy.Enforce}).Draw(t, "mode"),
		}}
		s, _, err := policy.Compile(cfg)
		if err != nil {
			return
		}
		call := randomCall(t)
		kind, _ := policy.Governed(call.Method)
		p := s.Prospect(policy.Named{Upstream: call.Upstream, Kind: kind, Name: call.Name}, call.Principal)
		if p.Denied() {
			denied++
		}
		v := s.Judge(call)
		foreseen := map[policy.Action]bool{policy.Forward: p.Forward, policy.Approve: p.Hold, policy.Deny: p.Deny}
		if !foreseen[v.Action] {
			t.Errorf("%s (%s) is not in the prospect %+v", v.Action, v.Reason, p)
		}
	})
	if denied == 0 {
		t.Error("no prospect denied a call")
	}
}

func TestProspect(t *testing.T) {
	cfg := asking(`
permit (principal, action, resource == ThoughtGate::Tool::"plain") when { context.arguments has n };
@approval permit (principal, action, resource == ThoughtGate::Tool::"held");
permit (principal, action, resource == ThoughtGate::Tool::"both");
@approval permit (principal, action, resource == ThoughtGate::Tool::"both") when { context.hour > 6 };
permit (principal, action, resource == ThoughtGate::Tool::"closed");
forbid (principal, action, resource == ThoughtGate::Tool::"closed");
permit (principal, action, resource == ThoughtGate::Tool::"ajar");
forbid (principal, action, resource == ThoughtGate::Tool::"ajar") when { context.hour > 6 };
permit (principal in ThoughtGate::Group::"staff", action, resource == ThoughtGate::Tool::"staff");`)
	cfg.Rules = []policy.Rule{
		{Match: "get_*", Action: policy.Forward},
		{Match: "delete_*", Action: policy.Approve},
		{Match: "drop_*", Action: policy.Deny},
		{Match: "try_*", Action: policy.Deny, Mode: policy.Observe},
		{Match: "mine", Principals: []string{"alice"}, Action: policy.Forward},
	}
	s := compile(t, cfg)
	tests := []struct {
		name string
		who  policy.Principal
		want policy.Prospect
	}{
		{"get_a", policy.Principal{ID: "a"}, policy.Prospect{Forward: true}},
		{"delete_a", policy.Principal{ID: "a"}, policy.Prospect{Hold: true}},
		{"drop_a", policy.Principal{ID: "a"}, policy.Prospect{Deny: true}},
		{"try_a", policy.Principal{ID: "a"}, policy.Prospect{Forward: true}},
		{"mine", policy.Principal{ID: "alice"}, policy.Prospect{Forward: true}},
		{"mine", policy.Principal{ID: "bob"}, policy.Prospect{Deny: true}},
		{"plain", policy.Principal{ID: "a"}, policy.Prospect{Forward: true, Deny: true}},
		{"held", policy.Principal{ID: "a"}, policy.Prospect{Hold: true, Deny: true}},
		{"both", policy.Principal{ID: "a"}, policy.Prospect{Forward: true, Hold: true, Deny: true}},
		{"closed", policy.Principal{ID: "a"}, policy.Prospect{Deny: true}},
		{"ajar", policy.Principal{ID: "a"}, policy.Prospect{Forward: true, Deny: true}},
		{"staff", policy.Principal{ID: "a"}, policy.Prospect{Deny: true}},
		{"staff", policy.Principal{ID: "a", Groups: []string{"staff"}}, policy.Prospect{Forward: true, Deny: true}},
		{"staff", policy.Principal{Groups: []string{"staff"}, Anonymous: true}, policy.Prospect{Deny: true}},
		{"unknown", policy.Principal{ID: "a"}, policy.Prospect{Deny: true}},
	}
	for _, tt := range tests {
		got := s.Prospect(policy.Named{Kind: policy.Tool, Name: tt.name}, tt.who)
		if got != tt.want {
			t.Errorf("%s for %+v: %+v, want %+v", tt.name, tt.who, got, tt.want)
		}
	}
	for _, n := range []policy.Named{{Kind: policy.Resource, Name: "get_/../a"}, {Kind: "other", Name: "get_a"}, {Kind: policy.Tool, Name: "get_" + strings.Repeat("x", 1021)}} {
		if got := s.Prospect(n, policy.Principal{ID: "a"}); !got.Denied() || !got.Deny {
			t.Errorf("%+v: %+v", n, got)
		}
	}
	cfg.Observe = true
	if got := compile(t, cfg).Prospect(policy.Named{Kind: policy.Resource, Name: "/../a"}, policy.Principal{ID: "a"}); got.Denied() {
		t.Errorf("observed: %+v", got)
	}
}
