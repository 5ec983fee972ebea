package policy

import (
	"strings"

	"github.com/cedar-policy/cedar-go"
	publicast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Bounds on the cost of an explanation.
const (
	maxCondition = 300 // bytes of a condition
	maxParts     = 50  // parts of a condition that are tried alone
)

// unmet returns the policies about the resource and the action of q that do not apply, with the
// first part of their conditions that is not met.
func (s *policySet) unmet(q *question) []CedarTrial {
	about := s.about(q)
	request, err := q.request(about)
	if err != nil {
		return nil
	}
	holds := func(c ast.ConditionType) (met, ok bool) {
		about.policies = []*cedarPolicy{{id: "condition", policy: only(c)}}
		decision, diagnostic := cedar.Authorize(about, q, request)
		return decision == cedar.Allow, len(diagnostic.Errors) == 0
	}
	var all []CedarTrial
	for i := range s.policies {
		p := &s.policies[i]
		tree := p.tree()
		if !admits(tree.Action, q.action, nil) || !admits(tree.Resource, q.resource, []types.EntityUID{q.upstream}) {
			continue
		}
		why := "it is about other principals"
		if admits(tree.Principal, q.principal, q.groups) {
			why = whyUnmet(tree.Conditions, holds)
		}
		if why != "" {
			all = append(all, CedarTrial{ID: p.id, Where: p.where.String(), Says: p.says(), Unmet: why})
		}
	}
	return all
}

// whyUnmet returns why the conditions of a policy are not met, or "" if they are, or fail.
func whyUnmet(conditions []ast.ConditionType, holds func(ast.ConditionType) (met, ok bool)) string {
	for _, c := range conditions {
		met, ok := holds(c)
		switch {
		case !ok:
			return ""
		case met:
			continue
		case c.Condition == ast.ConditionUnless:
			return textOf(c.Body) + " is true"
		}
		for _, part := range conjuncts(nil, c.Body) {
			if met, ok := holds(ast.ConditionType{Condition: ast.ConditionWhen, Body: part}); ok && !met {
				return textOf(part) + " is false"
			}
		}
		return textOf(c.Body) + " is false"
	}
	return ""
}

// only returns a policy with one condition, for everything.
func only(c ast.ConditionType) *cedar.Policy {
	return cedar.NewPolicyFromAST((*publicast.Policy)(&ast.Policy{
		Effect: ast.EffectPermit, Principal: ast.ScopeTypeAll{}, Action: ast.ScopeTypeAll{}, Resource: ast.ScopeTypeAll{}, Conditions: []ast.ConditionType{c},
	}))
}

// conjuncts appends the first parts of a && b && c.
func conjuncts(all []ast.IsNode, n ast.IsNode) []ast.IsNode {
	and, ok := n.(ast.NodeTypeAnd)
	switch {
	case len(all) >= maxParts:
		return all
	case ok:
		return conjuncts(conjuncts(all, and.Left), and.Right)
	default:
		return append(all, n)
	}
}

// textOf returns an expression as Cedar.
func textOf(n ast.IsNode) string {
	_, text, _ := strings.Cut(string(only(ast.ConditionType{Condition: ast.ConditionWhen, Body: n}).MarshalCedar()), "when {")
	text = strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimSpace(text), "};")), " ")
	if len(text) > maxCondition {
		text = strings.ToValidUTF8(text[:maxCondition], "") + "…"
	}
	return text
}
