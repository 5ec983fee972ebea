package httpclient

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// Connections are those to all upstreams together. They are bounded so that
// agents leave descriptors for operators and for the store.
type Connections struct {
	pool *admission.Pool

	mu    sync.Mutex
	spare []func() // close connections that are not in use
}

// NewConnections returns room for at most the given number of connections. Zero
// means any number.
func NewConnections(most int) *Connections {
	return &Connections{pool: admission.NewPool(admission.Limits{Total: int64(most)})}
}

// gateItself is whose share every connection to an upstream counts to.
var gateItself = admission.Principal("gate")

// dial connects within the limit. Connections that are not in use give way.
func (c *Connections) dial(ctx context.Context, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	if err := c.pool.Try(gateItself, 1); err != nil {
		c.closeSpare()
		if err := c.pool.Try(gateItself, 1); err != nil {
			return nil, &wire.Problem{Type: wire.Overloaded, RetryAfter: 1, Cause: err}
		}
	}
	conn, err := connect(ctx)
	if err != nil {
		c.pool.Release(gateItself, 1)
		return nil, err
	}
	return &countedConn{Conn: conn, release: sync.OnceFunc(func() { c.pool.Release(gateItself, 1) })}, nil
}

// onShortage has release called when there is no room for another connection.
func (c *Connections) onShortage(release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spare = append(c.spare, release)
}

func (c *Connections) closeSpare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, release := range c.spare {
		release()
	}
}

// A countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn

	release func()
}

// SyscallConn implements [syscall.Conn].
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	below, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return below.SyscallConn()
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
