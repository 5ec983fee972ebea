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

// ready returns the server that can be spoken with. If it has ended, it is started
// again, and greeted with greet as the client did; nil if the client is about to.
func (c *Client) ready(ctx context.Context, greet greeter) (*child, error) {
	if ch := c.current.Load(); ch != nil {
		return ch, nil
	}
	select {
	case c.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-c.starting }()
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
	c.current.Store(ch)
	if c.started.Swap(true) {
		c.cfg.Log.InfoContext(ctx, "the server was started again", "upstream", c.cfg.Name)
	}
	return ch, nil
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
	if err := c.own.sendBy(q, ch, func() error { return ch.write(ctx, body) }); err != nil {
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
	return ch.write(ctx, g.initialized)
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
