package stdioclient

import (
	"context"
	"io"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Ask sends a request of one of several clients that share the server. The server
// knows it, and its progress, by names that no other client uses; in what the
// server says of it, the client finds its own. A takes what the server says;
// it must be closed if there is no error, and takes nothing more if there is one. Begin
// is called before the first byte is sent. The error is an [*upstream.UnsentError] if
// none was.
func (c *Client) Ask(ctx context.Context, a *Answers, m *jsonrpc.Message, body []byte, begin func()) error {
	s := sending{packet: jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, body: body, hears: a, greet: c.greet, begin: begin}
	if begins(m) {
		s.greet = nil
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

// AskAll is Ask for a batch. It waits for all answers, and returns them as an array.
func (c *Client) AskAll(ctx context.Context, p jsonrpc.Packet, body []byte, begin func()) ([]byte, error) {
	q, ch, err := c.send(ctx, sending{packet: p, body: body, greet: c.greet, begin: begin})
	if err != nil {
		return nil, err
	}
	answers, err := q.wait(ctx)
	if err != nil {
		c.abandon(ctx, ch, q)
		return nil, err
	}
	c.own.remove(q)
	return answers, nil
}

// Cancel sends the notification m, with which the client cancels a request that it
// has asked with [Client.Ask], as the server knows that.
func (c *Client) Cancel(ctx context.Context, m *jsonrpc.Message) error {
	_, err := c.notify(ctx, m, m.Raw)
	return err
}

// Answers are what the server says about a request, in the order in which it does.
type Answers struct {
	keep    func(size int) error
	onClose func()

	mu       sync.Mutex
	news     sync.Cond
	queue    []said
	unread   int   // bytes in the queue, without the answer
	answered bool  // so nothing can come before the answer any more
	err      error // why nothing more comes
}

type said struct {
	message []byte
	final   bool
}

// NewAnswers returns what [Client.Ask] needs. Keep is called with the size of the answer
// when that comes, and must not wait. If it returns an error, the answer is dropped, and
// [Answers.Next] returns the error in its place.
func NewAnswers(keep func(size int) error) *Answers {
	a := &Answers{keep: keep}
	a.news.L = &a.mu
	return a
}

// add implements listener. A client that does not read loses what is no answer.
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
		a.queue = append(a.queue, said{message: message, final: true})
	}
	a.news.Broadcast()
}

// Insert adds a message for the client before the answer, and reports whether that was
// possible: the answer has not come, and there is room.
func (a *Answers) Insert(message []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil || a.answered || a.unread+len(message) > maxUnread {
		return false
	}
	a.queue = append(a.queue, said{message: message})
	a.unread += len(message)
	a.news.Broadcast()
	return true
}

// end implements listener.
func (a *Answers) end(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = why
	}
	a.news.Broadcast()
}

// Next waits for the next message, and reports whether it is the answer.
func (a *Answers) Next() (message []byte, final bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) == 0 && a.err == nil {
		a.news.Wait()
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

// Close ends the request. If the server has not answered, it gets a cancellation.
func (a *Answers) Close() {
	a.end(io.ErrClosedPipe)
	a.onClose()
}
