package mcphttp

import (
	"bufio"
	"io"
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A stream is a long-lived answer. The goroutine of the request and goroutines that insert the
// gate's messages may write to it concurrently.
type stream struct {
	reply  *reply
	out    *response
	events bool   // an event stream; otherwise JSON, before which white space may be sent
	lazy   bool   // begins with the first event or sign of life
	after  func() // called once after the next event was written

	mu             sync.Mutex  // serializes writes
	needsFlush     bool        // written bytes may still be buffered
	unflushedBytes int         // bytes written since the last flush
	midEvent       bool        // the stream has not begun, or part of an event was sent
	queue          []insertion // events to insert once the current one is complete
	closed         bool
	lost           bool // the client did not accept the sent bytes
}

// Started implements [conversation.Stream].
func (s *stream) Started() bool { return s.out.began }

// begin sends the head of an answer of the gate.
func (s *stream) begin() {
	header := s.out.header()
	if s.events {
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
	} else {
		header.Set("Content-Type", "application/json")
	}
	header.Set("X-Accel-Buffering", "no") // tells proxies not to buffer events
	s.out.begin(http.StatusOK)
}

// CanSendEarly implements [conversation.Stream].
func (s *stream) CanSendEarly() bool { return s.events }

// Send implements [conversation.Stream].
func (s *stream) Send(message []byte) error {
	if message == nil {
		return s.send(nil)
	}
	return s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message}))
}

// SetResumePoint implements [conversation.Stream].
func (s *stream) SetResumePoint(eventID string) error {
	return s.send(jsonrpc.AppendEvent(nil, jsonrpc.Event{ID: eventID, HasID: true, Data: []byte{}}))
}

// send writes and flushes complete events.
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
	s.needsFlush = true
	s.unflushedBytes += len(p)
	if err := s.out.write(p); err != nil {
		return err
	}
	for _, event := range s.queue {
		s.writeInserted(event)
	}
	s.midEvent, s.queue = false, nil
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
	s.midEvent, s.needsFlush = true, true
	s.unflushedBytes += len(p)
	return s.out.write(p)
}

// flush flushes the written bytes.
func (s *stream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return conversation.ErrGone
	}
	if !s.needsFlush {
		return nil
	}
	if err := s.out.flush(); err != nil {
		s.lost = true
		return err
	}
	s.needsFlush, s.unflushedBytes = false, 0
	return nil
}

// isNearlySent reports whether all unflushed bytes fit into the buffer of net/http.
func (s *stream) isNearlySent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	//mutate:swap "!s.lost && " "" TestUndeliveredEndCountsAsUndelivered an answer that the client did not read counts as delivered
	return !s.lost && s.unflushedBytes <= announced
}

// maxQueue is the number of events that may wait for the end of another event.
const maxQueue = 1000

// An insertion writes one event, of any size.
type insertion func(io.Writer) error

// Heartbeat implements [conversation.Stream].
func (s *stream) Heartbeat(why string) bool {
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

// insert sends an event of the gate between two others, and reports whether the client is still
// there. Any goroutine may call it. A client that does not accept the event in time loses its
// stream, since later events would be late too.
func (s *stream) insert(event insertion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case s.lazy && !s.out.began:
		s.begin()
		s.midEvent = false
		s.writeInserted(event)
	case !s.midEvent:
		s.writeInserted(event)
	case len(s.queue) < maxQueue:
		s.queue = append(s.queue, event)
	default:
		s.drop()
	}
	return !s.closed
}

// writeInserted writes an inserted event. If writing fails midway, the stream is broken off, so
// that the client does not take later bytes for the rest.
func (s *stream) writeInserted(event insertion) {
	out := &insertedWriter{to: s.out}
	if err := event(out); err != nil && out.begun || s.out.control.Flush() != nil {
		s.drop()
	}
}

// An insertedWriter writes from a goroutine other than the exchange's.
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

// drop gives up the client.
func (s *stream) drop() {
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
		return s.reply.Compose(write, note)
	}
	s.mu.Lock()
	if !s.out.began {
		s.begin()
	}
	s.mu.Unlock()
	return s.reply.Compose(func(w io.Writer) error { return writeEvent(w, write) }, note)
}

// writeEvent writes one event; write writes its data.
func writeEvent(to io.Writer, write func(io.Writer) error) error {
	data := jsonrpc.NewDataWriter(to)
	if err := write(data); err != nil {
		return err
	}
	return data.Close()
}
