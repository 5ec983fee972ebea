package policy_test

import (
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// TestRuleModes checks that one rule can be enforced while the others are observed, and one be
// observed while the others are enforced. A name that servers may read as one that an enforced
// rule denies is denied.
func TestRuleModes(t *testing.T) {
	const fullwidth = "\uff44rop" // some servers read drop
	for _, tt := range []struct {
		observe     bool
		drop, other policy.Mode
		want        map[string]string
	}{
		{true, policy.Enforce, "", map[string]string{"drop": "deny", "hold": "forward (would approve default)", "x": "forward (would deny)", fullwidth: "deny"}},
		{true, "", "", map[string]string{"drop": "forward (would deny)", "hold": "forward (would approve default)", "x": "forward (would deny)", fullwidth: "forward (would deny)"}},
		{true, policy.Observe, policy.Enforce, map[string]string{"drop": "forward (would deny)", "hold": "approve default", "x": "forward (would deny)"}},
		{false, policy.Observe, "", map[string]string{"drop": "forward (would deny)", "hold": "approve default", "x": "deny", fullwidth: "deny"}},
		{false, policy.Enforce, policy.Enforce, map[string]string{"drop": "deny", "hold": "approve default", "x": "deny", fullwidth: "deny"}},
	} {
		s := compile(t, policy.Config{
			Rules: []policy.Rule{
				{Match: "drop", Action: policy.Deny, Mode: tt.drop},
				{Match: "hold", Action: policy.Approve, Mode: tt.other},
			},
			Default: policy.Rule{Action: policy.Deny}, Observe: tt.observe,
			Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
		})
		for name, want := range tt.want {
			if got := short(s.Judge(toolCall(name))); got != want {
				t.Errorf("mode observe %v, rules %q and %q: %q gets %s; want %s", tt.observe, tt.drop, tt.other, name, got, want)
			}
		}
		p := s.Prospect(policy.Named{Kind: policy.Tool, Name: "drop"}, policy.Principal{ID: "alice"})
		if p.Denied() == (short(s.Judge(toolCall("drop"))) != "deny") {
			t.Errorf("prospect %+v", p)
		}
	}
}

// TestPinsWithRuleModes checks that a call that an enforced rule denies is denied although its
// tool is not in the lock file and the other rules are observed.
func TestPinsWithRuleModes(t *testing.T) {
	s := compile(t, policy.Config{
		Rules:   []policy.Rule{{Match: "drop", Action: policy.Deny, Mode: policy.Enforce}, {Match: "get", Action: policy.Forward, Mode: policy.Enforce}},
		Default: policy.Rule{Action: policy.Deny}, Observe: true, Pins: &policy.Pins{Unpinned: policy.DenyCall},
	})
	for name, want := range map[string]string{"drop": "deny", "get": "deny", "x": "forward (would deny)", "\uff44rop": "deny"} {
		if got := short(s.Judge(toolCall(name))); got != want {
			t.Errorf("%q gets %s; want %s", name, got, want)
		}
	}
}

// TestEnforcedReadingOfSeveral checks that a URI that a server may read as one that an enforced rule
// denies is denied, although another reading is only observed.
func TestEnforcedReadingOfSeveral(t *testing.T) {
	s := compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "file://host/x", Action: policy.Approve},
			{Match: "file:///x", Action: policy.Deny, Mode: policy.Enforce},
		},
		Default: policy.Rule{Action: policy.Forward}, Observe: true,
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
	})
	for name, want := range map[string]string{"file://host/x#y": "deny", "file://host/x": "deny", "file:///x": "deny"} {
		c := policy.Call{Method: "resources/read", Name: name, Principal: policy.Principal{ID: "alice"}}
		if got := short(s.Judge(c)); got != want {
			t.Errorf("%q gets %s; want %s", name, got, want)
		}
	}
}
