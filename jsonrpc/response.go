package jsonrpc

import (
	"bytes"
	"errors"
	"io"
)

// A ResponseReader reads the result or error of a response of any size, with at most 64 KiB in
// memory. It refuses what [Parse] refuses, with these differences: it detects duplicate names
// only in the message itself and in its result, to save memory; it refuses names and numbers of
// more than 64 KiB; and it accepts a member __proto__ in the message itself, since only the
// result is forwarded.
//
// Call [ResponseReader.Head] first. Then Read returns the bytes of the result or error. Only
// after Read has returned [io.EOF] is the message known to be a complete response.
type ResponseReader struct {
	envelope envelope
	outcome  valueStream // the result or error
	failed   bool
}

// NewResponseReader returns a reader of the message in r. It keeps the members of the result or
// error that are named in watch.
func NewResponseReader(r io.Reader, watch ...string) *ResponseReader {
	x := &ResponseReader{envelope: envelope{message: new(Message)}, outcome: newPassage(r, watch)}
	x.outcome.tail = x.tail
	return x
}

// A Head is the part of a response that is known before its result is read.
type Head struct {
	// Kind is Response if a result or error has begun. Later input can still make the message
	// invalid.
	Kind   Kind
	Failed bool // the message has an error instead of a result

	// Begin is the result or error if it fits into 64 KiB. Of a larger object it has the
	// members that fit; of another larger value it is empty. It is valid until the first Read.
	Begin Value
}

// Head reads the message up to its end, or up to 64 KiB of its result. The error is a
// [*ParseError] or that of the underlying reader.
func (r *ResponseReader) Head() (Head, error) {
	p := &r.outcome
	r.begin()
	p.walker.keep = p.begin
	for full := false; p.done == nil && !full; {
		full = p.advance()
	}
	if p.done != nil && !errors.Is(p.done, io.EOF) {
		return Head{}, p.done
	}
	h := Head{Kind: r.envelope.message.Kind, Failed: r.failed, Begin: r.complete()}
	if p.done == nil {
		h.Kind = Response
	}
	return h, nil
}

// Read implements [io.Reader] for the result or error.
func (r *ResponseReader) Read(b []byte) (int, error) { return r.outcome.Read(b) }

// ID returns the ID of the message. It is absent if it was not read yet.
func (r *ResponseReader) ID() Value { return r.envelope.message.ID }

// Member returns a watched member of the result or error. It is absent if it was not read yet
// or has more than 1 KiB.
func (r *ResponseReader) Member(name string) Value { return r.outcome.found[name] }

// Has reports whether a watched member was read, of any size.
func (r *ResponseReader) Has(name string) bool { return r.outcome.has(name) }

// complete returns the result or error as far as it was read, as valid JSON. Of an object that
// has not ended it has the complete members. Another value that has not ended is absent. Call it
// before Read.
func (r *ResponseReader) complete() Value {
	p := &r.outcome
	switch {
	case p.ended: // Read has returned nothing yet, so rest is the whole value
		return Value{Bytes: p.rest, Offset: p.begin}
	case p.begin < 0 || p.walker.from(p.begin)[0] != '{':
		return Value{}
	case p.membersEnd == p.begin: // no member is complete
		return Value{Bytes: []byte("{}"), Offset: p.begin}
	default:
		members := p.walker.from(p.begin)[:p.membersEnd-p.begin]
		return Value{Bytes: append(bytes.Clone(members), '}'), Offset: p.begin}
	}
}

// begin reads the message up to the start of its result or error. If there is none,
// outcome.done has the reason.
func (r *ResponseReader) begin() {
	p := &r.outcome
	if t := p.walker.next(); t != tokenNone && t != '{' {
		p.walker.fail(&ParseError{Code: CodeInvalidRequest, Reason: "a message must be an object"})
	}
	part, err := r.members()
	if err != nil {
		p.done = err
		return
	}
	r.failed = part == &r.envelope.message.Error
	p.walker.uniqueDepth = 2
	if t, first := p.start(); p.done == nil {
		part.Bytes = []byte{first} // only the type matters
		p.pass(t, p.walker.at)
	}
}

// tail reads the message after the result.
func (r *ResponseReader) tail() error {
	r.outcome.walker.uniqueDepth = 1
	_, err := r.members()
	return err
}

// members reads members of the message. It returns the first result or error before reading its
// value, or an error at the end of the message.
func (r *ResponseReader) members() (outcome *Value, err error) {
	w, m := &r.outcome.walker, r.envelope.message
	for {
		switch w.next() {
		case tokenNone:
			return nil, w.err
		case tokenEnd:
			return nil, r.judge()
		case tokenName:
			part := r.part(w.scanner.lastName())
			if r.outcome.begin < 0 && (part == &m.Result || part == &m.Error) {
				return part, nil
			}
			if part == nil {
				w.finish(1, nil)
				continue
			}
			w.finish(1, &part.Bytes)
			part.Bytes = bytes.Trim(part.Bytes, " \t\r\n")
		default: // a comma or closing bracket
		}
	}
}

// part returns the field for the member with the given name, or nil if its value is irrelevant.
func (r *ResponseReader) part(name []byte) *Value {
	part := r.envelope.known(name)
	switch {
	case string(name) == "params":
		r.envelope.message.Params.Bytes = []byte("{}") // only its presence matters
	case part == nil:
		r.envelope.variant = r.envelope.variant || variantOf(name, topNames)
	case part.Present():
		return nil // duplicate; the scanner refuses the message
	}
	return part
}

// judge checks the complete message.
func (r *ResponseReader) judge() error {
	if r.envelope.variant {
		return &ParseError{Code: CodeParse, Reason: onlyByCase}
	}
	s := &r.outcome.walker.scanner
	if s.assemble(r.envelope); s.invalidMessage != nil {
		return s.invalidMessage
	}
	return io.EOF
}
