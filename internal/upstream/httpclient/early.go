package httpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
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
