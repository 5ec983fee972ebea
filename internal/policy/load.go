package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// loadPolicies parses and checks the policies of s. It adds problems to bad, and returns
// warnings.
func (s *Snapshot) loadPolicies(sources []Source, bad *problems) []Problem {
	if len(sources) == 0 {
		return nil
	}
	check, err := newChecker()
	if err != nil {
		bad.addText(Place{Setting: "cedar"}, "cannot read the schema of ThoughtGate: "+err.Error())
		return nil
	}
	var all []cedarPolicy
	var warnings []Problem
	before := len(*bad)
	names := map[string]bool{}
	for _, source := range sources {
		if names[source.Name] {
			bad.addText(Place{Source: source.Name}, "two sources have this name")
			continue
		}
		names[source.Name] = true
		list, err := cedar.NewPolicyListFromBytes(source.Name, source.Text)
		if err != nil {
			*bad = append(*bad, syntaxProblem(source, err))
		}
		for _, p := range list {
			c := newCedarPolicy(p, source.Name)
			bad.add(c.where, s.annotationProblem(p))
			bad.add(c.where, check.check(p))
			warnings = slices.Concat(warnings, c.warnings(), c.regexes())
			all = append(all, c)
		}
	}
	bad.add(Place{Setting: "cedar"}, duplicateID(all))
	if len(all) > 0 || len(*bad) > before { // broken policies are not reported again by the rules that use them
		s.policies = newPolicySet(all)
	}
	return warnings
}

func newCedarPolicy(p *cedar.Policy, source string) cedarPolicy {
	notes := p.Annotations()
	c := cedarPolicy{
		where: Place{Source: source, Line: p.Position().Line}, policy: p,
		id: string(notes["id"]), workflow: string(notes["approval"]), reason: string(notes["reason"]),
	}
	_, c.approval = notes["approval"]
	if c.id == "" {
		c.id = fmt.Sprintf("%s:%d:%d", source, p.Position().Line, p.Position().Column)
	}
	return c
}

// annotationProblem rejects unknown annotations: with a misspelled @approval, a permit
// would forward calls that must be held.
func (s *Snapshot) annotationProblem(p *cedar.Policy) error {
	notes := p.Annotations()
	known := []types.AnnotationKey{"id", "approval", "reason", "description"}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("@%s is not @id, @approval, @reason or @description", name)
		}
	}
	workflow, ok := notes["approval"]
	switch {
	case !ok:
		return nil
	case p.Effect() == cedar.Forbid:
		return errors.New("@approval has no meaning on a forbid: write a permit with @approval instead")
	case workflow == "":
		return nil
	default:
		if err := s.workflowProblem(string(workflow)); err != nil {
			return fmt.Errorf("@approval: %w", err)
		}
		return nil
	}
}

func duplicateID(all []cedarPolicy) error {
	first := map[string]Place{}
	for _, p := range all {
		if where, ok := first[p.id]; ok {
			return fmt.Errorf("%s and %s have the same @id %q", where, p.where, p.id)
		}
		first[p.id] = p.where
	}
	return nil
}

// needsWorkflow reports whether a policy takes the workflow from the rule.
func (s *policySet) needsWorkflow() bool {
	return slices.ContainsFunc(s.policies, func(p cedarPolicy) bool { return p.approval && p.workflow == "" })
}

// warnings reports arguments that p reads without a has check, if p is not about a
// single tool.
func (p *cedarPolicy) warnings() []Problem {
	if _, single := p.tree().Resource.(ast.ScopeTypeEq); single {
		return nil
	}
	var r reading
	r.add(p.tree())
	unguarded := append(r.arguments.unguarded("context.arguments."), r.decimals.unguarded("context.decimals.")...)
	if unguarded == nil {
		return nil
	}
	text := "reads " + strings.Join(unguarded, " and ") + " without a has check: matching calls that lack it are denied"
	return []Problem{{p.where, text}}
}

// unguarded returns the members that are read without a has check.
func (r *reads) unguarded(prefix string) []string {
	var found []string
	for _, member := range slices.Sorted(maps.Keys(r.members)) {
		if !r.members[member] {
			found = append(found, prefix+string(member))
		}
	}
	return found
}
