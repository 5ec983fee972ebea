package policytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// A Gate judges calls as a gate with this configuration does.
type Gate struct {
	policy    *policy.Snapshot
	parts     []policy.Part
	rules     []string // all names of rules, and of what else decides
	policies  []string // ids
	upstreams []string
	workflows []string
	origins   config.Origins
}

// New returns the gate of a configuration with its policy.
func New(cfg config.Config, p *policy.Snapshot) *Gate {
	g := &Gate{policy: p, parts: p.Parts(), rules: []string{byGate}, origins: cfg.Origins}
	for _, part := range g.parts {
		if part.Rule == policy.ByGate {
			g.policies = append(g.policies, part.Names...)
		} else {
			g.rules = append(g.rules, part.Names...)
		}
	}
	for _, u := range cfg.Upstreams {
		g.upstreams = append(g.upstreams, u.Name)
	}
	for _, w := range cfg.Workflows {
		g.workflows = append(g.workflows, w.Name)
	}
	return g
}

// byGate is the name of what decides calls that cannot be put to rules.
const byGate = "gate"

// A Result is the verdict on a case, and how it differs from what its author expects.
type Result struct {
	Case

	Wrong       []Difference // empty if the test has passed
	explanation policy.Explanation
	gate        *Gate
}

// A Difference describes a fact of a verdict that the author of a test does not expect.
type Difference struct{ Fact, Text string }

// Run judges the call of a case.
func (g *Gate) Run(c Case) Result {
	r := Result{Case: c, explanation: g.policy.Explain(c.call), gate: g}
	v := r.explanation.Verdict
	enforced, observed := v, ""
	if v.Would != nil {
		enforced, observed = *v.Would, string(v.Would.Action)
	}
	decided := []string{byGate}
	if i := slices.IndexFunc(g.parts, func(p policy.Part) bool { return p.Rule == v.Rule }); v.Rule != policy.ByGate {
		decided = g.parts[i].Names
	}
	compare := func(fact, want, got string, equal bool) {
		if want != "" && !equal {
			r.Wrong = append(r.Wrong, Difference{fact, "expected " + want + ", got " + cmp.Or(got, "none")})
		}
	}
	w := c.want
	compare("verdict", string(w.verdict), string(v.Action), w.verdict == v.Action)
	compare("observed", string(w.observed), observed, string(w.observed) == observed)
	compare("workflow", w.workflow, enforced.Workflow, w.workflow == enforced.Workflow)
	compare("rule", w.rule, decided[len(decided)-1], slices.Contains(decided, w.rule))
	compare("policy", w.policy, strings.Join(v.Policies, ", "), slices.Contains(v.Policies, w.policy))
	compare("reason", w.reason, v.Reason, strings.Contains(v.Reason, w.reason))
	return r
}

// longest is how many characters of arguments and reasons are shown.
const longest = 300

// Text returns the differences, and which rule and policies decided and why.
func (r *Result) Text() string {
	var b strings.Builder
	line := func(label, text string) { fmt.Fprintf(&b, "    %-9s %s\n", label, safetext.Truncate(text, longest)) }
	for _, d := range r.Wrong {
		line(d.Fact, d.Text)
	}
	e := &r.explanation
	line("call", fmt.Sprintf("%s %q %s on upstream %s by %s", e.Method, e.Name, cmp.Or(string(r.call.Arguments), "{}"), e.Upstream, cmp.Or(e.Principal, "anonymous")))
	switch {
	case e.Verdict.Rule == policy.ByGate:
		line("decided", "by the gate, before any rule")
	case e.Default:
		line("decided", "by the default: no rule matches")
	default:
		last := e.Rules[len(e.Rules)-1]
		line("decided", fmt.Sprintf("by %s %q → %s: the first rule that matches", last.Label, last.Match, last.Action))
	}
	for _, p := range e.Policies {
		line("policy", strings.TrimSpace(fmt.Sprintf("%s (%s): %s %s", p.ID, p.Where, p.Says, p.Error)))
	}
	line("why", e.Verdict.Reason)
	for i, p := range r.gate.parts {
		if p.Rule == policy.ByGate || e.Verdict.Rule == policy.ByGate || p.Decided(e) || !slices.Contains(p.Names, r.want.rule) {
			continue
		}
		why := "comes after the rule that decides"
		if i < len(e.Rules) {
			why = e.Rules[i].Why
		}
		line("not by", p.Text+": "+why)
	}
	return b.String()
}

// Missed returns the rules and policies that decided none of the calls, with their positions, and
// the number of all rules and policies.
func (g *Gate) Missed(results []Result) (missed []config.Problem, all int) {
	for _, p := range g.parts {
		if slices.ContainsFunc(results, func(r Result) bool { return p.Decided(&r.explanation) }) {
			continue
		}
		at := config.Position{Source: p.Place.Source, Line: p.Place.Line}
		if p.Place.Setting != "" {
			at = g.origins.Of(p.Place.Setting)
		}
		missed = append(missed, config.Problem{At: at, Text: p.Text})
	}
	return missed, len(g.parts)
}
