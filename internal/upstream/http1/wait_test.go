package http1_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// A reader of a body is told before each read that waits for the server, wherever in a
// chunk that is. The next exchange on the connection tells it nothing.
func TestBeforeWait(t *testing.T) {
	x := strings.Repeat("x", 50)
	pieces := []string{"5\r\nhello", "\r\n", "64\r\n" + x, x + "\r\n5\r\nwor", "ld\r\n0\r\n\r\n"}
	for name, start := range map[string]func(*testing.T, func(net.Conn)) *http1.Client{"plain": startPlain, "TLS": startSecure} {
		t.Run(name, func(t *testing.T) {
			waits := make(chan struct{}, 1)
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
					case <-time.After(long):
						t.Errorf("nobody was told of the wait for %q", piece)
						return
					}
				}
				if _, err := request(in); err == nil {
					io.WriteString(conn, okay("again"))
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
				default: // the server knows
				}
			})
			if got, want := text(t, resp, err), "hello"+x+x+"world"; got != want {
				t.Errorf("got %q; want %q", got, want)
			}
			before := calls.Load()
			resp, err = c.Do(t.Context(), post("y"))
			if got := text(t, resp, err); got != "again" || calls.Load() != before {
				t.Errorf("got %q, and %d calls more", got, calls.Load()-before)
			}
		})
	}
}
