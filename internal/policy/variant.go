package policy

import (
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// spellings are the names of arguments and of nested members that policies read, by their
// folded form. Many servers ignore the case of names, and so would use a member that the
// policies have not seen.
type spellings map[string]map[types.String]bool

// note adds the name that n itself reads, if it may be that of an argument or of a nested
// member.
func (s *spellings) note(n ast.IsNode) {
	switch n := n.(type) {
	case ast.NodeTypeHas:
		s.add(n.Arg, n.Value)
	case ast.NodeTypeAccess:
		s.add(n.Arg, n.Value)
	default:
	}
}

func (s *spellings) add(of ast.IsNode, name types.String) {
	if !mayBeArgument(of) {
		return
	}
	if *s == nil {
		*s = make(spellings)
	}
	key := folded(string(name))
	if (*s)[key] == nil {
		(*s)[key] = make(map[types.String]bool)
	}
	(*s)[key][name] = true
}

// mayBeArgument reports whether n may be in the arguments of a call. A path that begins
// elsewhere is not.
func mayBeArgument(n ast.IsNode) bool {
	first := types.String("")
	for {
		switch at := n.(type) {
		case ast.NodeTypeAccess:
			first, n = at.Value, at.Arg
		case ast.NodeTypeVariable:
			return at.Name == "context" && (first == "arguments" || first == "decimals")
		default:
			return true
		}
	}
}

// variant reports whether name differs only by case from a name that policies read.
func (s spellings) variant(name types.String) bool {
	if len(s) == 0 {
		return false
	}
	read := s[folded(string(name))]
	return read != nil && !read[name]
}

// folded returns the same text for all texts that differ only by case.
func folded(text string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		if 'A' <= least && least <= 'Z' {
			return least + 'a' - 'A'
		}
		return least
	}, text)
}
