package jsonrpc

import (
	"bytes"
	"errors"
	"io"
)

// A ResponseReader reads a message of any size for the result, or the error, in
// it, of which it never holds more than 64 KiB. It refuses a response that
// [Parse] refuses, with these differences: only the message itself and its result
// must not repeat a name, for to keep all names takes memory, and a name or a
// number of more than 64 KiB is too large.
//
// [ResponseReader.Head] comes first. Then Read returns the bytes of the result
// or the error, as they are. Only when it has returned [io.EOF] is the message
// known to be a response and to be whole.
type ResponseReader struct {
	passage

	message  Message
	envelope envelope
	part     *Value // the member of the message that is being read, if it matters
	begun    bool
	failed   bool
	variant  bool
}

// NewResponseReader returns a reader of the message in r that notes the members
// of the result, or of the error, with the given names.
func NewResponseReader(r io.Reader, watch ...string) *ResponseReader {
	x := &ResponseReader{passage: newPassage(r, watch)}
	x.envelope.Message = &x.message
	x.deep, x.on = 1, x.note
	return x
}

// A Head is what is known of a message before its result is read.
type Head struct {
	// Kind is Response if a result or an error has begun, though what follows
	// it can still make the message another one, or none.
	Kind   Kind
	Failed bool // there is an error, and no result

	// Begin is the result or the error if 64 KiB hold it. Of a larger object it
	// has the members that do, and of another larger value nothing. It is valid
	// until the first Read.
	Begin Value
}

// Head reads the message to its end, or 64 KiB of its result. It returns a
// [*ParseError] for what is no message, and the error of the reader.
func (r *ResponseReader) Head() (Head, error) {
	for r.over == nil {
		r.keep = r.place()
		if r.begin >= 0 {
			r.keep = r.begin
		}
		if err := r.advance(); errors.Is(err, errWindowFull) {
			if r.begin < 0 {
				r.over = r.tooLong()
			}
			break
		}
	}
	if r.over != nil && !errors.Is(r.over, io.EOF) {
		return Head{}, r.over
	}
	h := Head{Kind: r.message.Kind, Failed: r.failed, Begin: r.beginning()}
	if r.over == nil {
		h.Kind = Response
	}
	return h, nil
}

// ID returns the id of the message. It is absent if it has not been read yet.
func (r *ResponseReader) ID() Value {
	if r.part == &r.message.ID {
		return Value{} // there is only part of it
	}
	return r.message.ID
}

// beginning returns what has been read of the result.
func (r *ResponseReader) beginning() Value {
	switch {
	case r.begin < 0:
		return Value{}
	case r.end >= 0:
		return Value{Bytes: r.data[r.begin-r.base : r.end-r.base], Offset: r.begin}
	case r.data[r.begin-r.base] != '{':
		return Value{}
	case r.members == r.begin:
		return Value{Bytes: []byte("{}"), Offset: r.begin}
	default:
		read := r.data[r.begin-r.base : r.members-r.base]
		return Value{Bytes: append(bytes.Clone(read), '}'), Offset: r.begin}
	}
}

// note takes note of a token of the message.
func (r *ResponseReader) note(t token, at int) error {
	switch {
	case t == tokenEnd:
		return r.finish()
	case !r.begun && t != tokenSpace:
		r.begun = true
		if t == '{' {
			return nil
		}
		return &ParseError{Code: CodeInvalidRequest, Reason: "a message must be an object"}
	case t == tokenName && len(r.open) == 1:
		r.memberBegins()
		return nil
	case r.part == &r.message.Result, r.part == &r.message.Error:
		r.pass(t, at)
		return nil
	case r.part != nil && (t != tokenSpace || r.part.Present()):
		return r.keepPart(at)
	default:
		return nil
	}
}

// keepPart keeps what was read of a member of the message from at on.
func (r *ResponseReader) keepPart(at int) error {
	if len(r.part.Bytes)+r.place()-at > maxWindow {
		return ErrTooLarge
	}
	r.part.Bytes = append(r.part.Bytes, r.from(at)...)
	if len(r.open) == 1 && r.want == expectNext {
		r.part.Bytes = bytes.Trim(r.part.Bytes, " \t\r\n")
		r.part = nil
	}
	return nil
}

// memberBegins takes note of the name of a member of the message.
func (r *ResponseReader) memberBegins() {
	name := r.lastName()
	r.part = r.envelope.known(name)
	switch {
	case string(name) == "params":
		r.message.Params.Bytes = []byte("{}") // all that matters is that there are some
	case r.part == nil:
		r.variant = r.variant || variantOf(name, topNames)
	case r.part.Present(): // twice, so the message will be refused
		r.part = nil
	case r.part == &r.message.Result || r.part == &r.message.Error:
		if r.begin >= 0 {
			r.part.Bytes = []byte("{}") // a result and an error, so the message will be refused
			r.part = nil
			return
		}
		r.failed = r.part == &r.message.Error
	}
}

// pass takes note of a token of the result or the error.
func (r *ResponseReader) pass(t token, at int) {
	if r.begin < 0 {
		if t == tokenSpace {
			return
		}
		r.starts(at)
		r.part.Bytes = []byte{r.data[r.begin-r.base]} // all that matters is what it is
		r.deep = 2
	}
	if r.passes(t, at) {
		r.deep = 1
		r.part = nil
	}
}

// finish judges the message once all of it was read.
func (r *ResponseReader) finish() error {
	if r.variant {
		return &ParseError{Code: CodeParse, Reason: onlyByCase}
	}
	if r.assemble(r.envelope); r.shape != nil {
		return r.shape
	}
	return io.EOF
}
