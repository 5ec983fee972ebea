// Package http1 is an HTTP/1.1 client for one server. An exchange runs in the goroutine of its
// caller, while [http.Transport] has two goroutines for each connection and passes every message
// between them. The package sends headers and bodies unchanged and each request at most once. It
// does not support redirects, proxies, compression or HTTP/2.
//
// A connection belongs to the owner of the first request on it and serves only that owner. It is
// used again only if the caller has accepted the last answer, nothing arrived after that, and the
// server has not closed it:
//
//	resp, err := client.Do(ctx, request)
//	... // read resp.Body to its end and check the answer
//	http1.Accept(resp.Body)
//	resp.Body.Close()
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

// A Config says how to reach the server.
type Config struct {
	Address          string // host and port
	Host             string // the Host header
	Dial             func(ctx context.Context, network, address string) (net.Conn, error)
	TLS              *tls.Config   // nil means no TLS
	HandshakeTimeout time.Duration // for TLS; 0 means none
	WriteTimeout     time.Duration // how long a write may block; 0 means any time
	MaxIdle          int           // maximum idle connections of all owners; 2 if zero
	IdleTimeout      time.Duration // how long to keep an idle connection; 0 means any time
	ReadBuffer       int           // bytes; 4 KiB if zero
}

// ErrHTTP2 reports a server that chose HTTP/2. Nothing was sent to it.
var ErrHTTP2 = errors.New("the server speaks HTTP/2")

// A Client makes requests to one server.
type Client struct {
	cfg  Config
	tls  *tls.Config
	pool pool
}

// New returns a client of the server that cfg names.
func New(cfg Config) *Client {
	cfg.MaxIdle = cmp.Or(cfg.MaxIdle, http.DefaultMaxIdleConnsPerHost)
	cfg.ReadBuffer = cmp.Or(cfg.ReadBuffer, defaultBuffer)
	c := &Client{cfg: cfg, pool: pool{max: cfg.MaxIdle, timeout: cfg.IdleTimeout}}
	if cfg.TLS != nil {
		c.tls = cfg.TLS.Clone()
		c.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	return c
}

// A Request is a request to send.
type Request struct {
	Owner   string // the owner of the connection
	Method  string
	Target  string                 // path and query
	Header  http.Header            // framing headers are left out
	Omit    func(name string) bool // reports headers that are not sent; may be nil
	Extra   http.Header            // sent in addition
	Body    []byte
	Timeout time.Duration // from the end of the request to the head of the answer; 0 means none
	Fresh   bool          // use a new connection, and close it afterwards
}

// Do sends the request once and returns the answer, whose body must be closed. To reuse the
// connection, give the body to [Accept] before. The trace in ctx gets the connection before the
// first byte is sent. If ctx ends, Do returns its error within watchAfter.
func (c *Client) Do(ctx context.Context, r *Request) (*http.Response, error) {
	head := headBuffers.Get().(*[]byte)
	var err error
	if *head, err = r.appendHead((*head)[:0], c.cfg.Host); err != nil {
		headBuffers.Put(head)
		return nil, err
	}
	conn, err := c.connect(ctx, r)
	if err != nil {
		headBuffers.Put(head)
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: conn.Conn, Reused: conn.used})
	}
	x := newExchange(ctx, c, conn, r)
	resp, err := x.run(r, head)
	if err != nil {
		x.abort()
		return nil, x.cause(err)
	}
	return resp, nil
}

// CloseIdle closes the idle connections, and those in use when their exchanges end.
func (c *Client) CloseIdle() { c.pool.close() }

// connect returns an idle connection of the request's owner, or a new one.
func (c *Client) connect(ctx context.Context, r *Request) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	//mutate:swap "!r.Fresh" "range 1" TestFreshConnection a held call takes a kept connection
	for !r.Fresh {
		//mutate:swap "r.Owner" `""` TestConnectionServesOneOwner owners share connections
		kept := c.pool.take(r.Owner)
		if kept == nil {
			break
		}
		//mutate:swap ".isReusable()" " != nil" Test(ClosedIdleConnectionIsNotUsed|UnsolicitedBytesCloseConnection) a kept connection is not checked
		if kept.isReusable() {
			return kept, nil
		}
		kept.abort()
	}
	var conn *conn
	var err error
	ownstack.Do(func() { conn, err = c.dial(ctx, r.Owner) })
	return conn, err
}

func (c *Client) dial(ctx context.Context, owner string) (*conn, error) {
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
	made := newConn(established, raw, c.cfg.ReadBuffer)
	made.owner, made.generation = owner, born
	return made, nil
}

// secure adds TLS to a connection.
func (c *Client) secure(ctx context.Context, raw net.Conn) (net.Conn, error) {
	if c.cfg.HandshakeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.HandshakeTimeout)
		defer cancel()
	}
	secure := tls.Client(raw, c.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	//mutate:false TestTLS a server that speaks HTTP/2 is sent HTTP/1.1
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		return nil, ErrHTTP2
	}
	return secure, nil
}
