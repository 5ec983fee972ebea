package jsonrpc

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
)

// DefaultDepth is how deep a message may nest when [Limits] does not say.
const DefaultDepth = 128

// DefaultBatch is how many messages a batch may hold when [Limits] does not say.
const DefaultBatch = 50

// Limits bounds what [Parse] accepts. Zero fields mean the defaults.
type Limits struct {
	Depth int // nesting of objects and arrays; the outermost is depth 1
	Batch int // messages in a batch
}

// Parse reads the message or batch in data. It keeps data, does not copy it,
// and refuses it with a [*ParseError] unless every byte of it is accounted for.
// Parse reports invalid or ambiguous JSON as such, even if a message in it is
// also malformed.
func Parse(data []byte, limits Limits) (Packet, error) {
	s := newScanner(data, 0, orDefault(limits.Depth, DefaultDepth))
	defer s.release()
	p, end := s.packet(orDefault(limits.Batch, DefaultBatch))
	if end >= 0 && s.space(end) < len(data) {
		s.fail("bytes after the end of the JSON value")
	}
	switch {
	case s.syntax != nil:
		return Packet{}, s.syntax
	case s.shape != nil:
		return Packet{}, s.shape
	default:
		return p, nil
	}
}

// A ParseError reports a message that [Parse] refuses, and why. Its text tells
// of structure and never repeats what the message holds.
type ParseError struct {
	Code   int // CodeParse or CodeInvalidRequest
	Reason string
	ID     Value // the id of the message, if it could be read
}

func (e *ParseError) Error() string { return e.Reason }

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

func (s *scanner) packet(maxBatch int) (Packet, int) {
	start := s.space(0)
	if s.at(start) == '[' {
		messages, end := s.batch(start, maxBatch)
		return Packet{Batch: true, Messages: messages}, end
	}
	messages := make([]Message, 1)
	end := s.message(start, &messages[0])
	return Packet{Messages: messages}, end
}

func (s *scanner) batch(i, limit int) ([]Message, int) {
	var batch []Message
	i, more := s.enter(i)
	n := 0
	for ; more; n++ {
		if n < limit {
			batch = append(batch, Message{})
			i = s.message(i, &batch[n])
		} else {
			i = s.skip(i)
		}
		i, more = s.next(i)
	}
	if n == 0 {
		s.invalid(Value{}, "empty batch")
	}
	if n > limit {
		s.invalid(Value{}, "batch of more than "+strconv.Itoa(limit)+" messages")
	}
	return batch, i
}

// An envelope is a message while its members are collected.
type envelope struct {
	*Message

	version, method Value
	variant         bool // whether a name differs from a known one only by case
	inherits        bool // whether a member is called __proto__
	cut             bool // whether a name has U+0000 in it
}

// unknown takes note of the name of a member that is not known.
func (e *envelope) unknown(name []byte) {
	e.variant = e.variant || variantOf(name, topNames)
	e.inherits = e.inherits || string(name) == prototype
	e.cut = e.cut || hasNUL(name)
}

// message reads one message into m, which must be zero.
func (s *scanner) message(i int, m *Message) int {
	start := s.space(i)
	if s.at(start) != '{' {
		s.invalid(Value{}, "a message must be an object")
		return s.skip(start)
	}
	e := envelope{Message: m}
	s.inherits, s.cut = false, false
	around := len(s.open)
	i, more := s.enter(start)
	for more {
		if i = s.name(i); i >= 0 {
			name := s.lastName()
			if known := e.known(name); known != nil {
				*known, i = s.value(i)
			} else if string(name) == "params" {
				i = s.params(i, &m.Params)
			} else {
				e.unknown(name)
				i = s.skip(i)
			}
		}
		i, more = s.next(i)
	}
	if e.variant && i >= 0 {
		i = s.fail(onlyByCase)
	}
	if i < 0 {
		// Where the names of the message itself are in doubt, so is its id; and
		// an id is complete only when a comma follows it.
		after := s.space(m.ID.Offset + len(m.ID.Bytes))
		if len(s.open) > around && s.at(after) == ',' {
			s.syntax.ID = answerable(m.ID)
		}
		return i
	}
	m.Raw = s.between(start, i).Bytes
	s.assemble(e)
	return i
}

func (e *envelope) known(name []byte) *Value {
	switch string(name) {
	case "jsonrpc":
		return &e.version
	case "id":
		return &e.ID
	case "method":
		return &e.method
	case "result":
		return &e.Result
	case "error":
		return &e.Error
	default:
		return nil
	}
}

func (s *scanner) params(i int, p *Params) int {
	start := s.space(i)
	if s.at(start) != '{' {
		p.Value, i = s.value(start)
		return i
	}
	i, more := s.enter(start)
	for more {
		if i = s.name(i); i >= 0 {
			i = s.param(i, p)
		}
		i, more = s.next(i)
	}
	if i >= 0 {
		p.Value = s.between(start, i)
	}
	return i
}

// param reads the member of params whose name was read last.
func (s *scanner) param(i int, p *Params) int {
	name := s.lastName()
	known := p.known(name)
	switch {
	case known != nil:
		*known, i = s.value(i)
		return i
	case variantOf(name, paramNames):
		return s.fail(onlyByCase)
	default:
		return s.skip(i)
	}
}

func (p *Params) known(name []byte) *Value {
	switch string(name) {
	case "name":
		return &p.Name
	case "uri":
		return &p.URI
	case "taskId":
		return &p.TaskID
	case "task":
		return &p.Task
	case "_meta":
		return &p.Meta
	case "arguments":
		return &p.Arguments
	default:
		return nil
	}
}

var (
	topNames   = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramNames = []string{"name", "uri", "taskId", "task", "_meta", "arguments"}
)

const onlyByCase = "a member name differs from a known one only by case"

// variantOf reports whether name differs from one of known only by case.
// Decoders that ignore case would take it for that one.
func variantOf(name []byte, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool {
		return bytes.EqualFold(name, []byte(k))
	})
}

// assemble checks the shape of a message and fills in what follows from it.
func (s *scanner) assemble(e envelope) {
	if !isVersion2(e.version) {
		s.invalid(e.ID, `jsonrpc must be "2.0"`)
		return
	}
	if e.inherits || s.inherits && e.method.Present() {
		s.invalid(e.ID, "a member is called "+prototype+", which some servers read as members of the object around it")
	}
	if e.cut || s.cut && e.method.Present() {
		s.invalid(e.ID, "the name of a member has U+0000 in it, where some servers end it")
	}
	if e.method.Present() {
		s.assembleCall(e)
	} else {
		s.assembleResponse(e.Message)
	}
}

func isVersion2(v Value) bool {
	if string(v.Bytes) == `"2.0"` {
		return true
	}
	text, _ := v.Text() // with escapes it is the same version
	return text == "2.0"
}

func (s *scanner) assembleCall(e envelope) {
	method, ok := e.method.Text()
	switch {
	case !ok:
		s.invalid(e.ID, "method must be a string")
	case e.Result.Present() || e.Error.Present():
		s.invalid(e.ID, "a message with a method has no result and no error")
	case e.Params.Present() && !e.Params.IsObject() && !e.Params.IsArray() && !e.Params.IsNull():
		s.invalid(e.ID, "params must be an object or an array")
	case e.ID.Present() && !validID(e.ID):
		s.invalid(e.ID, "id must be a string or a number")
	}
	e.Method, e.Kind = method, Notification
	if e.ID.Present() {
		e.Kind = Request
	}
}

func (s *scanner) assembleResponse(m *Message) {
	switch {
	case m.Result.Present() == m.Error.Present():
		s.invalid(m.ID, "a message has a method, a result or an error")
	case m.Params.Present():
		s.invalid(m.ID, "a response has no params")
	case m.Error.Present() && !m.Error.IsObject():
		s.invalid(m.ID, "error must be an object")
	case !validID(m.ID) && (m.Result.Present() || m.ID.Present() && !m.ID.IsNull()):
		s.invalid(m.ID, "id must be a string or a number")
	}
	m.Kind = Response
}

// validID reports whether v may identify a request: MCP allows strings and
// numbers, and not null.
func validID(v Value) bool {
	return v.IsString() || len(v.Bytes) > 0 && (v.Bytes[0] == '-' || v.Bytes[0] >= '0' && v.Bytes[0] <= '9')
}

// answerable returns id if a refusal can be addressed to it.
func answerable(id Value) Value {
	if validID(id) {
		return id
	}
	return Value{}
}

// invalid refuses a message that is no JSON-RPC.
func (s *scanner) invalid(id Value, reason string) {
	if s.shape == nil {
		s.shape = &ParseError{Code: CodeInvalidRequest, Reason: reason, ID: answerable(id)}
	}
}

// ErrBatch reports a batch in a place where one message must stand.
var ErrBatch = errors.New("a batch is no single message")

// ParseMessage is [Parse] for text that must be one message. The offsets of its
// values count from the start of its Raw.
func ParseMessage(data []byte, limits Limits) (*Message, error) {
	packet, err := Parse(bytes.TrimSpace(data), limits)
	if err != nil {
		return nil, err
	}
	if packet.Batch {
		return nil, ErrBatch
	}
	return &packet.Messages[0], nil
}

// SameID reports whether two ids are the same. A peer may write an id in another
// way than it was sent, such as with escapes.
func SameID(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	one, text := Value{Bytes: a}.Text()
	other, too := Value{Bytes: b}.Text()
	return text && too && one == other
}

// Array returns a JSON array of the given elements.
func Array(elements [][]byte) []byte {
	return slices.Concat([]byte("["), bytes.Join(elements, []byte(",")), []byte("]"))
}
