package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// mask returns p for the validator: it replaces every boolean expression that depends on an
// argument by an unknown boolean, because arguments have no declared types. It works on the
// JSON form of p, in which all operators look alike.
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

// keepNumber keeps the text of numbers, because a long may not fit into a float.
func keepNumber(dec *jsontext.Decoder, v *any) error {
	if dec.PeekKind() != jsontext.KindNumber {
		return errors.ErrUnsupported
	}
	text, err := dec.ReadValue()
	*v = text.Clone()
	return err
}

// Boolean operators with boolean operands, and with others.
const (
	logical    = " && || ! "
	predicates = " == != < <= > >= in is has like hasTag contains containsAll containsAny isEmpty lessThan lessThanOrEqual " +
		"greaterThan greaterThanOrEqual isIpv4 isIpv6 isLoopback isMulticast isInRange "
)

// truth masks a boolean expression.
func truth(expr any) any {
	if node, ok := expr.(map[string]any); ok && node["if-then-else"] != nil {
		return map[string]any{"if-then-else": eachOperand(node["if-then-else"], func(_ string, operand any) any { return truth(operand) })}
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

// maskExpr returns expr with its boolean expressions masked, and whether the value of expr
// depends on an argument.
func maskExpr(expr any) (masked any, fromArgument bool) {
	node, _ := expr.(map[string]any)
	for op, operands := range node { // exactly one
		parts, _ := operands.(map[string]any)
		left, _ := parts["left"].(map[string]any)
		switch {
		case op == "Value":
			return expr, false
		case op == "Var": // the whole context includes the arguments
			return expr, operands == "context"
		case op == "." && left["Var"] == "context":
			return expr, parts["attr"] == "arguments" || parts["attr"] == "decimals"
		case op == "has" && left["Var"] == "context":
			return expr, false
		}
		return maskOperator(op, operands)
	}
	return expr, false
}

func maskOperator(op string, operands any) (masked any, fromArgument bool) {
	var others []any // the operands that do not depend on an argument
	masked = map[string]any{op: eachOperand(operands, func(name string, operand any) any {
		if op == "if-then-else" && name == "if" || strings.Contains(logical, " "+op+" ") {
			return truth(operand)
		}
		m, from := maskExpr(operand)
		if fromArgument = fromArgument || from; !from {
			others = append(others, m)
		}
		return m
	})}
	if !fromArgument || !strings.Contains(predicates, " "+op+" ") {
		return masked, fromArgument
	}
	// Keep the other operands as members of records, so that they are validated too.
	masked = unknownTruth()
	for _, o := range others {
		kept := map[string]any{"has": map[string]any{"left": map[string]any{"Record": map[string]any{"kept": o}}, "attr": "kept"}}
		masked = map[string]any{"&&": map[string]any{"left": masked, "right": kept}}
	}
	return masked, false
}

// eachOperand returns operands with f applied to those that are expressions.
func eachOperand(operands any, f func(name string, operand any) any) any {
	switch o := operands.(type) {
	case []any:
		masked := make([]any, len(o))
		for i := range o {
			masked[i] = f("", o[i])
		}
		return masked
	case map[string]any:
		masked := make(map[string]any, len(o))
		for name, operand := range o {
			if _, isExpr := operand.(map[string]any); isExpr {
				operand = f(name, operand)
			}
			masked[name] = operand
		}
		return masked
	default:
		return operands
	}
}
