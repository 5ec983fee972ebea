package translate

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A source reads the messages of a server's answer, which is JSON or an event stream.
type source struct {
	body   io.ReadCloser
	events *jsonrpc.EventReader // nil for JSON
	limit  int
	again  *jsonrpc.Message // read already
	done   bool
}

// newSource returns a source of the messages of resp, each of at most limit bytes.
func newSource(resp *http.Response, limit int) *source {
	s := &source{body: resp.Body, limit: limit}
	if httpclient.MediaType(resp.Header.Get("Content-Type")) == "text/event-stream" {
		s.events = jsonrpc.NewEventReader(resp.Body, limit)
	}
	return s
}

// next returns the next message. At the end it returns [io.EOF].
func (s *source) next() (*jsonrpc.Message, error) {
	if m := s.again; m != nil {
		s.again = nil
		return m, nil
	}
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	return jsonrpc.ParseMessage(text, jsonrpc.Limits{})
}

func (s *source) text() ([]byte, error) {
	if s.events != nil {
		for {
			e, err := s.events.Next()
			if err != nil || len(bytes.TrimSpace(e.Data)) > 0 {
				return e.Data, err
			}
		}
	}
	if s.done {
		return nil, io.EOF
	}
	s.done = true
	text, err := io.ReadAll(io.LimitReader(s.body, int64(s.limit)+1))
	if err == nil && len(text) > s.limit {
		err = jsonrpc.ErrTooLarge
	}
	return text, err
}

// A closer closes the latest of the answers that a conversion reads, possibly while it is read.
type closer struct {
	mu     sync.Mutex
	body   io.Closer
	closed bool
}

// set makes resp the latest answer.
func (c *closer) set(resp *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.body = resp.Body
	if c.closed {
		_ = resp.Body.Close()
	}
}

// close closes the latest answer, and any later one.
func (c *closer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.body != nil {
		_ = c.body.Close()
	}
}

// newID returns an id that no request of a client has.
func newID() []byte { return jsonrpc.AppendString(nil, "tg-"+rand.Text()) }

// A conversion gives the messages for a client one by one. final marks the answer, which is the last; a
// stream that answers no request ends with a final message without text. Another message without text
// says that the answer takes time.
type conversion interface {
	next() (text []byte, final bool, err error)
	Close() error
}

// A stream is the event stream of the messages of a conversion.
type stream struct {
	from    conversion
	pending []byte
	ended   bool
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (int, error) {
	for len(s.pending) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		text, final, err := s.from.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // the answer is missing
			}
			return 0, err
		}
		if s.ended = final; text == nil {
			continue
		}
		s.pending = jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: text})
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// Close implements [io.Closer].
func (s *stream) Close() error { return s.from.Close() }

// respond waits for the first message of a conversion. The response is JSON if that is the answer, and
// otherwise a stream, which later messages follow. Clients that take no events get the answer only.
func (x *exchange) respond(c conversion, status func(answer []byte) int) (*http.Response, error) {
	for {
		text, final, err := c.next()
		switch {
		case err != nil:
			_ = c.Close()
			return nil, brokenAnswer(err)
		case final:
			_ = c.Close()
			return answer(status(text), text), nil
		case x.takesEvents:
			s := &stream{from: c}
			if text != nil {
				s.pending = jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: text})
			}
			return events(s), nil
		}
	}
}
