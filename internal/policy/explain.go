package policy

import (
	"fmt"
	"slices"
	"strings"
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
	Arguments string       `json:"arguments,omitzero"` // why the arguments have no Cedar form
	Verdict   Verdict      `json:"verdict"`
	Approver  string       `json:"approver"` // what the approver sees
}

// A RuleTrial is the result of matching a rule.
type RuleTrial struct {
	Index   int    `json:"index"`
	Label   string `json:"label"` // its name, or its place
	Match   string `json:"match"`
	Action  Action `json:"action"`
	Matched bool   `json:"matched"`
	Why     string `json:"why"`
}

// A CedarTrial is a policy that decided, or that failed.
type CedarTrial struct {
	ID    string `json:"id"`
	Where string `json:"where"`
	Says  string `json:"says"`           // permit, permit with approval, or forbid
	Error string `json:"error,omitzero"` // of its evaluation
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
			s.explainPolicies(&e, s.policies.ask(newQuestion(&c, kind, s.zone)))
		}
	}
	e.Approver = s.seen(e.Verdict)
	return e
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
	return fmt.Sprintf("sees the call, the requester and the reason: %s; %d must approve within %v, %s", v.Reason, w.Quorum, w.Timeout, self)
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
		line("principal", "%s", e.Principal)
	}
	for _, r := range e.Rules {
		line(r.Label, "%s → %s: %s", r.Match, r.Action, r.Why)
	}
	if e.Default {
		line("default", "no rule matches")
	}
	if e.Arguments != "" {
		line("arguments", "cannot be evaluated by the policies: %s", e.Arguments)
	}
	for _, p := range e.Policies {
		line("policy", "%s (%s): %s", p.ID, p.Where, p.Says)
		if p.Error != "" {
			line("", "failed: %s", p.Error)
		}
	}
	line("verdict", "%s", strings.TrimSpace(string(e.Verdict.Action)+" "+e.Verdict.Workflow))
	line("why", "%s", e.Verdict.Reason)
	line("snapshot", "%s", e.Verdict.Snapshot)
	line("approver", "%s", e.Approver)
	return b.String()
}
