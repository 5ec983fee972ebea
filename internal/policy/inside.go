package policy

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A textIndex finds rules by a text that is somewhere in a name. It reads a name
// once, whatever the number of texts: Aho and Corasick describe how.
type textIndex struct {
	begin [256]int32     // the state after the first byte of a text; zero if none begins so
	next  map[edge]int32 // the state after one more byte
	at    []state        // the first one is that of no text
}

// An edge leads from a state to another one by a byte.
type edge struct {
	from int32
	by   byte
}

// A state is the beginning of some of the texts: the longest with which what has been
// read of a name ends.
type state struct {
	last    edge
	depth   int
	shorter int32 // the state of the next longest
	ending  int32 // the next one of the shorter ones at which a text ends; zero if there is none
	rules   []int // those whose text ends here, in ascending order
}

func newTextIndex() textIndex {
	return textIndex{next: map[edge]int32{}, at: make([]state, 1)}
}

// add lets rule i be found by a text. Rules are added in ascending order.
func (x *textIndex) add(text string, i int) {
	from := int32(0)
	for _, b := range []byte(text) {
		e := edge{from, b}
		to, known := x.step(e)
		if !known {
			to = int32(len(x.at)) //nolint:gosec // as many as there are bytes in a configuration
			x.at = append(x.at, state{last: e, depth: x.at[from].depth + 1})
			if from == 0 {
				x.begin[b] = to
			} else {
				x.next[e] = to
			}
		}
		from = to
	}
	x.at[from].rules = append(x.at[from].rules, i)
}

func (x *textIndex) step(e edge) (to int32, known bool) {
	if e.from == 0 {
		return x.begin[e.by], x.begin[e.by] != 0
	}
	to, known = x.next[e]
	return to, known
}

// link finds out how each state goes on with a byte that none of its texts has.
func (x *textIndex) link() {
	byDepth := make([]int32, len(x.at))
	for i := range byDepth {
		byDepth[i] = int32(i)
	}
	slices.SortStableFunc(byDepth, func(a, b int32) int { return cmp.Compare(x.at[a].depth, x.at[b].depth) })
	for _, i := range byDepth {
		s := &x.at[i]
		if s.depth < 2 {
			continue
		}
		s.shorter = x.follow(x.at[s.last.from].shorter, s.last.by)
		if s.ending = s.shorter; len(x.at[s.shorter].rules) == 0 {
			s.ending = x.at[s.shorter].ending
		}
	}
}

// follow returns the state after one more byte of a name.
func (x *textIndex) follow(from int32, by byte) int32 {
	for {
		to, known := x.step(edge{from, by})
		if known || from == 0 {
			return to
		}
		from = x.at[from].shorter
	}
}

// visit calls found with the rules of each text that is in name.
func (x *textIndex) visit(name string, found func(rules []int)) {
	if len(x.at) == 1 {
		return
	}
	now := int32(0)
	for i := range len(name) {
		now = x.follow(now, name[i])
		for s := now; s != 0; s = x.at[s].ending {
			if rules := x.at[s].rules; len(rules) > 0 {
				found(rules)
			}
		}
	}
}

// longestText returns the longest text that is in every name that g matches.
func (g *glob) longestText() string {
	longest := ""
	for start := range g.tokens {
		if text := literalPrefix(g.tokens[start:]); len(text) > len(longest) && !containsInvalid(text) {
			longest = text
		}
	}
	return longest
}

// texts returns the texts of g, apart from each other. A pattern that covers g has none
// that is not in them.
func (g *glob) texts() string {
	const apart = "\xff" // no text has this byte
	var b strings.Builder
	for _, t := range g.tokens {
		if t.isLiteral() {
			b.WriteRune(t.ranges[0].from)
		} else {
			b.WriteString(apart)
		}
	}
	return b.String()
}

// containsInvalid reports whether text has the character that stands for every byte
// that is none: a name may have such a byte in its place.
func containsInvalid(text string) bool {
	for _, r := range text {
		if r == utf8.RuneError {
			return true
		}
	}
	return false
}
