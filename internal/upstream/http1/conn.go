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

	// maxHead limits the head of an answer, including interim answers. http.Transport
	// allows ten times as much, which no MCP server needs.
	maxHead = 1 << 20

	// maxInterim limits the interim answers before an answer. A server may send some while
	// it works on the request.
	maxInterim = 1000
)

var errHead = errors.New("the head of the server's answer is too large")

// A conn is a connection to the server. One exchange at a time uses it.
type conn struct {
	net.Conn // includes TLS, if used

	raw        net.Conn // below TLS
	probe      *probe   // nil if raw is not a socket
	in         *bufio.Reader
	used       bool   // an exchange has ended on it
	owner      string // the only owner that it serves
	generation int    // of the pool when it was dialed

	readingHead   bool  // reading the head of an answer
	headBytesLeft int   // remaining limit for the head
	headErr       error // the read error, which the parser may replace

	unwatched *exchange // the exchange whose context is not watched yet; may be nil

	readTimeout time.Duration // for reads of a body; 0 means none
	beforeWait  func()        // called before a read of a body that may wait; may be nil
	idleSince   time.Time     // when the last exchange ended
}

func newConn(established, raw net.Conn, buffer int) *conn {
	c := &conn{Conn: established, raw: raw}
	c.in = bufio.NewReaderSize(reader{c}, buffer)
	if with, ok := raw.(syscall.Conn); ok {
		c.probe = newProbe(with)
	}
	return c
}

// A reader fills the buffer of a connection.
type reader struct{ conn *conn }

// Read implements [io.Reader]. It limits the size of heads and the time of body reads.
func (r reader) Read(p []byte) (int, error) {
	if !r.conn.readingHead {
		return r.conn.readBody(p)
	}
	if r.conn.headBytesLeft <= 0 {
		r.conn.headErr = errHead
		return 0, errHead
	}
	//mutate:swap "n, err := r.conn.readHead(p[:min(len(p), r.conn.headBytesLeft)])" "r.conn.headBytesLeft = maxHead; n, err := r.conn.readHead(p)" TestHeadLimit the head of an answer has no limit
	n, err := r.conn.readHead(p[:min(len(p), r.conn.headBytesLeft)])
	r.conn.headBytesLeft -= n
	if !errors.Is(err, io.EOF) { // the parser knows whether the end came too early
		r.conn.headErr = err
	}
	return n, err
}

// readHead reads a part of the head of an answer.
func (c *conn) readHead(p []byte) (int, error) {
	n, err := c.Read(p)
	x := c.unwatched
	//mutate:swap "!errors.Is(err, os.ErrDeadlineExceeded)" "err != nil" TestLateAnswer an answer must arrive before the exchange watches its context
	if n > 0 || x == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if err := x.extend(); err != nil {
		return 0, err
	}
	return c.Read(p)
}

// readBody reads a part of a body.
func (c *conn) readBody(p []byte) (int, error) {
	switch {
	case c.beforeWait == nil:
		c.watch()
	case !c.hasArrived():
		//mutate:drop TestCancelBetweenEvents an exchange that waits for more of its answer cannot be cancelled
		c.watch()
		//mutate:drop TestBeforeWait BeforeWait is not called
		c.beforeWait()
	//mutate:false TestCancelBusyAnswer an exchange with a fast answer cannot be cancelled
	case c.unwatched != nil && c.unwatched.ctx.Err() != nil:
		return 0, c.unwatched.ctx.Err()
	}
	if c.readTimeout > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.readTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Read(p)
}

// watch aborts the exchange when its context ends.
func (c *conn) watch() {
	if c.unwatched != nil {
		c.unwatched.watch()
		c.unwatched = nil
	}
}

// isReusable reports whether an idle connection is open and the server has sent nothing on it.
func (c *conn) isReusable() bool {
	//mutate:swap "!drained(secure)" "secure == nil" TestUnsolicitedBytesCloseConnection decrypted bytes count as the next answer
	if secure, ok := c.Conn.(*tls.Conn); ok && !drained(secure) {
		return false
	}
	return c.probe.nothingArrived()
}

// hasArrived reports whether a read will certainly not block. With TLS that is unknown, because the
// bytes that have arrived may be a part of a record.
func (c *conn) hasArrived() bool { return !c.isSecure() && c.probe != nil && c.probe.hasArrived() }

func (c *conn) isSecure() bool { return c.Conn != c.raw }

// drained reports whether TLS has no decrypted bytes that were not read. A read after its deadline
// does not read from the network.
func drained(secure *tls.Conn) bool {
	if err := secure.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return false
	}
	var one [1]byte
	n, err := secure.Read(one[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && secure.SetReadDeadline(time.Time{}) == nil
}

// abort closes the connection without the close message of TLS, which could block.
func (c *conn) abort() { _ = c.raw.Close() }
