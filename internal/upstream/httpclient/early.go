package httpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// errEarlyAnswer reports an answer that was on the connection before the request
// was: the rest of what the server said to the request before.
var errEarlyAnswer = errors.New("the answer came before the request was sent")

// An earlyCheck notices an answer that came before its request. The transport
// closes a kept connection on which something comes unasked, but not if the next
// request takes the connection at that moment.
type earlyCheck struct {
	conn  *promptConn // nil if the connection is new
	early atomic.Bool
}

// watch returns a context with which a request is watched.
func (e *earlyCheck) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			e.conn = nil
			if info.Reused {
				if e.conn = promptConnOf(info.Conn); e.conn != nil {
					e.conn.beginRequest()
				}
			}
		},
		GotFirstResponseByte: func() { e.early.Store(e.conn != nil && !e.conn.heard.Load()) },
	})
}

// promptConnOf returns the connection below one of HTTP/1.1, and nil for HTTP/2,
// which says of everything which request it answers.
func promptConnOf(conn net.Conn) *promptConn {
	if secure, ok := conn.(*tls.Conn); ok {
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			return nil
		}
		conn = secure.NetConn()
	}
	prompt, _ := conn.(*promptConn)
	return prompt
}

// beginRequest notes that the next bytes to be written are those of a request.
func (c *promptConn) beginRequest() {
	c.heard.Store(false)
	c.sent.Store(false)
}

// A promptConn gives up on a peer that does not take what is written.
// [http.Transport] has a limit for every other wait.
type promptConn struct {
	net.Conn

	timeout time.Duration
	unread  atomic.Int64 // bytes written since the peer last said anything
	limited bool         // a deadline is set; only for the one goroutine that writes

	sent  atomic.Bool // part of the latest request has been written
	heard atomic.Bool // and the peer has said something since
}

// certainRoom is how much fits into the buffers between two peers even if the
// other one does not read, so that writing it cannot block.
const certainRoom = 16 << 10

// Read implements [net.Conn].
func (c *promptConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.unread.Store(0)
		if c.sent.Load() {
			c.heard.Store(true)
		}
	}
	return n, err
}

// Write implements [net.Conn].
func (c *promptConn) Write(p []byte) (int, error) {
	c.sent.Store(true)
	risky := c.unread.Add(int64(len(p))) > certainRoom
	if risky || c.limited {
		var deadline time.Time
		if risky {
			deadline = time.Now().Add(c.timeout)
		}
		if err := c.SetWriteDeadline(deadline); err != nil {
			return 0, err
		}
		c.limited = risky
	}
	return c.Conn.Write(p)
}
