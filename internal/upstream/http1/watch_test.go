package http1_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// An answer may arrive after watchAfter, and the connection is kept.
func TestLateAnswer(t *testing.T) {
	const late = 120 * time.Millisecond
	var conns atomic.Int32
	c := newClient(t, accept(t, func(conn net.Conn) {
		conns.Add(1)
		for in := bufio.NewReader(conn); ; {
			body, err := request(in)
			if err != nil {
				return
			}
			answer := okay(body)
			for _, piece := range []string{answer[:5], answer[5:]} {
				time.Sleep(late)
				io.WriteString(conn, piece)
			}
		}
	}), nil)
	for _, body := range []string{"x", "y"} {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := c.Do(ctx, post(body))
		if got := text(t, resp, err); got != body {
			t.Errorf("got %s; want %s", got, body)
		}
		cancel()
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A request whose write blocks can be cancelled, however small it is.
func TestCancelBlockedWrite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	here, there := net.Pipe()
	defer there.Close()
	c := newClient(t, "server", func(cfg *http1.Config) {
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return here, nil }
	})
	failed := make(chan error)
	go func() {
		_, err := c.Do(ctx, post("x"))
		failed <- err
	}()
	if _, err := there.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(testTimeout / 2):
		t.Fatal("the exchange does not end")
	}
}

// A context that ends after its exchange does not affect the connection, which may serve another
// exchange by then.
func TestCancelAfterExchangeHasNoEffect(t *testing.T) {
	var conns atomic.Int32
	c := newClient(t, accept(t, func(conn net.Conn) { conns.Add(1); echo(conn) }), nil)
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := c.Do(ctx, post("x"))
		text(t, resp, err)
		go cancel()
		resp, err = c.Do(t.Context(), post("y"))
		if got := text(t, resp, err); got != "y" {
			t.Fatalf("got %s", got)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// An exchange that waits for more of its answer can be cancelled, with and without BeforeWait.
func TestCancelBetweenEvents(t *testing.T) {
	for _, told := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		c := newClient(t, accept(t, func(conn net.Conn) {
			in := bufio.NewReader(conn)
			request(in)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
			io.Copy(io.Discard, in)
			close(ended)
		}), nil)
		resp, err := c.Do(ctx, post("x"))
		if err != nil {
			t.Fatal(err)
		}
		if told {
			resp.Body.(interface{ BeforeWait(f func()) bool }).BeforeWait(cancel)
		} else {
			time.AfterFunc(time.Millisecond, cancel)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "hello" || !errors.Is(err, context.Canceled) {
			t.Errorf("with BeforeWait %t: read %q, %v", told, got, err)
		}
		resp.Body.Close()
		await(t, ended)
		cancel()
	}
}

// An exchange can be cancelled although the next bytes of its answer have always arrived.
func TestCancelBusyAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan struct{})
	c := newClient(t, accept(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		request(in)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc000\r\n"+strings.Repeat("x", 0xc000))
		close(sent)
		io.Copy(io.Discard, in)
	}), nil)
	resp, err := c.Do(ctx, post("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	resp.Body.(interface{ BeforeWait(f func()) bool }).BeforeWait(func() {})
	<-sent
	some := make([]byte, 100)
	if _, err := io.ReadFull(resp.Body, some); err != nil {
		t.Fatal(err)
	}
	cancel()
	if n, err := io.Copy(io.Discard, resp.Body); n > 8<<10 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d more bytes were read; %v", n, err)
	}
}
