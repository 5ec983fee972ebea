package httpclient_test

import (
	"errors"
	"io"
	"net/url"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A read fails if the server is silent for too long. The time between reads does not count.
func TestReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		body := httpclient.NewTimeoutBody(read, time.Minute)
		go func() {
			for range 3 {
				time.Sleep(50 * time.Second)
				_, _ = write.Write([]byte("x"))
			}
		}()
		piece := make([]byte, 1)
		for range 3 {
			if _, err := body.Read(piece); err != nil {
				t.Fatalf("a server that speaks in time: %v", err)
			}
			time.Sleep(time.Hour)
		}
		began := time.Now()
		if _, err := body.Read(piece); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("a silent server, after %v: %v", time.Since(began), err)
		}
	})
}

// Without a timeout, a read waits until the server sends something.
func TestDisableReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		body := httpclient.NewTimeoutBody(read, time.Minute)
		go func() {
			_, _ = write.Write([]byte("x"))
			time.Sleep(time.Hour)
			_, _ = write.Write([]byte("x"))
		}()
		for range 2 {
			if _, err := body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			httpclient.DisableReadTimeout(body)
		}
	})
}

// Only answers to requests of clients have a read timeout: not event streams, and not requests of
// the gate.
func TestOnlyForwardedRequestsHaveReadTimeout(t *testing.T) {
	c := httpclient.New(httpclient.Config{Name: "x", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, CallTimeout: time.Minute, ResponseTimeout: time.Second})
	for _, tt := range []struct {
		name    string
		r       upstream.Request
		silence time.Duration // 0 if it is not limited
	}{
		{"call", upstream.Request{Forwarded: true, Message: &jsonrpc.Message{Method: "tools/call"}}, time.Minute},
		{"other request", upstream.Request{Forwarded: true, Message: &jsonrpc.Message{Method: "tools/list"}}, time.Second},
		{"subscription", upstream.Request{Forwarded: true, Stream: true, Message: &jsonrpc.Message{Method: "subscriptions/listen"}}, 0},
		{"held call", upstream.Request{Message: &jsonrpc.Message{Method: "tools/call"}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read, write := io.Pipe()
				time.AfterFunc(time.Hour, func() { _ = write.Close() })
				began := time.Now()
				_, err := c.AnswerBody(tt.r, read).Read(make([]byte, 1))
				took := time.Since(began)
				if tt.silence == 0 && (!errors.Is(err, io.EOF) || took != time.Hour) {
					t.Errorf("after %v: %v", took, err)
				}
				if tt.silence > 0 && (!errors.Is(err, os.ErrDeadlineExceeded) || took != tt.silence) {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}
