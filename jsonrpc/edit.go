package jsonrpc

import (
	"errors"
	"io"
)

// A MemberEdit changes one member of a member of an object that may be too large
// to be held, as a [Patch] changes one that is not.
type MemberEdit struct {
	Outer, Inner string
	JSON         []byte // the value to set; nil takes the member out
}

// Copy copies the object in src, changed, to dst. It checks the object on the
// way, and refuses with a [*ParseError] what is none; all of it that came before
// has been written by then.
func (e MemberEdit) Copy(dst io.Writer, src io.Reader) error {
	c := editor{MemberEdit: e, walker: newWalker(src), dst: dst, comma: -1}
	c.deep = 1
	for {
		at := c.place()
		t := c.step()
		if t == tokenEnd {
			return c.flush(c.place())
		}
		var err error
		switch t {
		case tokenSpace: // goes where what comes before it goes
		case tokenNone:
			err = c.refill()
		default:
			err = c.see(t, at)
		}
		if err != nil {
			return err
		}
	}
}

// An editor is a [MemberEdit] at work.
type editor struct {
	MemberEdit
	walker

	dst     io.Writer
	out     int // how far src has been copied or dropped
	comma   int // where a comma is that may have to be dropped; negative if there is none
	members int // of the object that the comma is in, as it is in dst

	state editState
	begun bool
	top   int  // members of the whole object
	found bool // the outer member was there
	set   bool // the inner member has its new value
}

// editState is where an editor stands.
type editState uint8

const (
	editOutside editState = iota // outside of the outer member
	editAtOuter                  // before the value of the outer member
	editInside                   // in the object that is the outer member
	editDropAll                  // in the value of the outer member, which is replaced
	editDrop                     // in the value of the inner member, which is replaced or taken out
)

// refill gets more of src into the window, having copied what can be.
func (c *editor) refill() error {
	upTo := c.place()
	if c.comma >= 0 {
		upTo = c.comma
	}
	if err := c.flush(upTo); err != nil {
		return err
	}
	c.keep = c.out
	err := c.more()
	if errors.Is(err, errWindowFull) {
		return ErrTooLarge
	}
	return err
}

// flush copies src from where it was last left, up to a place, without the
// values that are dropped.
func (c *editor) flush(upTo int) error {
	if c.state == editDrop || c.state == editDropAll {
		c.out = max(c.out, upTo)
		return nil
	}
	if upTo <= c.out {
		return nil
	}
	_, err := c.dst.Write(c.data[c.out-c.base : upTo-c.base])
	c.out = upTo
	return err
}

func (c *editor) see(t token, at int) error {
	depth := len(c.open)
	switch c.state {
	case editOutside:
		err := c.outside(t, depth)
		c.begun = true
		return err
	case editAtOuter:
		return c.atOuter(t, at, depth)
	case editInside:
		return c.inside(t, at, depth)
	case editDropAll, editDrop:
		c.out = c.place()
		c.dropped(depth)
	}
	return nil
}

// outside sees the members of the whole object.
func (c *editor) outside(t token, depth int) error {
	switch {
	case t != '{' && !c.begun:
		return &ParseError{Code: CodeInvalidRequest, Reason: "not an object"}
	case t == tokenName && depth == 1:
		c.top++
		if string(c.lastName()) == c.Outer {
			c.found, c.state = true, editAtOuter
		}
	case depth == 0 && c.JSON != nil && !c.found:
		return c.insert(c.top, c.Outer, c.object())
	}
	return nil
}

// atOuter sees the first token of the outer member's value.
func (c *editor) atOuter(t token, at, depth int) error {
	switch {
	case t == '{':
		c.state, c.deep, c.members = editInside, 2, 0
	case c.JSON == nil:
		c.state = editOutside
	default:
		if err := c.flush(at); err != nil {
			return err
		}
		_, err := c.dst.Write(c.object())
		c.state, c.out = editDropAll, c.place()
		c.dropped(depth)
		return err
	}
	return nil
}

// inside sees the members of the outer member.
func (c *editor) inside(t token, at, depth int) error {
	switch {
	case t == ',' && depth == 2:
		c.comma = at
	case t == tokenName && depth == 2:
		return c.innerBegins(at)
	case depth == 1:
		c.state, c.deep = editOutside, 1
		if c.JSON != nil && !c.set {
			return c.insert(c.members, c.Inner, c.JSON)
		}
	}
	return nil
}

// innerBegins sees the name of a member of the outer member.
func (c *editor) innerBegins(at int) error {
	comma := c.comma
	c.comma = -1
	if comma >= 0 && c.members == 0 { // what stood before the comma was taken out
		if err := c.flush(comma); err != nil {
			return err
		}
		c.out = at
	}
	if string(c.lastName()) != c.Inner {
		c.members++
		return nil
	}
	upTo := c.place()
	if c.JSON == nil {
		if upTo = at; comma >= 0 {
			upTo = comma
		}
	}
	if err := c.flush(upTo); err != nil {
		return err
	}
	c.out, c.state = c.place(), editDrop
	if c.JSON == nil {
		return nil
	}
	c.members++
	c.set = true
	_, err := c.dst.Write(c.JSON)
	return err
}

// dropped goes back to copying if the value that is dropped has ended.
func (c *editor) dropped(depth int) {
	switch {
	case c.want != expectNext:
	case c.state == editDrop && depth == 2:
		c.state = editInside
	case c.state == editDropAll && depth == 1:
		c.state = editOutside
	}
}

// insert adds a member to the object that the last token has ended, and that had
// this many.
func (c *editor) insert(members int, name string, value []byte) error {
	if err := c.flush(c.place() - 1); err != nil {
		return err
	}
	var member []byte
	if members > 0 {
		member = append(member, ',')
	}
	member = append(AppendString(member, name), ':')
	_, err := c.dst.Write(append(member, value...))
	return err
}

// object returns the outer member with nothing but the inner one in it.
func (c *editor) object() []byte {
	object := append(AppendString([]byte{'{'}, c.Inner), ':')
	return append(append(object, c.JSON...), '}')
}
