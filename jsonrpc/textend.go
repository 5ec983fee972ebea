package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// textEnd returns where a string ends, of which p is the rest, behind its
// quote. Bytes before the place n do not end it. If the end is not in p, it
// reports whether the next byte is escaped.
//
// Strings are short, or long with few quotes in them, or hold JSON, with an escaped
// quote in every few bytes. So it looks at eight bytes at a time, and searches for the
// next quote if they have none.
func textEnd(p []byte, n int) (end int, closed, escapes bool) {
	i := n
	for i+8 <= len(p) {
		word := binary.LittleEndian.Uint64(p[i:])
		near := firstQuote(word)
		if near == 8 {
			far := bytes.IndexByte(p[i+8:], '"')
			if far < 0 {
				return len(p), false, endsEscaping(p[n:])
			}
			if i += 8 + far; !endsEscaping(p[n:i]) {
				return i + 1, true, false
			}
			i++
			continue
		}
		if quote := i + near; quote == n || p[quote-1] != '\\' {
			return quote + 1, true, false
		}
		if at := closingQuote(word, escapedFirst(p[n:i])); at < 8 {
			return i + at + 1, true, false
		}
		i += 8
	}
	var rest [8]byte
	copy(rest[:], p[i:])
	if at := closingQuote(binary.LittleEndian.Uint64(rest[:]), escapedFirst(p[n:i])); at < 8 {
		return i + at + 1, true, false
	}
	return len(p), false, endsEscaping(p[n:])
}

// endsEscaping reports whether what follows p in a string is escaped.
func endsEscaping(p []byte) bool {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// escapedFirst returns the high bit of the first byte of a word that follows p in a
// string, if that byte is escaped, and else 0.
func escapedFirst(p []byte) uint64 {
	if endsEscaping(p) {
		return 0x80
	}
	return 0
}

// firstQuote returns which of the eight bytes of a word, the lowest first, is the first
// quote, or 8. A borrow can only spoil the bits above a true one.
func firstQuote(word uint64) int {
	quotes := word ^ eachByte*'"' // as zero bytes
	return bits.TrailingZeros64((quotes-eachByte)&^quotes&highBits) / 8
}

// closingQuote returns which of the eight bytes is the first quote that is not escaped,
// or 8. The high bits of bytes that are escaped by what precedes the word are given.
func closingQuote(word, escaped uint64) int {
	quotes := zeroBytes(word^eachByte*'"') &^ escaped
	slashes := zeroBytes(word^eachByte*'\\') &^ escaped
	if slashes&(slashes<<8) != 0 {
		slashes = withoutEscaped(slashes)
	}
	return bits.TrailingZeros64(quotes&^(slashes<<8)) / 8
}

// zeroBytes returns a word with the high bit of each byte that is zero in the given one.
func zeroBytes(word uint64) uint64 {
	return ^(word | (word&^highBits + ^uint64(highBits))) & highBits
}

// withoutEscaped returns the backslashes that escape what follows them: of each two
// in a row, the first.
func withoutEscaped(slashes uint64) (escaping uint64) {
	for slashes != 0 {
		first := slashes & -slashes
		escaping |= first
		slashes &^= first | first<<8
	}
	return escaping
}
