package bridge

import (
	"io"
	"sync"
)

// maxUnread is how many bytes may wait in a queue.
const maxUnread = 1 << 20

// An eventQueue keeps the messages of a session's server for the client's stream. It has one reader
// at a time: a new reader replaces the present one.
type eventQueue struct {
	mu      sync.Mutex
	changed sync.Cond
	events  [][]byte
	unread  int               // bytes in events
	reader  *eventQueueReader // the present reader; may be nil
	isEnded bool
}

func newEventQueue() *eventQueue {
	b := new(eventQueue)
	b.changed.L = &b.mu
	return b
}

// add adds a message. It returns false if the queue is full or closed.
func (b *eventQueue) add(message []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isEnded || b.unread+len(message) > maxUnread {
		return false
	}
	event := appendEvent(nil, message)
	b.events, b.unread = append(b.events, event), b.unread+len(event)
	b.changed.Broadcast()
	return true
}

// addIfRead is add for a queue that has a reader.
func (b *eventQueue) addIfRead(message []byte) bool {
	b.mu.Lock()
	read := b.reader != nil
	b.mu.Unlock()
	return read && b.add(message)
}

// open returns a new reader. The present reader gets EOF.
func (b *eventQueue) open(onClose func()) *eventQueueReader {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reader = &eventQueueReader{box: b, onClose: sync.OnceFunc(onClose)}
	b.changed.Broadcast()
	return b.reader
}

// close ends the queue.
func (b *eventQueue) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isEnded = true
	b.changed.Broadcast()
}

// An eventQueueReader reads the events of an eventQueue.
type eventQueueReader struct {
	box     *eventQueue
	rest    []byte // of the event that is being read
	onClose func()
}

// Read implements [io.Reader].
func (m *eventQueueReader) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		event, err := m.box.next(m)
		if err != nil {
			return 0, err
		}
		m.rest = event
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// next waits for the next event for m.
func (b *eventQueue) next(m *eventQueueReader) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.events) == 0 && b.reader == m && !b.isEnded {
		b.changed.Wait()
	}
	if b.reader != m || len(b.events) == 0 {
		return nil, io.EOF
	}
	event := b.events[0]
	b.events, b.unread = b.events[1:], b.unread-len(event)
	return event, nil
}

// Close implements [io.Closer].
func (m *eventQueueReader) Close() error {
	m.box.mu.Lock()
	if m.box.reader == m {
		m.box.reader = nil
	}
	m.box.changed.Broadcast()
	m.box.mu.Unlock()
	m.onClose()
	return nil
}
