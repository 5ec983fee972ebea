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
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Send implements [upstream.Server].
func (c *Client) Send(ctx context.Context, r upstream.Request) (*upstream.Response, error) {
	r.Body = upstream.ContinueTrace(ctx, r.Message, r.Body)
	packet := jsonrpc.Packet{Messages: []jsonrpc.Message{*r.Message}}
	if !bytes.Equal(r.Body, r.Message.Raw) { // a batch, or changed
		var err error
		if packet, err = jsonrpc.Parse(r.Body, jsonrpc.Limits{}); err != nil {
			return nil, &upstream.UnsentError{Cause: err}
		}
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

// ask sends a request of the gate and waits for the answer, unless that is a stream.
func (c *Client) ask(ctx context.Context, r upstream.Request, p jsonrpc.Packet) (*upstream.Response, error) {
	if r.Stream {
		stream := NewQueue(func(int) error { return nil })
		stream.endWhenFull = true
		if err := c.Ask(ctx, stream, &p.Messages[0], r.Body, nil); err != nil {
			return nil, err
		}
		return &upstream.Response{Status: http.StatusOK, Events: true, Body: stream}, nil
	}
	answer, err := c.AskAll(ctx, p, r.Body, nil)
	if err != nil {
		return nil, err
	}
	return &upstream.Response{Status: http.StatusOK, Body: io.NopCloser(bytes.NewReader(answer))}, nil
}

// An outgoing packet has requests of the gate, which get new ids.
type outgoing struct {
	packet jsonrpc.Packet
	body   []byte
	queue  *Queue // see pendingRequest
	begin  func() // called before the first byte is sent; may be nil
}

// send sends a packet and returns the child that got it. If the server is about to end, the packet
// goes to its next run.
func (c *Client) send(ctx context.Context, s outgoing) (*pendingRequest, *child, error) {
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

// sendOnce sends a packet to the current run of the server.
func (c *Client) sendOnce(ctx context.Context, s outgoing) (*pendingRequest, *child, error) {
	ch, err := c.ready(ctx, s.packet)
	if err != nil {
		return nil, nil, &upstream.UnsentError{Cause: unreachable(err)}
	}
	c.mu.Lock()
	c.handshake.note(s.packet, s.body)
	c.mu.Unlock()
	q, body := c.requests.add(s.packet, s.queue)
	begin := func() error {
		if s.begin != nil {
			s.begin()
		}
		return nil
	}
	m := message{text: body, begin: begin, cancel: q.cancellations}
	if err := c.requests.sendBy(q, ch, func() error { return ch.write(ctx, m) }); err != nil {
		c.requests.remove(q)
		return nil, ch, unsent(ctx, err)
	}
	return q, ch, nil
}

// An unwrittenError reports a message of which nothing was written, because the server has ended or
// is about to.
type unwrittenError struct{ error }

// unsent returns the error of a request that could not be written.
func unsent(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errInterrupted) && ctx.Err() != nil:
		return context.Cause(ctx) // the same as if the client stops waiting for the answer
	case errors.Is(err, errInterrupted):
		return lostProblem(err)
	case ctx.Err() != nil:
		return &upstream.UnsentError{Cause: ctx.Err()}
	default:
		return &upstream.UnsentError{Cause: unreachable(&unwrittenError{err})}
	}
}

// cancelTime limits the write of a cancellation.
const cancelTime = 5 * time.Second

// abandon removes a request and sends the server a cancellation, unless the server has answered.
func (c *Client) abandon(ctx context.Context, ch *child, q *pendingRequest) {
	c.requests.remove(q)
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
func (q *pendingRequest) cancellations() []byte {
	var lines []byte
	for id := range q.ids {
		lines = jsonrpc.AppendLine(lines, cancellation(id))
	}
	return lines
}

func cancellation(id string) []byte {
	text := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","method":"`+mcpname.NotifyCancelled+`","params":{"requestId":`), id)
	return append(text, `}}`...)
}

// notify sends a notification of the gate. In a cancellation, it replaces the id with the one that
// the server got.
func (c *Client) notify(ctx context.Context, m *jsonrpc.Message, body []byte) (*upstream.Response, error) {
	accepted := &upstream.Response{Status: http.StatusAccepted, Body: http.NoBody}
	ch := c.current.Load()
	if ch == nil {
		return accepted, nil // that server has ended
	}
	if m.Method == mcpname.NotifyCancelled {
		id, underWay := c.requests.wireID(m.Params.Member("requestId").Bytes)
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
