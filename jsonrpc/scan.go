package jsonrpc

import (
	"bytes"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads and validates JSON from left to right. It is written by hand for speed, since
// it reads every call; tests compare it with a general decoder, which takes up to three times
// as long.
//
// Its methods take a start position and return the end position, or a negative one for invalid
// input.
type scanner struct {
	data           []byte
	base           int // position of data in the message
	maxDepth       int
	open           []int        // enclosing arrays and objects, outermost first
	names          []memberName // earlier member names in those objects
	unquoted       []byte       // the unescaped names among them
	hasPrototype   bool         // a member is called __proto__
	hasNULName     bool         // a name contains U+0000
	syntax         *ParseError  // first JSON error
	invalidMessage *ParseError  // first JSON-RPC error; counts only without a JSON error
}

var scanners = sync.Pool{New: func() any {
	return &scanner{open: make([]int, 0, 32), names: make([]memberName, 0, 32)}
}}

func newScanner(data []byte, base, depth int) *scanner {
	s := scanners.Get().(*scanner)
	s.data, s.base, s.maxDepth = data, base, depth
	return s
}

func (s *scanner) release() {
	if max(cap(s.open), cap(s.names), cap(s.unquoted)) > 1024 {
		return
	}
	*s = scanner{open: s.open[:0], names: s.names[:0], unquoted: s.unquoted[:0]}
	scanners.Put(s)
}

func (s *scanner) fail(reason string) int {
	if s.syntax == nil {
		s.syntax = &ParseError{Code: CodeParse, Reason: reason}
	}
	return -1
}

const incomplete = "incomplete JSON"

// unexpected reports the byte at i as invalid.
func (s *scanner) unexpected(i int) int {
	if i >= len(s.data) {
		return s.fail(incomplete)
	}
	return s.fail("not valid JSON")
}

// at returns the byte at i, or 0 at the end, which begins no token.
func (s *scanner) at(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

// space skips white space.
func (s *scanner) space(i int) int {
	for i < len(s.data) && s.data[i] <= ' ' && isSpace(s.data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// value returns the next value.
func (s *scanner) value(i int) (Value, int) {
	start := s.space(i)
	end := s.skip(start)
	if end < 0 {
		return Value{}, end
	}
	return s.between(start, end), end
}

func (s *scanner) between(start, end int) Value {
	return Value{Bytes: s.data[start:end:end], Offset: s.base + start}
}

// skip moves past the next value.
func (s *scanner) skip(i int) int {
	i = s.space(i)
	if c := s.at(i); c != '{' && c != '[' {
		return s.scalar(i)
	}
	return s.nest(i)
}

// nest moves past an object or array. It is a loop instead of a recursion because that is
// faster on deep input.
func (s *scanner) nest(i int) int {
	around := len(s.open)
	i, more := s.enter(i)
	for i >= 0 && len(s.open) > around {
		if !more {
			i, more = s.next(i)
			continue
		}
		if s.open[len(s.open)-1] != inArray {
			if i = s.name(i); i < 0 {
				return i
			}
		}
		i = s.space(i)
		if c := s.at(i); c == '{' || c == '[' {
			i, more = s.enter(i)
		} else {
			i, more = s.next(s.scalar(i))
		}
	}
	return i
}

// inArray marks an array in scanner.open. For an object, open has the number of names before
// it.
const inArray = -1

// enter moves past the opening bracket, and reports whether an item follows. If none does, it
// also moves past the closing bracket.
func (s *scanner) enter(i int) (int, bool) {
	closing := s.data[i] + 2 // in ASCII, both kinds of brackets are two apart
	if i = s.push(i); i < 0 {
		return i, false
	}
	if i = s.space(i); s.at(i) == closing {
		s.open = s.open[:len(s.open)-1]
		return i + 1, false
	}
	return i, true
}

// push moves past the opening bracket.
func (s *scanner) push(i int) int {
	if len(s.open) >= s.maxDepth {
		return s.fail("nested too deeply")
	}
	outer := inArray
	if s.data[i] == '{' {
		outer = len(s.names)
	}
	s.open = append(s.open, outer)
	return i + 1
}

// next moves past the comma or bracket after an item, and reports whether another item follows.
func (s *scanner) next(i int) (int, bool) {
	if i < 0 {
		return i, false
	}
	i = s.space(i)
	last := len(s.open) - 1
	switch c := s.at(i); {
	case c == ',':
		return i + 1, true
	case c == ']' && s.open[last] == inArray:
		s.open = s.open[:last]
		return i + 1, false
	case c == '}' && s.open[last] != inArray:
		return s.leave(i), false
	default:
		return s.unexpected(i), false
	}
}

// leave moves past the end of an object. It refuses duplicate names.
func (s *scanner) leave(i int) int {
	last := len(s.open) - 1
	outer := s.open[last]
	s.open = s.open[:last]
	//mutate:false TestParseRefusesText duplicate names are read
	if !s.distinct(s.names[outer:]) {
		return s.fail("duplicate member name")
	}
	s.names = s.names[:outer]
	return i + 1
}

// scalar moves past a string, number or literal.
func (s *scanner) scalar(i int) int {
	switch s.at(i) {
	case '"':
		i, _ = s.text(i)
		return i
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	default:
		return s.number(i)
	}
}

func (s *scanner) literal(i int, word string) int {
	for k := range len(word) {
		if s.at(i) != word[k] {
			return s.unexpected(i)
		}
		i++
	}
	return i
}

func (s *scanner) number(i int) int {
	if s.at(i) == '-' {
		i++
	}
	if s.at(i) == '0' {
		i++
	} else {
		i = s.digits(i)
	}
	if i >= 0 && s.at(i) == '.' {
		i = s.digits(i + 1)
	}
	if i < 0 || s.at(i)|0x20 != 'e' {
		return i
	}
	if i++; s.at(i) == '+' || s.at(i) == '-' {
		i++
	}
	return s.digits(i)
}

// digits moves past one or more digits.
func (s *scanner) digits(i int) int {
	start := i
	for i < len(s.data) && s.data[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return s.unexpected(i)
	}
	return i
}

// text moves past a string, and reports whether it has escapes.
func (s *scanner) text(i int) (end int, escaped bool) {
	for i++; i >= 0; {
		var short bool
		i, short = skipText(s.data, i)
		escaped = escaped || short
		switch c := s.at(i); {
		case c == '"':
			return i + 1, escaped
		case c == '\\':
			i, escaped = s.escape(i+1), true
		case c >= utf8.RuneSelf:
			i = s.multibyte(i)
		default:
			i = s.unexpected(i)
		}
	}
	return i, escaped
}

// skipText moves past ASCII and short escapes, and reports whether there were escapes.
func skipText(p []byte, i int) (end int, escaped bool) {
	for {
		for i < len(p) && isPlain[p[i]] {
			i++
		}
		if i+1 >= len(p) || p[i] != '\\' || !shortEscapes[p[i+1]] {
			return i, escaped
		}
		i, escaped = i+2, true
	}
}

// isPlain has the ASCII characters that need no escape.
var isPlain = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// shortEscapes has the characters of escapes such as \n.
var shortEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// multibyte moves past non-ASCII characters.
func (s *scanner) multibyte(i int) int {
	start := i
	for s.at(i) >= utf8.RuneSelf {
		i++
	}
	//mutate:false TestParseRefusesText invalid UTF-8 is read
	if !utf8.Valid(s.data[start:i]) {
		return s.fail("not valid UTF-8")
	}
	return i
}

// escape moves past an escape after its backslash. Surrogates must come in pairs.
func (s *scanner) escape(i int) int {
	switch c := s.at(i); {
	case shortEscapes[c]:
		return i + 1
	case c != 'u':
		return s.unexpected(i)
	}
	high, i := s.hex(i + 1)
	if i < 0 || !utf16.IsSurrogate(high) {
		return i
	}
	if !bytes.HasPrefix(s.data[i:], []byte(`\u`)) {
		return s.fail("half of a surrogate pair")
	}
	low, i := s.hex(i + 2)
	if i >= 0 && utf16.DecodeRune(high, low) == utf8.RuneError {
		return s.fail("half of a surrogate pair")
	}
	return i
}

// hex moves past four hexadecimal digits.
func (s *scanner) hex(i int) (rune, int) {
	var r rune
	for range 4 {
		switch c := s.at(i); {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.unexpected(i)
		}
		i++
	}
	return r, i
}
