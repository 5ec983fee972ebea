package httpserver_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

// start serves at a free address, with at most the given number of connections. It
// returns the problem types of refused connections.
func start(t *testing.T, connections int64, state func(net.Conn, http.ConnState)) (*httpserver.Listener, <-chan mcp.Type) {
	t.Helper()
	refused := make(chan mcp.Type, 8)
	l, err := httpserver.Listen(httpserver.Config{
		Name: "tests", Address: "127.0.0.1:0", Connections: admission.Limits{Total: connections, Client: connections}, MaxHeader: 1 << 16, State: state, BodyTimeout: time.Minute,
		Refused: func(k mcp.Type) { refused <- k }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve() }()
	t.Cleanup(func() {
		l.Stop(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l, refused
}

func respond(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// client is one connection.
type client struct {
	net.Conn

	in *bufio.Reader
}

func dial(t *testing.T, l *httpserver.Listener) client {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return client{c, bufio.NewReader(c)}
}

// get sends a request and returns the status and the body of the answer.
func (c client) get(t *testing.T) (int, string) {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c.read(t)
}

func (c client) read(t *testing.T) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A running request keeps its handler, the next one on the same connection gets the new
// one, and Stop waits for running requests.
func TestHandlerIsReplaced(t *testing.T) {
	l, _ := start(t, 4, nil)
	began, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-release
		_, _ = io.WriteString(w, "old")
	}))
	c := dial(t, l)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	l.SetHandler(respond("new"))
	close(release)
	if _, body := c.read(t); body != "old" {
		t.Errorf("a running request is answered %q", body)
	}
	if _, body := c.get(t); body != "new" {
		t.Errorf("the next request is answered %q", body)
	}
	serving, finish := make(chan struct{}), make(chan struct{})
	l.SetHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(serving)
		<-finish
		close(ended)
	}))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-serving
	time.AfterFunc(50*time.Millisecond, func() { close(finish) })
	start := time.Now()
	l.Stop(t.Context())
	select {
	case <-ended:
	default:
		if time.Since(start) < 2*time.Second { // it waits no longer
			t.Error("Stop did not wait for a request")
		}
	}
}

// A request whose body arrives after the handler was replaced is served by the new one.
func TestHandlerIsReplacedBeforeBody(t *testing.T) {
	l, _ := start(t, 4, nil)
	l.SetHandler(respond("old"))
	c := dial(t, l)
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} { // the body is awaited
		if line, err := c.in.ReadString('\n'); err != nil || line != want {
			t.Fatalf("answered %q, %v", line, err)
		}
	}
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "new "+string(body))
	}))
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, body := c.read(t); body != "new hello" {
		t.Errorf("answered %q", body)
	}
}

// A new connection replaces an idle one. If all are in use, the new one is refused.
func TestNewConnectionReplacesIdleOne(t *testing.T) {
	rests := make(chan struct{}, 8)
	l, refused := start(t, 1, func(_ net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			rests <- struct{}{}
		}
	})
	l.SetHandler(respond("hello"))
	idle := dial(t, l)
	idle.get(t)
	<-rests // the answer arrives a moment before
	began, release := make(chan struct{}), make(chan struct{})
	l.SetHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-release
	}))
	defer close(release)
	busy := dial(t, l)
	if _, err := io.WriteString(busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began // in place of the idle connection
	if _, err := idle.in.ReadByte(); err == nil {
		t.Error("the idle connection is still open")
	}
	status, body := dial(t, l).get(t)
	if status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests || !strings.Contains(body, `"error"`) {
		t.Errorf("a connection over the limit is answered %d: %s", status, body)
	}
	if kind := <-refused; kind != mcp.Overloaded && kind != mcp.ClientLimit {
		t.Errorf("it is refused as %s", kind)
	}
}
