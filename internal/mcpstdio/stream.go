package mcpstdio

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
)

// A stream is the part of the pipe that belongs to one exchange.
type stream struct {
	x *exchange

	mu     sync.Mutex
	closed bool
}

// Early implements [conversation.Stream].
func (s *stream) Early() bool { return true }

// Send implements [conversation.Stream].
func (s *stream) Send(message []byte) error {
	if s.x.ctx.Err() != nil {
		return conversation.ErrGone
	}
	if message == nil {
		return nil
	}
	return s.x.a.out.send(message)
}

// Mark implements [conversation.Stream]. A pipe that is lost cannot be resumed.
func (s *stream) Mark(string) error { return nil }

// Beat implements [conversation.Stream]. A pipe has no signs of life but messages.
func (s *stream) Beat(string) bool { return s.x.ctx.Err() == nil }

// Insert implements [conversation.Stream].
func (s *stream) Insert(write func(io.Writer) error) bool {
	var message bytes.Buffer
	if err := write(&message); err != nil {
		return s.open() // nothing of it was sent
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.Send(message.Bytes()) == nil
}

func (s *stream) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed
}

// Compose implements [conversation.Stream].
func (s *stream) Compose(write func(io.Writer) error, note func()) error {
	return s.x.Compose(write, note)
}

// Close implements [conversation.Stream].
func (s *stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Wait implements [conversation.Reply].
func (x *exchange) Wait() (conversation.Stream, error) { return x.Listen(), nil }

// Listen implements [conversation.Reply]. From now on the exchange ends when the
// client leaves.
func (x *exchange) Listen() conversation.Stream {
	stop := context.AfterFunc(x.a.left, x.cancel)
	context.AfterFunc(x.ctx, func() { stop() })
	x.settle()
	return &stream{x: x}
}
