package httpserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

const wantEvents = "GET / HTTP/1.1\r\nHost: x\r\nAccept: application/json, text/event-stream\r\n\r\n"

// ask sends a request for a stream of events.
func (c client) ask(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c, wantEvents); err != nil {
		t.Fatal(err)
	}
}

// begin returns the answer to a request for a stream of events, once it has begun.
func (c client) begin(t *testing.T) *http.Response {
	t.Helper()
	c.ask(t)
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// flushed writes text and flushes it.
func flushed(w http.ResponseWriter, text string) error {
	_, _ = io.WriteString(w, text)
	return http.NewResponseController(w).Flush()
}

// An answerer answers like a handler with streams.
type answerer func(w http.ResponseWriter, r *http.Request)

var answerers = map[string]answerer{
	"events": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_ = flushed(w, "data: x\n\n")
			_ = flushed(w, "")
			_, _ = io.WriteString(w, "")
		}
		_, _ = io.WriteString(w, "data: the end\n\n")
	},
	"nothing yet": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
	},
	"large": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 20 {
			_, _ = w.Write(bytes.Repeat([]byte{byte('a' + i)}, 1+i*10_000))
		}
	},
	"refused": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Add("X-Many", "1")
		w.Header().Add("X-Many", "2")
		w.Header().Set("X-Lines", "a\r\nSet-Cookie: b")
		w.WriteHeader(http.StatusMethodNotAllowed)
		_, _ = io.WriteString(w, `{"error":1}`)
	},
	"known length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
	},
	"no content": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write(nil); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	},
	"not modified": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
	"nothing":      func(http.ResponseWriter, *http.Request) {},
}

// readWhole requests a stream from an address, and returns the whole answer.
func readWhole(t *testing.T, address string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// A stream is answered as net/http would answer it, except that the connection closes.
func TestStreamAnswersLikeNetHTTP(t *testing.T) {
	for name, answer := range answerers {
		t.Run(name, func(t *testing.T) {
			l, _ := start(t, 4, nil)
			l.SetHandler(http.HandlerFunc(answer))
			other := httptest.NewServer(http.HandlerFunc(answer))
			defer other.Close()
			got, body := readWhole(t, l.Addr().String())
			want, wantBody := readWhole(t, strings.TrimPrefix(other.URL, "http://"))
			if !got.Close {
				t.Error("the connection stays open")
			}
			if got.StatusCode != want.StatusCode || body != wantBody {
				t.Errorf("answered %d with %d bytes; want %d with %d", got.StatusCode, len(body), want.StatusCode, len(wantBody))
			}
			if _, err := http.ParseTime(got.Header.Get("Date")); err != nil {
				t.Error(err)
			}
			for _, h := range []http.Header{got.Header, want.Header} {
				h.Del("Date")
				h.Del("Content-Length") // net/http knows the length of short bodies
			}
			if diff := cmp.Diff(want.Header, got.Header); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// The context of a stream ends when its client leaves. Until then the connection is not
// replaced by a new one.
func TestStreamEndsWhenClientLeaves(t *testing.T) {
	closed := make(chan struct{}, 8)
	l, refused := start(t, 1, func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	})
	left := make(chan error, 1)
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = flushed(w, "data: here\n\n")
		<-r.Context().Done()
		left <- r.Context().Err()
	}))
	c := dial(t, l)
	c.begin(t)
	dial(t, l)
	if kind := <-refused; kind != mcp.ClientLimit && kind != mcp.Overloaded {
		t.Errorf("refused with %s", kind)
	}
	_ = c.Close()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v", err)
	}
	<-closed
	l.SetHandler(respond("next"))
	if _, body := dial(t, l).get(t); body != "next" {
		t.Errorf("the next one is answered %q", body)
	}
}

// A stream whose handler panics is not terminated properly.
func TestStreamOfPanickingHandlerIsTruncated(t *testing.T) {
	for name, cause := range map[string]any{"on purpose": http.ErrAbortHandler, "by accident": "oh"} {
		t.Run(name, func(t *testing.T) {
			l, _ := start(t, 4, nil)
			l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = flushed(w, "data: here\n\n")
				panic(cause)
			}))
			body, err := io.ReadAll(dial(t, l).begin(t).Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) || string(body) != "data: here\n\n" {
				t.Errorf("read %q, %v", body, err)
			}
		})
	}
}

// A stream ends when its client does not read until the write deadline.
func TestStreamEndsAtWriteDeadline(t *testing.T) {
	l, _ := start(t, 4, nil)
	failed := make(chan error, 1)
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		for {
			_ = control.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			if err := flushed(w, strings.Repeat("x", 1<<20)); err != nil {
				<-r.Context().Done()
				_, again := io.WriteString(w, "more")
				failed <- errors.Join(err, again)
				return
			}
		}
	}))
	dial(t, l).ask(t)
	if err := <-failed; err == nil {
		t.Error("the writes did not fail")
	}
}

// Input after the request is not answered, and does not end the stream.
func TestStreamIgnoresExtraInput(t *testing.T) {
	for name, behind := range map[string]string{"at once": wantEvents + wantEvents, "later": wantEvents} {
		t.Run(name, func(t *testing.T) {
			l, _ := start(t, 4, nil)
			var served atomic.Int32
			goOn := make(chan struct{})
			l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served.Add(1)
				_ = flushed(w, "one ")
				select {
				case <-goOn:
				case <-r.Context().Done():
				}
				_ = flushed(w, "two")
			}))
			c := dial(t, l)
			if _, err := io.WriteString(c, behind); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(c.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if name == "later" {
				c.ask(t)
			}
			close(goOn)
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "one two" || served.Load() != 1 {
				t.Errorf("read %q, %v of %d requests", body, err, served.Load())
			}
		})
	}
}

// A stream ends when a client that sent extra input leaves, and when a client sends too
// much of it.
func TestStreamWithExtraInputEnds(t *testing.T) {
	for name, behind := range map[string]string{"a byte": "X", "much": strings.Repeat("X", 1<<20)} {
		t.Run(name, func(t *testing.T) {
			l, _ := start(t, 4, nil)
			left := make(chan struct{})
			l.SetHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				close(left)
			}))
			c := dial(t, l)
			_, err := io.WriteString(c, wantEvents+behind)
			if name == "a byte" {
				err = errors.Join(err, c.Close())
				if err != nil {
					t.Fatal(err)
				}
			}
			<-left
		})
	}
}

// Shutdown waits for streams, and closes those that do not end.
func TestShutdownWithStreams(t *testing.T) {
	l, _ := start(t, 4, nil)
	goOn := make(chan struct{})
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = flushed(w, "one ")
		select {
		case <-goOn:
			_ = flushed(w, "two")
		case <-r.Context().Done():
		}
	}))
	first := dial(t, l).begin(t)
	down := make(chan error, 1)
	go func() { down <- l.Shutdown(context.Background()) }()
	close(goOn)
	if err := <-down; err != nil {
		t.Error(err)
	}
	if body, err := io.ReadAll(first.Body); err != nil || string(body) != "one two" {
		t.Errorf("read %q, %v", body, err)
	}

	l, _ = start(t, 4, nil)
	ended := make(chan struct{})
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = flushed(w, "one")
		<-r.Context().Done()
		close(ended)
	}))
	second := dial(t, l).begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := l.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a shutdown that had to close a stream: %v", err)
	}
	<-ended
	if body, err := io.ReadAll(second.Body); err == nil {
		t.Errorf("a closed stream is terminated properly after %q", body)
	}
}

// Streams are served over TLS, too.
func TestStreamOverTLS(t *testing.T) {
	other := httptest.NewTLSServer(nil) // for its certificate
	defer other.Close()
	l, err := httpserver.Listen(httpserver.Config{
		Name: "tests", Address: "127.0.0.1:0", TLS: &tls.Config{Certificates: other.TLS.Certificates, MinVersion: tls.VersionTLS12},
		Connections: admission.Limits{Total: 4, Client: 4}, MaxHeader: 1 << 16, Refused: func(mcp.Type) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve() }()
	left := make(chan struct{})
	l.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = flushed(w, "one")
		<-r.Context().Done()
		close(left)
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := other.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, one); err != nil || string(one) != "one" {
		t.Errorf("read %q, %v", one, err)
	}
	_ = resp.Body.Close()
	<-left
	l.Stop(context.Background())
	if err := <-served; err != nil {
		t.Error(err)
	}
}
