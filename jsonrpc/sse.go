package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// ErrTooLarge reports an event or a line that is larger than its reader allows.
var ErrTooLarge = errors.New("larger than allowed")

// byteOrderMark may begin a stream of events. It says nothing.
const byteOrderMark = "\ufeff"

// An Event is one Server-Sent Event.
type Event struct {
	Name  string // "message" when empty
	ID    string
	HasID bool          // whether the event sets the last event id, maybe to ""
	Retry time.Duration // how long to wait before reconnecting, when not zero
	Data  []byte        // lines joined by "\n"; nil when the event has no data field
}

// An EventReader takes a stream of Server-Sent Events apart.
type EventReader struct {
	r       *bufio.Reader
	max     int
	line    []byte
	begun   bool
	afterCR bool // the last line ended in CR: a LF that follows belongs to it
	err     error
}

// NewEventReader returns a reader of the events of r. Events whose fields have
// more than maxSize bytes, and longer lines, are refused with [ErrTooLarge].
func NewEventReader(r io.Reader, maxSize int) *EventReader {
	return &EventReader{r: bufio.NewReaderSize(r, min(maxSize, 4<<10)), max: maxSize}
}

// Next returns the next event that has any field, comments left out. At the
// end of the stream it returns [io.EOF], or [io.ErrUnexpectedEOF] when that
// falls into an event or a line. After an error there are no more events.
func (r *EventReader) Next() (Event, error) {
	if r.err != nil {
		return Event{}, r.err
	}
	e, err := r.next()
	r.err = err
	return e, err
}

func (r *EventReader) next() (Event, error) {
	var e Event
	size := 0 // of the fields
	for {
		line, err := r.readLine()
		switch {
		case errors.Is(err, io.EOF) && size+len(line) > 0:
			return Event{}, io.ErrUnexpectedEOF
		case err != nil:
			return Event{}, err
		case len(line) == 0 && size > 0:
			return e, nil
		case e.field(line):
			size += len(line)
		}
		if size > r.max {
			return Event{}, ErrTooLarge
		}
	}
}

// EventIn returns the first event of text that has any field, comments left out. It reports
// false if text ends before that event does. The data of the event may be part of text.
func EventIn(text []byte) (e Event, ok bool) {
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	for begun := false; ; {
		n := lineEnd(text)
		if n == len(text) {
			return Event{}, false
		}
		line := text[:n:n]
		switch {
		case n == 0 && begun:
			return e, true
		case e.lend(line) || e.field(line):
			begun = true
		}
		if bytes.HasPrefix(text[n:], []byte("\r\n")) {
			n++
		}
		text = text[n+1:]
	}
}

// lend is field for a first line of data, which it does not copy.
func (e *Event) lend(line []byte) bool {
	const data = "data:"
	if e.Data != nil || !bytes.HasPrefix(line, []byte(data)) {
		return false
	}
	e.Data = bytes.TrimPrefix(line[len(data):], []byte(" "))
	return true
}

// field takes one line of an event in and reports whether it is a field that
// has a meaning.
func (e *Event) field(line []byte) bool {
	name, value := cutField(line)
	switch string(name) {
	case "event":
		e.Name = string(value)
	case "data":
		if e.Data == nil {
			e.Data = []byte{}
		} else {
			e.Data = append(e.Data, '\n')
		}
		e.Data = append(e.Data, value...)
	case "id":
		if bytes.IndexByte(value, 0) >= 0 {
			return false
		}
		e.ID, e.HasID = string(value), true
	case "retry":
		ms, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil {
			return false
		}
		e.Retry = time.Duration(ms) * time.Millisecond
	default:
		return false
	}
	return true
}

func cutField(line []byte) (name, value []byte) {
	name, value, _ = bytes.Cut(line, []byte(":"))
	return name, bytes.TrimPrefix(value, []byte(" "))
}

// readLine returns the next line without its ending, valid until the next call.
// With an error it returns the line as far as it was read.
func (r *EventReader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		if _, err := r.r.Peek(1); err != nil {
			return r.withoutMark(), err
		}
		p, _ := r.r.Peek(r.r.Buffered())
		if r.afterCR && p[0] == '\n' {
			p = p[1:]
			_, _ = r.r.Discard(1)
		}
		n := lineEnd(p)
		r.line = append(r.line, p[:n]...)
		if len(r.line) > r.max {
			return nil, ErrTooLarge
		}
		ended := n < len(p)
		r.afterCR = ended && p[n] == '\r'
		_, _ = r.r.Discard(min(n+1, len(p)))
		if ended {
			return r.withoutMark(), nil
		}
	}
}

// withoutMark returns the line that was read, and if it is the first one, that
// without the byte order mark.
func (r *EventReader) withoutMark() []byte {
	line := r.line
	if !r.begun {
		line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	}
	r.begun = true
	return line
}

// lineEnd returns where the first line break of p is, or len(p). It looks at a
// small block first and at larger ones after it, so that a stream whose lines end
// with nothing but a carriage return is not searched again for each of them.
func lineEnd(p []byte) int {
	const largest = 8 << 10 // it stays in the processor's cache while it is searched twice
	for at, block := 0, 256; at < len(p); at, block = at+block, min(2*block, largest) {
		some := p[at:min(at+block, len(p))]
		n := bytes.IndexByte(some, '\n')
		if n < 0 {
			n = len(some)
		}
		if before := bytes.IndexByte(some[:n], '\r'); before >= 0 {
			n = before
		}
		if n < len(some) {
			return at + n
		}
	}
	return len(p)
}

// AppendEvent appends e as it is written on a stream. A name or id with a line
// break or a NUL in it would not be read as it is, so these are left out.
func AppendEvent(dst []byte, e Event) []byte {
	if e.Name != "" {
		dst = appendField(dst, "event", e.Name)
	}
	if e.HasID {
		dst = appendField(dst, "id", e.ID)
	}
	if e.Retry > 0 {
		dst = appendField(dst, "retry", strconv.FormatInt(e.Retry.Milliseconds(), 10))
	}
	if e.Data != nil {
		dst = appendData(dst, e.Data)
	}
	return append(dst, '\n')
}

func appendField(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	for i := range len(value) {
		if c := value[i]; c != '\r' && c != '\n' && c != 0 {
			dst = append(dst, c)
		}
	}
	return append(dst, '\n')
}

func appendData(dst, data []byte) []byte {
	for {
		n := lineEnd(data)
		dst = append(dst, "data: "...)
		dst = append(dst, data[:n]...)
		dst = append(dst, '\n')
		if n == len(data) {
			return dst
		}
		if bytes.HasPrefix(data[n:], []byte("\r\n")) {
			n++
		}
		data = data[n+1:]
	}
}

// AppendComment appends a comment, which readers ignore, without the line breaks
// in text. It keeps a silent stream alive.
func AppendComment(dst []byte, text string) []byte {
	return append(appendField(dst, "", text), '\n')
}
