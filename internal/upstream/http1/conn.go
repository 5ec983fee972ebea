package http1

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	defaultBuffer = 4 << 10

	// maxHead bounds the head of an answer together with the interim answers
	// before it. http.Transport allows ten times as much, but no server of MCP has
	// a reason to send a mebibyte there.
	maxHead = 1 << 20

	// maxInterim bounds how many interim answers precede an answer. A server may
	// send one now and then to show that it still works on the request.
	maxInterim = 1000
)

var errHead = errors.New("the head of the server's answer is too large")

// A conn is a connection to the server. One exchange uses it at a time.
type conn struct {
	net.Conn // with TLS, where there is TLS

	raw   net.Conn // below TLS
	probe *probe   // nil if raw has no socket
	in    *bufio.Reader
	used  bool // it has served an exchange
	born  int  // in which generation of the pool

	head   bool  // the head of an answer is being read
	left   int   // how many bytes of it may still be read
	failed error // why reading it failed, which a parser may hide

	unwatched *exchange // the exchange, until its context is watched; nil then

	patience   time.Duration // how long a read of a body may take; 0 means any time
	beforeWait func()        // is called before a read of a body that may wait; nil if nobody wants that
	idle       time.Time     // since when it is not in use
}

func newConn(established, raw net.Conn, buffer, born int) *conn {
	c := &conn{Conn: established, raw: raw, born: born}
	c.in = bufio.NewReaderSize(reader{c}, buffer)
	if with, ok := raw.(syscall.Conn); ok {
		c.probe = newProbe(with)
	}
	return c
}

// A reader reads from the connection for its buffer.
type reader struct{ *conn }

// Read implements [io.Reader]. It limits heads in size and bodies in time.
func (r reader) Read(p []byte) (int, error) {
	if !r.head {
		return r.readBody(p)
	}
	if r.left <= 0 {
		r.failed = errHead
		return 0, errHead
	}
	n, err := r.readHead(p[:min(len(p), r.left)])
	r.left -= n
	if !errors.Is(err, io.EOF) { // of which the parser knows whether it was too early
		r.failed = err
	}
	return n, err
}

// readHead reads a piece of the head of an answer.
func (c *conn) readHead(p []byte) (int, error) {
	n, err := c.Read(p)
	x := c.unwatched
	if n > 0 || x == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if err := x.goOn(); err != nil {
		return 0, err
	}
	return c.Read(p)
}

// readBody reads a piece of a body.
func (c *conn) readBody(p []byte) (int, error) {
	switch {
	case c.beforeWait == nil:
		c.watch()
	case !c.hasArrived():
		c.watch()
		c.beforeWait()
	case c.unwatched != nil && c.unwatched.ctx.Err() != nil:
		return 0, c.unwatched.ctx.Err()
	}
	if c.patience > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
			return 0, err
		}
	}
	return c.Read(p)
}

// watch has the exchange end with its context from now on.
func (c *conn) watch() {
	if c.unwatched != nil {
		c.unwatched.watch()
		c.unwatched = nil
	}
}

// quiet reports whether the connection, which is not in use, is still open and the
// server has sent nothing unasked.
func (c *conn) quiet() bool {
	if c.in.Buffered() > 0 || c.probe == nil {
		return false
	}
	if secure, ok := c.Conn.(*tls.Conn); ok && !drained(secure) {
		return false
	}
	return c.probe.quiet()
}

// hasArrived reports whether a read would certainly not wait. With TLS that is not known,
// because what has arrived may be part of a record.
func (c *conn) hasArrived() bool { return !c.isSecure() && c.probe != nil && c.probe.hasArrived() }

func (c *conn) isSecure() bool { return c.Conn != c.raw }

// drained reports whether TLS holds nothing that it has decrypted and nobody has
// read. A read whose time is over does not go to the network.
func drained(secure *tls.Conn) bool {
	if err := secure.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return false
	}
	var one [1]byte
	n, err := secure.Read(one[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && secure.SetReadDeadline(time.Time{}) == nil
}

// abort closes the connection without a farewell, which could block.
func (c *conn) abort() { _ = c.raw.Close() }
