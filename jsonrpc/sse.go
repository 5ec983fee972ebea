package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"time"
)

// ErrTooLarge is the error for an event or line that exceeds the limit of its reader.
var ErrTooLarge = errors.New("larger than allowed")

// byteOrderMark may begin a stream of events.
const byteOrderMark = "\ufeff"

// An Event is one Server-Sent Event.
type Event struct {
	Name  string // "message" when empty
	ID    string
	HasID bool          // the event has an ID field, which may be empty
	Retry time.Duration // delay before reconnecting, unless zero
	Data  []byte        // lines joined by "\n"; nil without a data field
}

// An eventSource reads a stream of events.
type eventSource struct {
	r      *bufio.Reader
	begun  bool
	framer Framer
}

// next reads up to limit bytes, but not beyond the end of an event; see [Framer.next]. At the
// end of the stream it returns [io.EOF], or [io.ErrUnexpectedEOF] inside an event. The text is
// valid until the next call.
func (s *eventSource) next(limit int, data func([]byte)) (text []byte, complete bool, err error) {
	if !s.begun {
		s.begun = true
		// No event is shorter than the mark.
		start, err := s.r.Peek(len(byteOrderMark))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, false, err
		}
		if string(start) == byteOrderMark {
			_, _ = s.r.Discard(len(start))
		}
	}
	_, err = s.r.Peek(1)
	switch {
	case errors.Is(err, io.EOF) && s.framer.Open():
		return nil, false, io.ErrUnexpectedEOF
	case err != nil:
		return nil, false, err
	}
	text, _ = s.r.Peek(min(limit, s.r.Buffered()))
	n, complete := s.framer.next(text, data)
	_, _ = s.r.Discard(n)
	return text[:n], complete, nil
}

// An EventReader reads Server-Sent Events.
type EventReader struct {
	source eventSource
	max    int
	err    error
}

// NewEventReader returns a reader of the events of r. It refuses events and comments of more
// than maxSize bytes with [ErrTooLarge].
func NewEventReader(r io.Reader, maxSize int) *EventReader {
	return &EventReader{source: eventSource{r: bufio.NewReaderSize(r, min(maxSize, 4<<10))}, max: maxSize}
}

// Next returns the next event. It skips comments. At the end of the stream it returns [io.EOF],
// or [io.ErrUnexpectedEOF] inside an event. After an error it keeps returning that error.
func (r *EventReader) Next() (e Event, err error) {
	if r.err == nil {
		e, r.err = r.next()
	}
	return e, r.err
}

func (r *EventReader) next() (Event, error) {
	var event []byte
	for {
		text, complete, err := r.source.next(math.MaxInt, nil)
		if err != nil {
			return Event{}, err
		}
		if event = append(event, text...); len(event) > r.max {
			return Event{}, ErrTooLarge
		}
		if !complete {
			continue
		}
		if e, ok := eventIn(event); ok {
			return e, nil
		}
		event = event[:0]
	}
}

// EventIn returns the first event of text, and whether it is complete. Its data may alias text.
func EventIn(text []byte) (e Event, ok bool) {
	return eventIn(bytes.TrimPrefix(text, []byte(byteOrderMark)))
}

func eventIn(text []byte) (e Event, ok bool) {
	for begun := false; ; {
		line, rest, ended := cutLine(text)
		switch {
		case !ended:
			return Event{}, false
		case len(line) == 0 && begun:
			return e, true
		case e.field(line):
			begun = true
		}
		text = rest
	}
}

// cutLine cuts text after its first line, and reports whether that line has ended.
func cutLine(text []byte) (line, rest []byte, ended bool) {
	n := lineEnd(text)
	line, rest = text[:n:n], text[n:]
	switch {
	case len(rest) == 0:
		return line, nil, false
	case bytes.HasPrefix(rest, []byte("\r\n")):
		return line, rest[2:], true
	default:
		return line, rest[1:], true
	}
}

// field reads a line of an event, and reports whether it is a known field.
func (e *Event) field(line []byte) bool {
	name, value := cutField(line)
	switch string(name) {
	case "event":
		e.Name = string(value)
	case "data":
		if e.Data == nil {
			e.Data = value
		} else {
			e.Data = append(append(e.Data, '\n'), value...)
		}
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
	name, value, found := bytes.Cut(line, []byte(":"))
	if !found {
		return line, line[len(line):]
	}
	return name, bytes.TrimPrefix(value, []byte(" "))
}

// lineEnd returns the position of the first line break in p, or len(p). It searches in blocks
// of growing size, so that a stream with only CR line ends is not searched again for each line.
func lineEnd(p []byte) int {
	const largest = 8 << 10 // fits into the processor's cache, because it is searched twice
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

// AppendEvent appends e in stream format. It removes line breaks and NUL from name and ID.
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
	for more := true; more; {
		var line []byte
		line, data, more = cutLine(data)
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return dst
}

// AppendComment appends a comment, which clients ignore. It shows that the stream is alive.
func AppendComment(dst []byte, text string) []byte {
	return append(appendField(dst, "", text), '\n')
}
