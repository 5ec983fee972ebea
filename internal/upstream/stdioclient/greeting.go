package stdioclient

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
)

// greetingTime is how long a server that was started again may take to answer
// initialize.
const greetingTime = 30 * time.Second

// A greeting is what the client said first, so that the gate can say it again to
// a server that was started again. Modern clients say no such thing.
type greeting struct {
	initialize  []byte
	initialized []byte
}

// note keeps a message of the client if it is part of the greeting.
func (g *greeting) note(p jsonrpc.Packet, body []byte) {
	switch {
	case p.Batch:
	case begins(&p.Messages[0]):
		*g = greeting{initialize: bytes.Clone(body)}
	case p.Messages[0].Kind == jsonrpc.Notification && p.Messages[0].Method == methodInitialized:
		g.initialized = bytes.Clone(body)
	default:
	}
}

// begins reports whether a client begins to speak with m. Modern clients never do.
func begins(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Request && m.Method == methodInitialize && wire.EraOf(m) == wire.Legacy
}

// A greeter says to a server what the client said first.
type greeter func(ctx context.Context, ch *child, g greeting) error

// A start is an attempt to start the server, for which any number of callers wait.
type start struct {
	done  chan struct{} // closed when the attempt is over
	child *child
	err   error
}

// ready returns the server that can be spoken with. If it has ended, it is started
// again, and greeted with greet as the client did; nil if the client is about to. The
// server is started for all clients: that goes on if the caller's ctx is done.
func (c *Client) ready(ctx context.Context, greet greeter) (*child, error) {
	if ch := c.current.Load(); ch != nil {
		return ch, nil
	}
	s, err := c.beginStart(ctx, greet)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.done:
		return s.child, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// beginStart returns the attempt to start the server that is under way, or begins one.
// Close ends it with the server.
func (c *Client) beginStart(ctx context.Context, greet greeter) (*start, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.start != nil {
		return c.start, nil
	}
	s := &start{done: make(chan struct{})}
	c.start = s
	ctx = context.WithoutCancel(ctx)
	c.running.Go(func() {
		s.child, s.err = c.tryStart(ctx, greet)
		c.mu.Lock()
		c.start = nil
		c.mu.Unlock()
		close(s.done)
	})
	return s, nil
}

// tryStart starts the server and greets it, unless it runs by now.
func (c *Client) tryStart(ctx context.Context, greet greeter) (*child, error) {
	if ch := c.current.Load(); ch != nil {
		return ch, nil
	}
	select {
	case <-c.over:
		return nil, c.why
	default:
	}
	ch, err := c.launch()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	g := c.greeting
	c.mu.Unlock()
	if greet != nil && g.initialize != nil {
		if err := greet(ctx, ch, g); err != nil {
			ch.abandon()
			return nil, err
		}
	}
	c.use(ch)
	if c.started.Swap(true) {
		c.cfg.Log.InfoContext(ctx, "the server was started again", "upstream", c.cfg.Name)
	}
	return ch, nil
}

// use has all speak with the server that was started, unless it has ended by now: its
// goroutine may have looked at current already.
func (c *Client) use(ch *child) {
	c.current.Store(ch)
	select {
	case <-ch.exited:
		<-ch.ended
		c.current.CompareAndSwap(ch, nil)
	default:
	}
}

// greet initializes a server that was started again.
func (c *Client) greet(ctx context.Context, ch *child, g greeting) error {
	ctx, stop := context.WithTimeout(ctx, greetingTime)
	defer stop()
	m, err := jsonrpc.ParseMessage(g.initialize, jsonrpc.Limits{})
	if err != nil {
		return err
	}
	q, body := c.own.add(jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, m.Raw, nil)
	defer c.own.remove(q)
	if err := c.own.sendBy(q, ch, func() error { return ch.write(ctx, message{text: body}) }); err != nil {
		return err
	}
	answer, err := q.wait(ctx)
	if err != nil {
		return err
	}
	said, err := jsonrpc.ParseMessage(answer, jsonrpc.Limits{})
	if err != nil || !said.Result.Present() {
		return fmt.Errorf("the server that was started again does not take the client's initialize: %.200s", answer)
	}
	c.mu.Lock()
	c.greeted = said.Result.Clone().Bytes
	c.mu.Unlock()
	if g.initialized == nil {
		return nil
	}
	return ch.write(ctx, message{text: g.initialized})
}

// Greeted starts the server, unless it runs, and returns its answer to the greeting
// that [Client.StartLater] was given.
func (c *Client) Greeted(ctx context.Context) (result []byte, err error) {
	if _, err := c.ready(ctx, c.greet); err != nil {
		return nil, &upstream.UnsentError{Cause: unreachable(err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greeted, nil
}

// abandon ends a server that cannot be used.
func (c *child) abandon() {
	kill(c.cmd)
	<-c.exited
}
