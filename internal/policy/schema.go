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

// unknown is an attribute of the context that is true or false, and that no
// call has: it stands for what depends on arguments.
const unknown = "?"

// A checker finds the mistakes in policies that can be found without a call.
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

// check reports what is wrong with p. The types of arguments are in no schema,
// so what p says of them would be refused if it were not masked.
func (c *checker) check(p *cedar.Policy) error {
	tree := (*ast.Policy)(p.AST())
	var r reading
	r.add(tree)
	if r.arguments.any() || r.decimals.any() {
		masked, err := mask(p)
		if err != nil {
			return err
		}
		tree = (*ast.Policy)(masked.AST())
	}
	return c.validator.Policy("", tree)
}
