package jsonrpc

import "io"

// A MemberEdit changes one member of a member of an object of any size. [Patch] does this for a
// message in memory.
type MemberEdit struct {
	Outer, Inner string
	JSON         []byte // the new value; nil removes the member
}

// Copy copies the object from src to dst with the change. It validates the object and returns a
// [*ParseError] if it is invalid; dst then has the part before the error.
func (e MemberEdit) Copy(dst io.Writer, src io.Reader) error {
	c := editor{edit: e, walker: newWalker(src), dst: dst, heldComma: -1}
	c.walker.release = c.release
	if c.walker.next() != '{' && c.walker.err == nil {
		return &ParseError{Code: CodeInvalidRequest, Reason: "not an object"}
	}
	members, found := 0, false
	for {
		if t := c.walker.next(); t == ',' {
			continue
		} else if t != tokenName {
			break
		}
		members++
		if string(c.walker.scanner.lastName()) == e.Outer {
			found = true
			c.outer()
		} else {
			c.walker.finish(1, nil)
		}
	}
	if !found && e.JSON != nil {
		c.insert(members, e.Outer, c.object())
	}
	c.walker.next() // the end
	c.flush(c.walker.place())
	return c.walker.err
}

// An editor performs a [MemberEdit].
type editor struct {
	edit      MemberEdit
	walker    walker
	dst       io.Writer
	out       int  // position up to which src was copied or dropped
	heldComma int  // position of a comma that may have to be dropped; negative if none
	drops     bool // input is dropped instead of copied
}

// drop skips a value in an object of the given depth.
func (c *editor) drop(depth int) {
	c.drops = true
	c.walker.finish(depth, nil)
	c.drops, c.out = false, c.walker.place()
}

// release copies the finished input before the window moves.
func (c *editor) release() {
	if c.heldComma >= 0 {
		c.flush(c.heldComma)
	} else {
		c.flush(c.walker.place())
	}
	c.walker.keep = c.out
}

// flush copies or drops src up to a position.
func (c *editor) flush(upTo int) {
	if upTo <= c.out {
		return
	}
	if base := c.walker.scanner.base; !c.drops {
		c.write(c.walker.scanner.data[c.out-base : upTo-base])
	}
	c.out = upTo
}

func (c *editor) write(p []byte) {
	if c.walker.err == nil {
		_, c.walker.err = c.dst.Write(p)
	}
}

// outer copies the value of the outer member.
func (c *editor) outer() {
	switch t := c.walker.next(); {
	case t == '{':
		c.members()
	case c.edit.JSON == nil || c.walker.err != nil:
		c.walker.finish(1, nil)
	default:
		c.flush(c.walker.at)
		c.write(c.object())
		c.drop(1)
	}
}

// members copies the members of the outer member.
func (c *editor) members() {
	c.walker.uniqueDepth = 2
	members, set := 0, false
	for {
		t, comma := c.walker.next(), -1
		if t == ',' {
			comma = c.walker.at
			c.heldComma = comma
			t = c.walker.next()
			c.heldComma = -1
		}
		if t != tokenName {
			break
		}
		from := c.walker.at
		if comma >= 0 && members == 0 { // the members before the comma were removed
			c.flush(comma)
			c.out = from
		} else if comma >= 0 {
			from = comma
		}
		switch {
		case string(c.walker.scanner.lastName()) != c.edit.Inner:
			members++
			c.walker.finish(2, nil)
		case c.edit.JSON == nil:
			c.flush(from)
			c.drop(2)
		default:
			members++
			set = true
			c.flush(c.walker.place())
			c.write(c.edit.JSON)
			c.drop(2)
		}
	}
	c.walker.uniqueDepth = 1
	if c.edit.JSON != nil && !set {
		c.insert(members, c.edit.Inner, c.edit.JSON)
	}
}

// insert adds a member to the object that has just ended and has the given number of members.
func (c *editor) insert(members int, name string, value []byte) {
	if c.walker.err != nil {
		return
	}
	c.flush(c.walker.place() - 1)
	var member []byte
	if members > 0 {
		member = append(member, ',')
	}
	c.write(append(append(AppendString(member, name), ':'), value...))
}

// object returns the outer member with only the inner member in it.
func (c *editor) object() []byte {
	return AppendObject(nil, Member{Name: c.edit.Inner, JSON: c.edit.JSON})
}
