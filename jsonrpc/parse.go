package jsonrpc

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// DefaultDepth is the default of [Limits].Depth.
const DefaultDepth = 128

// DefaultBatch is the default of [Limits].Batch.
const DefaultBatch = 50

// Limits limits the input of [Parse]. Zero fields mean the defaults.
type Limits struct {
	Depth int // nesting of objects and arrays; the outermost has depth 1
	Batch int // messages in a batch
}

// Parse parses the message or batch in data, and refers to data without copying it. The error
// is a [*ParseError]. Invalid or ambiguous JSON is reported before malformed messages.
func Parse(data []byte, limits Limits) (Packet, error) {
	s := newScanner(data, 0, cmp.Or(limits.Depth, DefaultDepth))
	defer s.release()
	p, end := s.packet(cmp.Or(limits.Batch, DefaultBatch))
	if end >= 0 && s.space(end) < len(data) {
		s.fail("bytes after the end of the JSON value")
	}
	switch {
	case s.syntax != nil:
		return Packet{}, s.syntax
	case s.invalidMessage != nil:
		return Packet{}, s.invalidMessage
	default:
		return p, nil
	}
}

// A ParseError is the reason why [Parse] refuses a message. Its text never contains parts of
// the message.
type ParseError struct {
	Code   int // CodeParse or CodeInvalidRequest
	Reason string
	ID     Value // the ID of the message, if it is certain
}

func (e *ParseError) Error() string { return e.Reason }

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

// An envelope collects the members of a message.
type envelope struct {
	message *Message

	version, method Value
	variant         bool // a name equals a known one except for case
	hasPrototype    bool // a member is called __proto__
	hasNULName      bool // a name contains U+0000
}

// unknown records an unknown member name.
func (e *envelope) unknown(name []byte) {
	e.variant = e.variant || variantOf(name, topNames)
	e.hasPrototype = e.hasPrototype || string(name) == prototype
	e.hasNULName = e.hasNULName || hasNUL(name)
}

// message parses a message into m, which must be zero.
func (s *scanner) message(i int, m *Message) int {
	start := s.space(i)
	if s.at(start) != '{' {
		s.invalid(Value{}, "a message must be an object")
		return s.skip(start)
	}
	e := envelope{message: m}
	s.hasPrototype, s.hasNULName = false, false
	s.base = -start
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
		// If the member names are in doubt, so is the ID. An ID is complete only if a comma
		// follows it.
		after := s.space(start + m.ID.Offset + len(m.ID.Bytes))
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
		return &e.message.ID
	case "method":
		return &e.method
	case "result":
		return &e.message.Result
	case "error":
		return &e.message.Error
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

// param parses the member of params whose name was just read.
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

// variantOf reports whether name equals a known name except for case. Decoders that ignore case
// confuse them.
func variantOf(name []byte, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool {
		//mutate:false TestParseRefuses.* case variants of known names are read
		return bytes.EqualFold(name, []byte(k))
	})
}

// assemble checks the members of a message and sets its kind.
func (s *scanner) assemble(e envelope) {
	if !isVersion2(e.version) {
		s.invalid(e.message.ID, `jsonrpc must be "2.0"`)
		return
	}
	//mutate:false TestParseRefuses.* requests with a member called __proto__ are read
	if e.hasPrototype || s.hasPrototype && e.method.Present() {
		s.invalid(e.message.ID, "a member is called "+prototype+", which some servers read as members of the object around it")
	}
	if e.hasNULName || s.hasNULName && e.method.Present() {
		s.invalid(e.message.ID, "the name of a member has U+0000 in it, where some servers end it")
	}
	if e.method.Present() {
		s.assembleCall(e)
	} else {
		s.assembleResponse(e.message)
	}
}

func isVersion2(v Value) bool {
	if string(v.Bytes) == `"2.0"` {
		return true
	}
	text, _ := v.Text() // the version may be written with escapes
	return text == "2.0"
}

func (s *scanner) assembleCall(e envelope) {
	method, ok := e.method.Text()
	switch {
	case !ok:
		s.invalid(e.message.ID, "method must be a string")
	case e.message.Result.Present() || e.message.Error.Present():
		s.invalid(e.message.ID, "a message with a method has no result and no error")
	case e.message.Params.Present() && !e.message.Params.IsObject() && !e.message.Params.IsArray() && !e.message.Params.IsNull():
		s.invalid(e.message.ID, "params must be an object or an array")
	case e.message.ID.Present() && !validID(e.message.ID):
		s.invalid(e.message.ID, "id must be a string or a number")
	}
	e.message.Method, e.message.Kind = method, Notification
	if e.message.ID.Present() {
		e.message.Kind = Request
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

// validID reports whether v may be a request ID. MCP allows strings and numbers, but not null.
func validID(v Value) bool {
	return v.IsString() || len(v.Bytes) > 0 && (v.Bytes[0] == '-' || v.Bytes[0] >= '0' && v.Bytes[0] <= '9')
}

// answerable returns id if a response can carry it.
func answerable(id Value) Value {
	if validID(id) {
		return id
	}
	return Value{}
}

// invalid refuses a message that is not valid JSON-RPC.
func (s *scanner) invalid(id Value, reason string) {
	if s.invalidMessage == nil {
		s.invalidMessage = &ParseError{Code: CodeInvalidRequest, Reason: reason, ID: answerable(id)}
	}
}

// ErrBatch is the error of [ParseMessage] for a batch.
var ErrBatch = errors.New("a batch is no single message")

// ParseMessage is [Parse] for exactly one message.
func ParseMessage(data []byte, limits Limits) (*Message, error) {
	packet, err := Parse(data, limits)
	if err != nil {
		return nil, err
	}
	if packet.Batch {
		return nil, ErrBatch
	}
	return &packet.Messages[0], nil
}

// SameID reports whether two IDs are equal. Peers may spell an ID differently, such as with
// escapes or as 100 for 1e2.
func SameID(a, b []byte) bool { return bytes.Equal(a, b) || IDKey(a) == IDKey(b) }

// IDKey returns a key that is equal for two IDs if and only if they are equal; see [SameID]. It
// compares numbers exactly.
func IDKey(id []byte) string {
	if text, ok := (Value{Bytes: id}).Text(); ok {
		return `"` + text
	}
	if len(id) == 0 || id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return string(id) // such as null
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(string(id)), "e")
	var power int64
	if exponent != "" {
		var err error
		if power, err = strconv.ParseInt(exponent, 10, 32); err != nil {
			return string(id)
		}
	}
	mantissa, isNegative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	key := strings.TrimRight(digits, "0")
	if key == "" {
		return "0" // also for -0
	}
	//mutate:drop TestIDsAreEqualInAnySpelling ids that are different numbers count as equal
	power += int64(len(digits) - len(key) - len(fraction))
	if isNegative {
		key = "-" + key
	}
	if power == 0 {
		return key
	}
	return key + "e" + strconv.FormatInt(power, 10)
}

// Array returns a JSON array of the given elements.
func Array(elements [][]byte) []byte {
	return slices.Concat([]byte("["), bytes.Join(elements, []byte(",")), []byte("]"))
}
