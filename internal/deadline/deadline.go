// Package deadline makes frequent changes of connection deadlines cheap. Server and client set
// several deadlines per message, and most move before they expire. Each change of a net.Conn's
// deadline resets a runtime timer, which may wake a thread. A [Conn] changes the underlying
// deadline only when necessary:
//
//	conn = deadline.New(conn)
//	err := conn.SetReadDeadline(time.Now().Add(time.Minute)) // usually no timer is changed
package deadline

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Conn has exact deadlines, whereas the deadline of the underlying connection may be earlier.
// The latter changes only if a read or write is in progress and the new deadline is earlier, or
// after it has expired too early.
type Conn struct {
	net.Conn

	read, write side
}

// New returns conn with cheap deadlines. Other code must not set deadlines of conn.
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

// A side is one direction of a connection. During a read or write, the underlying deadline is
// never later than the effective one.
type side struct {
	set func(time.Time) error // sets the underlying deadline

	mu      sync.Mutex
	counts  time.Time // effective deadline; zero means none
	below   time.Time // underlying deadline
	waiting int       // reads or writes in progress
}

// move sets the effective deadline.
func (s *side) move(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = t
	//mutate:swap "==" ">=" TestDeadlinesAreExact a pending read or write ignores a changed deadline
	if s.waiting == 0 {
		return nil
	}
	return s.hasten()
}

// begin records that a read or write starts.
func (s *side) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hasten(); err != nil {
		return err
	}
	s.waiting++
	return nil
}

// end records that a read or write has ended.
func (s *side) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

// longAgo is later than the deadline with which net/http aborts a pending read.
var longAgo = time.Unix(1<<20, 0)

// hasten sets the underlying deadline if it is later than the effective one or has certainly
// expired.
func (s *side) hasten() error {
	switch {
	case s.counts.Equal(s.below):
		return nil
	//mutate:swap ", !s.counts.IsZero() && s.counts.Before(s.below):" ":" TestDeadlinesAreExact an earlier deadline does not count
	//mutate:swap ", s.below.Before(longAgo)" "" TestReadAfterExpiredDeadline a read after an ended one fails first
	case s.below.IsZero(), s.below.Before(longAgo), !s.counts.IsZero() && s.counts.Before(s.below):
		return s.lower()
	default:
		return nil
	}
}

// lower sets the underlying deadline to the effective one.
func (s *side) lower() error {
	s.below = s.counts
	return s.set(s.counts)
}

// goesOn reports whether to continue because the underlying deadline expired too early.
func (s *side) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := !s.counts.IsZero() && !time.Now().Before(s.counts)
	return !over && s.lower() == nil
}
