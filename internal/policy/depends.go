package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
)

// DependsOnArguments reports whether the verdict on c may depend on its arguments. If it does
// not, the verdict on c without arguments has the action, the workflow and the rule that the
// verdict has for any arguments. The policies and the reason of a denial may still differ.
func (s *Snapshot) DependsOnArguments(c Call) bool {
	if s == nil || s.refuse(&c) != "" {
		return false
	}
	kind, _ := Governed(c.Method)
	if misspelled(kind, c.spelling()) != "" {
		return false
	}
	c.Arguments = nil
	return slices.ContainsFunc(append(readings(kind, c.Name), c.Name), func(name string) bool {
		c.Name = name
		return s.readingDepends(c, kind)
	})
}

// readingDepends is DependsOnArguments for one reading of the name.
func (s *Snapshot) readingDepends(c Call, kind Kind) bool {
	t := c.target(kind)
	t.known = ofCaller
	r := s.ruleFor(&t)
	if r.depends(&t) {
		return true
	}
	return r.Action == AskPolicies && s.policies.dependOnArguments(newQuestion(&c, kind, s.zone))
}

// dependOnArguments reports whether the answer to q, which has no arguments, may depend on
// arguments.
func (s *policySet) dependOnArguments(q *question) bool {
	all := s.about(q)
	read := all.reads(func(r *reading) *reads { return &r.context })
	if !read("arguments") && !read("decimals") {
		return false
	}
	others := selection{readings: all.readings}
	permits := false
	for _, p := range all.policies {
		if !p.argument {
			others.policies = append(others.policies, p)
		} else if p.permits() {
			permits = true
		}
	}
	request, err := q.request(others)
	if err != nil {
		return true
	}
	// The policies that do not read arguments may already deny every call.
	decision, diagnostic := cedar.Authorize(others, q, request)
	denied := len(diagnostic.Errors) > 0 || decision == cedar.Deny && (len(diagnostic.Reasons) > 0 || !permits)
	return !denied
}

// MayDecide returns the rules, as in [Verdict.Rule], that may decide c, depending on its
// arguments.
func (s *Snapshot) MayDecide(c Call) []int {
	kind, _ := Governed(c.Method)
	t := c.target(kind)
	t.known = ofCaller
	var all []int
	for i := range s.rules {
		if r := &s.rules[i]; r.unfit(&t) == "" {
			all = append(all, i)
			if !r.depends(&t) {
				return all
			}
		}
	}
	return append(all, ByDefault)
}
