package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// A valueStream is a value in a text of any size. Read returns its bytes while they are parsed.
type valueStream struct {
	walker walker

	tail   func() error // reads the text after the value; returns io.EOF if it is valid
	inner  int          // depth of the members of the value
	begin  int          // position of the value; negative if unknown
	passed int          // position up to which Read returned it
	ended  bool         // the value was parsed to its end
	rest   []byte       // unread bytes of a value that has ended
	done   error        // final error of Read

	watch      []string         // names of the members to keep
	found      map[string]Value // members kept so far
	member     string           // the current member, if it is kept
	noted      []byte           // its bytes so far
	membersEnd int              // position after the last complete member
}

func newPassage(r io.Reader, watch []string) valueStream {
	return valueStream{walker: newWalker(r), begin: -1, watch: watch, found: make(map[string]Value)}
}

// start reads the first token of the value and returns it with the first byte. Without a token,
// done has the reason.
func (p *valueStream) start() (t token, first byte) {
	w := &p.walker
	if t = w.next(); t == tokenNone {
		p.done = w.err
		return t, 0
	}
	p.begin = w.scanner.base + w.scanner.space(w.at-w.scanner.base)
	p.passed, p.membersEnd, p.inner = p.begin, p.begin, w.depth()
	if first = w.from(p.begin)[0]; first != '{' && first != '[' {
		p.inner++ // it has no members
	}
	return t, first
}

// Read implements [io.Reader].
func (p *valueStream) Read(b []byte) (int, error) {
	for {
		if n := p.take(b); n > 0 || len(b) == 0 {
			return n, nil
		}
		if p.done != nil {
			return 0, p.done
		}
		p.walker.keep = p.walker.place()
		if p.advance() {
			p.done = p.walker.tooLong()
		}
	}
}

// take copies parsed bytes of the value that were not yet returned.
func (p *valueStream) take(b []byte) (n int) {
	switch {
	case p.ended:
		n = copy(b, p.rest)
		p.rest = p.rest[n:]
	case p.begin >= 0:
		n = copy(b, p.walker.from(p.passed))
		p.passed += n
	}
	return n
}

// advance parses as far as the window allows, and reports whether the window is full.
func (p *valueStream) advance() (full bool) {
	for start := p.walker.place(); p.done == nil; {
		at := p.walker.place()
		if t := p.walker.step(); t != tokenNone {
			p.pass(t, at)
			continue
		}
		if at > start {
			return false
		}
		if err := p.walker.more(); errors.Is(err, errWindowFull) {
			return true
		} else if err != nil {
			p.done = err
		}
	}
	return false
}

// pass handles a token of the value. After the last token it reads the text to its end.
func (p *valueStream) pass(t token, at int) {
	w := &p.walker
	switch {
	case t == tokenName && w.depth() == p.inner:
		p.member, p.noted = "", p.noted[:0]
		if name := w.scanner.lastName(); slices.Contains(p.watch, string(name)) {
			p.member = string(name)
			p.found[p.member] = Value{}
		}
		return
	case p.member != "":
		p.noteMember(at)
	}
	if w.want != expectNext && w.want != expectEnd || w.depth() > p.inner || t == tokenSpace {
		return
	}
	p.memberEnds()
	if p.membersEnd = w.place(); w.depth() < p.inner {
		p.ended, p.rest = true, bytes.Clone(w.from(p.passed))
		p.done = p.tail()
	}
}

// maxNote is the maximum size of a kept member.
const maxNote = 1 << 10

// noteMember keeps the bytes of the current member from position at.
func (p *valueStream) noteMember(at int) {
	if len(p.noted) == 0 {
		at = p.walker.scanner.base + p.walker.scanner.space(at-p.walker.scanner.base)
	}
	if len(p.noted) <= maxNote {
		p.noted = append(p.noted, p.walker.from(at)...)
	}
}

func (p *valueStream) memberEnds() {
	if p.member != "" && len(p.noted) <= maxNote {
		p.found[p.member] = Value{Bytes: bytes.Clone(p.noted)}
	}
	p.member = ""
}

func (p *valueStream) has(name string) bool {
	_, ok := p.found[name]
	return ok
}

// An ObjectReader reads a JSON object of any size and validates it, with at most 64 KiB in
// memory. It refuses the same objects as [ResponseReader] refuses as results.
type ObjectReader struct{ object valueStream }

// NewObjectReader returns a reader of the object in r. It keeps the members named in watch.
func NewObjectReader(r io.Reader, watch ...string) *ObjectReader {
	o := &ObjectReader{object: newPassage(r, watch)}
	o.object.tail = func() error {
		if o.object.walker.next() == tokenNone {
			return o.object.walker.err
		}
		return io.EOF
	}
	return o
}

// Read implements [io.Reader].
func (o *ObjectReader) Read(b []byte) (int, error) {
	p := &o.object
	if p.begin < 0 && p.done == nil {
		if _, first := p.start(); p.done == nil && first != '{' {
			p.begin, p.done = -1, &ParseError{Code: CodeInvalidRequest, Reason: "not an object"}
		}
	}
	return p.Read(b)
}

// Member returns a watched member. It is absent if it was not read yet or has more than 1 KiB.
func (o *ObjectReader) Member(name string) Value { return o.object.found[name] }

// Has reports whether a watched member was read, of any size.
func (o *ObjectReader) Has(name string) bool { return o.object.has(name) }
