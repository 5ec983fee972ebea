package policy

import (
	"reflect"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// mask returns p for the validator: it replaces every boolean expression that depends on an
// argument by an unknown boolean, because arguments have no declared types.
func mask(p *ast.Policy) *ast.Policy {
	masked := *p
	masked.Conditions = slices.Clone(p.Conditions)
	for i := range masked.Conditions {
		masked.Conditions[i].Body = truth(p.Conditions[i].Body)
	}
	return &masked
}

var (
	contextVariable = ast.NodeTypeVariable{Name: "context"}
	unknownTruth    = ast.NodeTypeAccess{StrOpNode: ast.StrOpNode{Arg: contextVariable, Value: unknown}}
)

// truth masks a boolean expression.
func truth(n ast.IsNode) ast.IsNode {
	if choice, ok := n.(ast.NodeTypeIfThenElse); ok {
		return ast.NodeTypeIfThenElse{If: truth(choice.If), Then: truth(choice.Then), Else: truth(choice.Else)}
	}
	masked, fromArgument := maskExpr(n)
	if fromArgument {
		return unknownTruth
	}
	return masked
}

// maskExpr returns an expression with its boolean expressions masked, and whether the value of the
// expression depends on an argument.
func maskExpr(n ast.IsNode) (masked ast.IsNode, fromArgument bool) {
	switch n := n.(type) {
	case ast.NodeTypeVariable: // the whole context includes the arguments
		return n, n == contextVariable
	case ast.NodeTypeAccess:
		if n.Arg == contextVariable {
			return n, n.Value == "arguments" || n.Value == "decimals"
		}
	case ast.NodeTypeHas:
		if n.Arg == contextVariable {
			return n, false
		}
	case ast.NodeTypeAnd, ast.NodeTypeOr, ast.NodeTypeNot:
		return withOperands(n, truth), false
	case ast.NodeTypeIfThenElse:
		then, first := maskExpr(n.Then)
		otherwise, second := maskExpr(n.Else)
		return ast.NodeTypeIfThenElse{If: truth(n.If), Then: then, Else: otherwise}, first || second
	default:
	}
	return maskOperator(n)
}

func maskOperator(n ast.IsNode) (masked ast.IsNode, fromArgument bool) {
	var others []ast.IsNode // the operands that do not depend on an argument
	masked = withOperands(n, func(operand ast.IsNode) ast.IsNode {
		m, from := maskExpr(operand)
		if fromArgument = fromArgument || from; !from {
			others = append(others, m)
		}
		return m
	})
	if !fromArgument || !isPredicate(n) {
		return masked, fromArgument
	}
	// Keep the other operands as members of records, so that they are validated too.
	masked = unknownTruth
	for _, o := range others {
		record := ast.NodeTypeRecord{Elements: []ast.RecordElementNode{{Key: "kept", Value: o}}}
		masked = ast.NodeTypeAnd{BinaryNode: ast.BinaryNode{Left: masked, Right: ast.NodeTypeHas{StrOpNode: ast.StrOpNode{Arg: record, Value: "kept"}}}}
	}
	return masked, false
}

// isPredicate reports whether n is boolean and its operands are not.
func isPredicate(n ast.IsNode) bool {
	switch n := n.(type) {
	case ast.NodeTypeEquals, ast.NodeTypeNotEquals, ast.NodeTypeLessThan, ast.NodeTypeLessThanOrEqual, ast.NodeTypeGreaterThan,
		ast.NodeTypeGreaterThanOrEqual, ast.NodeTypeIn, ast.NodeTypeIs, ast.NodeTypeIsIn, ast.NodeTypeHas, ast.NodeTypeLike,
		ast.NodeTypeHasTag, ast.NodeTypeContains, ast.NodeTypeContainsAll, ast.NodeTypeContainsAny, ast.NodeTypeIsEmpty:
		return true
	case ast.NodeTypeExtensionCall:
		return slices.Contains(extensionPredicates, n.Name)
	default:
		return false
	}
}

var extensionPredicates = []types.Path{
	"lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual", "isIpv4", "isIpv6", "isLoopback", "isMulticast", "isInRange",
}

// withOperands returns n with f applied to its operands.
func withOperands(n ast.IsNode, f func(ast.IsNode) ast.IsNode) ast.IsNode {
	changed := reflect.New(reflect.TypeOf(n)).Elem()
	changed.Set(reflect.ValueOf(n))
	changeOperands(changed, f)
	masked, _ := reflect.TypeAssert[ast.IsNode](changed)
	return masked
}

// changeOperands applies f to the operands in a field of a node.
func changeOperands(field reflect.Value, f func(ast.IsNode) ast.IsNode) {
	switch {
	case !field.CanSet(): // the parts of a pattern
	case field.Kind() == reflect.Interface:
		if operand, ok := reflect.TypeAssert[ast.IsNode](field); ok {
			field.Set(reflect.ValueOf(f(operand)))
		}
	case field.Kind() == reflect.Struct:
		for _, part := range field.Fields() {
			changeOperands(part, f)
		}
	case field.Kind() == reflect.Slice:
		field.Set(reflect.AppendSlice(reflect.MakeSlice(field.Type(), 0, field.Len()), field))
		for i := range field.Len() {
			changeOperands(field.Index(i), f)
		}
	}
}
