package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/human"
)

// An Explanation shows how a verdict came about, for authors of rules. It may have values of
// arguments. [Explanation.Text] returns it as text.
type Explanation struct {
	Method    string       `json:"method"`
	Name      string       `json:"name"`
	Upstream  string       `json:"upstream"`
	Principal string       `json:"principal"` // empty if anonymous
	Rules     []RuleTrial  `json:"rules"`     // the rules that were tried, in order
	Default   bool         `json:"default"`   // no rule matched
	Policies  []CedarTrial `json:"policies,omitempty"`
	Unmet     []CedarTrial `json:"unmet,omitempty"`    // other policies about what is called
	Arguments string       `json:"arguments,omitzero"` // why the arguments have no Cedar form
	Verdict   Verdict      `json:"verdict"`
	Approver  string       `json:"approver"` // what the approver sees

	// Unknown: the verdict depends on arguments that are not known, so there is none.
	Unknown bool `json:"unknown,omitzero"`
}

// A RuleTrial is the result of matching a rule.
type RuleTrial struct {
	Index   int    `json:"index"`
	Label   string `json:"label"` // its name, or its place
	Match   string `json:"match"`
	Action  Action `json:"action"`
	Matched bool   `json:"matched"`
	Maybe   bool   `json:"maybe,omitzero"` // whether it matches depends on arguments that are not known
	Why     string `json:"why"`
}

// A CedarTrial is a policy that decided, or that failed.
type CedarTrial struct {
	ID    string `json:"id"`
	Where string `json:"where"`
	Says  string `json:"says"`           // permit, permit with approval, or forbid
	Error string `json:"error,omitzero"` // of its evaluation
	Unmet string `json:"unmet,omitzero"` // why it does not apply
}

// Explain judges c and explains the verdict.
func (s *Snapshot) Explain(c Call) Explanation {
	e := Explanation{Method: c.Method, Name: c.Name, Upstream: c.Upstream, Verdict: s.Judge(c)}
	if !c.Principal.Anonymous {
		e.Principal = c.Principal.ID
	}
	if e.Verdict.Rule != ByGate {
		kind, _ := Governed(c.Method)
		t := c.target(kind)
		s.explainRules(&e, &t)
		if s.ruleFor(&t).Action == AskPolicies {
			q := newQuestion(&c, kind, s.zone)
			s.explainPolicies(&e, s.policies.ask(q))
			e.Unmet = s.policies.unmet(q)
		}
	}
	e.Approver = s.seen(e.Verdict)
	return e
}

// ExplainWithoutArguments is [Snapshot.Explain] for a call whose arguments are not known.
func (s *Snapshot) ExplainWithoutArguments(c Call) Explanation {
	c.Arguments = nil
	if !s.DependsOnArguments(c) {
		return s.Explain(c)
	}
	e := Explanation{Method: c.Method, Name: c.Name, Upstream: c.Upstream, Unknown: true, Verdict: Verdict{Rule: ByGate, Snapshot: s.id}}
	if !c.Principal.Anonymous {
		e.Principal = c.Principal.ID
	}
	kind, _ := Governed(c.Method)
	t := c.target(kind)
	t.known = ofCaller
	decides := &s.fallback
	for i := range s.rules {
		r := &s.rules[i]
		trial := RuleTrial{Index: i, Label: r.label, Match: r.Match, Action: r.Action, Why: r.unfit(&t)}
		switch {
		case trial.Why != "":
		case r.depends(&t):
			trial.Maybe, trial.Why = true, "depends on the arguments"
		default:
			trial.Matched, trial.Why = true, "matches"
		}
		if e.Rules = append(e.Rules, trial); trial.Matched {
			decides = r
			break
		}
	}
	e.Default = decides == &s.fallback
	if decides.Action == AskPolicies {
		for _, p := range s.policies.about(newQuestion(&c, kind, s.zone)).policies {
			e.Policies = append(e.Policies, CedarTrial{ID: p.id, Where: p.where.String(), Says: p.says(), Unmet: "depends on the call"})
		}
	}
	return e
}

// ReadsTime reports whether a policy that c is put to may read the time.
func (s *Snapshot) ReadsTime(c Call) bool {
	kind, _ := Governed(c.Method)
	t := c.target(kind)
	return s.ruleFor(&t).Action == AskPolicies &&
		slices.ContainsFunc(s.policies.about(newQuestion(&c, kind, s.zone)).policies, func(p *cedarPolicy) bool { return p.time })
}

// A Part is a rule, the default or a Cedar policy of a snapshot.
type Part struct {
	Place Place
	Rule  int      // as in [Verdict.Rule]; ByGate for a policy
	Names []string // rules[3] and the name of the rule; default; the id of the policy
	Text  string   // describes it in a few words
}

// Parts returns the rules in their order, the default, and the policies.
func (s *Snapshot) Parts() []Part {
	var all []Part
	for i, r := range s.rules {
		names := []string{r.where.Setting}
		if r.Name != "" {
			names = append(names, r.Name)
		}
		all = append(all, Part{r.where, i, names, fmt.Sprintf("%s %q", r.label, r.Match)})
	}
	all = append(all, Part{s.fallback.where, ByDefault, []string{s.fallback.where.Setting}, "the default"})
	if s.policies != nil {
		for _, p := range s.policies.policies {
			all = append(all, Part{p.where, ByGate, []string{p.id}, "policy " + p.id})
		}
	}
	return all
}

// Decided reports whether p decided, alone or with others. A policy that failed has not decided.
func (p *Part) Decided(e *Explanation) bool {
	if p.Rule != ByGate {
		return p.Rule == e.Verdict.Rule
	}
	return slices.ContainsFunc(e.Policies, func(t CedarTrial) bool { return t.ID == p.Names[0] && t.Error == "" })
}

func (s *Snapshot) explainRules(e *Explanation, t *target) {
	e.Default = e.Verdict.Rule == ByDefault
	for i := range s.rules {
		r := &s.rules[i]
		trial := RuleTrial{Index: i, Label: r.label, Match: r.Match, Action: r.Action, Why: r.unfit(t)}
		if trial.Why == "" {
			trial.Matched, trial.Why = true, "matches"
		}
		e.Rules = append(e.Rules, trial)
		if trial.Matched {
			return
		}
	}
}

func (s *Snapshot) explainPolicies(e *Explanation, a answer) {
	if a.mapping != nil {
		e.Arguments = a.mapping.Error()
	}
	for _, id := range a.ids {
		p := s.policies.byID[id]
		trial := CedarTrial{ID: id, Where: p.where.String(), Says: p.says()}
		if i := slices.IndexFunc(a.errors, func(f policyError) bool { return f.id == id }); i >= 0 {
			trial.Error = a.errors[i].text
		}
		e.Policies = append(e.Policies, trial)
	}
}

func (p *cedarPolicy) says() string {
	switch {
	case !p.permits():
		return "forbid"
	case !p.approval:
		return "permit"
	case p.workflow == "":
		return "permit with approval"
	default:
		return "permit with approval by " + p.workflow
	}
}

// seen describes what the approver sees of v.
func (s *Snapshot) seen(v Verdict) string {
	if v.Action != Approve {
		return "no approval needed"
	}
	w := s.workflows[v.Workflow]
	self := "without the requester"
	if w.SelfApproval {
		self = "the requester may be one of them"
	}
	if w.Passkey {
		self += ", with a passkey"
	}
	return fmt.Sprintf("sees the call, the requester and the reason: %s; %d must approve within %s, %s", v.Reason, w.Quorum, human.Duration(w.Timeout), self)
}

// visible returns text as it is, or quoted if it has characters that a terminal does not show.
func visible(text string) string {
	if quoted := strconv.QuoteToGraphic(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// Text returns the explanation for a terminal.
func (e Explanation) Text() string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("call", "%s %q on upstream %s", e.Method, e.Name, e.Upstream)
	if e.Principal == "" {
		line("principal", "anonymous")
	} else {
		line("principal", "%s", visible(e.Principal))
	}
	for _, r := range e.Rules {
		line(r.Label, "%s → %s: %s", r.Match, r.Action, r.Why)
	}
	switch {
	case e.Default && e.Unknown:
		line("default", "decides if no rule matches")
	case e.Default:
		line("default", "no rule matches")
	}
	if e.Arguments != "" {
		line("arguments", "cannot be evaluated by the policies: %s", e.Arguments)
	}
	for _, p := range e.Policies {
		line("policy", "%s (%s): %s", p.ID, p.Where, strings.TrimSuffix(p.Says+": "+p.Unmet, ": "))
		if p.Error != "" {
			line("", "failed: %s", p.Error)
		}
	}
	for _, p := range e.Unmet {
		line("policy", "%s (%s): %s: does not apply: %s", p.ID, p.Where, p.Says, p.Unmet)
	}
	if e.Unknown {
		line("verdict", "unknown: it depends on the arguments, which are not known")
		line("snapshot", "%s", e.Verdict.Snapshot)
		return b.String()
	}
	line("verdict", "%s", strings.TrimSpace(string(e.Verdict.Action)+" "+e.Verdict.Workflow))
	line("why", "%s", e.Verdict.Reason)
	line("snapshot", "%s", e.Verdict.Snapshot)
	line("approver", "%s", e.Approver)
	return b.String()
}
