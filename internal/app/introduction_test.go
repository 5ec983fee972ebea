package app

import (
	"net/url"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// The introduction names servers without what may be a secret.
func TestIntroducedServersHaveNoSecrets(t *testing.T) {
	at, err := url.Parse("https://mcp.example.com/v1/mcp?key=secret")
	if err != nil {
		t.Fatal(err)
	}
	if got := target(config.Upstream{URL: at}); got != "https://mcp.example.com/v1/mcp" {
		t.Error(got)
	}
	if got := target(config.Upstream{Command: []string{"npx", "--token=secret"}}); got != "npx" {
		t.Error(got)
	}
}

func TestPolicyText(t *testing.T) {
	deny := policy.Rule{Action: policy.Deny}
	tests := map[string]config.Config{
		"no rules: every call is forwarded": {},
		"1 rule, default deny":              {Policy: config.Policy{Rules: make([]policy.Rule, 1), Default: deny}},
		"2 rules, 1 Cedar file, default deny; mode observe: every call is forwarded": {
			Policy: config.Policy{Rules: make([]policy.Rule, 2), Default: deny, Cedar: config.Cedar{Sources: make([]policy.Source, 1)}, Observe: true},
		},
		"1 rule, default deny; mode observe: every call is forwarded, except by 1 enforced rule": {
			Policy: config.Policy{Rules: []policy.Rule{{Mode: policy.Enforce}}, Default: deny, Observe: true},
		},
	}
	for want, cfg := range tests {
		if got := policyText(cfg); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
