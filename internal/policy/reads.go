package policy

import (
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A reads is the set of members of a record that policies may read.
type reads struct {
	all     bool
	members map[types.String]bool // the value: a has check exists
}

func (r *reads) any() bool { return r.all || len(r.members) > 0 }

func (r *reads) has(member types.String) bool {
	_, ok := r.members[member]
	return r.all || ok
}

func (r *reads) note(member types.String, asked bool) {
	if r.members == nil {
		r.members = map[types.String]bool{}
	}
	r.members[member] = r.members[member] || asked
}

// A reading is the set of members that policies may read: of the context, and of its two
// members that are costly to build.
type reading struct {
	context   reads
	arguments reads
	decimals  reads
	names     spellings // of arguments and of nested members
}

// add adds the members that p may read. An access other than to a named member counts as an
// access to the whole record.
func (r *reading) add(p *ast.Policy) {
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), r.inspect)
	}
}

// inspect adds the members that n itself reads, and reports whether its operands may read more.
func (r *reading) inspect(n ast.IsNode) bool {
	r.names.note(n)
	switch n := n.(type) {
	case ast.NodeTypeHas:
		if record := r.record(n.Arg); record != nil {
			record.note(n.Value, true)
			return false
		}
	case ast.NodeTypeAccess:
		if whole := r.record(n); whole != nil {
			whole.all = true
			return false
		}
		if record := r.record(n.Arg); record != nil {
			record.note(n.Value, false)
			return false
		}
	case ast.NodeTypeVariable:
		if r.record(n) != nil {
			r.context.all, r.arguments.all, r.decimals.all = true, true, true
		}
	default:
	}
	return true
}

// record returns the set for the record n, or nil if n is another expression.
func (r *reading) record(n ast.IsNode) *reads {
	if v, ok := n.(ast.NodeTypeVariable); ok && v.Name == "context" {
		return &r.context
	}
	access, ok := n.(ast.NodeTypeAccess)
	if !ok || r.record(access.Arg) != &r.context {
		return nil
	}
	switch access.Value {
	case "arguments":
		r.context.note(access.Value, false)
		return &r.arguments
	case "decimals":
		r.context.note(access.Value, false)
		return &r.decimals
	default:
		return nil
	}
}
