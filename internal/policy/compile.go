package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Compile returns the snapshot of cfg, and warnings of probable mistakes. If cfg has
// problems, the error is an [*Error] with all of them.
func Compile(cfg Config) (*Snapshot, []Problem, error) {
	id, err := digest(cfg)
	if err != nil {
		return nil, nil, err
	}
	s := &Snapshot{
		id: id, workflows: maps.Clone(cfg.Workflows), upstreams: slices.Clone(cfg.Upstreams),
		observe: cfg.Observe, zone: cfg.Zone, pins: cfg.Pins,
	}
	if len(s.workflows) == 0 {
		s.workflows = map[string]Workflow{DefaultWorkflow: {Quorum: 1, Timeout: 10 * time.Minute}}
	}
	if s.zone == nil {
		s.zone = time.UTC
	}
	var bad problems
	for _, name := range slices.Sorted(maps.Keys(s.workflows)) {
		bad.add(Place{Setting: "workflows." + name}, s.workflows[name].problem())
	}
	warnings := s.loadPolicies(cfg.Cedar, &bad)
	rules := make([]rule, len(cfg.Rules))
	for i, r := range cfg.Rules {
		rules[i] = s.compileRule(r, i, &bad)
	}
	s.fallback = s.compileDefault(cfg.Default, &bad)
	if len(bad) > 0 {
		return nil, nil, &Error{bad}
	}
	s.rules = rules
	if s.strictest = Forward; slices.ContainsFunc(rules, func(r rule) bool { return !r.observed }) {
		s.strictest = Deny
	}
	for i := range rules {
		s.literals = append(s.literals, rules[i].literal)
		//mutate:drop TestCompileWarnsOfRegularExpressions a rule with a regular expression matches nothing without a warning
		warnings = append(warnings, rules[i].regexes()...)
	}
	return s, slices.Concat(s.rules.shadowed(), s.unasked(), warnings), nil
}

func (w Workflow) problem() error {
	switch {
	case w.Quorum < 1:
		return errors.New("the quorum must be at least 1")
	case w.Timeout <= 0:
		return errors.New("the timeout must be more than 0")
	default:
		return nil
	}
}

func (s *Snapshot) compileRule(r Rule, index int, bad *problems) rule {
	c := rule{Rule: r, where: Place{Setting: fmt.Sprintf("rules[%d]", index)}, observed: s.observes(r)}
	c.label = c.where.String()
	if r.Name != "" {
		c.label = "rule " + r.Name
	}
	for i, has := range conditions {
		if has.Required || has.given(&r) {
			compiled, err := has.compile(s, r)
			bad.add(c.where.member(has.Key), err)
			c.conditions = append(c.conditions, ruleCondition{compiled, i, has.needs})
			if name, ok := compiled.(*globCondition); ok && has.Required {
				c.literal = name.glob.longest
			}
		}
	}
	s.checkAction(r, c.where, bad)
	c.verdict = s.verdictFor(&c, index, fmt.Sprintf("%s %q", c.label, r.Match))
	return c
}

func (s *Snapshot) compileDefault(r Rule, bad *problems) rule {
	c := rule{Rule: r, where: Place{Setting: "default"}, observed: s.observes(r)}
	for _, has := range conditions {
		if has.given(&r) {
			bad.addText(c.where, "applies to every call, so it cannot have "+has.Key)
		}
	}
	s.checkAction(r, c.where, bad)
	c.verdict = s.verdictFor(&c, ByDefault, "the default")
	return c
}

// observes reports whether verdicts of r are only reported.
func (s *Snapshot) observes(r Rule) bool { return r.Mode == Observe || s.observe && r.Mode != Enforce }

// checkAction checks the action and the workflow of a rule.
func (s *Snapshot) checkAction(r Rule, at Place, bad *problems) {
	action := at.member("action")
	switch r.Action {
	case Forward, Deny:
		if r.Workflow != "" {
			bad.addText(at.member("workflow"), fmt.Sprintf("action %s takes no workflow", r.Action))
		}
	case AskPolicies:
		if s.policies == nil {
			bad.addText(action, "policy needs Cedar policies, but none are configured")
		} else if r.Workflow != "" || s.policies.needsWorkflow() {
			bad.add(at.member("workflow"), s.workflowProblem((&rule{Rule: r}).workflow()))
		}
	case Approve:
		bad.add(at.member("workflow"), s.workflowProblem((&rule{Rule: r}).workflow()))
	case "":
		bad.addText(action, "is required: forward, approve, deny or policy")
	default:
		bad.addText(action, fmt.Sprintf("%q is not forward, approve, deny or policy", r.Action))
	}
}

func (s *Snapshot) workflowProblem(name string) error {
	if _, ok := s.workflows[name]; !ok {
		return fmt.Errorf("%q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(s.workflows)), ", "))
	}
	return nil
}

// verdictFor returns the verdict of a rule that does not use the policies.
func (s *Snapshot) verdictFor(r *rule, index int, name string) Verdict {
	v := Verdict{Action: r.Action, Rule: index, Label: r.label, Match: r.Match, Secret: r.Secrets != nil, Snapshot: s.id}
	switch r.Action {
	case Approve:
		v.Workflow = r.workflow()
		v.Reason = name + " needs approval by workflow " + v.Workflow
	case Deny:
		v.Reason = name + " denies it"
	default:
		v.Reason = name + " forwards it"
	}
	if r.Reason != "" {
		v.Reason += ": " + r.Reason
		v.Says = []string{r.Reason}
	}
	if r.observed {
		v = observed(v)
	}
	return v
}

// unasked warns of policies that no rule uses.
func (s *Snapshot) unasked() []Problem {
	asks := func(r rule) bool { return r.Action == AskPolicies }
	if s.policies == nil || asks(s.fallback) || slices.ContainsFunc(s.rules, asks) {
		return nil
	}
	return []Problem{{Place{Setting: "cedar"}, "no rule has the action policy, so the policies are never evaluated"}}
}

// digest returns the id of cfg.
func digest(cfg Config) (string, error) {
	text, err := json.Marshal(cfg, json.Deterministic(true), json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error {
			return enc.WriteToken(jsontext.Int(int64(d)))
		}),
		json.MarshalToFunc(func(enc *jsontext.Encoder, zone *time.Location) error {
			return enc.WriteToken(jsontext.String(zone.String()))
		}),
	)))
	if err != nil {
		return "", fmt.Errorf("compute the digest of the configuration: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), nil
}
