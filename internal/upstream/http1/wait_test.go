package http1_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// BeforeWait is called before each read that waits for the server, at any position in a chunk. It
// is not called for the next exchange on the connection.
func TestBeforeWait(t *testing.T) {
	x := strings.Repeat("x", 50)
	pieces := []string{"5\r\nhello", "\r\n", "64\r\n" + x, x + "\r\n5\r\nwor", "ld\r\n0\r\n\r\n"}
	for name, start := range map[string]func(*testing.T, func(net.Conn)) *http1.Client{"plain": startPlain, "TLS": startSecure} {
		t.Run(name, func(t *testing.T) {
			waits, again := make(chan struct{}, 1), make(chan struct{})
			c := start(t, func(conn net.Conn) {
				in := bufio.NewReader(conn)
				if _, err := request(in); err != nil {
					return
				}
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
				for _, piece := range pieces {
					select {
					case <-waits:
						io.WriteString(conn, piece)
					case <-time.After(testTimeout):
						t.Errorf("BeforeWait was not called before %q", piece)
						return
					}
				}
				if _, err := request(in); err == nil {
					io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
					<-again
					io.WriteString(conn, "again")
				}
			})
			resp, err := c.Do(t.Context(), post("x"))
			if err != nil {
				t.Fatal(err)
			}
			var calls atomic.Int32
			resp.Body.(interface{ BeforeWait(f func()) bool }).BeforeWait(func() {
				calls.Add(1)
				select {
				case waits <- struct{}{}:
				default: // the client has called BeforeWait
				}
			})
			if got, want := text(t, resp, err), "hello"+x+x+"world"; got != want {
				t.Errorf("got %q; want %q", got, want)
			}
			before := calls.Load()
			resp, err = c.Do(t.Context(), post("y"))
			close(again)
			if got := text(t, resp, err); got != "again" || calls.Load() != before {
				t.Errorf("got %q, and %d calls more", got, calls.Load()-before)
			}
		})
	}
}

// A slowConn sends the second half of its bytes once BeforeWait was called.
type slowConn struct {
	net.Conn

	slow  *atomic.Bool
	half  chan<- struct{} // is closed when the first half has been sent
	waits <-chan struct{}
}

// Write implements [net.Conn].
func (c slowConn) Write(p []byte) (int, error) {
	if !c.slow.Load() {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:len(p)/2])
	if err != nil {
		return n, err
	}
	close(c.half)
	select {
	case <-c.waits:
	case <-time.After(testTimeout):
		return n, errors.New("BeforeWait was not called before the rest of a record")
	}
	m, err := c.Conn.Write(p[len(p)/2:])
	return n + m, err
}

// With TLS, a part of a record does not count as bytes that can be read.
func TestBeforeWaitForRecord(t *testing.T) {
	var slow atomic.Bool
	headSeen, half, waits, written := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	wrap := func(conn net.Conn) net.Conn { return slowConn{conn, &slow, half, waits} }
	c := startSecureOver(t, wrap, func(conn net.Conn) {
		if _, err := request(bufio.NewReader(conn)); err != nil {
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
		<-headSeen
		slow.Store(true)
		_, err := io.WriteString(conn, strings.Repeat("x", 100))
		slow.Store(false)
		written <- err
	})
	resp, err := c.Do(t.Context(), post("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	resp.Body.(interface{ BeforeWait(f func()) bool }).BeforeWait(func() { waits <- struct{}{} })
	close(headSeen)
	<-half
	if got := text(t, resp, nil); len(got) != 100 {
		t.Errorf("got %q", got)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// BeforeWait is called before a read waits for the writer of the request.
func TestBeforeWaitForWriter(t *testing.T) {
	done := make(chan struct{})
	c := startPlain(t, func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
			<-done
		}
	})
	defer close(done)
	resp, err := c.Do(t.Context(), post(strings.Repeat("x", 16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	resp.Body.(interface{ BeforeWait(f func()) bool }).BeforeWait(func() { told++ })
	if got := text(t, resp, err); got != "hello" || told != 1 {
		t.Errorf("got %q, %d calls of BeforeWait; want one", got, told)
	}
}
