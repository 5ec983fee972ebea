package stdioclient

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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
	switch m := &p.Messages[0]; {
	case isInitialize(p):
		*g = handshake{initialize: bytes.Clone(body)}
	case !p.Batch && m.Kind == jsonrpc.Notification && m.Method == mcpname.NotifyInitialized:
		g.initialized = bytes.Clone(body)
	}
}

// isInitialize reports whether p is a legacy client's initialize request.
func isInitialize(p jsonrpc.Packet) bool {
	return !p.Batch && slices.ContainsFunc(p.Messages, func(m jsonrpc.Message) bool {
		return m.Kind == jsonrpc.Request && m.Method == mcpname.Initialize && mcp.EraOf(&m) == mcp.Legacy
	})
}

// ready returns a child that takes the packet p. If the server has ended, ready restarts it and
// repeats the handshake of the client, unless p begins one. Callers share an attempt, which
// continues if the ctx of its first caller is done.
func (c *Client) ready(ctx context.Context, p jsonrpc.Packet) (*child, error) {
	if ch := c.current.Load(); ch != nil {
		return ch, nil
	}
	select {
	case started := <-c.starts.DoChan("", func() (any, error) { return c.start(context.WithoutCancel(ctx), p) }):
		ch, _ := started.Val.(*child)
		return ch, started.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// start starts and initializes the server, unless it runs by now.
func (c *Client) start(ctx context.Context, p jsonrpc.Packet) (*child, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	c.running.Add(1)
	c.mu.Unlock()
	defer c.running.Done()
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
	if g.initialize != nil && !isInitialize(p) {
		if err := c.initialize(ctx, ch, g); err != nil {
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
	if _, err := c.ready(ctx, jsonrpc.Packet{}); err != nil {
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
