package jsonrpc

import "bytes"

// A Framer follows a stream of Server-Sent Events that is relayed as it comes
// and tells where events end, so that a relay can hold back an unfinished
// event, or insert one of its own between two others. It keeps no bytes, so
// events may be of any size. The zero Framer stands at the start of a stream.
type Framer struct {
	head    [8]byte // how the current line begins: room for a byte order mark and "id: x"
	seen    int     // bytes of the current line that are in head
	begun   bool    // the first line has ended
	open    bool    // fields have been seen since the last event ended
	afterCR bool    // the last line ended in CR: a LF that follows belongs to it
	id      bool    // the last id field had a value
	hasIDs  bool
	data    int  // lines of data since the last event ended
	odd     bool // some clients take a line since then for something else
	plain   bool // see Plain
}

// Advance takes in the next bytes of the stream. It returns how many of them,
// counted from the first, belong to complete events or to comments that stand
// between events: after that many bytes another event may be inserted.
func (f *Framer) Advance(p []byte) int {
	boundary := 0
	for at := 0; at < len(p); {
		n, complete := f.Next(p[at:])
		if at += n; complete {
			boundary = at
		}
	}
	return boundary
}

// Next takes in bytes of p up to the first line break that ends an event, or a
// comment between events. It returns how many that are, and whether there was
// such an end; if not, it has taken in all of p.
func (f *Framer) Next(p []byte) (n int, complete bool) {
	for n < len(p) {
		if !f.afterCR || p[n] != '\n' {
			text := lineEnd(p[n:])
			f.inLine(p[n : n+text])
			if n += text; n == len(p) {
				f.afterCR = false
				break
			}
			f.endLine()
		}
		f.afterCR = p[n] == '\r'
		n++
		halfBreak := f.afterCR && n < len(p) && p[n] == '\n'
		if !f.open && !halfBreak {
			f.endEvent()
			return n, true
		}
	}
	return n, false
}

// inLine takes in a part of a line.
func (f *Framer) inLine(part []byte) {
	f.seen += copy(f.head[f.seen:], part)
	loneCR := f.afterCR && f.open // it ended a line of this event
	f.odd = f.odd || loneCR || !isData(f.head[:f.seen]) && !isPrintable(part)
}

func (f *Framer) endLine() {
	line := f.head[:f.seen]
	if isData(line) {
		f.data++
	} else if !isOtherField(line) {
		f.odd = true
	}
	if !f.begun {
		line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	}
	f.begun, f.seen = true, 0
	switch {
	case len(line) == 0:
		f.hasIDs = f.hasIDs || f.id
		f.open = false
	case line[0] != ':':
		f.open = true
		if name, value := cutField(line); string(name) == "id" {
			f.id = len(value) > 0
		}
	}
}

func (f *Framer) endEvent() {
	f.plain = !f.odd && f.data <= 1 && !f.afterCR
	f.data, f.odd = 0, false
}

// isData reports whether a line that begins so is data.
func isData(head []byte) bool { return bytes.HasPrefix(head, []byte("data:")) }

// isOtherField reports whether a line that begins so is a field other than data, a
// comment, or empty.
func isOtherField(head []byte) bool {
	for _, name := range []string{":", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(head, []byte(name)) {
			return true
		}
	}
	return len(head) == 0
}

// isPrintable reports whether p is printable ASCII.
func isPrintable(p []byte) bool {
	for _, c := range p {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// Plain reports whether all clients take the event, or the comment, that ended last apart
// in the same way: its lines have the same ends and the same fields for all of them, and
// at most one of them has data. Some clients end a line at LF only, some at other
// characters as well, and some keep one line of data.
func (f *Framer) Plain() bool { return f.plain }

// Open reports whether the stream stands inside an event or a line.
func (f *Framer) Open() bool { return f.open || f.seen > 0 }

// HasIDs reports whether an event so far had an id that is not empty, so that a
// client which loses the stream can resume it.
func (f *Framer) HasIDs() bool { return f.hasIDs }
