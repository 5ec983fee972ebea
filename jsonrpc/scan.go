package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner walks over JSON once, from left to right, and checks it on the way.
// It is written by hand because every call that passes is read by it; tests
// hold it against a general decoder, which takes up to three times as long.
//
// Its methods take the place where they begin and return the place where they
// ended, or one that is negative when they have refused what they found.
type scanner struct {
	data     []byte
	base     int // where data begins in what offsets are counted from
	maxDepth int
	open     []int        // the arrays and objects around the current place, outermost first
	names    []memberName // of the members of those objects that came before it
	unquoted []byte       // those of the names that have escapes, without them
	inherits bool         // whether a member is called __proto__
	cut      bool         // whether a name has U+0000 in it
	syntax   *ParseError  // why data is refused
	shape    *ParseError  // why a message in it is no JSON-RPC; counts if syntax is nil
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

// unexpected refuses the byte at i.
func (s *scanner) unexpected(i int) int {
	if i >= len(s.data) {
		return s.fail(incomplete)
	}
	return s.fail("not valid JSON")
}

// at returns the byte at i, and 0, which no token begins with, at the end.
func (s *scanner) at(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

// space moves past white space.
func (s *scanner) space(i int) int {
	for i < len(s.data) && s.data[i] <= ' ' && isSpace(s.data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// value moves past the next value and returns it.
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

// nest moves past an object or an array. It is a loop and no recursion, for a
// processor foresees the way back from only a few levels of calls.
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

// inArray stands for an array in scanner.open. An object is there as the number
// of names that came before its own.
const inArray = -1

// enter moves past the bracket that opens an object or an array, and reports
// whether an item follows. If none does, it moves past the closing bracket too.
func (s *scanner) enter(i int) (int, bool) {
	closing := s.data[i] + 2 // both pairs of brackets are two apart
	if i = s.push(i); i < 0 {
		return i, false
	}
	if i = s.space(i); s.at(i) == closing {
		s.open = s.open[:len(s.open)-1]
		return i + 1, false
	}
	return i, true
}

// push moves past the bracket that opens an object or an array.
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

// next moves past what follows an item of the innermost object or array, and
// reports whether another item follows.
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

// leave moves past the end of the innermost object, and refuses the object if
// two of its names are the same.
func (s *scanner) leave(i int) int {
	last := len(s.open) - 1
	outer := s.open[last]
	s.open = s.open[:last]
	if !s.distinct(s.names[outer:]) {
		return s.fail("duplicate member name")
	}
	s.names = s.names[:outer]
	return i + 1
}

// scalar moves past a value that is no object and no array.
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

// digits moves past one digit or more.
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

// text moves past a string and reports whether it has escapes.
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

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// special returns a word whose lowest high bit marks the first of eight bytes that
// is not ASCII or does not stand for itself in a string. It is 0 if all do. A high
// bit says in turn: not ASCII, a control character, a quote, a backslash. A borrow
// can only spoil the bits above a true one.
func special(w uint64) uint64 {
	quotes, backslashes := w^eachByte*'"', w^eachByte*'\\' // as zero bytes
	return (w | (w - eachByte*' ') | (quotes - eachByte) | (backslashes - eachByte)) & highBits
}

// plainLen returns how many bytes at the start of p are ASCII and stand for
// themselves in a string. It looks at eight at a time.
func plainLen(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		if found := special(binary.LittleEndian.Uint64(p[i:])); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(p) && isPlain(p[i]) {
		i++
	}
	return i
}

func isPlain(c byte) bool { return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' }

// skipText moves past ASCII and escapes of one letter, which is most of a string, and
// reports whether there were escapes.
func skipText(p []byte, i int) (end int, escaped bool) {
	for i+8 <= len(p) {
		found := special(binary.LittleEndian.Uint64(p[i:]))
		if found == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(found) / 8
		if p[i] != '\\' || i+1 == len(p) || !shortEscapes[p[i+1]] {
			return i, escaped
		}
		i, escaped = i+2, true
	}
	for i < len(p) {
		switch {
		case isPlain(p[i]):
			i++
		case p[i] == '\\' && i+1 < len(p) && shortEscapes[p[i+1]]:
			i, escaped = i+2, true
		default:
			return i, escaped
		}
	}
	return i, escaped
}

// shortEscapes are the bytes that are an escape behind a backslash.
var shortEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// multibyte moves past characters of more than one byte.
func (s *scanner) multibyte(i int) int {
	for s.at(i) >= utf8.RuneSelf {
		if c := s.data[i]; c >= 0xc2 && c < 0xe0 && s.at(i+1)&0xc0 == utf8.RuneSelf { // two bytes, as in most of Europe
			i += 2
			continue
		}
		r, n := utf8.DecodeRune(s.data[i:])
		if r == utf8.RuneError && n == 1 {
			return s.fail("not valid UTF-8")
		}
		i += n
	}
	return i
}

// escape moves past what follows a backslash. A surrogate must be half of a pair.
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
