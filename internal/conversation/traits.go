package conversation

import (
	"bytes"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Traits are the kinds of messages that some client may find in a text. Clients may ignore the case of
// names, or read more than JSON.
type Traits struct {
	Response    bool // a response: a name may be "result" or "error"
	TaskStatus  bool // a notification about a task: a value of "method" may be its method
	RelatedTask bool // a message related to a task: a name may end with "task"
}

// DetectTraits returns the traits of a text, which may be an event as received. Every event of a
// stream is searched, so it looks only at the names before colons.
func DetectTraits(text []byte) Traits {
	return detect(text, func(found Traits) bool { return found == Traits{Response: true, TaskStatus: true, RelatedTask: true} })
}

// MayBeResponse reports whether a text may contain a response; see [DetectTraits].
func MayBeResponse(text []byte) bool {
	return detect(text, func(found Traits) bool { return found.Response }).Response
}

// detect searches until enough returns true.
func detect(text []byte, enough func(Traits) bool) (found Traits) {
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

// add adds the traits of a name and its value. An unknown name may be any.
func (s *Traits) add(name []byte, known bool, value []byte) {
	s.Response = s.Response || !known || isOutcome(name)
	s.TaskStatus = s.TaskStatus || (!known || hasSuffixFold(name, "method")) && isReport(value)
	s.RelatedTask = s.RelatedTask || !known || hasSuffixFold(name, "task")
}

// mayMatter reports whether a name may have a trait. It rejects most names by their last letter.
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

// nameBefore returns the name before a colon at the end of text. The name is unknown if its end
// or its spelling is unclear.
func nameBefore(text []byte) (name []byte, known bool) {
	end := len(text)
	for end > 0 && text[end-1] <= ' ' {
		end--
	}
	if end == 0 {
		return nil, true
	}
	switch last := text[end-1]; {
	//mutate:swap "last == ':', " "" TestMayBeResponse a name that ends on another line is not seen
	case last == ':', last == '/', last >= 0x80: // another line of the same event, a comment, or a space outside of ASCII
		return nil, false
	case last == '"', last == '\'':
		if end--; isEscaped(text[:end]) {
			return nil, true // the quote is part of a string
		}
	}
	return nameAtEnd(text[:end])
}

// isEscaped reports whether the byte after text is escaped.
func isEscaped(text []byte) bool {
	n := 0
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// The kinds of bytes in a name.
const (
	otherByte  = iota // not part of a name
	letterByte        // a letter, or a byte of an escape
	anyLetter         // begins an escape or a letter outside of ASCII, which may be any letter
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

// nameAtEnd returns the name at the end of text. It is unknown if it has escapes or letters
// outside of ASCII.
func nameAtEnd(text []byte) (name []byte, known bool) {
	start := len(text)
	for ; start > 0; start-- {
		kind := nameBytes[text[start-1]]
		//mutate:false TestMayBeResponse a name with escapes is not seen
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

// isReport reports whether a value may be the method of a notification about a task. Anything
// else than a string without escapes may be.
func isReport(text []byte) bool {
	text, quoted := bytes.CutPrefix(bytes.TrimLeft(text, " \t"), []byte(`"`))
	method, _, ends := bytes.Cut(text, []byte(`"`))
	//mutate:swap "bytes.HasPrefix(method, []byte(mcpname.NotifyTasks))" "false" internal/mcphttp.TestForgedTaskReportsAreDropped an upstream reports on a task of the gate
	return !quoted || !ends || bytes.IndexByte(method, '\\') >= 0 || bytes.HasPrefix(method, []byte(mcpname.NotifyTasks))
}
