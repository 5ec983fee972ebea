package policy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A cedarPolicy is one policy of a [Source].
type cedarPolicy struct {
	id       string // @id, or the position
	where    Place
	policy   *cedar.Policy
	approval bool   // it has @approval
	workflow string // the name in @approval
	reason   string // @reason
	hints    bool   // it may read the hints of tools
	time     bool   // it may read the time
	argument bool   // it may read an argument
}

func (p *cedarPolicy) tree() *ast.Policy { return (*ast.Policy)(p.policy.AST()) }

func (p *cedarPolicy) permits() bool { return p.policy.Effect() == cedar.Permit }

// A policySet has all policies, indexed by resource.
type policySet struct {
	policies []cedarPolicy
	byID     map[string]*cedarPolicy
	anywhere bucket                       // policies about any resource
	byType   map[types.EntityType]*bucket // policies about resources of a type
	byEntity map[types.EntityUID]*bucket  // policies about a resource, or those of an upstream
}

// A bucket has the policies with the same resource scope.
type bucket struct {
	policies []*cedarPolicy
	reading  reading // of all of them
}

func newPolicySet(policies []cedarPolicy) *policySet {
	s := &policySet{
		policies: policies, byID: map[string]*cedarPolicy{},
		byType: map[types.EntityType]*bucket{}, byEntity: map[types.EntityUID]*bucket{},
	}
	for i := range policies {
		p := &policies[i]
		s.byID[p.id] = p
		b := s.bucket(p.tree().Resource)
		b.policies = append(b.policies, p)
		b.reading.add(p.tree())
		var own reading
		own.add(p.tree())
		p.hints = own.context.has("annotations")
		p.argument = own.context.has("arguments") || own.context.has("decimals")
		p.time = own.context.has("time") || own.context.has("hour") || own.context.has("weekday")
	}
	return s
}

// bucket returns the bucket for a scope. Every question that the scope admits looks there.
func (s *policySet) bucket(scope ast.IsResourceScopeNode) *bucket {
	switch n := scope.(type) {
	case ast.ScopeTypeEq:
		return at(s.byEntity, n.Entity)
	case ast.ScopeTypeIn:
		return at(s.byEntity, n.Entity)
	case ast.ScopeTypeIsIn:
		return at(s.byEntity, n.Entity)
	case ast.ScopeTypeIs:
		return at(s.byType, n.Type)
	default:
		return &s.anywhere
	}
}

func at[K comparable](m map[K]*bucket, key K) *bucket {
	if m[key] == nil {
		m[key] = &bucket{}
	}
	return m[key]
}

// A selection is the policies that match a question.
type selection struct {
	policies []*cedarPolicy
	readings []*reading // the members that they may read, and perhaps more
}

// about returns the policies with a scope that admits q. Cedar does not evaluate the
// conditions of others, so they can neither apply nor fail.
func (s *policySet) about(q *question) selection {
	var found selection
	for _, b := range [...]*bucket{&s.anywhere, s.byType[q.resource.Type], s.byEntity[q.resource], s.byEntity[q.upstream]} {
		if b == nil {
			continue
		}
		before := len(found.policies)
		for _, p := range b.policies {
			if q.inScope(p.tree()) {
				found.policies = append(found.policies, p)
			}
		}
		if len(found.policies) > before {
			found.readings = append(found.readings, &b.reading)
		}
	}
	return found
}

// readHints reports whether a policy that matches q may read the hints of the tool.
func (s *policySet) readHints(q *question) bool {
	return q.kind == Tool && slices.ContainsFunc(s.about(q).policies, func(p *cedarPolicy) bool { return p.hints })
}

// All implements [cedar.PolicyIterator].
func (s selection) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range s.policies {
			if !yield(cedar.PolicyID(p.id), p.policy) {
				return
			}
		}
	}
}

// reads returns a function that reports whether a policy may read a member of the record
// that of selects.
func (s selection) reads(of func(*reading) *reads) func(types.String) bool {
	return func(member types.String) bool {
		return slices.ContainsFunc(s.readings, func(r *reading) bool { return of(r).has(member) })
	}
}

// names returns the names of arguments that policies read in the record that of selects.
func (s selection) names(of func(*reading) *reads) selectedNames {
	return selectedNames{
		read: s.reads(of),
		variant: func(name types.String) bool {
			return slices.ContainsFunc(s.readings, func(r *reading) bool { return r.names.variant(name) })
		},
	}
}

// An answer is the result of evaluating the policies.
type answer struct {
	permitted bool
	ids       []string // of the policies that decided, sorted
	workflows []string // of @approval, if permitted; an empty name means that of the rule
	reason    string
	says      []string // the @reason of the policies
	errors    []policyError
	mapping   error // of the arguments to Cedar values
}

// A policyError is the error of a policy. Its text may have values of arguments.
type policyError struct{ id, text string }

// ask evaluates the policies for q.
func (s *policySet) ask(q *question) answer {
	policies := s.about(q)
	request, err := q.request(policies)
	if err != nil {
		return answer{mapping: err, reason: "the policies cannot be evaluated: the arguments have " + problemOf(err)}
	}
	decision, diagnostic := cedar.Authorize(policies, q, request)
	// Cedar ignores a policy with an error, which may be a forbid.
	if len(diagnostic.Errors) > 0 {
		return failed(diagnostic.Errors)
	}
	deciding := make([]*cedarPolicy, len(diagnostic.Reasons))
	for i, r := range diagnostic.Reasons {
		deciding[i] = s.byID[string(r.PolicyID)]
	}
	slices.SortFunc(deciding, func(a, b *cedarPolicy) int { return cmp.Compare(a.id, b.id) })
	a := answer{permitted: decision == cedar.Allow, reason: "no policy permits it"}
	for _, p := range deciding {
		a.ids = append(a.ids, p.id)
		if p.reason != "" {
			a.says = append(a.says, p.reason)
		}
		if p.approval {
			a.workflows = append(a.workflows, p.workflow)
		}
	}
	switch {
	case a.permitted:
		a.reason = namePolicies("permitted by", deciding)
	case len(deciding) > 0:
		a.reason = namePolicies("forbidden by", deciding)
	}
	return a
}

func failed(errs []cedar.DiagnosticError) answer {
	var a answer
	for _, e := range errs {
		a.ids = append(a.ids, string(e.PolicyID))
		a.errors = append(a.errors, policyError{string(e.PolicyID), e.Message})
	}
	slices.Sort(a.ids)
	a.reason = "denied because a policy could not be evaluated: " + strings.Join(a.ids, ", ")
	return a
}

// namePolicies names the policies that decided, with their reasons.
func namePolicies(verb string, deciding []*cedarPolicy) string {
	var b strings.Builder
	b.WriteString(verb)
	for i, p := range deciding {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " policy %s", p.id)
		if p.reason != "" {
			fmt.Fprintf(&b, " (%s)", p.reason)
		}
	}
	return b.String()
}

// unused warns of policies about a tool, resource or prompt that upstreams do not offer.
func (s *policySet) unused(offered []Named) []Problem {
	if s == nil {
		return nil
	}
	known, knownTypes := map[types.EntityUID]bool{}, map[types.EntityType]bool{}
	for _, n := range offered {
		id := resourceID(n.Kind, n.Name)
		known[id], knownTypes[id.Type] = true, true
	}
	var warnings []Problem
	for i := range s.policies {
		p := &s.policies[i]
		scope, ok := p.tree().Resource.(ast.ScopeTypeEq)
		if ok && !known[scope.Entity] && knownTypes[scope.Entity.Type] {
			warnings = append(warnings, Problem{p.where, "is about " + scope.Entity.String() + ", which no upstream offers"})
		}
	}
	return warnings
}
