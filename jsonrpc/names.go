package jsonrpc

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// A memberName is the range of a member name. It has no pointers, so the garbage collector does
// not scan it.
type memberName struct {
	start, end int
	escaped    bool // the range is in scanner.unquoted instead of scanner.data
}

// name moves past a member name and the colon.
func (s *scanner) name(i int) int {
	start := s.space(i)
	if s.at(start) != '"' {
		return s.unexpected(start)
	}
	end, escaped := s.text(start)
	if end < 0 {
		return end
	}
	n := memberName{start: start + 1, end: end - 1, escaped: escaped}
	if escaped {
		n.start = len(s.unquoted)
		// Already validated, so unquoting cannot fail.
		s.unquoted, _ = jsontext.AppendUnquote(s.unquoted, s.data[start:end])
		n.end = len(s.unquoted)
		s.hasNULName = s.hasNULName || hasNUL(s.spelled(n))
	}
	s.hasPrototype = s.hasPrototype || string(s.spelled(n)) == prototype
	s.names = append(s.names, n)
	if i = s.space(end); s.at(i) != ':' {
		return s.unexpected(i)
	}
	return i + 1
}

// hasNUL reports whether a name contains U+0000, where some C programs end it.
func hasNUL(name []byte) bool { return bytes.IndexByte(name, 0) >= 0 }

// prototype is a member name that some JavaScript programs copy so that its value becomes the
// prototype of an object. Its members then count as members of the object.
const prototype = "__proto__"

// lastName returns the last name without quotes and escapes. It is valid until the next name.
func (s *scanner) lastName() []byte { return s.spelled(s.names[len(s.names)-1]) }

func (s *scanner) spelled(n memberName) []byte {
	if n.escaped {
		return s.unquoted[n.start:n.end]
	}
	return s.data[n.start:n.end]
}

// distinct reports whether all names differ. It may reorder them.
func (s *scanner) distinct(names []memberName) bool {
	if len(names) > 16 {
		slices.SortFunc(names, func(a, b memberName) int { return bytes.Compare(s.spelled(a), s.spelled(b)) })
		for i := 1; i < len(names); i++ {
			if bytes.Equal(s.spelled(names[i-1]), s.spelled(names[i])) {
				return false
			}
		}
		return true
	}
	for i, n := range names {
		for _, before := range names[:i] {
			if bytes.Equal(s.spelled(before), s.spelled(n)) {
				return false
			}
		}
	}
	return true
}
