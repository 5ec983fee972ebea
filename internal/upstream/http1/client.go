// Package http1 is a client of HTTP/1.1 for one server. An exchange runs in the
// goroutine of its caller, where [http.Transport] has two goroutines for each
// connection and hands every message from one to another. It takes headers and
// bodies as they are, sends a request at most once, and knows neither redirects,
// proxies, compression nor HTTP/2.
//
// A kept connection is used again only if the last answer was read to its end,
// nothing came after it, and the server has not closed it.
package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/deadline"
	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
)

// Config says how to reach the server.
type Config struct {
	Address     string // host and port
	Host        string // what requests say that they are for
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
	TLS         *tls.Config   // nil means a connection without TLS
	Handshake   time.Duration // how long that of TLS may take; 0 means any time
	WriteWait   time.Duration // how long the server may take none of what it is sent; 0 means any time
	MaxIdle     int           // how many unused connections are kept; 2 if zero
	IdleTimeout time.Duration // how long they are; 0 means any time
	ReadBuffer  int           // bytes; 4 KiB if zero
}

// ErrHTTP2 reports a server that chose to speak HTTP/2. Nothing was sent to it.
var ErrHTTP2 = errors.New("the server speaks HTTP/2")

// A Client makes requests to one server.
type Client struct {
	cfg  Config
	tls  *tls.Config
	pool pool
}

// Supported reports whether there is a way on this platform to find out if the
// server has closed a kept connection.
const Supported = canProbe

// New returns a client of the server that cfg names.
func New(cfg Config) *Client {
	cfg.MaxIdle = cmp.Or(cfg.MaxIdle, http.DefaultMaxIdleConnsPerHost)
	cfg.ReadBuffer = cmp.Or(cfg.ReadBuffer, defaultBuffer)
	c := &Client{cfg: cfg, pool: pool{most: cfg.MaxIdle, timeout: cfg.IdleTimeout}}
	if cfg.TLS != nil {
		c.tls = cfg.TLS.Clone()
		c.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	return c
}

// A Request is one to be sent.
type Request struct {
	Method  string
	Target  string                 // path and query
	Header  http.Header            // without those that frame a message, which are left out
	Omit    func(name string) bool // says which of those are not sent; nil means that all are
	Extra   http.Header            // is sent as well
	Body    []byte
	Timeout time.Duration // until the head of the answer, once the request was sent; 0 means any time
	Fresh   bool          // use a new connection, and close it afterwards
}

// Do sends the request once and returns the answer, whose body must be closed. It
// never sends anything twice. The trace in ctx learns of the connection before
// the first byte is sent. The error is that of ctx if ctx is done, which takes effect
// after watchAfter at the latest.
func (c *Client) Do(ctx context.Context, r *Request) (*http.Response, error) {
	head := heads.Get().(*[]byte)
	var err error
	if *head, err = r.appendHead((*head)[:0], c.cfg.Host); err != nil {
		heads.Put(head)
		return nil, err
	}
	conn, err := c.connect(ctx, r.Fresh)
	if err != nil {
		heads.Put(head)
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: conn.Conn, Reused: conn.used})
	}
	x := newExchange(ctx, c, conn, r)
	resp, err := x.run(r, head)
	if err != nil {
		x.breakOff()
		return nil, x.cause(err)
	}
	return resp, nil
}

// CloseIdle closes the connections that are not in use, and those in use when
// their exchanges end.
func (c *Client) CloseIdle() { c.pool.close() }

// connect returns a connection that nothing waits on.
func (c *Client) connect(ctx context.Context, fresh bool) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for !fresh {
		kept := c.pool.take()
		if kept == nil {
			break
		}
		if kept.quiet() {
			return kept, nil
		}
		kept.abort()
	}
	var conn *conn
	var err error
	ownstack.Do(func() { conn, err = c.dial(ctx) })
	return conn, err
}

func (c *Client) dial(ctx context.Context) (*conn, error) {
	born := c.pool.generation()
	dialed, err := c.cfg.Dial(ctx, "tcp", c.cfg.Address)
	if err != nil {
		return nil, err
	}
	raw := deadline.New(dialed)
	var established net.Conn = raw
	if c.tls != nil {
		if established, err = c.secure(ctx, raw); err != nil {
			_ = raw.Close()
			return nil, err
		}
	}
	return newConn(established, raw, c.cfg.ReadBuffer, born), nil
}

// secure returns the connection with TLS.
func (c *Client) secure(ctx context.Context, raw net.Conn) (net.Conn, error) {
	if c.cfg.Handshake > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Handshake)
		defer cancel()
	}
	secure := tls.Client(raw, c.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		return nil, ErrHTTP2
	}
	return secure, nil
}
