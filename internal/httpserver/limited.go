package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/deadline"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

const (
	maxRefusals    = 32          // refused connections that are answered at a time; others are only closed
	refusalTimeout = time.Second // for the client to read that answer
)

// A limitedListener accepts connections within the limits of a pool. For a new
// connection it closes an idle one. Without an idle one, it refuses the new connection
// at once.
type limitedListener struct {
	net.Listener

	pool         *admission.Pool
	trusted      []netip.Prefix       // proxies, behind which many clients share one address
	secure       bool                 // TLS: a refusal in plain text could not be read
	refusals     chan struct{}        // limits the refusals that are answered
	refused      func(mcp.Type)       // see [Config.Refused]
	closedIdle   func(address string) // is called when an idle connection was closed
	writeTimeout time.Duration        // see [Config.WriteTimeout]
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := l.clientOf(conn.RemoteAddr())
		slot, err := l.pool.AcquireSlot(client, func() {
			_ = conn.Close()
			l.closedIdle(client.Network())
		})
		if err == nil {
			return &limitedConn{Conn: deadline.New(conn), writeTimeout: l.writeTimeout, slot: slot}, nil
		}
		l.reject(conn, err)
	}
}

// clientOf returns the client that a connection counts for. The connections of a trusted
// proxy count one by one, so that the proxy may have all of them.
func (l *limitedListener) clientOf(remote net.Addr) admission.Client {
	addr, err := netip.ParseAddrPort(remote.String())
	if err != nil { // a user of this machine, at a Unix socket
		return admission.Principal(remote.String())
	}
	if slices.ContainsFunc(l.trusted, func(p netip.Prefix) bool { return p.Contains(addr.Addr().Unmap()) }) {
		return admission.Principal("connection " + remote.String())
	}
	return admission.Address(remote.String())
}

// reject closes a connection over the limit. It answers the client first, unless too many
// others are being answered.
func (l *limitedListener) reject(conn net.Conn, err error) {
	problem := &mcp.Problem{Type: mcp.Overloaded, RetryAfter: 1}
	if errors.Is(err, admission.ErrClient) {
		problem.Type = mcp.ClientLimit
	}
	l.refused(problem.Type)
	select {
	case l.refusals <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	go func() {
		defer func() { <-l.refusals }()
		defer func() { _ = conn.Close() }()
		if !l.secure {
			refuse(conn, problem)
		}
	}()
}

// refuse answers the next request of a client, and waits until the client has read the
// answer: closing a connection with unread requests would discard it.
func refuse(conn net.Conn, problem *mcp.Problem) {
	body := problem.AppendResponse(nil, mcp.Legacy, nil, "")
	status := problem.Status(false)
	_, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s",
		status, http.StatusText(status), problem.RetryAfter, strconv.Itoa(len(body)), body) // short enough not to block
	if conn.SetDeadline(time.Now().Add(refusalTimeout)) != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, 64<<10)
	}
}

// A limitedConn gives its slot back when it is closed.
type limitedConn struct {
	net.Conn

	writeTimeout time.Duration
	slot         *admission.Slot
}

// Write implements [net.Conn].
func (c *limitedConn) Write(p []byte) (int, error) {
	if c.writeTimeout > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.writeTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	defer c.slot.Release()
	return c.Conn.Close()
}

// ClientLeft reports whether the client has closed the connection of the request with
// this context. The connection knows it at once; the context ends a moment later, when
// net/http notices.
func ClientLeft(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	conn, ok := ctx.Value(connKey{}).(*limitedConn)
	return ok && hasEnded(conn.Conn)
}
