package stdioclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Send implements [upstream.Server].
func (c *Client) Send(ctx context.Context, r upstream.Request) (*upstream.Response, error) {
	r.Body = upstream.ContinueTrace(ctx, r.Message, r.Body)
	packet, err := jsonrpc.Parse(r.Body, jsonrpc.Limits{})
	if err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	if r.Message.Kind == jsonrpc.Notification && !packet.Batch {
		return c.notify(ctx, r.Message, r.Body)
	}
	sent := time.Now()
	resp, err := c.ask(ctx, r, packet)
	outcome := metrics.Success
	if err != nil {
		outcome = metrics.Error
	}
	c.cfg.Metrics.UpstreamDone(outcome, time.Since(sent))
	return resp, err
}

// ask sends a request of the gate's own and waits for the answer.
func (c *Client) ask(ctx context.Context, r upstream.Request, p jsonrpc.Packet) (*upstream.Response, error) {
	var stream *subscription
	s := sending{packet: p, body: r.Body, greet: c.greet}
	if r.Stream {
		stream = newSubscription()
		s.hears = stream
	}
	q, ch, err := c.send(ctx, s)
	if err != nil {
		return nil, err
	}
	if stream != nil {
		ended := context.AfterFunc(ctx, func() { stream.end(context.Cause(ctx)) })
		stream.onClose = func() {
			ended()
			c.abandon(ctx, ch, q)
		}
		return &upstream.Response{Status: http.StatusOK, Events: true, Body: stream}, nil
	}
	answer, err := q.wait(ctx)
	if err != nil {
		c.abandon(ctx, ch, q)
		return nil, err
	}
	c.own.remove(q)
	return &upstream.Response{Status: http.StatusOK, Body: io.NopCloser(bytes.NewReader(answer))}, nil
}

// A sending is a packet with requests that the server knows by ids of the gate's.
type sending struct {
	packet jsonrpc.Packet
	body   []byte
	hears  listener // see ownRequest
	greet  greeter  // nil if the packet is the greeting
	begin  func()   // is called before the first byte is sent; may be nil
}

// send sends a packet to the server, and returns which run of the server that was.
// If the server is just ending, the packet waits for the next run of it.
func (c *Client) send(ctx context.Context, s sending) (*ownRequest, *child, error) {
	q, ch, err := c.sendOnce(ctx, s)
	if unwritten := new(unwrittenError); errors.As(err, &unwritten) {
		select {
		case <-ch.ended:
			return c.sendOnce(ctx, s)
		case <-ctx.Done():
		}
	}
	return q, ch, err
}

// sendOnce is send to the present run of the server.
func (c *Client) sendOnce(ctx context.Context, s sending) (*ownRequest, *child, error) {
	ch, err := c.ready(ctx, s.greet)
	if err != nil {
		return nil, nil, &upstream.UnsentError{Cause: unreachable(err)}
	}
	c.mu.Lock()
	c.greeting.note(s.packet, s.body)
	c.mu.Unlock()
	q, body := c.own.add(s.packet, s.body, s.hears)
	begin := func() error {
		if s.begin != nil {
			s.begin()
		}
		return nil
	}
	m := message{text: body, begin: begin, cancel: q.cancellations}
	if err := c.own.sendBy(q, ch, func() error { return ch.write(ctx, m) }); err != nil {
		c.own.remove(q)
		return nil, ch, unsent(ctx, err)
	}
	return q, ch, nil
}

// An unwrittenError says that nothing of a message could be written, since the
// server has ended or is about to.
type unwrittenError struct{ error }

// unsent returns the error of a request that could not be written.
func unsent(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInterrupted) && ctx.Err() != nil:
		return context.Cause(ctx) // as if the client had left while it waited for the answer
	case errors.Is(err, errInterrupted):
		return lostProblem(err)
	case ctx.Err() != nil:
		return &upstream.UnsentError{Cause: ctx.Err()}
	default:
		return &upstream.UnsentError{Cause: unreachable(&unwrittenError{err})}
	}
}

// cancelTime is how long it may take to send the server that nobody waits for its
// answer any more.
const cancelTime = 5 * time.Second

// abandon takes out a request for whose answer nobody waits any more, and tells
// the server so.
func (c *Client) abandon(ctx context.Context, ch *child, q *ownRequest) {
	c.own.remove(q)
	select {
	case <-q.done:
		return
	default:
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	for id := range q.ids {
		_ = ch.write(ctx, message{text: cancellation(id)}) // the server may be gone as well
	}
}

// cancellations returns the lines that cancel the requests.
func (q *ownRequest) cancellations() []byte {
	var lines []byte
	for id := range q.ids {
		lines = jsonrpc.AppendLine(lines, cancellation(id))
	}
	return lines
}

func cancellation(id string) []byte {
	text := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","method":"`+methodCancelled+`","params":{"requestId":`), id)
	return append(text, `}}`...)
}

// notify sends a notification of the gate's own. One that cancels a request names
// it as the server knows it.
func (c *Client) notify(ctx context.Context, m *jsonrpc.Message, body []byte) (*upstream.Response, error) {
	accepted := &upstream.Response{Status: http.StatusAccepted, Body: http.NoBody}
	ch := c.current.Load()
	if ch == nil {
		return accepted, nil // the server that it was meant for is gone
	}
	if m.Method == methodCancelled {
		id, underWay := c.own.wireID(m.Params.Member("requestId").Bytes)
		if !underWay {
			return accepted, nil
		}
		body = cancellation(id)
	}
	if err := ch.write(ctx, message{text: body}); err != nil {
		return nil, unsent(ctx, err)
	}
	return accepted, nil
}
