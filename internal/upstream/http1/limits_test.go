package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// A server answers before it has read the request, and reads no more of it. The answer arrives, and
// the connection is closed.
func TestEarlyAnswer(t *testing.T) {
	for _, size := range []int{1 << 10, 32 << 20} {
		var conns atomic.Int32
		hold := make(chan struct{})
		c := newClient(t, accept(t, func(conn net.Conn) {
			conns.Add(1)
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
			<-hold
		}), nil)
		release := sync.OnceFunc(func() { close(hold) })
		t.Cleanup(release)
		for range 2 {
			resp, err := c.Do(t.Context(), post(strings.Repeat("x", size)))
			if got := text(t, resp, err); got != "no!" {
				t.Errorf("got %s", got)
			}
			if size < 1<<20 {
				c.CloseIdle()
			}
		}
		if n := conns.Load(); n != 2 {
			t.Errorf("%d connections for two requests of %d bytes", n, size)
		}
		release()
	}
}

// A server that answers early and then reads the whole request keeps its connection.
func TestEarlyAnswerThenRead(t *testing.T) {
	var conns atomic.Int32
	c := newClient(t, accept(t, func(conn net.Conn) {
		conns.Add(1)
		for in := bufio.NewReader(conn); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnow\r\n")
			io.Copy(io.Discard, r.Body)
			io.WriteString(conn, "6\r\n, then\r\n0\r\n\r\n")
		}
	}), nil)
	for range 3 {
		resp, err := c.Do(t.Context(), post(strings.Repeat("x", 8<<20)))
		if got := text(t, resp, err); got != "now, then" {
			t.Errorf("got %s", got)
		}
	}
	if n := conns.Load(); n > 3 {
		t.Errorf("%d connections", n)
	}
}

// A request fails in time if the server does not read a large request, does not answer, or stops in
// the middle of its answer.
func TestSlowServers(t *testing.T) {
	const short = 50 * time.Millisecond
	talks := map[string]func(conn net.Conn, r *http.Request){
		"reads nothing":          func(net.Conn, *http.Request) {},
		"reads and says nothing": func(_ net.Conn, r *http.Request) { io.Copy(io.Discard, r.Body) },
		"sends half a head":      func(conn net.Conn, _ *http.Request) { io.WriteString(conn, "HTTP/1.1 200 OK\r\nX") },
		"sends interim answers":  func(conn net.Conn, _ *http.Request) { io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n") },
		"stops within its answer": func(conn net.Conn, _ *http.Request) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
		},
	}
	for name, talk := range talks {
		for _, size := range []int{10, 32 << 20} {
			hold := make(chan struct{})
			c := newClient(t, accept(t, func(conn net.Conn) {
				if name != "reads and says nothing" {
					conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				}
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err == nil {
					talk(conn, r)
				}
				<-hold
			}), func(cfg *http1.Config) { cfg.WriteTimeout = short })
			r := post(strings.Repeat("x", size))
			r.Timeout = short
			resp, err := c.Do(t.Context(), r)
			if err == nil {
				resp.Body.(interface{ SetReadTimeout(d time.Duration) }).SetReadTimeout(short)
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			close(hold)
		}
	}
}

// The body of an answer may take longer than its head.
func TestTimeoutLimitsOnlyHead(t *testing.T) {
	for _, size := range []int{10, 1 << 20} {
		late := make(chan struct{})
		c := newClient(t, accept(t, func(conn net.Conn) {
			if _, err := request(bufio.NewReader(conn)); err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
			<-late
			io.WriteString(conn, "hello")
		}), nil)
		r := post(strings.Repeat("x", size))
		r.Timeout = 100 * time.Millisecond
		resp, err := c.Do(t.Context(), r)
		for errors.Is(err, os.ErrDeadlineExceeded) { // the machine is busy
			r.Timeout *= 2
			resp, err = c.Do(t.Context(), r)
		}
		time.AfterFunc(2*r.Timeout, func() { close(late) })
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, resp, nil); got != "hello" {
			t.Errorf("got %s", got)
		}
	}
}

// The head of an answer is limited, including interim answers. The limit is lower than that of
// http.Transport (10 MiB).
func TestHeadLimits(t *testing.T) {
	tests := map[string]struct{ once, piece string }{
		"interim answers":       {"", "HTTP/1.1 100 Continue\r\n\r\n"},
		"large interim answers": {"", "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", 8<<10) + "\r\n\r\n"},
		"headers":               {"HTTP/1.1 200 OK\r\n", "X-A: 1\r\n"},
		"one header":            {"HTTP/1.1 200 OK\r\nX-A: ", strings.Repeat("x", 1<<10)},
		"a status line":         {"HTTP/1.1 200 ", strings.Repeat("x", 1<<10)},
	}
	for name, tt := range tests {
		c := newClient(t, accept(t, func(conn net.Conn) {
			request(bufio.NewReader(conn))
			_, err := io.WriteString(conn, tt.once)
			for some := strings.Repeat(tt.piece, 1+4096/len(tt.piece)); err == nil; {
				_, err = io.WriteString(conn, some)
			}
		}), nil)
		if resp, err := c.Do(t.Context(), post("{}")); err == nil {
			t.Errorf("%s without an end: %s", name, resp.Status)
		}
	}
}

// Small interim answers are limited in number, because their bytes would be allowed.
func TestInterimLimit(t *testing.T) {
	const most = 1000
	for n, want := range map[int]bool{most - 1: true, most: false} {
		c := newClient(t, accept(t, func(conn net.Conn) {
			request(bufio.NewReader(conn))
			io.WriteString(conn, strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", n)+okay("x"))
		}), nil)
		resp, err := c.Do(t.Context(), post("{}"))
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("%d interim answers: %v", n, err)
		}
	}
}

// A head of 1 MiB is too large in every form.
func TestHeadLimit(t *testing.T) {
	for size, want := range map[int]bool{1 << 19: true, 1 << 20: false, 3 << 20: false} {
		c := newClient(t, accept(t, func(conn net.Conn) {
			request(bufio.NewReader(conn))
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-A: "+strings.Repeat("x", size)+"\r\nContent-Length: 1\r\n\r\nx")
		}), nil)
		resp, err := c.Do(t.Context(), post("{}"))
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("a head of %d bytes: %v", size, err)
		}
	}
}

// A request that could be read as something else is not sent.
func TestInvalidRequests(t *testing.T) {
	var sent bytes.Buffer
	c := newClient(t, accept(t, func(conn net.Conn) { io.Copy(&sent, conn) }), nil)
	for _, r := range []*http1.Request{
		{Method: "POST", Target: "/", Header: http.Header{"X-A": {"1\r\nX-B: 2"}}},
		{Method: "POST", Target: "/", Header: http.Header{"X-A": {"1\n2"}}},
		{Method: "POST", Target: "/", Header: http.Header{"X-A": {"1\r2"}}},
		{Method: "POST", Target: "/", Header: http.Header{"X-A": {"1\x00"}}},
		{Method: "POST", Target: "/", Header: http.Header{"X-A:": {"1"}}},
		{Method: "POST", Target: "/", Header: http.Header{"X-A\r\nX-B": {"1"}}},
		{Method: "POST", Target: "/", Header: http.Header{"": {"1"}}},
		{Method: "POST", Target: "/ HTTP/1.1\r\nX-A: 1\r\n"},
		{Method: "POST", Target: "/a b"},
		{Method: "POST", Target: "http://elsewhere.example/"},
		{Method: "POST", Target: ""},
		{Method: "PO ST", Target: "/"},
		{Method: "", Target: "/"},
	} {
		r.Timeout = time.Second
		if _, err := c.Do(t.Context(), r); err == nil || strings.Contains(err.Error(), "X-B: 2") {
			t.Errorf("%q %q %q: %v", r.Method, r.Target, r.Header, err)
		}
	}
	if sent.Len() > 0 {
		t.Errorf("the server got %q", sent.String())
	}
}

// Only the client decides where a request ends and whether its connection is kept.
func TestFramingHeaders(t *testing.T) {
	got, err := received(t, ours, "x:1", &http1.Request{Method: "POST", Target: "/", Body: []byte("hello"), Header: http.Header{
		"Host": {"other"}, "Content-Length": {"1"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"X"}, "Te": {"trailers"}, "Connection": {"upgrade"},
		"transfer-encoding": {"chunked"}, "CONTENT-LENGTH": {"2"}, "Keep-Alive": {"1"}, "Upgrade": {"h2c"}, "Expect": {"100-continue"},
		"Proxy-Connection": {"close"}, "X-A": {" 1\t"},
	}})
	if want := "POST / HTTP/1.1\r\nHost: x:1\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello"; err != nil || string(got) != want {
		t.Errorf("sent %q, %v; want %q", got, err, want)
	}
}

// A deadlineConn knows the deadline of its reads.
type deadlineConn struct {
	*net.TCPConn

	read *atomic.Pointer[time.Time]
}

func (c deadlineConn) SetDeadline(t time.Time) error {
	c.read.Store(&t)
	return c.TCPConn.SetDeadline(t)
}

func (c deadlineConn) SetReadDeadline(t time.Time) error {
	c.read.Store(&t)
	return c.TCPConn.SetReadDeadline(t)
}

// The timeout of an exchange does not affect the next one on the same connection, of any size.
func TestTimeoutEndsWithExchange(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	host := accept(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for range 2 {
			body, err := request(in)
			if err != nil {
				return
			}
			if len(body) > 100 {
				close(arrived)
				<-answer
			}
			io.WriteString(conn, okay("done"))
		}
	})
	var read atomic.Pointer[time.Time]
	dials := 0
	c := newClient(t, host, func(cfg *http1.Config) {
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return deadlineConn{conn.(*net.TCPConn), &read}, nil
		}
	})
	small := post("small")
	small.Timeout = 2 * time.Second
	resp, err := c.Do(t.Context(), small)
	for errors.Is(err, os.ErrDeadlineExceeded) { // the machine is busy
		small.Timeout *= 2
		dials = 0
		resp, err = c.Do(t.Context(), small)
	}
	text(t, resp, err)
	large := post(strings.Repeat("x", 100<<10))
	large.Timeout = 0
	done := make(chan string, 1)
	go func() {
		resp, err := c.Do(t.Context(), large)
		done <- text(t, resp, err)
	}()
	<-arrived
	time.Sleep(time.Until(*read.Load())) // the time limit of the first exchange is over now
	close(answer)
	if got := <-done; got != "done" || dials != 1 {
		t.Errorf("%q on %d connections", got, dials)
	}
}
