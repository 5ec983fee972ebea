package http1_test

import (
	"bufio"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// A body that says it is ready does not keep a reader waiting. With TLS it may be ready
// and not say so.
func TestReady(t *testing.T) {
	for name, start := range map[string]func(*testing.T, func(net.Conn)) *http1.Client{"plain": startPlain, "TLS": startSecure} {
		t.Run(name, func(t *testing.T) {
			pieces := make(chan string)
			c := start(t, func(conn net.Conn) {
				if _, err := request(bufio.NewReader(conn)); err != nil {
					return
				}
				for piece := range pieces {
					io.WriteString(conn, piece)
				}
			})
			defer close(pieces)
			go func() { pieces <- "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" }()
			resp, err := c.Do(t.Context(), post("x"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body := resp.Body.(interface{ Ready() bool })
			if body.Ready() {
				t.Error("nothing has come, and the body says it is ready")
			}
			pieces <- "5\r\nhello\r\n" // the client may have read all but the last line
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if body.Ready() {
					t.Fatal("there is no more than the end of a chunk, and the body says it is ready")
				}
				time.Sleep(time.Millisecond)
			}
			pieces <- "64\r\n" + strings.Repeat("x", 100) + "\r\n"
			if name == "plain" && runtime.GOOS == "linux" {
				for !body.Ready() { // until go test gives up
					time.Sleep(time.Millisecond)
				}
			}
			if n, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
}
