package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A rule is a compiled [Rule].
type rule struct {
	Rule

	where      Place  // its place: rules[3]
	label      string // what people read as its name: the name, or else the place
	match      glob
	upstream   *glob // nil means any
	principals []principalGlob
	verdict    Verdict // unless the policies are asked
}

// A principalGlob matches the id of a principal, or one of its groups.
type principalGlob struct {
	glob

	group bool
}

// unfit returns why r is not about calls of name, or nothing if it may be.
func (r *rule) unfit(upstream string, kind Kind, name string) string {
	switch {
	case r.Kind != "" && r.Kind != kind:
		return "applies to the kind " + string(r.Kind)
	case r.upstream != nil && !r.upstream.match(upstream):
		return "applies to another upstream"
	case !r.match.match(name):
		return "the name does not match"
	default:
		return ""
	}
}

func (r *rule) admits(p *Principal) bool {
	if r.principals == nil {
		return true
	}
	return !p.Anonymous && slices.ContainsFunc(r.principals, func(g principalGlob) bool { return g.admits(p) })
}

func (g *principalGlob) admits(p *Principal) bool {
	if g.group {
		return slices.ContainsFunc(p.Groups, g.match)
	}
	return g.match(p.ID)
}

// covers reports whether r matches every call that s matches. Like
// [glob.covers] it may fail to see it.
func (r *rule) covers(s *rule) bool {
	return (r.Kind == "" || r.Kind == s.Kind) &&
		(r.upstream == nil || s.upstream != nil && r.upstream.covers(s.upstream)) &&
		(r.principals == nil || s.principals != nil && coverPrincipals(r.principals, s.principals)) &&
		r.match.covers(&s.match)
}

func coverPrincipals(wide, narrow []principalGlob) bool {
	return !slices.ContainsFunc(narrow, func(n principalGlob) bool {
		return !slices.ContainsFunc(wide, func(w principalGlob) bool {
			return w.group == n.group && w.covers(&n.glob)
		})
	})
}

// A ruleList finds the first rule that matches a call. Most rules are never
// looked at: they are found by the name they match, or by the longest text that such
// names begin with, end with or have in them.
type ruleList struct {
	rules   []rule
	byName  map[string][]int
	byStart affixIndex
	byEnd   affixIndex // of those that begin with a wildcard, also if there is no text
	byText  textIndex
}

// An affixIndex finds rules by the beginning or the end of names.
type affixIndex struct {
	rules   map[string][]int
	lengths []int // of the keys of rules
}

func (x *affixIndex) add(affix string, i int) {
	x.rules[affix] = append(x.rules[affix], i)
	if !slices.Contains(x.lengths, len(affix)) {
		x.lengths = append(x.lengths, len(affix))
	}
}

func newRuleList(rules []rule) ruleList {
	l := ruleList{
		rules: rules, byName: map[string][]int{}, byText: newTextIndex(),
		byStart: affixIndex{rules: map[string][]int{}}, byEnd: affixIndex{rules: map[string][]int{}},
	}
	for i := range rules {
		l.add(i)
	}
	l.byText.link()
	return l
}

// add lets a rule be found.
func (l *ruleList) add(i int) {
	g := &l.rules[i].match
	end, text := g.parts[len(g.parts)-1].text, g.longestText()
	name, exact := g.exact()
	switch {
	case exact:
		l.byName[name] = append(l.byName[name], i)
	case len(text) > max(len(g.start), len(end)):
		l.byText.add(text, i)
	case g.start != "":
		l.byStart.add(g.start, i)
	default:
		l.byEnd.add(end, i)
	}
}

// first returns the first rule that matches, or nil.
func (l *ruleList) first(t *target) *rule {
	best := l.among(l.byName[t.name], math.MaxInt, t)
	for _, n := range l.byStart.lengths {
		if n <= len(t.name) {
			best = l.among(l.byStart.rules[t.name[:n]], best, t)
		}
	}
	for _, n := range l.byEnd.lengths {
		if n <= len(t.name) {
			best = l.among(l.byEnd.rules[t.name[len(t.name)-n:]], best, t)
		}
	}
	l.byText.visit(t.name, func(rules []int) { best = l.among(rules, best, t) })
	if best == math.MaxInt {
		return nil
	}
	return &l.rules[best]
}

// among returns the first of the given rules that matches, if it comes before
// best, and else best.
func (l *ruleList) among(indexes []int, best int, t *target) int {
	for _, i := range indexes {
		if i >= best {
			break
		}
		if r := &l.rules[i]; r.unfit(t.upstream, t.kind, t.name) == "" && r.admits(t.principal) {
			return i
		}
	}
	return best
}

// A target is what rules look at.
type target struct {
	upstream  string
	kind      Kind
	name      string
	principal *Principal
}

// shadowed warns of the rules that never match because another rule that
// matches at least as much comes first.
func (l *ruleList) shadowed() []Problem {
	byText, textless := newTextIndex(), []int(nil)
	for i := range l.rules {
		if text := l.rules[i].match.longestText(); text != "" {
			byText.add(text, i)
		} else {
			textless = append(textless, i)
		}
	}
	byText.link()
	var warnings []Problem
	for j := range l.rules {
		r := &l.rules[j]
		first := l.covering(textless, j, r)
		byText.visit(r.match.texts(), func(rules []int) { first = l.covering(rules, first, r) })
		if first < j {
			text := fmt.Sprintf("never matches: %s %q comes first and matches everything that it does", l.rules[first].label, l.rules[first].Match)
			warnings = append(warnings, Problem{r.where, text})
		}
	}
	return warnings
}

// covering returns the first of the given rules that covers r, if it comes before
// best, and else best.
func (l *ruleList) covering(indexes []int, best int, r *rule) int {
	for _, i := range indexes {
		if i >= best {
			break
		}
		if l.rules[i].covers(r) {
			return i
		}
	}
	return best
}

// A Named is something that an upstream offers.
type Named struct {
	Upstream string
	Kind     Kind
	Name     string // of a resource the URI
}

// Unused warns of rules that match nothing of what is offered, and of policies
// about tools, resources or prompts that are not: a name that is misspelled in
// a rule that denies leaves the door open. Kinds of which nothing is offered
// are not counted as known.
func (s *Snapshot) Unused(offered []Named) []Problem {
	var warnings []Problem
	for i := range s.list.rules {
		r := &s.list.rules[i]
		fits := func(n Named) bool { return r.unfit(n.Upstream, n.Kind, n.Name) == "" }
		if r.known(offered) && !slices.ContainsFunc(offered, fits) {
			warnings = append(warnings, Problem{r.where, fmt.Sprintf("%q matches nothing that the upstreams offer", r.Match)})
		}
	}
	return append(warnings, s.policies.unused(offered)...)
}

// known reports whether something is offered of the kind that r is about.
func (r *rule) known(offered []Named) bool {
	kind := r.Kind
	if kind == "" {
		kind = Tool
		if strings.Contains(r.Match, "://") {
			kind = Resource
		}
	}
	return offersKind(offered, kind)
}

func offersKind(offered []Named, kind Kind) bool {
	return slices.ContainsFunc(offered, func(n Named) bool { return n.Kind == kind })
}
