// Package deadline makes the deadlines of connections cheap. A server and a client
// set several of them for each message, nearly all of which move before they are
// over. Each one would change a timer of the runtime, which may wake a thread for
// nothing but that.
package deadline

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Conn is a connection whose deadlines are exact for its user. The connection
// below it may have earlier ones: it gets a new deadline only if somebody waits and
// the new one is earlier, or if the old one was over too early.
type Conn struct {
	net.Conn

	read, write side
}

// New returns conn with cheap deadlines. Nobody else may set those of conn.
func New(conn net.Conn) *Conn {
	return &Conn{Conn: conn, read: side{set: conn.SetReadDeadline}, write: side{set: conn.SetWriteDeadline}}
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.read.begin(); err != nil {
		return 0, err
	}
	defer c.read.end()
	for {
		n, err := c.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !c.read.goesOn() {
			return n, err
		}
	}
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (written int, err error) {
	if err := c.write.begin(); err != nil {
		return 0, err
	}
	defer c.write.end()
	for {
		n, err := c.Conn.Write(p[written:])
		written += n
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.write.goesOn() {
			return written, err
		}
	}
}

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.read.move(t), c.write.move(t))
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.read.move(t) }

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.write.move(t) }

// SyscallConn implements [syscall.Conn].
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	below, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return below.SyscallConn()
}

// A side is one direction of a connection. While somebody waits, the deadline below
// is never later than the one that counts.
type side struct {
	set func(time.Time) error // sets the deadline below

	mu      sync.Mutex
	counts  time.Time // the deadline; zero means none
	below   time.Time // that of the connection below
	waiting int       // how many reads or writes are under way
}

// move sets the deadline.
func (s *side) move(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = t
	if s.waiting == 0 {
		return nil
	}
	return s.hasten()
}

// begin notes that somebody waits from now on.
func (s *side) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hasten(); err != nil {
		return err
	}
	s.waiting++
	return nil
}

// end notes that somebody does not wait any more.
func (s *side) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

// longAgo is later than the deadline by which a server ends a read that somebody waits in.
var longAgo = time.Unix(1<<20, 0)

// hasten sets the deadline below if it is later than the one that counts, or certainly
// over.
func (s *side) hasten() error {
	switch {
	case s.counts.Equal(s.below):
		return nil
	case s.below.IsZero(), s.below.Before(longAgo), !s.counts.IsZero() && s.counts.Before(s.below):
		return s.lower()
	default:
		return nil
	}
}

// lower sets the deadline below to the one that counts.
func (s *side) lower() error {
	s.below = s.counts
	return s.set(s.counts)
}

// goesOn reports whether somebody whose deadline below is over may go on, because
// that was too early.
func (s *side) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := !s.counts.IsZero() && !time.Now().Before(s.counts)
	return !over && s.lower() == nil
}
