package conversation

import "bytes"

// Signs are what a text may hold for some client, one that ignores the case of names or
// reads more than JSON.
type Signs struct {
	Answer bool // a response: a name in it may be "result" or "error"
	Report bool // a notification about a task: the value of "method" may be that of one
	Relate bool // a message that relates to a task: a name in it may end with "task"
}

// Look returns the signs of a text, which may be an event as it was received. It is asked
// of every event of a stream, so it looks only at what precedes colons, as a name does.
func Look(text []byte) Signs {
	return look(text, func(found Signs) bool { return found == Signs{Answer: true, Report: true, Relate: true} })
}

// MayAnswer reports whether a text may hold a response for some client; see [Look].
func MayAnswer(text []byte) bool {
	return look(text, func(found Signs) bool { return found.Answer }).Answer
}

// look looks for signs until it has found enough.
func look(text []byte, enough func(Signs) bool) (found Signs) {
	for next := 0; ; {
		n := bytes.IndexByte(text[next:], ':')
		if n < 0 {
			return found
		}
		colon := next + n
		next = colon + 1
		name, known := nameBefore(text[:colon])
		if known && !mayMatter(name) {
			continue
		}
		if found.add(name, known, text[next:]); enough(found) {
			return found
		}
	}
}

// add takes note of a name, if it is known, and of the value behind it.
func (s *Signs) add(name []byte, known bool, value []byte) {
	s.Answer = s.Answer || !known || isOutcome(name)
	s.Report = s.Report || (!known || hasSuffixFold(name, "method")) && isReport(value)
	s.Relate = s.Relate || !known || hasSuffixFold(name, "task")
}

// mayMatter reports whether a name may be one of those that add looks for. Few other names
// end as they do.
func mayMatter(name []byte) bool {
	if len(name) < len("task") {
		return false
	}
	switch name[len(name)-1] | 0x20 { // in lower case
	case 't', 'r', 'd', 'k':
		return true
	default:
		return false
	}
}

// nameBefore returns the name that a colon behind text belongs to. It is not known if it
// cannot be seen where the name ends or what it spells.
func nameBefore(text []byte) (name []byte, known bool) {
	end := len(text)
	for end > 0 && text[end-1] <= ' ' {
		end--
	}
	if end == 0 {
		return nil, true
	}
	switch last := text[end-1]; {
	case last == ':', last == '/', last >= 0x80: // another line of the same event, a comment, a space that is not of ASCII
		return nil, false
	case last == '"', last == '\'':
		if end--; isEscaped(text[:end]) {
			return nil, true // the quote is part of a string
		}
	}
	return nameAtEnd(text[:end])
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

// nameAtEnd returns the name at the end of text, unless it may spell anything.
func nameAtEnd(text []byte) (name []byte, known bool) {
	start := len(text)
	for ; start > 0; start-- {
		kind := nameBytes[text[start-1]]
		if kind == anyLetter {
			return nil, false
		}
		if kind == otherByte {
			break
		}
	}
	return text[start:], true
}

func isOutcome(name []byte) bool {
	return hasSuffixFold(name, "result") || hasSuffixFold(name, "error")
}

func hasSuffixFold(name []byte, word string) bool {
	return len(name) >= len(word) && bytes.EqualFold(name[len(name)-len(word):], []byte(word))
}

// reportMethod begins the methods of notifications about tasks.
const reportMethod = "notifications/tasks"

// isReport reports whether a text may begin with such a method. If it does not begin with
// a string that has no escapes, it may.
func isReport(text []byte) bool {
	text, quoted := bytes.CutPrefix(bytes.TrimLeft(text, " \t"), []byte(`"`))
	method, _, ends := bytes.Cut(text, []byte(`"`))
	return !quoted || !ends || bytes.IndexByte(method, '\\') >= 0 || bytes.HasPrefix(method, []byte(reportMethod))
}
