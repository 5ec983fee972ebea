package jsonrpc

import "bytes"

// A Framer finds the ends of events in a stream of Server-Sent Events that is relayed. So the
// relay can hold back an incomplete event and insert events of its own. It keeps no event, so
// events may be of any size. The zero Framer is ready to use.
type Framer struct {
	head      [8]byte // start of the current line; large enough for a byte order mark and "id: x"
	seen      int     // bytes in head
	begun     bool    // the first line has ended
	open      bool    // the current event has fields
	afterCR   bool    // the last line ended in CR; a following LF belongs to it
	id        bool    // the last id field was not empty
	hasIDs    bool
	ended     bool // an event has just ended; data, dataEnded and ambiguous describe it
	data      int  // data lines of the event
	dataEnded bool // another line followed the data
	ambiguous bool // some clients parse the event differently
}

// Advance reads the next bytes. It returns how many of them belong to complete events or
// comments: after that many bytes, another event may be inserted.
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

// Next reads p up to the end of the first event or comment. It returns the number of bytes read
// and whether there was such an end; otherwise it has read all of p.
func (f *Framer) Next(p []byte) (n int, complete bool) { return f.next(p, nil) }

// next is Next that also passes the data in p to data, unless that is nil.
func (f *Framer) next(p []byte, data func(part []byte)) (n int, complete bool) {
	if f.ended {
		f.ended, f.data, f.dataEnded, f.ambiguous = false, 0, false, false
	}
	for n < len(p) {
		if !f.afterCR || p[n] != '\n' {
			text := lineEnd(p[n:])
			f.inLine(p[n:n+text], data)
			if n += text; n == len(p) {
				f.afterCR = false
				break
			}
			f.endLine(data)
		}
		f.afterCR = p[n] == '\r'
		n++
		halfBreak := f.afterCR && n < len(p) && p[n] == '\n'
		if !f.open && !halfBreak {
			f.ended = true
			return n, true
		}
	}
	return n, false
}

const dataField = "data:"

// inLine reads a part of a line.
func (f *Framer) inLine(part []byte, data func([]byte)) {
	before := f.seen
	f.seen += copy(f.head[f.seen:], part)
	head := f.head[:f.seen]
	//mutate:swap "f.afterCR && f.open" "false" TestFramerPlain an event with a lone CR is called plain
	loneCR := f.afterCR && f.open // it ended a line of this event
	f.ambiguous = f.ambiguous || loneCR
	if !bytes.HasPrefix(head, []byte(dataField)) {
		isUnknown := len(head) >= len("retry:") && !isOtherField(head)
		f.ambiguous = f.ambiguous || isUnknown || !isPrintable(part)
		return
	}
	if before < len(dataField) {
		f.beginData(data)
	}
	value := len(dataField)
	if f.seen > value && head[value] == ' ' {
		value++
	}
	if data != nil {
		data(part[min(max(0, value-before), len(part)):])
	}
}

// beginData begins a data line.
func (f *Framer) beginData(data func([]byte)) {
	f.ambiguous = f.ambiguous || f.dataEnded // some clients keep only the last data lines
	if f.data++; f.data > 1 && data != nil {
		data([]byte("\n"))
	}
}

func (f *Framer) endLine(data func([]byte)) {
	line := f.head[:f.seen]
	switch {
	case string(line) == "data":
		f.ambiguous = true // some clients do not accept a field without a colon
		f.beginData(data)
	case !bytes.HasPrefix(line, []byte(dataField)):
		f.ambiguous = f.ambiguous || !isOtherField(line)
		f.dataEnded = f.data > 0
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

// isOtherField reports whether the line is empty, a comment, or a field other than data.
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

// Plain reports whether all clients parse the last event alike: it has at most one data line,
// only known fields, and line ends that all clients accept. Some clients end lines at LF only,
// some also at other characters, and some keep only one data line.
func (f *Framer) Plain() bool {
	//mutate:swap "f.data <= 1" "true" TestFramerPlain an event with two lines of data is called plain
	return !f.ambiguous && f.data <= 1 && !f.afterCR
}

// Open reports whether the stream is inside an event or a line.
func (f *Framer) Open() bool { return f.open || f.seen > 0 }

// HasIDs reports whether an event had a nonempty ID, so that a client can resume the stream.
func (f *Framer) HasIDs() bool { return f.hasIDs }
