package stdioclient

import (
	"context"
	"io"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Ask sends a request of one of several clients that share the server. The server gets a random id
// and progress token; the messages about the request have the original ones. A gets these messages.
// A must be closed unless Ask returns an error. Begin is called before the first byte is sent. The
// error is an [*upstream.UnsentError] if no byte was sent.
func (c *Client) Ask(ctx context.Context, a *Answers, m *jsonrpc.Message, body []byte, begin func()) error {
	s := outgoing{packet: jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, body: body, answers: a, initialize: c.initialize, begin: begin}
	if isInitialize(m) {
		s.initialize = nil
	}
	q, ch, err := c.send(ctx, s)
	if err != nil {
		a.end(err)
		return err
	}
	ended := context.AfterFunc(ctx, func() { a.end(context.Cause(ctx)) })
	a.onClose = func() {
		ended()
		c.abandon(ctx, ch, q)
	}
	return nil
}

// AskAll is Ask for a batch. It waits for all answers and returns them as an array.
func (c *Client) AskAll(ctx context.Context, p jsonrpc.Packet, body []byte, begin func()) ([]byte, error) {
	q, ch, err := c.send(ctx, outgoing{packet: p, body: body, initialize: c.initialize, begin: begin})
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

// Answers is the queue of the server's messages about one request, in their order.
type Answers struct {
	keep    func(size int) error
	onClose func()

	mu       sync.Mutex
	changed  sync.Cond
	queue    []queuedMessage
	unread   int   // bytes in the queue before the answer
	answered bool  // the answer is in the queue
	err      error // why the queue has ended
}

type queuedMessage struct {
	message []byte
	final   bool
}

// NewAnswers returns a queue for [Client.Ask]. Keep is called with the size of the answer when it
// arrives, and must not block. If keep fails, the answer is dropped and [Answers.Next] returns the
// error of keep.
func NewAnswers(keep func(size int) error) *Answers {
	a := &Answers{keep: keep}
	a.changed.L = &a.mu
	return a
}

// add implements listener. If the queue is full, messages before the answer are dropped.
func (a *Answers) add(message []byte) { a.Insert(message) }

// answer implements listener.
func (a *Answers) answer(message []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return
	}
	a.answered = true
	if a.err = a.keep(len(message)); a.err == nil {
		a.queue = append(a.queue, queuedMessage{message: message, final: true})
	}
	a.changed.Broadcast()
}

// Insert adds a message before the answer. It returns false if the answer has arrived or the queue
// is full.
func (a *Answers) Insert(message []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil || a.answered || a.unread+len(message) > maxUnread {
		return false
	}
	a.queue = append(a.queue, queuedMessage{message: message})
	a.unread += len(message)
	a.changed.Broadcast()
	return true
}

// end implements listener.
func (a *Answers) end(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = why
	}
	a.changed.Broadcast()
}

// Next waits for the next message, and reports whether it is the answer.
func (a *Answers) Next() (message []byte, final bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) == 0 && a.err == nil {
		a.changed.Wait()
	}
	if len(a.queue) == 0 {
		return nil, false, a.err
	}
	next := a.queue[0]
	a.queue = a.queue[1:]
	if !next.final {
		a.unread -= len(next.message)
	}
	return next.message, next.final, nil
}

// Close ends the request. If the server has not answered, Close cancels the request.
func (a *Answers) Close() {
	a.end(io.ErrClosedPipe)
	a.onClose()
}
