package listener

import (
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
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

const (
	// refusing is how many clients get an answer at a time which says that there is no
	// room for their connection. The connections of others are closed without one.
	refusing = 32
	// refusalTime is how long a client may take to read that answer.
	refusalTime = time.Second
)

// A boundedListener accepts connections within the limits of a pool. A connection
// without a request gives way to a new one. If there is none, it refuses the new
// one at once, so that nobody is kept waiting.
type boundedListener struct {
	net.Listener

	pool     *admission.Pool
	trusted  []netip.Prefix // proxies: one address, many clients
	secure   bool           // a client of TLS could not read a refusal
	slots    chan struct{}  // of the refusals under way
	refused  func(wire.Type)
	yielded  func(address string) // an idle connection was closed
	patience time.Duration        // how long a client may take to read what it is sent; zero leaves that to the handler
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := l.clientOf(conn.RemoteAddr())
		place, err := l.pool.Enter(client, func() {
			_ = conn.Close()
			l.yielded(client.Network())
		})
		if err == nil {
			return &boundedConn{Conn: deadline.New(conn), patience: l.patience, place: place}, nil
		}
		l.turnAway(conn, err)
	}
}

// clientOf returns whose share a connection counts to. A proxy may have as many
// as there are.
func (l *boundedListener) clientOf(remote net.Addr) admission.Client {
	addr, err := netip.ParseAddrPort(remote.String())
	if err == nil && slices.ContainsFunc(l.trusted, func(p netip.Prefix) bool { return p.Contains(addr.Addr().Unmap()) }) {
		return admission.Principal("connection " + remote.String())
	}
	return admission.Address(remote.String())
}

// turnAway closes a connection for which there is no room. Its client gets an answer
// first, unless too many others are getting one.
func (l *boundedListener) turnAway(conn net.Conn, why error) {
	problem := &wire.Problem{Type: wire.Overloaded, RetryAfter: 1}
	if errors.Is(why, admission.ErrClient) {
		problem.Type = wire.ClientLimit
	}
	l.refused(problem.Type)
	select {
	case l.slots <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	go func() {
		defer func() { <-l.slots }()
		defer func() { _ = conn.Close() }()
		if !l.secure {
			refuse(conn, problem)
		}
	}()
}

// refuse answers the next request of a client, whatever it is, and waits until the
// client has read that: closing a connection with unread requests discards the answer.
func refuse(conn net.Conn, problem *wire.Problem) {
	body := problem.AppendResponse(nil, wire.Legacy, nil, "")
	status := problem.Status(false)
	_, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s",
		status, http.StatusText(status), problem.RetryAfter, strconv.Itoa(len(body)), body) // so little never waits
	if conn.SetDeadline(time.Now().Add(refusalTime)) != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, 64<<10)
	}
}

// A boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn

	patience time.Duration
	place    *admission.Place
}

// Write implements [net.Conn].
func (c *boundedConn) Write(p []byte) (int, error) {
	if c.patience > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// Close implements [net.Conn].
func (c *boundedConn) Close() error {
	defer c.place.Leave()
	return c.Conn.Close()
}
