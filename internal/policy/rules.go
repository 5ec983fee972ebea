package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A rule is a compiled [Rule].
type rule struct {
	Rule

	where      Place  // rules[3]
	label      string // in texts: the name, or the place
	conditions []ruleCondition
	literal    string  // a text in every name that the rule matches
	verdict    Verdict // if the rule does not use the policies
	observed   bool    // its verdicts are only reported
}

// A ruleCondition is a condition of a rule.
type ruleCondition struct {
	condition condition
	index     int // in [Conditions]
	needs     knowledge
}

// unfit returns the reason why r does not apply to t, or "" if it may apply. It skips
// conditions that need unknown parts of t.
func (r *rule) unfit(t *target) string {
	for i := range r.conditions {
		if c := &r.conditions[i]; c.needs >= t.known {
			if why := c.condition.unfit(*t); why != "" {
				return why
			}
		}
	}
	return ""
}

// depends reports whether r has a condition that needs an unknown part of t.
func (r *rule) depends(t *target) bool {
	return slices.ContainsFunc(r.conditions, func(c ruleCondition) bool { return c.needs < t.known })
}

// covers reports whether r matches every call that s matches. Like [glob.covers], it may
// return false although r does.
func (r *rule) covers(s *rule) bool {
	return !slices.ContainsFunc(r.conditions, func(c ruleCondition) bool {
		return !slices.ContainsFunc(s.conditions, func(d ruleCondition) bool { return c.index == d.index && c.condition.covers(d.condition) })
	})
}

// A ruleList is a list of rules in order.
type ruleList []rule

// shadowed warns of rules that never match, because an earlier rule matches the same calls.
func (l ruleList) shadowed() []Problem {
	var warnings []Problem
	for j := range l {
		for i := range j {
			if first := &l[i]; first.covers(&l[j]) {
				text := fmt.Sprintf("never matches: %s %q comes first and matches the same calls", first.label, first.Match)
				warnings = append(warnings, Problem{l[j].where, text})
				break
			}
		}
	}
	return warnings
}

// A Named is a tool, resource or prompt of an upstream.
type Named struct {
	Upstream string
	Kind     Kind
	Name     string // or the URI of a resource
	Changed  bool   // the tool has changed; see [Call.Changed]
	Digest   string // of a tool; see [Call.Digest]
	Accepted bool   // see [Call.Accepted]
}

// Unused warns of rules and policies that match nothing of what the upstreams offer: a deny
// rule with a misspelled name protects nothing. It ignores kinds of which nothing is
// offered.
func (s *Snapshot) Unused(offered []Named) []Problem {
	var warnings []Problem
	for i := range s.rules {
		r := &s.rules[i]
		fits := func(n Named) bool {
			return r.unfit(&target{known: ofName, upstream: n.Upstream, kind: n.Kind, name: n.Name}) == ""
		}
		if r.known(offered) && !slices.ContainsFunc(offered, fits) {
			warnings = append(warnings, Problem{r.where, fmt.Sprintf("%q matches nothing that the upstreams offer", r.Match)})
		}
	}
	return append(warnings, s.policies.unused(offered)...)
}

// known reports whether upstreams offer anything of the kind of r.
func (r *rule) known(offered []Named) bool {
	kind := r.Kind
	if kind == "" {
		kind = Tool
		if strings.Contains(r.Match, "://") {
			kind = Resource
		}
	}
	return slices.ContainsFunc(offered, func(n Named) bool { return n.Kind == kind })
}
