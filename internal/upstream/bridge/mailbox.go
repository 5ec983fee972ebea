package bridge

import (
	"io"
	"sync"
)

// maxUnread is how many bytes may wait for a client to read them.
const maxUnread = 1 << 20

// A mailbox keeps messages until somebody reads them, as events. If somebody else
// begins to read, the one before has read all.
type mailbox struct {
	mu      sync.Mutex
	news    sync.Cond
	events  [][]byte
	unread  int         // bytes in events
	reader  *mailReader // who reads now; nil if nobody does
	isEnded bool
}

func newMailbox() *mailbox {
	b := new(mailbox)
	b.news.L = &b.mu
	return b
}

// add takes a message in, and reports whether there was room.
func (b *mailbox) add(message []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isEnded || b.unread+len(message) > maxUnread {
		return false
	}
	event := appendEvent(nil, message)
	b.events, b.unread = append(b.events, event), b.unread+len(event)
	b.news.Broadcast()
	return true
}

// addIfRead is add if somebody reads.
func (b *mailbox) addIfRead(message []byte) bool {
	b.mu.Lock()
	read := b.reader != nil
	b.mu.Unlock()
	return read && b.add(message)
}

// open returns a reader of the box. It replaces the present reader, which gets EOF.
func (b *mailbox) open(onClose func()) *mailReader {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reader = &mailReader{box: b, onClose: sync.OnceFunc(onClose)}
	b.news.Broadcast()
	return b.reader
}

// close ends the box.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isEnded = true
	b.news.Broadcast()
}

// A mailReader reads the events of a mailbox.
type mailReader struct {
	box     *mailbox
	rest    []byte // of the event that is being read
	onClose func()
}

// Read implements [io.Reader].
func (m *mailReader) Read(p []byte) (int, error) {
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
func (b *mailbox) next(m *mailReader) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.events) == 0 && b.reader == m && !b.isEnded {
		b.news.Wait()
	}
	if b.reader != m || len(b.events) == 0 {
		return nil, io.EOF
	}
	event := b.events[0]
	b.events, b.unread = b.events[1:], b.unread-len(event)
	return event, nil
}

// Close implements [io.Closer].
func (m *mailReader) Close() error {
	m.box.mu.Lock()
	if m.box.reader == m {
		m.box.reader = nil
	}
	m.box.news.Broadcast()
	m.box.mu.Unlock()
	m.onClose()
	return nil
}
