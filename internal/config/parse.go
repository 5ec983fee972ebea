package config

import "github.com/thoughtgate/thoughtgate-go/internal/policy"

// ParsePolicy returns the rules, the default and the mode in a YAML text, which may have no other
// settings, and their positions. It reads no files and no environment variables: a dollar sign has
// no meaning. An error is an [*Error]. Name stands for the text in positions.
func ParsePolicy(name string, text []byte) (Policy, Origins, error) {
	l := newLoader(Sources{})
	c := &l.cfg
	c.Rules, c.Default = nil, policy.Rule{}
	l.decode(&decoder{file: name, literal: true}, text, Group{
		{"rules", listOf(&c.Rules, policy.Rule{}, ruleSettings)},
		{"default", action(&c.Default.Action)},
		{"mode", mode(&c.Observe)},
	})
	l.checkRules()
	if !l.given("default") && !l.faulty("default") && !l.unread {
		l.reject("default", "is required: it decides the calls that no rule matches")
	}
	if len(l.problems) > 0 {
		return Policy{}, nil, NewError(l.problems)
	}
	return Policy{Rules: c.Rules, Default: c.Default, Observe: c.Observe}, l.origins, nil
}
