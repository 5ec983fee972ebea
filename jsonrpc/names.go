package jsonrpc

import (
	"bytes"
	"hash/maphash"
	"math/bits"

	"github.com/go-json-experiment/json/jsontext"
)

// A memberName says where the name of a member is. It holds no pointer so that
// names cost the garbage collector nothing.
type memberName struct {
	start, end int
	mark       uint32 // differs between most names that are not the same
	escaped    bool   // it is in scanner.unquoted, not in scanner.data
}

// name moves past the name of a member and the colon.
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
		// It has been checked, so it can be unquoted.
		s.unquoted, _ = jsontext.AppendUnquote(s.unquoted, s.data[start:end])
		n.end = len(s.unquoted)
		s.cut = s.cut || hasNUL(s.spelled(n))
	}
	n.mark = mark(s.spelled(n))
	s.inherits = s.inherits || n.mark == prototypeMark && string(s.spelled(n)) == prototype
	s.names = append(s.names, n)
	if i = s.space(end); s.at(i) != ':' {
		return s.unexpected(i)
	}
	return i + 1
}

// hasNUL reports whether a name has U+0000 in it. Some programs in C end it there, and
// so take it for another one. It must be escaped in JSON.
func hasNUL(name []byte) bool { return bytes.IndexByte(name, 0) >= 0 }

// prototype is the name of a member that some JavaScript programs copy in such a
// way that it becomes the prototype of an object: what stands in it then counts as
// if it stood in the object itself.
const prototype = "__proto__"

// prototypeMark is the mark of prototype.
const prototypeMark = '_'<<16 | '_'<<8 | '_'

func mark(name []byte) uint32 {
	switch n := len(name); n {
	case 0:
		return 0
	case 1:
		return uint32(name[0])
	default:
		return uint32(name[0])<<16 | uint32(name[n-2])<<8 | uint32(name[n-1])
	}
}

// lastName returns the name that was read last, without quotes and escapes. It
// is valid until the next one is read.
func (s *scanner) lastName() []byte { return s.spelled(s.names[len(s.names)-1]) }

func (s *scanner) spelled(n memberName) []byte {
	if n.escaped {
		return s.unquoted[n.start:n.end]
	}
	return s.data[n.start:n.end]
}

func (s *scanner) distinct(names []memberName) bool {
	if len(names) > 64 {
		return s.distinctMany(names)
	}
	// A name whose bit was not yet seen is a new one.
	var seen uint64
	for i := range names {
		bit := uint64(1) << (names[i].mark * 0x9e3779b1 >> 26)
		if seen&bit != 0 && s.contains(names[:i], names[i]) {
			return false
		}
		seen |= bit
	}
	return true
}

func (s *scanner) contains(names []memberName, n memberName) bool {
	for i := range names {
		if names[i].mark == n.mark && bytes.Equal(s.spelled(names[i]), s.spelled(n)) {
			return true
		}
	}
	return false
}

// distinctMany is distinct for many names. It takes time in proportion to their
// number, whatever they are.
func (s *scanner) distinctMany(names []memberName) bool {
	seed := maphash.MakeSeed()
	size := uint64(1) << bits.Len(uint(2*len(names)))
	slots, mask := make([]int, size), size-1
	for i := range names {
		text := s.spelled(names[i])
		at := maphash.Bytes(seed, text) & mask
		for ; slots[at] > 0; at = (at + 1) & mask {
			if bytes.Equal(s.spelled(names[slots[at]-1]), text) {
				return false
			}
		}
		slots[at] = i + 1
	}
	return true
}
