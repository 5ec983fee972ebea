package stdioclient

import (
	"io"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// maxUnread is how many bytes may wait to be read. A slower reader loses the rest and
// subscribes again.
const maxUnread = 1 << 20

// A subscription is the event stream of the server's messages about one subscription.
type subscription struct {
	onClose func()

	mu     sync.Mutex
	news   sync.Cond
	unread []byte
	err    error // why the stream has ended
}

func newSubscription() *subscription {
	s := new(subscription)
	s.news.L = &s.mu
	return s
}

// add implements listener.
func (s *subscription) add(message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.unread = jsonrpc.AppendEvent(s.unread, jsonrpc.Event{Name: "message", Data: message})
	if len(s.unread) > maxUnread {
		s.err = io.ErrShortBuffer
	}
	s.news.Broadcast()
}

// answer implements listener.
func (s *subscription) answer(message []byte) { s.add(message) }

// end implements listener.
func (s *subscription) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
	s.news.Broadcast()
}

// Read implements [io.Reader].
func (s *subscription) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.unread) == 0 && s.err == nil {
		s.news.Wait()
	}
	if len(s.unread) == 0 {
		return 0, s.err
	}
	n := copy(p, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

// Close implements [io.Closer].
func (s *subscription) Close() error {
	s.end(io.ErrClosedPipe)
	s.onClose()
	return nil
}
