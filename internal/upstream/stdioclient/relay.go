package stdioclient

import (
	"context"
	"io"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Ask sends a request of one of several clients that share the server. The server gets a random id
// and progress token; the messages about the request have the original ones. A gets these messages.
// A must be closed unless Ask returns an error. Begin, which may be nil, is called before the first
// byte is sent. The error is an [*upstream.UnsentError] if no byte was sent.
func (c *Client) Ask(ctx context.Context, a *Queue, m *jsonrpc.Message, body []byte, begin func()) error {
	q, ch, err := c.send(ctx, outgoing{packet: jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, body: body, queue: a, begin: begin})
	if err != nil {
		a.End(err)
		return err
	}
	ended := context.AfterFunc(ctx, func() { a.End(context.Cause(ctx)) })
	a.onClose = func() {
		ended()
		c.abandon(ctx, ch, q)
	}
	return nil
}

// AskAll is Ask for a batch. It waits for all answers and returns them as an array.
func (c *Client) AskAll(ctx context.Context, p jsonrpc.Packet, body []byte, begin func()) ([]byte, error) {
	q, ch, err := c.send(ctx, outgoing{packet: p, body: body, begin: begin})
	if err != nil {
		return nil, err
	}
	answers, err := q.wait(ctx)
	if err != nil {
		c.abandon(ctx, ch, q)
		return nil, err
	}
	c.requests.remove(q)
	return answers, nil
}

// Cancel forwards the notification m, with which a client cancels a request of [Client.Ask], with
// the id that the server got.
func (c *Client) Cancel(ctx context.Context, m *jsonrpc.Message) error {
	_, err := c.notify(ctx, m, m.Raw)
	return err
}

// IsStray reports whether an answer that the receiver got shows that the server confuses the
// answers to the clients that share it. All of them must use [Client.Ask].
func (c *Client) IsStray(answer *jsonrpc.Message) bool { return c.requests.isStray(answer.ID.Bytes) }

// A Queue has messages of the server for one reader, in their order: those about one request, or
// those for the stream of a session. They are read one by one, or as an event stream.
type Queue struct {
	keep        func(size int) error
	endWhenFull bool // the queue ends if a message does not fit, so that the reader subscribes again
	onClose     func()
	event       []byte // the unread part of the current event

	mu       sync.Mutex
	changed  sync.Cond
	messages [][]byte
	unread   int   // bytes of messages before the answer
	answered bool  // the last message is the answer
	err      error // why the queue has ended
}

// maxUnread is how many bytes may wait in a queue before the answer.
const maxUnread = 1 << 20

// NewQueue returns a queue for [Client.Ask]. Keep is called with the size of the answer when it
// arrives, and must not block. If keep fails, the answer is dropped and [Queue.Next] returns the
// error of keep.
func NewQueue(keep func(size int) error) *Queue {
	q := &Queue{keep: keep}
	q.changed.L = &q.mu
	return q
}

// Continue ends q, and returns a queue with its unread messages.
func (q *Queue) Continue() *Queue {
	next := NewQueue(q.keep)
	q.End(io.EOF)
	q.mu.Lock()
	defer q.mu.Unlock()
	next.messages, next.unread, q.messages = q.messages, q.unread, nil
	return next
}

// add adds a message before the answer.
func (q *Queue) add(message []byte) {
	if !q.Insert(message) && q.endWhenFull {
		q.End(io.ErrShortBuffer)
	}
}

// answer adds the answer.
func (q *Queue) answer(message []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return
	}
	q.answered = true
	if q.err = q.keep(len(message)); q.err == nil {
		q.messages = append(q.messages, message)
	}
	q.changed.Broadcast()
}

// Insert adds a message before the answer. It returns false if the answer has arrived, or the queue
// is full or has ended.
func (q *Queue) Insert(message []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || q.answered || q.unread+len(message) > maxUnread {
		return false
	}
	q.messages = append(q.messages, message)
	q.unread += len(message)
	q.changed.Broadcast()
	return true
}

// End ends the queue. The reader gets the reason after the messages.
func (q *Queue) End(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = why
	}
	q.changed.Broadcast()
}

// Next waits for the next message, and reports whether it is the answer. After the answer, it
// returns [io.EOF].
func (q *Queue) Next() (message []byte, final bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.messages) == 0 && q.err == nil {
		q.changed.Wait()
	}
	if len(q.messages) == 0 {
		return nil, false, q.err
	}
	message, q.messages = q.messages[0], q.messages[1:]
	if final = q.answered && len(q.messages) == 0; final {
		q.err = io.EOF
	} else {
		q.unread -= len(message)
	}
	return message, final, nil
}

// Read implements [io.Reader]. The messages are events.
func (q *Queue) Read(p []byte) (int, error) {
	if len(q.event) == 0 {
		message, _, err := q.Next()
		if err != nil {
			return 0, err
		}
		q.event = jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: message})
	}
	n := copy(p, q.event)
	q.event = q.event[n:]
	return n, nil
}

// Close ends a request of [Client.Ask]. If the server has not answered, Close cancels the request.
func (q *Queue) Close() error {
	q.End(io.ErrClosedPipe)
	q.onClose()
	return nil
}
