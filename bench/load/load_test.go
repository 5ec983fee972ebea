package load_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/load"
	"github.com/thoughtgate/thoughtgate-go/bench/peer"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

// TestDo answers a call with bytes that are correct, or wrong in one way.
func TestDo(t *testing.T) {
	call := workload.New(workload.JSON, "127.0.0.1:1", 0)
	right := string(call.Answer.Head)
	plain := func(status, contentType, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\ncontent-type: %s\r\nCONTENT-LENGTH: %d\r\n\r\n%s", status, contentType, len(body), body)
	}
	chunked := func(end string, chunks ...string) string {
		s := "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
		for _, c := range chunks {
			s += fmt.Sprintf("%x\r\n%s\r\n", len(c), c)
		}
		return s + end
	}
	const end = "0\r\n\r\n"
	tests := []struct {
		name, answer string
		err          string // part of the error; empty without an error
	}{
		{"with a length", plain("200 OK", "application/json", right), ""},
		{"in one chunk", chunked(end, right), ""},
		{"in chunks of any size", chunked(end, right[:1], right[1:500], right[500:]), ""},
		{"with trailers", chunked("0\r\nX-Sum: 1\r\n\r\n", right), ""},
		{"another status", plain("503 Service Unavailable", "application/json", "overloaded"), "status 503, application/json: overloaded"},
		{"another type", plain("200 OK", "text/html", right), "text/html"},
		{"another id", plain("200 OK", "application/json", strings.Replace(right, "1000000000", "1000000001", 1)), "differs"},
		{"too short", plain("200 OK", "application/json", right[:1000]), "ends after 1000 of 1024 bytes"},
		{"too long", plain("200 OK", "application/json", right+" "), "differs"},
		{"a chunk missing", chunked(end, right[:500]), "ends after 500"},
		{"cut within the body", plain("200 OK", "application/json", right)[:600], "unexpected EOF"},
		{"cut within the chunks", chunked("", right[:500]), "unexpected EOF"},
		{"cut within the head", "HTTP/1.1 200 OK\r\nContent-", "unexpected EOF"},
		{"closing", strings.Replace(plain("200 OK", "application/json", right), "\r\n", "\r\nConnection: close\r\n", 1), "closes the connection"},
		{"a chunk longer than it says", strings.Replace(chunked(end, right), "400\r\n", "3ff\r\n", 1), "behind a chunk"},
		{"a chunk without size", strings.Replace(chunked(end, right), "400\r\n", "xyz\r\n", 1), "chunk size"},
		{"a bad length", strings.Replace(plain("200 OK", "application/json", right), "1024", "-1", 1), "content length"},
		{"not HTTP", "SSH-2.0-OpenSSH\r\n", "status line"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn := dial(t, answering(t, len(call.Request), tt.answer))
			err := conn.Do(call)
			if tt.err == "" && err != nil {
				t.Errorf("Do = %v", err)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("Do = %v; want an error with %q", err, tt.err)
			}
		})
	}
}

// answering listens for one request of the given length, answers it with answer, and closes
// the connection.
func answering(t *testing.T, length int, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		_, err = io.CopyN(io.Discard, conn, int64(length))
		if err == nil {
			_, err = io.WriteString(conn, answer)
		}
		done <- errors.Join(err, conn.Close())
	}()
	t.Cleanup(func() {
		if err := errors.Join(<-done, l.Close()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string) *load.Conn {
	t.Helper()
	conn, err := load.Dial(t.Context(), addr, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Every request is counted once, and all requests have different ids.
func TestFleet(t *testing.T) {
	var arrived atomic.Int64
	ids := make(chan string, 1<<20)
	upstream := peer.Upstream()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		arrived.Add(1)
		ids <- string(body[len(`{"jsonrpc":"2.0",`):][:15])
		r.Body = io.NopCloser(bytes.NewReader(body))
		upstream.ServeHTTP(w, r)
	}))
	defer server.Close()
	const conns = 8
	fleet, err := load.Open(t.Context(), time.Now, server.Listener.Addr().String(), conns, workload.SSE)
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	requests := conns // the first on each connection
	for range 2 {
		got, err := fleet.Run(load.Plan{Duration: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Took) < conns || !slices.IsSorted(got.Took) || got.Took[0] <= 0 {
			t.Errorf("%d times, from %v", len(got.Took), got.Took[:min(3, len(got.Took))])
		}
		if got.Elapsed < 500*time.Millisecond {
			t.Errorf("the run ended after %v", got.Elapsed)
		}
		requests += len(got.Took)
	}
	if n := int(arrived.Load()); n != requests {
		t.Errorf("the fleet counted %d requests, the server %d", requests, n)
	}
	seen := map[string]bool{}
	for range requests {
		id := <-ids
		if seen[id] {
			t.Fatalf("%s was received twice", id)
		}
		seen[id] = true
	}
}

func TestFleetPace(t *testing.T) {
	server := httptest.NewServer(peer.Upstream())
	defer server.Close()
	fleet, err := load.Open(t.Context(), time.Now, server.Listener.Addr().String(), 4, workload.JSON)
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	got, err := fleet.Run(load.Plan{Duration: 500 * time.Millisecond, Rate: 200})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Took); n > 104 || n < 1 { // a busy machine may be late, but never early
		t.Errorf("%d requests in half a second at 200 a second", n)
	}
}

func TestFleetFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := load.Open(t.Context(), time.Now, addr, 3, workload.JSON); err == nil {
		t.Error("a fleet was opened to a closed port")
	}

	var broken atomic.Bool
	upstream := peer.Upstream()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		upstream.ServeHTTP(w, r)
	}))
	defer server.Close()
	fleet, err := load.Open(t.Context(), time.Now, server.Listener.Addr().String(), 3, workload.JSON)
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	broken.Store(true)
	_, err = fleet.Run(load.Plan{Duration: time.Second})
	if err == nil || !strings.Contains(err.Error(), "3 of 3 connections failed, the first: status 500") {
		t.Errorf("Run = %v", err)
	}
}

// Open waits for the first event of a stream, which stays open.
func TestOpen(t *testing.T) {
	server := httptest.NewServer(peer.Upstream())
	t.Cleanup(server.Close) // after the connections are closed
	addr := server.Listener.Addr().String()
	if err := dial(t, addr).Open(workload.StreamRequest(addr, 1), []byte(workload.FirstEvent)); err != nil {
		t.Error(err)
	}
	err := dial(t, addr).Open(workload.StreamRequest(addr, 2), []byte("data: something else\n\n"))
	if !errors.Is(err, workload.ErrDiffers) {
		t.Errorf("Open = %v; want ErrDiffers", err)
	}
}
