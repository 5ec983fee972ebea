package mcphttp

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A stream is an answer that has begun and takes its time. Several goroutines may
// write to it: the one of the exchange, and those that insert messages of the
// gate's own.
type stream struct {
	x      *exchange
	out    *response
	events bool   // it is a stream of events, and else JSON that white space may precede
	after  func() // to be called once when the next event has been written

	mu     sync.Mutex  // guards what the client is sent
	unsent bool        // what was written may not be on its way
	behind int         // bytes that were written since all was on its way
	torn   bool        // the client has been sent part of an event, or nothing yet
	queue  []insertion // events to insert when that is complete
	closed bool
	lost   bool // the client did not take what it was sent
}

// newStream returns the stream of events that the exchange answers with.
func (x *exchange) newStream() *stream { return &stream{x: x, out: &x.out, events: true, torn: true} }

// Wait implements [conversation.Reply].
func (x *exchange) Wait() (conversation.Stream, error) {
	if x.Gone() {
		return nil, conversation.ErrGone
	}
	s := x.newStream()
	s.events = x.takesEvents()
	return s, s.send(nil)
}

// Listen implements [conversation.Reply].
func (x *exchange) Listen() conversation.Stream { return x.newStream() }

// begin begins an answer that is a stream of the gate's own.
func (s *stream) begin() {
	header := s.out.header()
	if s.events {
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
	} else {
		header.Set("Content-Type", "application/json")
	}
	header.Set("X-Accel-Buffering", "no") // proxies in front must not hold events back either
	s.out.begin(http.StatusOK)
}

// Early implements [conversation.Stream].
func (s *stream) Early() bool { return s.events }

// Send implements [conversation.Stream].
func (s *stream) Send(message []byte) error {
	if message == nil {
		return s.send(nil)
	}
	return s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message}))
}

// Mark implements [conversation.Stream].
func (s *stream) Mark(place string) error {
	return s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{ID: place, HasID: true, Data: []byte{}}))
}

// send sends complete events on their way.
func (s *stream) send(p []byte) error {
	if err := s.write(p); err != nil {
		return err
	}
	return s.flush()
}

// write writes complete events.
func (s *stream) write(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return conversation.ErrGone
	}
	if !s.out.began {
		s.begin()
	}
	s.unsent = true
	s.behind += len(p)
	if err := s.out.write(p); err != nil {
		return err
	}
	for _, event := range s.queue {
		s.writeInserted(event)
	}
	s.torn, s.queue = false, nil
	if s.after != nil {
		s.after()
		s.after = nil
	}
	return nil
}

// writePart writes part of an event.
func (s *stream) writePart(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.torn, s.unsent = true, true
	s.behind += len(p)
	return s.out.write(p)
}

// flush sends what has been written on its way.
func (s *stream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return conversation.ErrGone
	}
	if !s.unsent {
		return nil
	}
	if err := s.out.flush(); err != nil {
		s.lost = true
		return err
	}
	s.unsent, s.behind = false, 0
	return nil
}

// isNearlySent reports whether what may not be on its way is so little that the server of
// net/http holds all of it.
func (s *stream) isNearlySent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lost && s.behind <= announced
}

// maxQueue is how many events may wait for the end of one that is torn.
const maxQueue = 1000

// An insertion writes an event of the gate's own, of any size.
type insertion func(io.Writer) error

// Beat implements [conversation.Stream].
func (s *stream) Beat(why string) bool {
	sign := []byte(" ")
	if s.events {
		sign = jsonrpc.AppendComment(nil, why)
	}
	return s.insert(func(w io.Writer) error {
		_, err := w.Write(sign)
		return err
	})
}

// Insert implements [conversation.Stream].
func (s *stream) Insert(write func(io.Writer) error) bool {
	return s.insert(func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, upstream.PieceSize/2)
		if err := writeEvent(buffered, write); err != nil {
			return err
		}
		return buffered.Flush()
	})
}

// insert sends an event of the gate's own between two of the upstream's, and
// reports whether the client is still there. It may be called from any
// goroutine. A client that does not take it in time loses its stream: it would
// be told of everything that follows too late as well.
func (s *stream) insert(event insertion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case !s.torn:
		s.writeInserted(event)
	case len(s.queue) < maxQueue:
		s.queue = append(s.queue, event)
	default:
		s.lose()
	}
	return !s.closed
}

// writeInserted sends an event from a goroutine that may not be the exchange's. An
// event that breaks off breaks the stream off, so that nobody takes what comes
// after for its end.
func (s *stream) writeInserted(event insertion) {
	out := &insertedWriter{to: s.out}
	if err := event(out); err != nil && out.begun || s.out.control.Flush() != nil {
		s.lose()
	}
}

// An insertedWriter writes what does not come from the exchange's own goroutine.
type insertedWriter struct {
	to    *response
	begun bool
}

// Write implements [io.Writer].
func (w *insertedWriter) Write(p []byte) (int, error) {
	w.begun = true
	if err := w.to.tryWrite(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// lose gives up a client.
func (s *stream) lose() {
	s.closed, s.lost = true, true
	s.out.cut()
}

// isLost reports whether the client was given up.
func (s *stream) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// Close implements [conversation.Stream].
func (s *stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Compose implements [conversation.Stream].
func (s *stream) Compose(write func(io.Writer) error, note func()) error {
	if !s.events {
		return s.x.Compose(write, note)
	}
	return s.x.Compose(func(w io.Writer) error { return writeEvent(w, write) }, note)
}

// writeEvent writes an event whose data write writes.
func writeEvent(to io.Writer, write func(io.Writer) error) error {
	data := jsonrpc.NewDataWriter(to)
	if err := write(data); err != nil {
		return err
	}
	return data.Close()
}

// Compose implements [conversation.Reply]. The client's next call, however soon it
// comes, must find the note. If something has been sent when writing fails, the
// error is ErrGone or ErrBrokenOff, and the exchange ends so that nobody takes what
// was sent for an answer.
func (x *exchange) Compose(write func(io.Writer) error, note func()) error {
	out := &output{to: &x.out}
	buffered := bufio.NewWriterSize(out, upstream.PieceSize/2)
	if err := write(buffered); err != nil {
		if out.begun && !errors.Is(err, conversation.ErrGone) {
			return x.Fail(err)
		}
		return err
	}
	if !x.out.began {
		note() // all of it is still in the buffer
		return errors.Join(buffered.Flush(), out.finish())
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if err := x.out.flush(); err != nil {
		return err
	}
	note()
	return out.finish()
}

// An output writes an answer that is a message, and holds its last byte back.
type output struct {
	to    *response
	begun bool
	last  byte
}

// Write implements [io.Writer]. Its error is [conversation.ErrGone].
func (o *output) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !o.to.began {
		o.to.header().Set("Content-Type", "application/json")
		o.to.begin(http.StatusOK)
	}
	if o.begun {
		if err := o.to.write([]byte{o.last}); err != nil {
			return 0, err
		}
	}
	end := len(p) - 1
	if err := o.to.write(p[:end]); err != nil {
		return 0, err
	}
	o.begun, o.last = true, p[end]
	return len(p), nil
}

// finish writes the last byte.
func (o *output) finish() error { return o.to.sendNow([]byte{o.last}) }
