package httpclient

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

// Connections limits the connections to all upstreams together, so that file descriptors are left
// for operators and the store.
type Connections struct {
	pool *admission.Pool

	mu        sync.Mutex
	closeIdle []func() // close idle connections
}

// NewConnections returns a pool of at most limit connections. Zero means no limit.
func NewConnections(limit int) *Connections {
	return &Connections{pool: admission.NewPool(admission.Limits{Total: int64(limit)})}
}

// allConnections is the client of the pool: all connections count together.
var allConnections = admission.Principal("gate")

// dial connects within the limit. If it is reached, idle connections are closed first.
func (c *Connections) dial(ctx context.Context, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	if err := c.pool.TryAcquire(allConnections, 1); err != nil {
		c.closeAllIdle()
		if err := c.pool.TryAcquire(allConnections, 1); err != nil {
			return nil, &mcp.Problem{Type: mcp.Overloaded, RetryAfter: 1, Cause: err}
		}
	}
	conn, err := connect(ctx)
	if err != nil {
		c.pool.Release(allConnections, 1)
		return nil, err
	}
	return &countedConn{Conn: conn, release: sync.OnceFunc(func() { c.pool.Release(allConnections, 1) })}, nil
}

// onShortage registers a function that closes idle connections.
func (c *Connections) onShortage(release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeIdle = append(c.closeIdle, release)
}

func (c *Connections) closeAllIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, release := range c.closeIdle {
		release()
	}
}

// A countedConn releases its share of the limit when it is closed.
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
