package policy

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// An Alternative is something that, if it were different, would change the verdict.
type Alternative struct {
	If       string `json:"if"`
	Action   Action `json:"action"`
	Workflow string `json:"workflow,omitzero"`
	By       string `json:"by"` // the rule that would decide
}

// Bounds on the cost of alternatives.
const (
	maxLeftOut      = 20       // arguments that are left out, each alone
	maxLeftOutBytes = 64 << 10 // of arguments
)

// Otherwise returns what would have to differ for another verdict on c: the principal or a secret,
// so that an earlier rule matches; the rule that decides; or one argument.
func (s *Snapshot) Otherwise(c Call) []Alternative {
	now := s.Judge(c)
	if s == nil || now.Rule == ByGate {
		return nil
	}
	kind, _ := Governed(c.Method)
	t := c.target(kind)
	var all []Alternative
	add := func(why string, v Verdict) {
		if v.strict() != now.strict() {
			all = append(all, Alternative{why, v.outcome().Action, v.outcome().Workflow, v.decider()})
		}
	}
	for r, failed := range s.almost(&t, now.Rule) {
		add("if it fitted "+failed+", of "+r.label, s.decide(c, kind, r))
	}
	if now.Rule != ByDefault {
		add("without "+now.Label, s.decide(c, kind, s.nextRule(&t, now.Rule+1)))
	}
	if c.Changed || now.Unpinned {
		accepted := c
		accepted.Changed, accepted.Accepted = false, true
		add("if an operator accepted the changed tool", s.Judge(accepted))
	}
	if s.DependsOnArguments(c) && len(c.Arguments) <= maxLeftOutBytes {
		for name, rest := range leavingOut(c.Arguments) {
			less := c
			less.Arguments = rest
			add("without the argument "+name, s.Judge(less))
		}
	}
	return all
}

// almost returns the rules before the one that decides, which t fails by one condition that is not
// about its name, and the condition.
func (s *Snapshot) almost(t *target, decides int) iter.Seq2[*rule, string] {
	if decides == ByDefault {
		decides = len(s.rules)
	}
	named := target{known: ofName, upstream: t.upstream, kind: t.kind, name: t.name}
	return func(yield func(*rule, string) bool) {
		for i := range decides {
			r := &s.rules[i]
			if r.unfit(&named) != "" {
				continue
			}
			if failed := r.failed(t); len(failed) == 1 && !yield(r, failed[0]) {
				return
			}
		}
	}
}

// decide returns the verdict of one rule.
func (s *Snapshot) decide(c Call, kind Kind, r *rule) Verdict {
	v := r.verdict
	if r.Action == AskPolicies {
		v = s.ask(c, kind, r)
	}
	if s.pins != nil && kind == Tool {
		v = s.pinned(v, Named{Upstream: c.Upstream, Kind: kind, Name: c.Name, Digest: c.Digest, Accepted: c.Accepted})
	}
	return v
}

// nextRule returns the rule that decides t, of those from an index on.
func (s *Snapshot) nextRule(t *target, from int) *rule {
	for i := from; i < len(s.rules); i++ {
		if s.rules[i].unfit(t) == "" {
			return &s.rules[i]
		}
	}
	return &s.fallback
}

// failed returns the conditions of r that t does not satisfy, as they are configured.
func (r *rule) failed(t *target) []string {
	var all []string
	for i := range r.conditions {
		if c := &r.conditions[i]; c.condition.unfit(*t) != "" {
			has := &conditions[c.index]
			_, texts := has.texts(&r.Rule)
			all = append(all, fmt.Sprintf("%s: %s", has.Key, strings.Join(texts, ", ")))
		}
	}
	return all
}

// outcome returns what v does, or would do if it were not only observed.
func (v *Verdict) outcome() *Verdict {
	if v.Would != nil {
		return v.Would
	}
	return v
}

// decider names what has decided.
func (v *Verdict) decider() string {
	switch {
	case v.Rule == ByGate:
		return "the gate"
	case len(v.Policies) > 0:
		return "policy " + strings.Join(v.Policies, ", ")
	case v.Rule == ByDefault:
		return "the default"
	default:
		return v.Label
	}
}

// leavingOut returns the first arguments by name, and the arguments without each.
func leavingOut(arguments jsontext.Value) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		var names, members []jsontext.Value
		d := jsontext.NewDecoder(bytes.NewReader(arguments))
		if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
			return
		}
		for d.PeekKind() == '"' {
			name, _ := d.ReadValue()
			names = append(names, slices.Clone(name))
			value, err := d.ReadValue()
			if err != nil {
				return
			}
			members = append(members, slices.Concat(names[len(names)-1], []byte(":"), value))
		}
		for i, name := range names[:min(len(names), maxLeftOut)] {
			rest := slices.Concat([]byte("{"), bytes.Join(asBytes(slices.Concat(members[:i], members[i+1:])), []byte(",")), []byte("}"))
			if !yield(string(name), rest) {
				return
			}
		}
	}
}

func asBytes(values []jsontext.Value) [][]byte {
	all := make([][]byte, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}
