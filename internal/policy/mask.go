package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// mask returns p with every expression that is true or false because of an
// argument replaced by one of which nothing but that is known. It works on the
// JSON form of p, where all operators look alike.
func mask(p *cedar.Policy) (*cedar.Policy, error) {
	text, err := p.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var policy map[string]any
	if err := json.Unmarshal(text, &policy, json.WithUnmarshalers(json.UnmarshalFromFunc(keepNumber))); err != nil {
		return nil, err
	}
	conditions, _ := policy["conditions"].([]any)
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok {
			condition["body"] = truth(condition["body"])
		}
	}
	if text, err = json.Marshal(policy); err != nil {
		return nil, err
	}
	var masked cedar.Policy
	if err := masked.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("without its arguments: %w", err)
	}
	return &masked, nil
}

// keepNumber keeps numbers as they are written: a long is no float.
func keepNumber(dec *jsontext.Decoder, v *any) error {
	if dec.PeekKind() != jsontext.KindNumber {
		return errors.ErrUnsupported
	}
	text, err := dec.ReadValue()
	*v = text.Clone()
	return err
}

var (
	logical    = []string{"&&", "||", "!"} // of operands that are true or false
	predicates = []string{                 // that are true or false of other operands
		"==", "!=", "<", "<=", ">", ">=", "in", "is", "has", "like", "hasTag",
		"contains", "containsAll", "containsAny", "isEmpty",
		"lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual",
		"isIpv4", "isIpv6", "isLoopback", "isMulticast", "isInRange",
	}
)

// truth masks an expression that must be true or false.
func truth(expr any) any {
	if node, ok := expr.(map[string]any); ok && node["if-then-else"] != nil {
		return map[string]any{"if-then-else": eachOperand(node["if-then-else"], truth)}
	}
	masked, fromArgument := maskExpr(expr)
	if fromArgument {
		return unknownTruth()
	}
	return masked
}

func unknownTruth() any {
	return map[string]any{".": map[string]any{"left": map[string]any{"Var": "context"}, "attr": unknown}}
}

// maskExpr returns expr with everything masked that has a truth value, and
// whether the value of expr itself comes from an argument.
func maskExpr(expr any) (any, bool) {
	node, _ := expr.(map[string]any)
	for op, operands := range node { // there is one
		switch op {
		case "Value":
			return expr, false
		case "Var": // the context as a whole holds the arguments
			return expr, operands == "context"
		case ".", "has":
			if isOfContext(operands) {
				return expr, op == "." && isArgumentRecord(operands)
			}
		}
		return maskOperator(op, operands)
	}
	return expr, false
}

func maskOperator(op string, operands any) (any, bool) {
	switch {
	case slices.Contains(logical, op):
		return map[string]any{op: eachOperand(operands, truth)}, false
	case slices.Contains(predicates, op):
		return maskPredicate(op, operands)
	case op == "if-then-else":
		return maskConditional(op, operands)
	default:
		return maskOther(op, operands)
	}
}

// isOfContext reports whether these operands name an attribute of the context.
func isOfContext(operands any) bool {
	o, _ := operands.(map[string]any)
	left, _ := o["left"].(map[string]any)
	return left["Var"] == "context"
}

func isArgumentRecord(operands any) bool {
	o, _ := operands.(map[string]any)
	return o["attr"] == "arguments" || o["attr"] == "decimals"
}

// maskPredicate keeps the operands that come from no argument, each as a member
// of a record, so that they are checked too.
func maskPredicate(op string, operands any) (any, bool) {
	found := false
	var others []any
	masked := eachOperand(operands, func(operand any) any {
		m, fromArgument := maskExpr(operand)
		if fromArgument {
			found = true
		} else {
			others = append(others, m)
		}
		return m
	})
	if !found {
		return map[string]any{op: masked}, false
	}
	result := unknownTruth()
	for _, o := range others {
		kept := map[string]any{"has": map[string]any{"left": map[string]any{"Record": map[string]any{"kept": o}}, "attr": "kept"}}
		result = map[string]any{"&&": map[string]any{"left": result, "right": kept}}
	}
	return result, false
}

// maskOther is for operators that yield other values. If an operand comes from
// an argument, so does the value.
func maskOther(op string, operands any) (any, bool) {
	found := false
	masked := eachOperand(operands, func(operand any) any {
		m, fromArgument := maskExpr(operand)
		found = found || fromArgument
		return m
	})
	return map[string]any{op: masked}, found
}

func maskConditional(op string, operands any) (any, bool) {
	parts, _ := operands.(map[string]any)
	then, inThen := maskExpr(parts["then"])
	otherwise, inElse := maskExpr(parts["else"])
	masked := map[string]any{"if": truth(parts["if"]), "then": then, "else": otherwise}
	return map[string]any{op: masked}, inThen || inElse
}

// eachOperand returns operands with f applied to those that are expressions.
func eachOperand(operands any, f func(any) any) any {
	switch o := operands.(type) {
	case []any:
		masked := make([]any, len(o))
		for i := range o {
			masked[i] = f(o[i])
		}
		return masked
	case map[string]any:
		masked := make(map[string]any, len(o))
		for name, operand := range o {
			if _, isExpr := operand.(map[string]any); isExpr {
				operand = f(operand)
			}
			masked[name] = operand
		}
		return masked
	default:
		return operands
	}
}
