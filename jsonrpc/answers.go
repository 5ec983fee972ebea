package jsonrpc

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// An AnswerScanner finds the IDs of the responses in a text of any size, which it gets in
// pieces. It keeps only names and IDs.
//
// It does not validate the text: input that is not JSON has no IDs, and clients cannot read it
// either. If clients read the same text differently, every reading counts: each member that
// some client takes for an ID is reported. The zero AnswerScanner is ready to use.
type AnswerScanner struct {
	// Method, unless nil, is called with the method of each message before the message ends.
	// Its error ends the scan.
	Method func(method string) error

	depth      int  // number of open brackets
	level      int  // number of brackets around the members of a message; 0 before the text begins
	notMessage bool // the text is neither an object nor an array

	text    bool // inside a string
	escaped bool // the next byte of the string follows a backslash

	named   bool // the name of the member was read
	member  memberKind
	token   []byte // the part of the name or ID read so far
	answers bool   // the message has a result or an error
	ids     [][]byte
	before  int // number of ids that belong to earlier messages
	kept    int // total bytes of ids
}

// A memberKind is the meaning of a member of a message.
type memberKind byte

const (
	memberOther memberKind = iota
	memberID
	memberAnswer
	memberMethod
)

// Limits for member names and methods. Even with every character escaped, the relevant ones are
// shorter.
const (
	maxName   = 64
	maxMethod = 256
)

var errAmbiguous = &ParseError{Code: CodeParse, Reason: "clients may read the message in different ways"}

// IDs returns the IDs of the responses so far. IDs of requests do not count.
func (s *AnswerScanner) IDs() [][]byte {
	if s.answers {
		return s.ids
	}
	return s.ids[:s.before]
}

// Closed reports whether the text is complete. Input that is not JSON always counts as
// complete.
func (s *AnswerScanner) Closed() bool { return s.notMessage || s.depth == 0 && s.level > 0 }

// Scan reads the next bytes of the text. It returns an error if some client may read them in an
// unknown way.
func (s *AnswerScanner) Scan(p []byte) error {
	if s.level == 0 && !s.notMessage {
		n, err := s.begin(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	for len(p) > 0 && !s.notMessage {
		n, err := s.next(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// begin reads up to the opening bracket.
func (s *AnswerScanner) begin(p []byte) (int, error) {
	for i, c := range p {
		switch {
		case isSpace(c):
		case c == '{':
			s.level = 1
			return i, nil
		case c == '[':
			s.level, s.depth = 2, 1
			return i + 1, nil
		case c < ' ' || c > '~', c == '/', c == '#', c == ')': // possibly JSON in another encoding or after a comment
			return 0, errAmbiguous
		default:
			s.notMessage = true
			return i, nil
		}
	}
	return len(p), nil
}

// next reads at least one byte, and returns how many it read.
func (s *AnswerScanner) next(p []byte) (int, error) {
	switch {
	case s.text:
		return s.inString(p)
	case s.depth > s.level:
		return s.skip(p)
	case s.depth == s.level:
		return 1, s.inMessage(p[0])
	default:
		return 1, s.between(p[0])
	}
}

// Kinds of bytes outside of strings.
const (
	byteRefused byte = iota
	bytePlain
	byteQuote
	byteOpens
	byteCloses
)

var outsideStrings = func() (kinds [256]byte) {
	for _, c := range []byte(" \t\r\n,:+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		kinds[c] = bytePlain
	}
	kinds['"'] = byteQuote
	kinds['{'], kinds['['] = byteOpens, byteOpens
	kinds['}'], kinds[']'] = byteCloses, byteCloses
	return kinds
}()

// skip reads inside the value of a member.
func (s *AnswerScanner) skip(p []byte) (int, error) {
	for i := 0; i < len(p); i++ {
		switch outsideStrings[p[i]] {
		case bytePlain:
		case byteQuote:
			n, closed, escaped := textEnd(p[i+1:], 0)
			if i += n; !closed {
				s.text, s.escaped = true, escaped
			}
		case byteOpens:
			s.depth++
		case byteCloses:
			if s.depth--; s.depth == s.level {
				return i + 1, nil
			}
		default:
			return 0, errAmbiguous
		}
	}
	return len(p), nil
}

// inString reads up to the end of a string, or to the end of p, and returns how many bytes it
// read. It keeps them only if the string is directly in a message.
func (s *AnswerScanner) inString(p []byte) (int, error) {
	skipped := 0 // bytes that cannot end the string
	if s.escaped {
		skipped = 1
	}
	n, closed, escaped := textEnd(p, skipped)
	s.text, s.escaped = !closed, escaped
	if s.depth != s.level { // inside the value of a member
		return n, nil
	}
	return n, s.keep(p[:n])
}

// inMessage reads a byte directly inside a message.
func (s *AnswerScanner) inMessage(c byte) error {
	kind := outsideStrings[c]
	switch {
	case kind == byteRefused || c == ']':
		return errAmbiguous
	case isSpace(c):
		return nil
	case c == ',':
		return s.endMember()
	case c == '}':
		s.depth--
		return s.endMessage()
	case c == ':' && s.named: // missing comma
		return errAmbiguous
	case c == ':':
		return s.endName()
	case kind == byteQuote:
		s.text = true
	case !s.named:
		return errAmbiguous
	case kind == byteOpens:
		s.depth++
	}
	return s.keep([]byte{c})
}

// between reads a byte between messages.
func (s *AnswerScanner) between(c byte) error {
	switch {
	case c == '{' && s.depth == s.level-1:
		s.depth++
		s.named, s.member, s.token = false, memberOther, s.token[:0]
	case c == ']' && s.depth == 1:
		s.depth--
	case c == ',' && s.depth == 1, isSpace(c):
	default:
		return errAmbiguous
	}
	return nil
}

// keep stores a part of the current name, ID or method.
func (s *AnswerScanner) keep(p []byte) error {
	size := len(s.token) + len(p)
	switch {
	case !s.named && size > maxName, s.named && s.member == memberMethod && size > maxMethod:
		return errAmbiguous
	case s.named && s.member == memberID:
		if s.kept += len(p); s.kept > maxWindow {
			return ErrTooLarge
		}
	case s.named && s.member != memberMethod:
		return nil
	}
	s.token = append(s.token, p...)
	return nil
}

// endName handles the end of a member name.
func (s *AnswerScanner) endName() (err error) {
	s.member, err = kindOf(s.token)
	s.answers = s.answers || s.member == memberAnswer
	s.named, s.token = true, s.token[:0]
	return err
}

// kindOf returns the kind of the member with the given quoted name.
func kindOf(quoted []byte) (memberKind, error) {
	name, err := jsontext.AppendUnquote(nil, quoted)
	switch {
	case err != nil, bytes.Contains(quoted, []byte(`\u0000`)), bytes.EqualFold(name, []byte(prototype)): // see hasNUL
		return memberOther, errAmbiguous
	case bytes.EqualFold(name, []byte("id")):
		return memberID, nil
	case bytes.EqualFold(name, []byte("result")), bytes.EqualFold(name, []byte("error")):
		return memberAnswer, nil
	case bytes.EqualFold(name, []byte("method")):
		return memberMethod, nil
	default:
		return memberOther, nil
	}
}

// endMember handles the end of a member.
func (s *AnswerScanner) endMember() error {
	if !s.named {
		return errAmbiguous
	}
	switch {
	case s.member == memberID:
		s.ids = append(s.ids, bytes.Clone(s.token))
	case s.member == memberMethod && s.Method != nil:
		if err := s.endMethod(); err != nil {
			return err
		}
	}
	s.named, s.member, s.token = false, memberOther, s.token[:0]
	return nil
}

// endMethod reports the method of the message.
func (s *AnswerScanner) endMethod() error {
	if string(s.token) == "null" {
		return nil
	}
	method, err := jsontext.AppendUnquote(nil, s.token)
	if err != nil {
		return errAmbiguous
	}
	return s.Method(string(method))
}

// endMessage handles the end of a message.
func (s *AnswerScanner) endMessage() error {
	if s.named {
		if err := s.endMember(); err != nil {
			return err
		}
	}
	s.ids = s.IDs()
	s.before, s.answers = len(s.ids), false
	return nil
}

// An EventScanner is an [AnswerScanner] for the data of one Server-Sent Event. It refuses
// events that clients parse differently, and data that is not JSON.
type EventScanner struct {
	Answers AnswerScanner

	framer Framer
}

// Scan reads the next bytes of the event.
func (s *EventScanner) Scan(p []byte) error {
	for len(p) > 0 {
		var err error
		n, _ := s.framer.next(p, func(part []byte) {
			if err == nil {
				err = s.Answers.Scan(part)
			}
		})
		//mutate:swap "s.framer.ambiguous || s.Answers.notMessage" "s.Answers.notMessage" TestEventScanner a large event passes that clients parse differently
		if err == nil && (s.framer.ambiguous || s.Answers.notMessage) {
			err = errAmbiguous
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
