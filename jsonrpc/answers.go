package jsonrpc

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// An AnswerScanner finds the ids of the responses in a text of any size, while
// the text passes in pieces. It reads no more than the brackets, the names of
// the messages' members and the ids, so it is fast, and it keeps nothing else.
//
// It does not check the text: a text that is no JSON has no ids, and no client
// can read it either. Where clients read the same text in different ways, all
// their readings count: every member that some client takes for an id is one.
// The zero AnswerScanner stands at the start of a text.
type AnswerScanner struct {
	// Method, if it is not nil, is called with the method of each message that has
	// one, before the message ends. Its error ends the scan.
	Method func(method string) error

	depth   int  // how many brackets are open
	level   int  // how many are around the members of a message; 0 before the text begins
	foreign bool // the text is neither an object nor an array, and so no message

	text    bool // within a string
	escaped bool // what comes next in the string follows a backslash

	named   bool // the member's name has been read
	member  memberKind
	token   []byte // the name or the id, as far as it has been read
	answers bool   // the message has a result or an error
	ids     [][]byte
	before  int // how many of ids belong to messages before this one
	kept    int // how many bytes ids have
}

// A memberKind says what a member of a message is to some client.
type memberKind byte

const (
	memberOther memberKind = iota
	memberID
	memberAnswer
	memberMethod
	memberUnclear
)

// How long the names of a message's members, and its method, may be: longer than those
// that matter, all of their characters escaped.
const (
	maxName   = 64
	maxMethod = 256
)

var errUnclear = &ParseError{Code: CodeParse, Reason: "clients may read the message in different ways"}

// IDs returns the ids of the responses so far. Other messages, such as requests
// of a server, have ids that do not count.
func (s *AnswerScanner) IDs() [][]byte {
	if s.answers {
		return s.ids
	}
	return s.ids[:s.before]
}

// Closed reports whether the text ends where it may end. A text that is no JSON may.
func (s *AnswerScanner) Closed() bool { return s.foreign || s.depth == 0 && s.level > 0 }

// Scan takes in the next bytes of the text. It returns an error if some client
// may read them in a way that the scanner does not know.
func (s *AnswerScanner) Scan(p []byte) error {
	if s.level == 0 && !s.foreign {
		n, err := s.begin(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	for len(p) > 0 && !s.foreign {
		n, err := s.next(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// begin reads up to the bracket that a text begins with.
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
		case c < ' ' || c > '~', c == '/', c == '#', c == ')': // perhaps JSON in another encoding, or behind a comment
			return 0, errUnclear
		default:
			s.foreign = true
			return i, nil
		}
	}
	return len(p), nil
}

// next reads on, at least one byte, and returns how many it read.
func (s *AnswerScanner) next(p []byte) (int, error) {
	switch {
	case s.text:
		return s.inText(p)
	case s.depth > s.level:
		return s.skip(p)
	case s.depth == s.level:
		return 1, s.inMessage(p[0])
	default:
		return 1, s.between(p[0])
	}
}

// Bytes outside of strings.
const (
	byteRefused byte = iota
	bytePlain
	byteQuote
	byteOpens
	byteCloses
)

var outsideText = func() (kinds [256]byte) {
	for _, c := range []byte(" \t\r\n,:+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		kinds[c] = bytePlain
	}
	kinds['"'] = byteQuote
	kinds['{'], kinds['['] = byteOpens, byteOpens
	kinds['}'], kinds[']'] = byteCloses, byteCloses
	return kinds
}()

// skip reads within the value of a member.
func (s *AnswerScanner) skip(p []byte) (int, error) {
	for i := 0; i < len(p); i++ {
		switch outsideText[p[i]] {
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
			return 0, errUnclear
		}
	}
	return len(p), nil
}

// inText reads within a string, up to its end if it is there.
func (s *AnswerScanner) inText(p []byte) (int, error) {
	first := 0
	if s.escaped {
		first = 1
	}
	n, closed, escaped := textEnd(p, first)
	s.text, s.escaped = !closed, escaped
	if s.depth != s.level {
		return n, nil
	}
	return n, s.keep(p[:n])
}

// inMessage reads a byte between the brackets of a message.
func (s *AnswerScanner) inMessage(c byte) error {
	kind := outsideText[c]
	switch {
	case kind == byteRefused || c == ']':
		return errUnclear
	case isSpace(c):
		return nil
	case c == ',':
		return s.endMember()
	case c == '}':
		s.depth--
		return s.endMessage()
	case c == ':' && s.named: // a comma is missing
		return errUnclear
	case c == ':':
		return s.endName()
	case kind == byteQuote:
		s.text = true
	case !s.named:
		return errUnclear
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
		return errUnclear
	}
	return nil
}

// keep keeps a part of the name or the id that is being read.
func (s *AnswerScanner) keep(p []byte) error {
	switch {
	case !s.named:
		if len(s.token)+len(p) > maxName {
			return errUnclear
		}
		s.token = append(s.token, p...)
	case s.member == memberID:
		if s.kept += len(p); s.kept > maxWindow {
			return ErrTooLarge
		}
		s.token = append(s.token, p...)
	case s.member == memberMethod:
		if len(s.token)+len(p) > maxMethod {
			return errUnclear
		}
		s.token = append(s.token, p...)
	}
	return nil
}

// endName takes note of the name of a member.
func (s *AnswerScanner) endName() error {
	var err error
	if s.member, err = kindOf(s.token); err != nil {
		return err
	}
	s.named, s.token = true, s.token[:0]
	switch s.member {
	case memberUnclear:
		return errUnclear
	case memberAnswer:
		s.answers = true
	case memberID, memberMethod, memberOther:
	}
	return nil
}

// kindOf returns what a member with the given name, in quotes, is.
func kindOf(quoted []byte) (memberKind, error) {
	if bytes.Contains(quoted, []byte(`\u0000`)) {
		return memberUnclear, nil // see hasNUL
	}
	name, err := jsontext.AppendUnquote(nil, quoted)
	switch {
	case err != nil:
		return memberUnclear, errUnclear
	case bytes.EqualFold(name, []byte("id")):
		return memberID, nil
	case bytes.EqualFold(name, []byte("result")), bytes.EqualFold(name, []byte("error")):
		return memberAnswer, nil
	case bytes.EqualFold(name, []byte("method")):
		return memberMethod, nil
	case bytes.EqualFold(name, []byte(prototype)):
		return memberUnclear, nil
	default:
		return memberOther, nil
	}
}

// endMember takes note that a member has ended.
func (s *AnswerScanner) endMember() error {
	if !s.named {
		return errUnclear
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

// endMethod takes note of the method of the message.
func (s *AnswerScanner) endMethod() error {
	if string(s.token) == "null" {
		return nil
	}
	method, err := jsontext.AppendUnquote(nil, s.token)
	if err != nil {
		return errUnclear
	}
	return s.Method(string(method))
}

// endMessage takes note that a message has ended.
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

// An EventScanner is an [AnswerScanner] for the data of one Server-Sent Event,
// given as it stands on the stream. It refuses events that clients take apart in
// different ways, and those whose data is no JSON.
type EventScanner struct {
	AnswerScanner

	head    [len("retry:")]byte // how the current line begins
	seen    int
	field   fieldKind
	begun   bool // the event has had a line of data
	behind  bool // another field has followed the data
	afterCR bool // the last byte was CR, which ends no line without LF
}

// A fieldKind says what a line of an event is.
type fieldKind byte

const (
	fieldUnknown fieldKind = iota // its name has not been read
	fieldData
	fieldOther
)

// Scan takes in the next bytes of the event.
func (s *EventScanner) Scan(p []byte) error {
	for len(p) > 0 {
		if s.afterCR && p[0] != '\n' {
			return errUnclear
		}
		s.afterCR = false
		n := lineEnd(p)
		if err := s.inLine(p[:n]); err != nil {
			return err
		}
		if n == len(p) {
			return nil
		}
		if s.afterCR = p[n] == '\r'; !s.afterCR {
			if err := s.endLine(); err != nil {
				return err
			}
		}
		p = p[n+1:]
	}
	return nil
}

// inLine takes in a part of a line.
func (s *EventScanner) inLine(p []byte) error {
	for s.field == fieldUnknown && len(p) > 0 {
		if s.seen == len(s.head) {
			return errUnclear // not one of the fields
		}
		s.head[s.seen] = p[0]
		s.seen++
		p = p[1:]
		switch string(s.head[:s.seen]) {
		case "data:":
			if err := s.beginData(); err != nil {
				return err
			}
		case "event:", "id:", "retry:", ":":
			s.field, s.behind = fieldOther, s.begun
		}
	}
	switch {
	case s.field == fieldData:
		return s.data(p)
	case !isPrintable(p):
		return errUnclear // some clients end a line there
	default:
		return nil
	}
}

// beginData begins a line of data.
func (s *EventScanner) beginData() error {
	if s.behind {
		return errUnclear // some clients keep the last lines only
	}
	s.field = fieldData
	if s.begun {
		return s.data([]byte("\n"))
	}
	s.begun = true
	return nil
}

// data takes in a part of the data.
func (s *EventScanner) data(p []byte) error {
	if err := s.AnswerScanner.Scan(p); err != nil {
		return err
	}
	if s.foreign {
		return errUnclear
	}
	return nil
}

// endLine takes note that a line has ended.
func (s *EventScanner) endLine() error {
	if s.field == fieldUnknown && s.seen > 0 {
		return errUnclear
	}
	s.seen, s.field = 0, fieldUnknown
	return nil
}
