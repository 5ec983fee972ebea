package policy

import (
	_ "embed"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

//go:embed thoughtgate.cedarschema
var schemaText []byte

// unknown is a boolean attribute of the context for the validator. It replaces expressions
// that depend on arguments.
const unknown = "?"

// A checker validates policies against the schema.
type checker struct{ validator *validate.Validator }

func newChecker() (*checker, error) {
	var text schema.Schema
	if err := text.UnmarshalCedar(schemaText); err != nil {
		return nil, err
	}
	s, err := text.Resolve()
	if err != nil {
		return nil, err
	}
	for _, action := range s.Actions {
		action.AppliesTo.Context[unknown] = resolved.Attribute{Type: resolved.BoolType{}}
	}
	return &checker{validate.New(s)}, nil
}

// check returns the first problem of p. It masks expressions on arguments, whose types are
// not in the schema.
func (c *checker) check(p *cedar.Policy) error {
	tree := (*ast.Policy)(p.AST())
	var r reading
	r.add(tree)
	if r.arguments.any() || r.decimals.any() {
		tree = mask(tree)
	}
	return c.validator.Policy("", tree)
}
