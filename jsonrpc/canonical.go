package jsonrpc

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxCanonicalDepth bounds the recursion of [Value.AppendCanonical].
const maxCanonicalDepth = 1000

// AppendCanonical appends v in a form that does not depend on how it was
// written: the members of objects in the order of their names, no white space,
// and strings with as few escapes as possible. Numbers stay as they were
// written, since a reader may tell 1, 1.0 and 1e0 apart. The members of v itself
// that are named in without are left out. It reports false if an object has two
// members of the same name, or v is nested too deeply.
func (v Value) AppendCanonical(dst []byte, without ...string) ([]byte, bool) {
	c := canonicalizer{scanner: newScanner(v.Bytes, v.Offset, maxCanonicalDepth), out: dst, without: without}
	defer c.release()
	if c.value(0) < 0 {
		return dst, false
	}
	return c.out, true
}

// A canonicalizer appends to out the canonical form of what its scanner reads.
// Its methods return places as those of a scanner do.
type canonicalizer struct {
	*scanner

	out     []byte
	without []string // names of members of the outermost object
}

func (c *canonicalizer) value(i int) int {
	i = c.space(i)
	switch c.at(i) {
	case '{':
		return c.object(i)
	case '[':
		return c.array(i)
	case '"':
		return c.string(i)
	default:
		end := c.scalar(i)
		if end >= 0 {
			c.out = append(c.out, c.data[i:end]...)
		}
		return end
	}
}

// string appends a string. One without escapes needs none.
func (c *canonicalizer) string(i int) int {
	end, escaped := c.text(i)
	switch {
	case end < 0:
	case escaped:
		text, _ := jsontext.AppendUnquote(nil, c.data[i:end]) // was checked by the scanner
		c.out = AppendString(c.out, string(text))
	default:
		c.out = append(c.out, c.data[i:end]...)
	}
	return end
}

func (c *canonicalizer) array(i int) int {
	c.out = append(c.out, '[')
	i, more := c.enter(i)
	for more {
		if i = c.value(i); i < 0 {
			return i
		}
		if i, more = c.next(i); more {
			c.out = append(c.out, ',')
		}
	}
	c.out = append(c.out, ']')
	return i
}

// A writtenMember is a member as it stands in the output, with a comma after it.
type writtenMember struct {
	name       string
	start, end int
}

func (c *canonicalizer) object(i int) int {
	c.out = append(c.out, '{')
	var members []writtenMember
	i, more := c.enter(i)
	for more {
		if i = c.name(i); i < 0 {
			return i
		}
		m := writtenMember{name: string(c.lastName()), start: len(c.out)}
		c.out = append(AppendString(c.out, m.name), ':')
		if i = c.value(i); i < 0 {
			return i
		}
		c.out = append(c.out, ',')
		m.end = len(c.out)
		if len(c.open) == 1 && slices.Contains(c.without, m.name) {
			c.out = c.out[:m.start]
		} else {
			members = append(members, m)
		}
		i, more = c.next(i)
	}
	c.order(members)
	if len(members) > 0 {
		c.out = c.out[:len(c.out)-1]
	}
	c.out = append(c.out, '}')
	return i
}

// order puts members, which are the end of the output, in the order of their
// names.
func (c *canonicalizer) order(members []writtenMember) {
	byName := func(a, b writtenMember) int { return strings.Compare(a.name, b.name) }
	if slices.IsSortedFunc(members, byName) {
		return
	}
	start := members[0].start
	written := slices.Clone(c.out[start:])
	slices.SortStableFunc(members, byName)
	c.out = c.out[:start]
	for _, m := range members {
		c.out = append(c.out, written[m.start-start:m.end-start]...)
	}
}
