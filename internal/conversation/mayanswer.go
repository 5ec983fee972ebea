package conversation

import "bytes"

// MayAnswer reports whether a text, which may be an event as it was received, may
// hold a response for some client: whether a name in it may be "result" or "error",
// for a client that ignores the case of names or reads more than JSON. It is asked
// of every event of a stream, so it looks only at what precedes colons: a name does.
func MayAnswer(text []byte) bool { return valueOf(text, "result", "error") != nil }

// MayReport reports whether a text, which may be an event as it was received, may hold
// a notification about a task for some client.
func MayReport(text []byte) bool {
	if bytes.IndexByte(text, '\\') < 0 && !bytes.Contains(text, []byte(reportMethod)) {
		return false
	}
	for value := valueOf(text, "method"); value != nil; value = valueOf(value, "method") {
		if isReport(value) {
			return true
		}
	}
	return false
}

// reportMethod begins the methods of notifications about tasks.
const reportMethod = "notifications/tasks"

// isReport reports whether text may begin with such a method. If it does not begin with
// a string that has no escapes, it may.
func isReport(text []byte) bool {
	text, quoted := bytes.CutPrefix(bytes.TrimLeft(text, " \t"), []byte(`"`))
	method, _, ends := bytes.Cut(text, []byte(`"`))
	return !quoted || !ends || bytes.IndexByte(method, '\\') >= 0 || bytes.HasPrefix(method, []byte(reportMethod))
}

// valueOf returns what follows the first name in a text, and its colon, that some client
// may read as one of names. It is nil if there is none.
func valueOf(text []byte, names ...string) []byte {
	for colon := 0; ; colon++ {
		n := bytes.IndexByte(text[colon:], ':')
		if n < 0 {
			return nil
		}
		if colon += n; endsWith(text[:colon], names) {
			return text[colon+1:]
		}
	}
}

// endsWith reports whether text, which a colon follows, may end with one of
// the names. If it is not clear where a name ends or what it spells, it may.
func endsWith(text []byte, names []string) bool {
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
	return spells(text[:end], names)
}

// isEscaped reports whether what follows text is escaped.
func isEscaped(text []byte) bool {
	n := 0
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// The kinds of bytes in a name.
const (
	otherByte  = iota // it is not part of a name
	letterByte        // a letter, or a byte of an escape
	anyLetter         // it begins an escape or a letter that is not of ASCII, which may be any letter
)

var nameBytes = func() (kinds [256]byte) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789{}") {
		kinds[c] = letterByte
	}
	kinds['\\'] = anyLetter
	for c := 0x80; c < len(kinds); c++ {
		kinds[c] = anyLetter
	}
	return kinds
}()

// spells reports whether the name at the end of text may be one of names.
func spells(text []byte, names []string) bool {
	start := len(text)
	for ; start > 0; start-- {
		kind := nameBytes[text[start-1]]
		if kind == anyLetter {
			return true
		}
		if kind == otherByte {
			break
		}
	}
	for _, name := range names {
		if hasSuffixFold(text[start:], name) {
			return true
		}
	}
	return false
}

func hasSuffixFold(name []byte, word string) bool {
	return len(name) >= len(word) && bytes.EqualFold(name[len(name)-len(word):], []byte(word))
}
