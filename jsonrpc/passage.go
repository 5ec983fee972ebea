package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// A passage is a value, somewhere in a text of any size, that is passed on as it
// is read.
type passage struct {
	walker

	on    func(t token, at int) error // takes note of what was read from at on
	inner int                         // how deep the members of the value are nested
	begin int                         // where the value begins; negative if that is not known yet
	end   int                         // where it ends; negative if that is not known yet
	taken int                         // how far it has been passed on
	over  error                       // why there is nothing more to read

	watch   []string         // members of the value that are to be noted
	found   map[string]Value // those that were
	member  string           // the one that is being read
	noted   []byte           // as far as it has been
	members int              // where the last member ended that is complete
}

func newPassage(r io.Reader, watch []string) passage {
	return passage{walker: newWalker(r), begin: -1, end: -1, watch: watch, found: make(map[string]Value)}
}

// Read passes the value on.
func (p *passage) Read(b []byte) (int, error) {
	for {
		if n := p.take(b); n > 0 || len(b) == 0 {
			return n, nil
		}
		if p.over != nil {
			return 0, p.over
		}
		p.keep = p.place()
		if err := p.advance(); errors.Is(err, errWindowFull) {
			p.over = p.tooLong()
		}
	}
}

// take copies what there is of the value and was not passed on.
func (p *passage) take(b []byte) int {
	if p.begin < 0 || p.taken == p.known() {
		return 0
	}
	n := copy(b, p.data[p.taken-p.base:p.known()-p.base])
	p.taken += n
	return n
}

// known returns how far the value has been read.
func (p *passage) known() int {
	if p.end >= 0 {
		return p.end
	}
	return p.place()
}

// advance reads on, as far as the window goes. Only errWindowFull is not final.
func (p *passage) advance() error {
	for start := p.place(); ; {
		if p.begin >= 0 && p.end < 0 && p.member == "" && len(p.open) > p.inner {
			if p.dive(p.inner); len(p.open) == p.inner {
				p.members = p.place()
			}
		}
		at := p.place()
		t := p.step()
		var err error
		switch {
		case t != tokenNone:
			err = p.on(t, at)
		case at > start:
			return nil
		default:
			err = p.more()
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, errWindowFull) {
			p.over = err
		}
		return err
	}
}

// tooLong returns why a step found too little in a window that has no room for
// more.
func (p *passage) tooLong() error {
	if p.syntax.Reason == incomplete {
		return ErrTooLarge
	}
	return p.syntax
}

// starts takes note that the value begins behind at.
func (p *passage) starts(at int) {
	p.begin = p.base + p.space(at-p.base)
	p.taken, p.members, p.inner = p.begin, p.begin, len(p.open)
	if p.data[p.begin-p.base] != '{' && p.data[p.begin-p.base] != '[' {
		p.inner++ // it has no members
	}
}

// passes takes note of a token of the value, and reports whether it is the last.
func (p *passage) passes(t token, at int) (last bool) {
	depth := len(p.open)
	switch {
	case t == tokenName && depth == p.inner:
		p.member, p.noted = "", p.noted[:0]
		if name := p.lastName(); slices.Contains(p.watch, string(name)) {
			p.member = string(name)
			p.found[p.member] = Value{}
		}
		return false
	case p.member != "":
		p.noteMember(at)
	}
	if p.want != expectNext && p.want != expectEnd || depth > p.inner || t == tokenSpace {
		return false
	}
	p.memberEnds()
	if depth < p.inner {
		p.end = p.place()
		return true
	}
	p.members = p.place()
	return false
}

// maxNote is how long a member can be that is noted.
const maxNote = 1 << 10

// noteMember notes what was read of a member from at on.
func (p *passage) noteMember(at int) {
	if len(p.noted) == 0 {
		at = p.base + p.space(at-p.base)
	}
	if len(p.noted) <= maxNote {
		p.noted = append(p.noted, p.from(at)...)
	}
}

func (p *passage) memberEnds() {
	if p.member != "" && len(p.noted) <= maxNote {
		p.found[p.member] = Value{Bytes: bytes.Clone(p.noted)}
	}
	p.member = ""
}

// Member returns a member of the value that was to be watched. It is absent if
// there is none, none so far, or one of more than 1 KiB.
func (p *passage) Member(name string) Value { return p.found[name] }

// Has reports whether the value, as far as it was read, has a member that was
// to be watched, however long that is.
func (p *passage) Has(name string) bool {
	_, ok := p.found[name]
	return ok
}

// An ObjectReader reads a JSON object of any size, and nothing else, and passes
// its bytes on as it checks them. It never holds more than 64 KiB. It
// refuses the same objects that a [ResponseReader] refuses as results.
type ObjectReader struct{ passage }

// NewObjectReader returns a reader of the object in r that notes the members
// with the given names.
func NewObjectReader(r io.Reader, watch ...string) *ObjectReader {
	o := &ObjectReader{passage: newPassage(r, watch)}
	o.deep, o.on = 1, o.note
	return o
}

func (o *ObjectReader) note(t token, at int) error {
	switch {
	case t == tokenEnd:
		return io.EOF
	case o.begin < 0 && t == tokenSpace, o.end >= 0:
		return nil
	case o.begin < 0:
		o.starts(at)
		if t != '{' {
			return &ParseError{Code: CodeInvalidRequest, Reason: "not an object"}
		}
		return nil
	}
	o.passes(t, at)
	return nil
}
