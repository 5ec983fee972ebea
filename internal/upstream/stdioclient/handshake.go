package stdioclient

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// InitializeTimeout is how long a server that was just started may take to answer initialize.
const InitializeTimeout = 30 * time.Second

// A handshake is the beginning of a legacy client's session. It is repeated for a restarted server.
// Modern clients have none.
type handshake struct {
	initialize  []byte
	initialized []byte
}

// note keeps a message of the client if it is part of the handshake.
func (g *handshake) note(p jsonrpc.Packet, body []byte) {
	switch {
	case p.Batch:
	case isInitialize(&p.Messages[0]):
		*g = handshake{initialize: bytes.Clone(body)}
	case p.Messages[0].Kind == jsonrpc.Notification && p.Messages[0].Method == mcpname.NotifyInitialized:
		g.initialized = bytes.Clone(body)
	default:
	}
}

// isInitialize reports whether m is a legacy client's initialize request.
func isInitialize(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Request && m.Method == mcpname.Initialize && mcp.EraOf(m) == mcp.Legacy
}

// An initializer repeats the handshake of the client.
type initializer func(ctx context.Context, ch *child, g handshake) error

// A start is an attempt to start the server. Any number of callers may wait for it.
type start struct {
	done  chan struct{} // closed when the attempt has ended
	child *child
	err   error
}

// ready returns a child that takes messages. If the server has ended, ready restarts it and calls
// initialize, unless that is nil because the client is about to initialize. The attempt continues
// if the caller's ctx is done, because other callers may wait for it.
func (c *Client) ready(ctx context.Context, greet initializer) (*child, error) {
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

// beginStart returns the current attempt to start the server, or begins one. Close ends it with the
// server.
func (c *Client) beginStart(ctx context.Context, greet initializer) (*start, error) {
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

// tryStart starts and initializes the server, unless it runs by now.
func (c *Client) tryStart(ctx context.Context, greet initializer) (*child, error) {
	if ch := c.current.Load(); ch != nil {
		return ch, nil
	}
	select {
	case <-c.done:
		return nil, c.doneErr
	default:
	}
	ch, err := c.launch()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	g := c.handshake
	c.mu.Unlock()
	if greet != nil && g.initialize != nil {
		if err := greet(ctx, ch, g); err != nil {
			ch.abandon()
			return nil, err
		}
	}
	c.use(ch)
	if c.hasStarted.Swap(true) {
		c.cfg.Log.InfoContext(ctx, "server restarted", "upstream", c.cfg.Name)
	}
	return ch, nil
}

// use makes a child current, unless it has ended by now: then its goroutine may have looked at
// current already.
func (c *Client) use(ch *child) {
	c.current.Store(ch)
	select {
	case <-ch.exited:
		<-ch.ended
		c.current.CompareAndSwap(ch, nil)
	default:
	}
}

// initialize sends the handshake g to a server that has just started. It keeps the result of the
// initialize request for [Client.InitializeResult].
func (c *Client) initialize(ctx context.Context, ch *child, g handshake) error {
	ctx, stop := context.WithTimeout(ctx, InitializeTimeout)
	defer stop()
	m, err := jsonrpc.ParseMessage(g.initialize, jsonrpc.Limits{})
	if err != nil {
		return err
	}
	q, body := c.requests.add(jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, nil)
	defer c.requests.remove(q)
	if err := c.requests.sendBy(q, ch, func() error { return ch.write(ctx, message{text: body}) }); err != nil {
		return err
	}
	answer, err := q.wait(ctx)
	if err != nil {
		return err
	}
	response, err := jsonrpc.ParseMessage(answer, jsonrpc.Limits{})
	if err != nil || !response.Result.Present() {
		return fmt.Errorf("the server did not accept the initialize request: %.200s", answer)
	}
	c.mu.Lock()
	c.initializeResult = response.Result.Clone().Bytes
	c.mu.Unlock()
	if g.initialized == nil { // the client has not sent that notification yet
		return nil
	}
	return ch.write(ctx, message{text: g.initialized})
}

// InitializeResult starts the server if necessary and returns its answer to the initialize request
// that was given to [Client.StartOnDemand].
func (c *Client) InitializeResult(ctx context.Context) (result []byte, err error) {
	if _, err := c.ready(ctx, c.initialize); err != nil {
		return nil, &upstream.UnsentError{Cause: unreachable(err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.initializeResult, nil
}

// abandon kills a server that could not be initialized.
func (c *child) abandon() {
	c.signal(syscall.SIGKILL)
	<-c.exited
}
