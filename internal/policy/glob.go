package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A glob is a pattern for whole names, case-sensitive and by code points: * matches any text,
// slashes included; ? one character; [a-z] one of a class; [!a-z] one outside of it. A backslash
// makes the next character literal. Matching takes linear time.
type glob struct {
	longest string // the longest literal text, which is in every matching name
	regexp  *regexp.Regexp

	// For [glob.covers].
	tokens []token // the whole pattern
	start  string  // the literal start of every matching name
	texts  string  // the literal texts, with separators
}

// A token matches one character, or any text if it is a star.
type token struct {
	star    bool
	outside bool        // matches characters outside of ranges
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

// compileGlob compiles a pattern. It rejects patterns that are easily misread.
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
	g := glob{tokens: tokens, texts: literalTexts(tokens)}
	g.start, _, _ = strings.Cut(g.texts, textSeparator)
	for text := range strings.SplitSeq(g.texts, textSeparator) {
		if len(text) > len(g.longest) {
			g.longest = text
		}
	}
	var b strings.Builder
	for _, t := range tokens {
		t.writeRegexp(&b)
	}
	var err error
	g.regexp, err = regexp.Compile(`(?s)\A` + b.String() + `\z`)
	return g, err
}

// nextToken returns the first token of pattern and its length.
func nextToken(pattern []rune) (token, int, error) {
	switch c := pattern[0]; c {
	case '*':
		return token{star: true}, 1, nil
	case '?':
		return anyRune, 1, nil
	case '[':
		return class(pattern)
	case '{', '}':
		return token{}, 0, errors.New("braces are no alternatives: write two rules, or " + escapeHint(c))
	case ']':
		return token{}, 0, errors.New(escapeHint(c))
	default:
		r, n, err := character(pattern)
		return literal(r), n, err
	}
}

// escapeHint explains how to write a special character as a literal.
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

// class parses a token that begins with a bracket.
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

// classRange returns the first range of pattern and its length. pattern is the rest of a class,
// such as `a-z_]`. A single character is a range of one.
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

// normal normalizes runs of stars and question marks: question marks first, then at most one
// star.
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

// writeRegexp writes t as a regular expression.
func (t token) writeRegexp(b *strings.Builder) {
	switch {
	case t.star:
		b.WriteString(".*")
		return
	case t.same(anyRune):
		b.WriteByte('.')
		return
	}
	b.WriteByte('[')
	if t.outside {
		b.WriteByte('^')
	}
	for _, r := range t.ranges {
		fmt.Fprintf(b, `\x{%x}-\x{%x}`, r.from, r.to)
	}
	b.WriteByte(']')
}

const textSeparator = "\xff" // not in UTF-8

func literalTexts(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		if t.isLiteral() {
			b.WriteRune(t.ranges[0].from)
		} else {
			b.WriteString(textSeparator)
		}
	}
	return b.String()
}

func (g *glob) match(name string) bool {
	return strings.Contains(name, g.longest) && g.regexp.MatchString(name)
}

// covers reports whether g matches every name that h matches. It compares tokens, so it may
// return false although g does: ?* covers *x*, and [a-mn-z] covers [a-z].
func (g *glob) covers(h *glob) bool {
	if !strings.HasPrefix(h.start, g.start) || !strings.Contains(h.texts, g.longest) {
		return false
	}
	// fits[j]: the tokens of g so far cover the first j tokens of h. Only a star of g covers a
	// star of h.
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
