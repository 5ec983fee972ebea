package httpserver_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
)

// A server on localhost has its port on both loopback addresses, and frees both.
func TestLocalhost(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6 here: ", err)
	} else {
		l.Close()
	}
	l, err := httpserver.Listen(httpserver.Config{Name: "test", Address: "127.0.0.1:0", Localhost: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	ended := make(chan error, 1)
	go func() { ended <- l.Serve() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, ip := range []string{"127.0.0.1", "::1"} {
		answer, err := http.Get("http://" + net.JoinHostPort(ip, port))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if string(text) != "here" || err != nil {
			t.Errorf("%s: %q, %v", ip, text, err)
		}
	}
	if _, err := httpserver.Listen(httpserver.Config{Name: "test", Address: "127.0.0.1:" + port, Localhost: true}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	for _, ip := range []string{"127.0.0.1", "::1"} {
		if again, err := net.Listen("tcp", net.JoinHostPort(ip, port)); err != nil {
			t.Error(err)
		} else {
			again.Close()
		}
	}
}
