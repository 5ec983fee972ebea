package jsonrpc

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxCanonicalDepth bounds the recursion of [Value.AppendCanonical].
const maxCanonicalDepth = 1000

// AppendCanonical appends v in canonical form: members sorted by name, no white space, and
// minimal escapes in strings. Numbers keep their spelling, since a reader may distinguish 1,
// 1.0 and 1e0. It omits the members of v that without names. It reports false if an object
// repeats a name or v is nested too deeply.
func (v Value) AppendCanonical(dst []byte, without ...string) ([]byte, bool) {
	c := canonicalizer{scanner: newScanner(v.Bytes, v.Offset, maxCanonicalDepth), out: dst, without: without}
	defer c.scanner.release()
	if c.value(0) < 0 {
		return dst, false
	}
	return c.out, true
}

// A canonicalizer appends the canonical form of the scanner's input to out. Its methods return
// positions as the scanner does.
type canonicalizer struct {
	scanner *scanner
	out     []byte
	without []string // member names to omit from the outermost object
}

func (c *canonicalizer) value(i int) int {
	i = c.scanner.space(i)
	switch c.scanner.at(i) {
	case '{':
		return c.object(i)
	case '[':
		return c.array(i)
	case '"':
		return c.string(i)
	default:
		end := c.scanner.scalar(i)
		if end >= 0 {
			c.out = append(c.out, c.scanner.data[i:end]...)
		}
		return end
	}
}

// string appends a string. A string without escapes is already canonical.
func (c *canonicalizer) string(i int) int {
	end, escaped := c.scanner.text(i)
	switch {
	case end < 0:
	case escaped:
		text, _ := jsontext.AppendUnquote(nil, c.scanner.data[i:end]) // cannot fail: the scanner checked it
		c.out = AppendString(c.out, string(text))
	default:
		c.out = append(c.out, c.scanner.data[i:end]...)
	}
	return end
}

func (c *canonicalizer) array(i int) int {
	c.out = append(c.out, '[')
	i, more := c.scanner.enter(i)
	for more {
		if i = c.value(i); i < 0 {
			return i
		}
		if i, more = c.scanner.next(i); more {
			c.out = append(c.out, ',')
		}
	}
	c.out = append(c.out, ']')
	return i
}

// A writtenMember is the range of a member in the output, including the comma after it.
type writtenMember struct {
	name       string
	start, end int
}

func (c *canonicalizer) object(i int) int {
	c.out = append(c.out, '{')
	var members []writtenMember
	i, more := c.scanner.enter(i)
	for more {
		if i = c.scanner.name(i); i < 0 {
			return i
		}
		m := writtenMember{name: string(c.scanner.lastName()), start: len(c.out)}
		c.out = append(AppendString(c.out, m.name), ':')
		if i = c.value(i); i < 0 {
			return i
		}
		c.out = append(c.out, ',')
		m.end = len(c.out)
		if len(c.scanner.open) == 1 && slices.Contains(c.without, m.name) {
			c.out = c.out[:m.start]
		} else {
			members = append(members, m)
		}
		i, more = c.scanner.next(i)
	}
	c.order(members)
	if len(members) > 0 {
		c.out = c.out[:len(c.out)-1]
	}
	c.out = append(c.out, '}')
	return i
}

// order sorts members, which are at the end of the output, by name.
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
