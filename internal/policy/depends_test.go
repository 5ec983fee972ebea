package policy_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// Arguments change no verdict that does not depend on them.
func TestIndependentVerdictsIgnoreArguments(t *testing.T) {
	independent, depending := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := asking(randomPolicies(t))
		if rapid.Bool().Draw(t, "rule") {
			cfg.Rules = []policy.Rule{{Match: "a", Action: rapid.SampledFrom([]policy.Action{policy.Forward, policy.Approve, policy.Deny}).Draw(t, "action")}}
		}
		s, _, err := policy.Compile(cfg)
		if err != nil {
			return
		}
		call := randomCall(t)
		if s.DependsOnArguments(call) {
			depending++
			return
		}
		independent++
		call.Arguments = nil
		want := s.Judge(call)
		for _, arguments := range []string{`{}`, `null`, `{"n":1}`, `{"n":2}`, `{"n":"x"}`, `{"N":2}`, `{"n":1e99}`, `{"n":1,"n":2}`, `[]`, `{`} {
			call.Arguments = []byte(arguments)
			if got := s.Judge(call); got.Action != want.Action || got.Workflow != want.Workflow || got.Rule != want.Rule {
				t.Errorf("with %s: %s %q by %d (%s), without arguments: %s %q by %d", arguments, got.Action, got.Workflow, got.Rule, got.Reason, want.Action, want.Workflow, want.Rule)
			}
		}
	})
	if independent == 0 || depending == 0 {
		t.Errorf("%d verdicts were independent, %d not", independent, depending)
	}
}

func TestDependsOnArguments(t *testing.T) {
	const reads = ` when { context.arguments has n }`
	tests := []struct {
		policies string
		want     bool
	}{
		{`permit ` + any1 + `;`, false},
		{`permit ` + any1 + reads + `;`, true},
		{`permit ` + any1 + `; @approval permit ` + any1 + ` when { context.decimals has n };`, true},
		{`permit ` + any1 + ` when { context has method };`, false},
		{`permit ` + any1 + ` when { context == context };`, true},
		{`permit (principal, action, resource == ThoughtGate::Tool::"other")` + reads + `; permit ` + pay + `;`, false},
		// Denied whatever the arguments are.
		{`permit ` + any1 + reads + `; forbid ` + any1 + `;`, false},
		{`permit ` + any1 + reads + `; forbid ` + any1 + ` when { context.hour == 22 };`, false},
		{`permit ` + any1 + reads + `; forbid ` + any1 + ` when { context.hour == 23 };`, true},
		{`forbid ` + any1 + reads + `;`, false},
		{`permit ` + any1 + ` when { context.hour == 23 }; forbid ` + any1 + reads + `;`, false},
		{`permit ` + any1 + `; forbid ` + any1 + reads + `;`, true},
	}
	for _, tt := range tests {
		if got := compile(t, asking(tt.policies)).DependsOnArguments(payCall(`{"n":1}`)); got != tt.want {
			t.Errorf("%s: %t", tt.policies, got)
		}
	}
	cfg := asking(`permit ` + any1 + reads + `;`)
	cfg.Rules = []policy.Rule{{Match: "pay", Action: policy.Approve}, {Match: "ﬁ*", Action: policy.Approve}}
	s := compile(t, cfg)
	if s.DependsOnArguments(payCall(`{}`)) {
		t.Error("a rule without conditions on arguments depends on them")
	}
	for name, want := range map[string]int{"pay": 0, "ﬁ": 1, "other": policy.ByDefault} {
		c := payCall(`{}`)
		if c.Name = name; !slices.Equal(s.MayDecide(c), []int{want}) {
			t.Errorf("%v may decide %s", s.MayDecide(c), name)
		}
	}
	for name, want := range map[string]bool{"ﬁle": true, "pay\u202e": false, "": false} {
		c := payCall(`{}`)
		if c.Name = name; s.DependsOnArguments(c) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
}
