package http1_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accept serves connections with talk until the test ends.
func accept(t testing.TB, talk func(conn net.Conn)) (host string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				talk(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Wait()
	})
	return l.Addr().String()
}

// await waits until the server has seen the end of its connection.
func await(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(testTimeout):
		t.Error("the connection is still open")
	}
}

// newClient returns a client of the server at host.
func newClient(t testing.TB, host string, adjust func(*http1.Config)) *http1.Client {
	t.Helper()
	cfg := http1.Config{Address: host, Host: host, Dial: new(net.Dialer).DialContext, WriteTimeout: testTimeout}
	if adjust != nil {
		adjust(&cfg)
	}
	c := http1.New(cfg)
	t.Cleanup(c.CloseIdle)
	return c
}

func post(body string) *http1.Request {
	return &http1.Request{Method: http.MethodPost, Target: "/mcp", Body: []byte(body), Timeout: testTimeout}
}

func okay(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// text returns the body of an answer, and accepts it.
func text(t testing.TB, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	http1.Accept(resp.Body)
	return string(body)
}

// request reads a request to its end.
func request(in *bufio.Reader) (string, error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// echo answers every request with its body.
func echo(conn net.Conn) {
	for in := bufio.NewReader(conn); ; {
		body, err := request(in)
		if err != nil {
			return
		}
		io.WriteString(conn, okay(body))
	}
}

// Concurrent callers each get the answer to their own request, on few connections.
func TestConcurrentExchanges(t *testing.T) {
	var conns atomic.Int32
	c := newClient(t, accept(t, func(conn net.Conn) { conns.Add(1); echo(conn) }), func(cfg *http1.Config) { cfg.MaxIdle = 16 })
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := range 100 {
				body := strings.Repeat(fmt.Sprintf("%d-%d ", caller, i), 1+i*i)
				resp, err := c.Do(t.Context(), post(body))
				if got := text(t, resp, err); got != body {
					t.Errorf("got %.100q; want %.100q", got, body)
				}
			}
		})
	}
	callers.Wait()
	if n := conns.Load(); n > 160 { // on a busy machine a late writer costs a connection
		t.Errorf("%d connections for 1600 exchanges of 16 callers", n)
	}
}

// A request is sent once, even if it fails, on a new connection and on a kept one. [http.Transport]
// would repeat a GET.
func TestRequestIsSentOnce(t *testing.T) {
	ends := map[string]func(conn net.Conn){
		"closed": func(net.Conn) {},
		"reset":  func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0) },
		"half an answer": func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-")
		},
	}
	for name, end := range ends {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			for _, kept := range []bool{false, true} {
				var asked atomic.Int32
				c := newClient(t, accept(t, func(conn net.Conn) {
					in := bufio.NewReader(conn)
					if kept {
						request(in)
						io.WriteString(conn, okay("first"))
					}
					if _, err := request(in); err == nil {
						asked.Add(1)
						end(conn)
					}
				}), nil)
				r := post("{}")
				r.Method = method
				r.Header = http.Header{"Idempotency-Key": {"k"}}
				if kept {
					resp, err := c.Do(t.Context(), r)
					text(t, resp, err)
				}
				if resp, err := c.Do(t.Context(), r); err == nil {
					t.Errorf("%s, %s, kept: %v: %s", name, method, kept, resp.Status)
				}
				if n := asked.Load(); n != 1 {
					t.Errorf("%s, %s, kept: %v: the server was asked %d times", name, method, kept, n)
				}
			}
		}
	}
}

// An idle connection that the server has closed is not used, so no call fails because of it.
func TestClosedIdleConnectionIsNotUsed(t *testing.T) {
	closed := make(chan struct{}, 50)
	c := newClient(t, accept(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		if body, err := request(in); err == nil {
			io.WriteString(conn, okay(body))
			conn.Close()
			closed <- struct{}{}
		}
	}), nil)
	for i := range 50 {
		body := fmt.Sprint(i)
		resp, err := c.Do(t.Context(), post(body))
		if got := text(t, resp, err); got != body {
			t.Fatalf("got %s; want %s", got, body)
		}
		<-closed
	}
}

// Unsolicited bytes of a server answer no request, whether they arrive together with the last
// answer or later.
func TestUnsolicitedBytesCloseConnection(t *testing.T) {
	for wire, start := range map[string]func(*testing.T, func(net.Conn)) *http1.Client{"TCP": startPlain, "TLS": startSecure} {
		for name, size := range map[string]int{"small": 10, "more than buffers hold": 12 << 10} {
			smuggled := okay("smuggled" + strings.Repeat("!", size))
			for _, late := range []bool{false, true} {
				sent := make(chan struct{}, 1)
				talk := func(conn net.Conn) {
					body, err := request(bufio.NewReader(conn))
					if err != nil {
						return
					}
					if late {
						io.WriteString(conn, okay(body))
						io.WriteString(conn, smuggled)
					} else {
						io.WriteString(conn, okay(body)+smuggled)
					}
					sent <- struct{}{}
					io.Copy(io.Discard, conn) // until the client closes it
				}
				c := start(t, talk)
				for i := range 20 {
					body := fmt.Sprint(i)
					resp, err := c.Do(t.Context(), post(body))
					if got := text(t, resp, err); got != body {
						t.Fatalf("%s, %s, late: %v: got %.50q; want %s", name, wire, late, got, body)
					}
					<-sent
				}
			}
		}
	}
}

// startPlain returns a client of a server that talks without TLS.
func startPlain(t *testing.T, talk func(conn net.Conn)) *http1.Client {
	t.Helper()
	return newClient(t, accept(t, talk), nil)
}

// startSecure returns a client of a server that talks with TLS.
func startSecure(t *testing.T, talk func(conn net.Conn)) *http1.Client {
	t.Helper()
	return startSecureOver(t, func(conn net.Conn) net.Conn { return conn }, talk)
}

// startSecureOver is startSecure with a server whose connections are wrapped below TLS.
func startSecureOver(t *testing.T, wrap func(net.Conn) net.Conn, talk func(conn net.Conn)) *http1.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	certificates, authority := server.TLS.Certificates, x509.NewCertPool()
	authority.AddCert(server.Certificate())
	server.Close()
	return newClient(t, accept(t, func(conn net.Conn) {
		talk(tls.Server(wrap(conn), &tls.Config{Certificates: certificates}))
	}), func(cfg *http1.Config) { cfg.TLS = &tls.Config{RootCAs: authority, ServerName: "example.com"} })
}

// A cancelled exchange ends at once with the error of its context, at every step, and the server
// sees the connection end.
func TestCancel(t *testing.T) {
	talks := map[string]struct {
		size int
		talk func(conn net.Conn, in *bufio.Reader) // until the exchange is to be cancelled
	}{
		"before the head": {10, func(_ net.Conn, in *bufio.Reader) { request(in) }},
		"within the head": {10, func(conn net.Conn, in *bufio.Reader) {
			request(in)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConte")
		}},
		"within the body": {10, func(conn net.Conn, in *bufio.Reader) {
			request(in)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		}},
		"while the request is sent": {32 << 20, func(_ net.Conn, in *bufio.Reader) { http.ReadRequest(in) }},
	}
	for name, tt := range talks {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		c := newClient(t, accept(t, func(conn net.Conn) {
			in := bufio.NewReader(conn)
			tt.talk(conn, in)
			cancel()
			io.Copy(io.Discard, in)
			close(ended)
		}), nil)
		resp, err := c.Do(ctx, post(strings.Repeat("x", tt.size)))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		await(t, ended)
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newClient(t, "127.0.0.1:1", nil).Do(ctx, post("{}")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the request: %v", err)
	}
}

// Close ends a concurrent Read. After an incomplete answer, the connection is closed.
func TestCloseWhileReading(t *testing.T) {
	ended := make(chan struct{})
	c := newClient(t, accept(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		request(in)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		io.Copy(io.Discard, in)
		close(ended)
	}), nil)
	resp, err := c.Do(t.Context(), post("x"))
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	}()
	resp.Body.Close()
	if err := <-read; err == nil {
		t.Error("the truncated body ends without an error")
	}
	await(t, ended)
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after Close, Read = %v", err)
	}
}

// A request with Fresh gets a new connection, sends Connection: close, and leaves no connection
// behind.
func TestFreshConnection(t *testing.T) {
	type got struct {
		closes bool
		before int // requests on the same connection
	}
	requests := make(chan got, 1)
	c := newClient(t, accept(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for n := 0; ; n++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			requests <- got{r.Close, n}
			io.WriteString(conn, okay("x"))
		}
	}), nil)
	for i, want := range []got{{false, 0}, {true, 0}, {true, 0}, {false, 1}} {
		r := post("{}")
		r.Fresh = want.closes
		resp, err := c.Do(t.Context(), r)
		text(t, resp, err)
		if got := <-requests; got != want {
			t.Errorf("request %d: %+v; want %+v", i, got, want)
		}
	}
}

// A connection serves one owner, and is closed after an answer that was not accepted. Above the
// limit, the least recently used connection is closed.
func TestConnectionServesOneOwner(t *testing.T) {
	var conns atomic.Int32
	c := newClient(t, accept(t, func(conn net.Conn) {
		n := conns.Add(1)
		for in := bufio.NewReader(conn); ; {
			if _, err := request(in); err != nil {
				return
			}
			io.WriteString(conn, okay(fmt.Sprint(n)))
		}
	}), func(cfg *http1.Config) { cfg.MaxIdle = 2 })
	for i, tt := range []struct {
		owner   string
		want    string // the number of the connection
		refused bool
	}{
		{"ann", "1", false},
		{"bob", "2", false},
		{"ann", "1", false},
		{"", "3", false},    // the connection of bob is closed
		{"ann", "1", false}, // used last
		{"bob", "4", false}, // the connection of "" is closed
		{"ann", "1", true},
		{"ann", "5", false},
		{"bob", "4", false},
	} {
		r := post("{}")
		r.Owner = tt.owner
		resp, err := c.Do(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if string(body) != tt.want || err != nil {
			t.Errorf("request %d of %q: connection %s, %v; want %s", i, tt.owner, body, err, tt.want)
		}
		if !tt.refused {
			http1.Accept(resp.Body)
		}
		resp.Body.Close()
	}
}

// The trace gets a connection before the first byte is sent, and never one that could not be
// opened.
func TestTrace(t *testing.T) {
	host := accept(t, echo)
	for name, tt := range map[string]struct {
		host string
		want int
	}{"reached": {host, 1}, "not reached": {"127.0.0.1:1", 0}} {
		got := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got++ }})
		resp, err := newClient(t, tt.host, nil).Do(ctx, post("{}"))
		if err == nil {
			resp.Body.Close()
		}
		if got != tt.want {
			t.Errorf("%s: %d traced connections: %v", name, got, err)
		}
	}
}

// Idle connections are limited in number and age.
func TestIdleConnections(t *testing.T) {
	var open atomic.Int32
	host := accept(t, func(conn net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		echo(conn)
	})
	left := func(want int32) {
		t.Helper()
		for deadline := time.Now().Add(testTimeout); open.Load() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections are open; want %d", open.Load(), want)
			}
		}
	}
	burst := func(c *http1.Client, n int) (closeAll func()) {
		var bodies []io.Closer
		for range n {
			resp, err := c.Do(t.Context(), post("x"))
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, resp.Body)
			defer func() {
				io.Copy(io.Discard, resp.Body)
				http1.Accept(resp.Body)
			}()
		}
		return func() {
			for _, b := range bodies {
				b.Close()
			}
		}
	}
	few := newClient(t, host, func(cfg *http1.Config) { cfg.MaxIdle = 3 })
	burst(few, 10)()
	left(3)
	few.CloseIdle()
	left(0)

	brief := newClient(t, host, func(cfg *http1.Config) { cfg.MaxIdle, cfg.IdleTimeout = 9, 20*time.Millisecond })
	burst(brief, 5)()
	left(0)

	resp, err := few.Do(t.Context(), post("x"))
	few.CloseIdle() // while the connection is in use
	text(t, resp, err)
	left(0)
}

// TLS settings are kept, and a server that chooses HTTP/2 gets no request.
func TestTLS(t *testing.T) {
	var asked atomic.Int32
	server := func(http2 bool) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			io.Copy(w, r.Body)
		}))
		s.EnableHTTP2 = http2
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	one, two := server(false), server(true)
	trusting := x509.NewCertPool()
	trusting.AddCert(one.Certificate())
	tests := []struct {
		name   string
		server *httptest.Server
		tls    *tls.Config
		err    error
		ok     bool
	}{
		{"trusted", one, &tls.Config{RootCAs: trusting, ServerName: "example.com"}, nil, true},
		{"not trusted", one, &tls.Config{ServerName: "example.com"}, nil, false},
		{"another name", one, &tls.Config{RootCAs: trusting, ServerName: "other.example"}, nil, false},
		{"HTTP/2", two, &tls.Config{RootCAs: trusting, ServerName: "example.com"}, http1.ErrHTTP2, false},
	}
	for _, tt := range tests {
		asked.Store(0)
		c := newClient(t, tt.server.Listener.Addr().String(), func(cfg *http1.Config) { cfg.TLS = tt.tls })
		for range 3 {
			resp, err := c.Do(t.Context(), post("hello"))
			if tt.ok {
				if got := text(t, resp, err); got != "hello" {
					t.Errorf("%s: got %s", tt.name, got)
				}
				continue
			}
			if err == nil || tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		if n := asked.Load(); n != 3 && tt.ok || n != 0 && !tt.ok {
			t.Errorf("%s: the server was asked %d times", tt.name, n)
		}
	}
}

func BenchmarkExchange(b *testing.B) {
	c := newClient(b, accept(b, echo), nil)
	r := post(strings.Repeat("x", 1<<10))
	b.ReportAllocs()
	for b.Loop() {
		resp, err := c.Do(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
