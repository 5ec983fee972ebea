package conversation

import "bytes"

// MayAnswer reports whether a text, which may be an event as it was received, may
// hold a response for some client: whether a name in it may be "result" or "error",
// for a client that ignores the case of names or reads more than JSON. It is asked
// of every event of a stream, so it looks only at what precedes colons: a name does.
func MayAnswer(text []byte) bool {
	for colon := 0; ; colon++ {
		n := bytes.IndexByte(text[colon:], ':')
		if n < 0 {
			return false
		}
		if colon += n; endsWithOutcome(text[:colon]) {
			return true
		}
	}
}

// endsWithOutcome reports whether text, which a colon follows, may end with one of
// the names. If it is not clear where a name ends or what it spells, it may.
func endsWithOutcome(text []byte) bool {
	end := len(text)
	for end > 0 && text[end-1] <= ' ' {
		end--
	}
	if end == 0 {
		return false
	}
	switch last := text[end-1]; {
	case last == ':', last == '/', last >= 0x80: // another line of the same event, a comment, a space that is not of ASCII
		return true
	case last == '"', last == '\'':
		if end--; isEscaped(text[:end]) {
			return false // the quote is part of a string
		}
	}
	return spellsOutcome(nameAt(text[:end]))
}

// isEscaped reports whether what follows text is escaped.
func isEscaped(text []byte) bool {
	n := 0
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// nameAt returns the letters at the end of text, and what may stand for letters.
func nameAt(text []byte) []byte {
	start := len(text)
	for start > 0 {
		c := text[start-1]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c >= 0x80 || c == '\\' || c == '{' || c == '}'
		if !letter {
			break
		}
		start--
	}
	return text[start:]
}

// spellsOutcome reports whether a name may be one of the two. Escapes, and letters
// that are not of ASCII, may be any letter.
func spellsOutcome(name []byte) bool {
	for _, c := range name {
		if c == '\\' || c >= 0x80 {
			return true
		}
	}
	return hasSuffixFold(name, "result") || hasSuffixFold(name, "error")
}

func hasSuffixFold(name []byte, word string) bool {
	return len(name) >= len(word) && bytes.EqualFold(name[len(name)-len(word):], []byte(word))
}
