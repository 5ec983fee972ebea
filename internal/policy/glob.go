package policy

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// A glob is a pattern for whole names, case-sensitive and by code points: *
// stands for any text, slashes included, ? for one character, [a-z] for one of
// a class, [!a-z] for one outside of it, and a backslash takes the special
// meaning from what follows it.
//
// Between two stars a pattern has a fixed number of characters, so the leftmost
// place where they fit is as good as any. Matching therefore never goes back,
// and takes no longer than the product of both lengths.
type glob struct {
	parts  []part  // what stands between the stars; one part if there is no star
	tokens []token // the whole pattern, for [glob.covers]
	start  string  // what every name that it matches begins with
}

// A part is a run of tokens without a star.
type part struct {
	text   string // if tokens is nil
	tokens []token
}

// A token stands for one character, or if it is a star for any text.
type token struct {
	star    bool
	outside bool        // it stands for the characters that are in none of ranges
	ranges  []runeRange // a literal is a range of one
}

type runeRange struct{ from, to rune }

var anyRune = token{outside: true}

func literal(r rune) token { return token{ranges: []runeRange{{r, r}}} }

func (t token) isLiteral() bool {
	if t.outside || t.star || t.ranges[0].from != t.ranges[0].to {
		return false
	}
	return !slices.ContainsFunc(t.ranges, func(r runeRange) bool { return r != t.ranges[0] }) // [aa] is a
}

func (t token) match(r rune) bool {
	in := slices.ContainsFunc(t.ranges, func(x runeRange) bool { return x.from <= r && r <= x.to })
	return in != t.outside
}

// compileGlob refuses what a reader could take for something that it is not.
func compileGlob(pattern string) (glob, error) {
	if pattern == "" {
		return glob{}, errors.New("an empty pattern matches nothing")
	}
	if !utf8.ValidString(pattern) {
		return glob{}, errors.New("the pattern is not valid UTF-8")
	}
	var tokens []token
	for rest := []rune(pattern); len(rest) > 0; {
		t, n, err := nextToken(rest)
		if err != nil {
			return glob{}, err
		}
		tokens, rest = append(tokens, t), rest[n:]
	}
	tokens = normal(tokens)
	return glob{parts: split(tokens), tokens: tokens, start: literalPrefix(tokens)}, nil
}

// nextToken returns the first token of pattern and how many characters it takes.
func nextToken(pattern []rune) (token, int, error) {
	switch c := pattern[0]; c {
	case '*':
		return token{star: true}, 1, nil
	case '?':
		return anyRune, 1, nil
	case '[':
		return class(pattern)
	case ']', '{', '}':
		return token{}, 0, errors.New(escapeHint(c))
	default:
		r, n, err := character(pattern)
		return literal(r), n, err
	}
}

// escapeHint says how a pattern must spell a character that has a meaning.
func escapeHint(c rune) string {
	return "write `\\" + string(c) + "` for a literal `" + string(c) + "`"
}

// character returns the first character of pattern, which may be escaped.
func character(pattern []rune) (rune, int, error) {
	if len(pattern) == 0 {
		return 0, 0, errors.New("unclosed `[`; write `\\[` for a literal bracket")
	}
	if pattern[0] != '\\' {
		return pattern[0], 1, nil
	}
	if len(pattern) == 1 {
		return 0, 0, errors.New("trailing backslash; write two for a literal one")
	}
	return pattern[1], 2, nil
}

// class reads a token that begins with a bracket.
func class(pattern []rune) (token, int, error) {
	var t token
	i := 1
	if i < len(pattern) && pattern[i] == '!' {
		t.outside, i = true, 2
	}
	for i >= len(pattern) || pattern[i] != ']' {
		if i < len(pattern) && strings.ContainsRune("[!^-", pattern[i]) {
			return token{}, 0, errors.New("inside brackets, " + escapeHint(pattern[i]))
		}
		r, n, err := classRange(pattern[min(i, len(pattern)):])
		if err != nil {
			return token{}, 0, err
		}
		t.ranges = append(t.ranges, r)
		i += n
	}
	if len(t.ranges) == 0 {
		return token{}, 0, errors.New("nothing inside the brackets")
	}
	return t, i + 1, nil
}

func classRange(pattern []rune) (runeRange, int, error) {
	from, n, err := character(pattern)
	if err != nil {
		return runeRange{}, 0, err
	}
	if n >= len(pattern) || pattern[n] != '-' {
		return runeRange{from, from}, n, nil
	}
	to, m, err := character(pattern[n+1:])
	if err != nil {
		return runeRange{}, 0, err
	}
	if to < from || m == 1 && to == ']' {
		return runeRange{}, 0, errors.New("invalid range inside brackets")
	}
	return runeRange{from, to}, n + 1 + m, nil
}

// normal writes every run of stars and question marks in one way, with the
// question marks first and at most one star.
func normal(tokens []token) []token {
	var out []token
	star := false
	for _, t := range tokens {
		if star && !t.star && !t.same(anyRune) {
			out, star = append(out, token{star: true}), false
		}
		if t.star {
			star = true
		} else {
			out = append(out, t)
		}
	}
	if star {
		out = append(out, token{star: true})
	}
	return out
}

func (t token) same(u token) bool {
	return t.star == u.star && t.outside == u.outside && slices.Equal(t.ranges, u.ranges)
}

func split(tokens []token) []part {
	var parts []part
	start := 0
	for i, t := range tokens {
		if t.star {
			parts, start = append(parts, newPart(tokens[start:i])), i+1
		}
	}
	return append(parts, newPart(tokens[start:]))
}

func newPart(tokens []token) part {
	prefix := literalPrefix(tokens)
	if utf8.RuneCountInString(prefix) == len(tokens) {
		return part{text: prefix}
	}
	return part{tokens: tokens}
}

func literalPrefix(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		if t.star || !t.isLiteral() {
			break
		}
		b.WriteRune(t.ranges[0].from)
	}
	return b.String()
}

// exact returns the one name that g matches, if it is one.
func (g *glob) exact() (string, bool) {
	return g.parts[0].text, len(g.parts) == 1 && g.parts[0].tokens == nil
}

func (g *glob) match(name string) bool {
	name, ok := g.parts[0].cutPrefix(name)
	if len(g.parts) == 1 {
		return ok && name == ""
	}
	last := len(g.parts) - 1
	if ok {
		name, ok = g.parts[last].cutSuffix(name)
	}
	for i := 1; ok && i < last; i++ {
		name, ok = g.parts[i].cut(name)
	}
	return ok
}

func (p *part) cutPrefix(name string) (string, bool) {
	if p.tokens == nil {
		return strings.CutPrefix(name, p.text)
	}
	for _, t := range p.tokens {
		r, n := utf8.DecodeRuneInString(name)
		if n == 0 || !t.match(r) {
			return name, false
		}
		name = name[n:]
	}
	return name, true
}

func (p *part) cutSuffix(name string) (string, bool) {
	if p.tokens == nil {
		return strings.CutSuffix(name, p.text)
	}
	end := len(name)
	for range p.tokens {
		_, n := utf8.DecodeLastRuneInString(name[:end])
		end -= n
	}
	rest, ok := p.cutPrefix(name[end:])
	return name[:end], ok && rest == ""
}

// cut returns what follows the first place where p fits.
func (p *part) cut(name string) (string, bool) {
	if p.tokens == nil {
		_, after, ok := strings.Cut(name, p.text)
		return after, ok
	}
	for i := range name {
		if rest, ok := p.cutPrefix(name[i:]); ok {
			return rest, true
		}
	}
	return name, false
}

// covers reports whether g matches every name that h matches. It compares the
// patterns token by token, so a true answer is always right and a false one is
// not: it does not see that ?* covers *x*, nor that [a-mn-z] covers [a-z].
func (g *glob) covers(h *glob) bool {
	if !strings.HasPrefix(h.start, g.start) {
		return false
	}
	// fits[j]: the tokens of g so far can stand for the first j tokens of h. A
	// star of h, which stands for any text, needs a star of g.
	fits := make([]bool, len(h.tokens)+1)
	fits[0] = true
	for _, t := range g.tokens {
		if t.star {
			for j := range h.tokens {
				fits[j+1] = fits[j+1] || fits[j]
			}
			continue
		}
		for j := len(h.tokens); j > 0; j-- {
			fits[j] = fits[j-1] && t.covers(h.tokens[j-1])
		}
		fits[0] = false
	}
	return fits[len(h.tokens)]
}

func (t token) covers(u token) bool {
	switch {
	case u.star:
		return false
	case t.same(anyRune) || t.same(u):
		return true
	case u.outside:
		return false
	default:
		return !slices.ContainsFunc(u.ranges, func(r runeRange) bool { return !t.coversRange(r) })
	}
}

func (t token) coversRange(r runeRange) bool {
	if t.outside {
		return !slices.ContainsFunc(t.ranges, func(x runeRange) bool { return x.from <= r.to && r.from <= x.to })
	}
	return slices.ContainsFunc(t.ranges, func(x runeRange) bool { return x.from <= r.from && r.to <= x.to })
}
