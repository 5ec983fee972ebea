package policy

import (
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// A reads is the set of members of a record that policies can read.
type reads struct {
	all     bool
	members map[types.String]bool // whether has asks for the member
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

// A reading is what policies can read of the context, and of those two of its
// members that cost something to make.
type reading struct {
	context   reads
	arguments reads
	decimals  reads
	names     spellings // of arguments and of what is in them
}

// add notes what p can read. Any other access than to a named member of a record
// counts as access to the whole record.
func (r *reading) add(p *ast.Policy) {
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), r.visit)
	}
}

// visit notes what n itself reads, and reports whether its parts may read more.
func (r *reading) visit(n ast.IsNode) bool {
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

// record returns the record that n stands for, or nil if it is none of those
// whose members are distinguished.
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
