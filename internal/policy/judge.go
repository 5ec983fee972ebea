package policy

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A Call is what is judged.
type Call struct {
	Upstream    string
	Method      string         // one that is [Governed]
	Name        string         // of the tool or prompt; of a resource the URI
	Template    bool           // whether Name is a template of URIs
	Arguments   jsontext.Value // may be absent
	Principal   Principal
	Annotations Annotations // of a tool
	Listed      bool        // whether the upstream has listed the tool, so that Annotations are what it says
	Session     Session
	Time        time.Time
}

// A Principal is who makes a call, as the gate has established.
type Principal struct {
	ID        string   // not empty unless Anonymous
	Groups    []string // none count if Anonymous
	Anonymous bool
	Aliases   []string // other names of the same; policy does not go by them
}

// Annotations are what an upstream says of a tool. They are as trustworthy as
// the upstream. The worst is assumed where an upstream gives no hint: a tool is not
// read-only, is destructive unless it is read-only, is not idempotent, and is
// open-world.
type Annotations struct {
	ReadOnly    *bool
	Destructive *bool
	Idempotent  *bool
	OpenWorld   *bool
	Title       string
}

// A Session is what a client says of itself. It proves nothing.
type Session struct {
	Client   string // the name of its program
	Version  string // of its program
	Protocol string // version of MCP
}

// A Verdict is what policy says of a call. The zero Verdict forwards nothing.
type Verdict struct {
	Action   Action   `json:"action"`             // Forward, Approve or Deny
	Workflow string   `json:"workflow,omitzero"`  // of Approve
	Rule     int      `json:"rule"`               // index of the rule that matched, or ByDefault or ByGate
	Label    string   `json:"label,omitzero"`     // what that rule is called: "rule NAME", or its place such as "rules[3]"
	Match    string   `json:"match,omitzero"`     // pattern of that rule
	Policies []string `json:"policies,omitempty"` // ids of the Cedar policies that decided, in alphabetical order
	Reason   string   `json:"reason"`             // in words that hold nothing of the arguments
	Says     []string `json:"says,omitempty"`     // the reasons that the rule or the policies give, as they give them
	Snapshot string   `json:"snapshot"`           // id of the snapshot
	Would    *Verdict `json:"would,omitzero"`     // what observing has replaced by Forward, if it has

	// Ambiguous says that the call is denied for how its name is spelled.
	Ambiguous bool `json:"ambiguous,omitzero"`
}

// Values of [Verdict.Rule] if no rule matched.
const (
	ByDefault = -1
	ByGate    = -2 // the call is not one that rules can be asked about
)

// A Snapshot is a compiled [Config]. It never changes, and any number of
// goroutines may use it.
type Snapshot struct {
	id        string
	list      ruleList
	fallback  rule
	policies  *policySet // nil if there are none
	workflows map[string]Workflow
	upstreams []string
	observe   bool
	zone      *time.Location
}

// ID returns a short digest of the configuration: the same for the same
// configuration, and another one for any other.
func (s *Snapshot) ID() string { return s.id }

// Judge returns the verdict on c. It is a denial unless c is complete, known in
// every part, and allowed.
func (s *Snapshot) Judge(c Call) Verdict {
	if problem := s.refuse(&c); problem != "" {
		return Verdict{Action: Deny, Rule: ByGate, Reason: problem, Snapshot: s.id}
	}
	kind, _ := Governed(c.Method)
	if problem := misspelled(kind, c.spelling()); problem != "" {
		return s.ambiguous(problem)
	}
	v := s.judge(c, kind)
	for _, other := range readings(kind, c.Name) {
		c.Name = other
		if o := s.judge(c, kind); o.strict() != v.strict() {
			return s.ambiguous("a server may read the name as another one, for which the policy decides differently")
		}
	}
	return v
}

// spelling returns the part of the name that is not left to the variables of a
// template.
func (c *Call) spelling() string {
	if c.Template {
		return withoutVariables(c.Name)
	}
	return c.Name
}

// judge returns the verdict on a call whose name is taken as it is spelled.
func (s *Snapshot) judge(c Call, kind Kind) Verdict {
	r := s.decide(&target{c.Upstream, kind, c.Name, &c.Principal})
	if r.Action != AskPolicies {
		return r.verdict
	}
	return s.ask(c, kind, r)
}

// ambiguous returns the verdict on a call of which nobody can say what the
// server takes it for.
func (s *Snapshot) ambiguous(why string) Verdict {
	v := Verdict{Action: Deny, Rule: ByGate, Reason: why, Snapshot: s.id, Ambiguous: true}
	if s.observe {
		v = observed(v)
	}
	return v
}

// strict returns what v comes to, and by which workflow, as if nothing was only
// observed.
func (v *Verdict) strict() [2]string {
	if v.Would != nil {
		v = v.Would
	}
	return [2]string{string(v.Action), v.Workflow}
}

// refuse returns what is wrong with a call that should not have come here.
func (s *Snapshot) refuse(c *Call) string {
	_, governed := Governed(c.Method)
	switch {
	case !governed:
		return "unknown method"
	case c.Name == "" || !utf8.ValidString(c.Name):
		return "the call has no name"
	case s.upstreams != nil && !slices.Contains(s.upstreams, c.Upstream):
		return "there is no such upstream"
	case c.Principal.ID == "" && !c.Principal.Anonymous:
		return "the principal has no id"
	default:
		return ""
	}
}

// decide returns the rule that is in charge of t.
func (s *Snapshot) decide(t *target) *rule {
	if r := s.list.first(t); r != nil {
		return r
	}
	return &s.fallback
}

// ask lets the policies decide. It takes a copy of the call, so that calls
// about which they are not asked stay on the stack.
func (s *Snapshot) ask(c Call, kind Kind, r *rule) Verdict {
	answer := s.policies.ask(newQuestion(&c, kind, s.zone))
	v := s.verdictOf(answer, r)
	v.Rule, v.Label, v.Match, v.Snapshot = r.verdict.Rule, r.verdict.Label, r.verdict.Match, s.id
	if s.observe || r.Observe {
		v = observed(v)
	}
	return v
}

// verdictOf turns the answer of the policies into a verdict.
func (s *Snapshot) verdictOf(a answer, r *rule) Verdict {
	if !a.permitted {
		return Verdict{Action: Deny, Policies: a.ids, Reason: a.reason}
	}
	workflow := ""
	for _, name := range a.workflows {
		if name == "" {
			name = r.workflow()
		}
		if workflow == "" || s.stricter(name, workflow) {
			workflow = name
		}
	}
	if workflow == "" {
		return Verdict{Action: Forward, Policies: a.ids, Reason: a.reason}
	}
	return Verdict{Action: Approve, Workflow: workflow, Policies: a.ids, Says: a.says, Reason: a.reason + ", with approval by workflow " + workflow}
}

func (r *rule) workflow() string {
	if r.Workflow == "" {
		return DefaultWorkflow
	}
	return r.Workflow
}

// stricter reports whether workflow a is stricter than b.
func (s *Snapshot) stricter(a, b string) bool {
	x, y := s.workflows[a], s.workflows[b]
	switch {
	case x.Quorum != y.Quorum:
		return x.Quorum > y.Quorum
	case x.SelfApproval != y.SelfApproval:
		return !x.SelfApproval
	case x.Timeout != y.Timeout:
		return x.Timeout < y.Timeout
	default:
		return a < b
	}
}

// observed returns what becomes of v where verdicts are only observed.
func observed(v Verdict) Verdict {
	if v.Action == Forward {
		return v
	}
	return Verdict{
		Action: Forward, Rule: v.Rule, Label: v.Label, Match: v.Match, Policies: v.Policies, Snapshot: v.Snapshot,
		Reason: "only observed: " + v.Reason, Would: &v,
	}
}
