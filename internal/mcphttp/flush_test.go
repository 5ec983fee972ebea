package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Begin and end of a large event.
const (
	largeHead = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`
	largeTail = `"}}` + "\n\n"
)

// largeEvent returns an event of size bytes.
func largeEvent(size int) string {
	return largeHead + strings.Repeat("x", size-len(largeHead)-len(largeTail)) + largeTail
}

// withRules makes the gate inspect every event.
func withRules(t *testing.T, s settings) {
	t.Helper()
	rules := &catalog.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})}
	s.handler.Catalog = catalog.New(rules, time.Now, slog.New(slog.DiscardHandler), nil)
}

// servePieces starts an upstream that answers with a stream of the given pieces, one chunk
// each.
func servePieces(t *testing.T, pieces <-chan string) string {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for piece := range pieces {
			io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	})
}

// wantNext reads the expected bytes.
func wantNext(t *testing.T, in io.Reader, want string) {
	t.Helper()
	began := time.Now()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(in, got); err != nil || string(got) != want {
		t.Fatalf("read %d of %d bytes, %v: %.100q; want %.100q", n, len(want), err, got, want)
	}
	if took := time.Since(began); took > testTimeout/2 {
		t.Fatalf("it took %s until %.100q came", took, want)
	}
}

// A complete event is forwarded while the upstream is silent, even if part of the next event
// has arrived.
func TestLargeEventsAreNotBuffered(t *testing.T) {
	for name, adjust := range map[string]func(settings){
		"without rules": nil,
		"with rules":    func(s settings) { withRules(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			pieces := make(chan string)
			g := startGate(t, servePieces(t, pieces), adjust)
			defer close(pieces)
			in := g.post(t, toolCall("1", "get_x", "")).Body
			// Two events that fill the gate's buffer: a small one and the start of a large one.
			first, small, large := largeEvent(64<<10), largeEvent(300), largeEvent(100<<10)
			begun := 64<<10 - len(small)
			pieces <- first + small + large[:begun]
			wantNext(t, in, first+small)
			pieces <- large[begun:]
			wantNext(t, in, large)
			following := largeEvent(6000)
			for _, size := range []int{510, 512, 514, 5000, 32 << 10, 64<<10 - 2, 64 << 10, 64<<10 + 2, 100 << 10, 128 << 10, 300 << 10} {
				event := largeEvent(size)
				for _, begin := range []int{0, 1, 5, 200, 5000} {
					pieces <- event + following[:begin]
					wantNext(t, in, event)
					if begin > 0 {
						pieces <- following[begin:]
						wantNext(t, in, following)
					}
				}
			}
		})
	}
}

// serveAtOnce starts an upstream that writes the head of a stream together with the first
// piece, and later the rest.
func serveAtOnce(t *testing.T, first string, rest <-chan string) string {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+first)
		io.WriteString(conn, <-rest)
	})
}

func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

func TestEventIsSentBeforePartialChunk(t *testing.T) {
	const answer = `data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}` + "\n\n"
	following := largeEvent(60000)
	for _, part := range []int{500, 5000, 50000} { // of less, net/http waits for more itself
		rest := make(chan string, 1)
		split := len(chunk(following)) - len(following) + part
		g := startGate(t, serveAtOnce(t, chunk(answer)+chunk(following)[:split], rest), func(s settings) { withRules(t, s) })
		in := g.post(t, toolCall("1", "get_x", "")).Body
		wantNext(t, in, answer)
		rest <- chunk(following)[split:] + chunk("")
		wantNext(t, in, following)
	}
}

func TestEventIsSentBeforeWaitingForMemory(t *testing.T) {
	first, large := largeEvent(200), largeEvent(500<<10)
	rest := make(chan string, 1)
	g := startGate(t, serveAtOnce(t, chunk(first+large[:100<<10]), rest), func(s settings) { withRules(t, s) })
	var leave []func()
	for range 32 {
		permit := g.client.AnswerLimit().NewPermit()
		if err := permit.Acquire(t.Context(), 1<<20, testTimeout); err != nil {
			t.Fatal(err)
		}
		leave = append(leave, permit.Release)
	}
	resp, err := g.Client().Get(g.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wantNext(t, resp.Body, first)
	for _, permit := range leave {
		permit()
	}
	rest <- chunk(large[100<<10:]) + chunk("")
	wantNext(t, resp.Body, large)
}

// A haltedStore blocks List until it is released.
type haltedStore struct {
	gatestore.Store

	halted, gaveUp atomic.Bool
	released       chan struct{}
}

// List implements [gatestore.Store].
func (s *haltedStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	if s.halted.Load() {
		select {
		case <-s.released:
		case <-time.After(testTimeout / 2): // only if the test fails
			s.gaveUp.Store(true)
		}
	}
	return s.Store.List(ctx, q)
}

// The store must tell to whom the next event belongs.
func TestEventIsSentBeforeStoreAnswers(t *testing.T) {
	store := &haltedStore{released: make(chan struct{})}
	h := newFixture(t, func(_ *catalog.Settings, approvals *approval.Config, _ *conversation.Waiting) {
		store.Store, approvals.Store = approvals.Store, store
	})
	const first = `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"first"}}`
	const report = `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"up-1","status":"working",` +
		`"createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":60000}}`
	send := make(chan struct{})
	h.get = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-send
		io.WriteString(w, "data: "+first+"\n\ndata: "+report+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	next := h.stream(t, http.MethodGet, "")
	store.halted.Store(true)
	close(send)
	if got := next(); got != first || store.gaveUp.Load() {
		t.Errorf("got %s; want %s before the store answered", got, first)
	}
	close(store.released)
}

// A failingListener accepts connections whose writes fail after a large write, or at once.
type failingListener struct {
	net.Listener

	fails   bool   // fail at once
	refuses func() // called before a write fails
}

// Accept implements [net.Listener].
func (l failingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &failingConn{Conn: c, refuses: l.refuses, fails: l.fails}, err
}

type failingConn struct {
	net.Conn

	refuses func()
	fails   bool
}

// Write implements [net.Conn].
func (c *failingConn) Write(p []byte) (int, error) {
	if c.fails {
		c.refuses()
		return 0, os.ErrDeadlineExceeded
	}
	c.fails = len(p) > 30000
	return c.Conn.Write(p)
}

// The answer counts as undelivered although the upstream has ended it properly.
func TestUndeliveredEndCountsAsUndelivered(t *testing.T) {
	const little = 100
	for _, size := range []int{little, 60 << 10, 64 << 10} { // fits into the buffer of net/http, does not fill the buffer of the gate, fills it
		end := make(chan struct{})
		g := startGate(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			const head, tail = `data: {"jsonrpc":"2.0","id":1,"result":{"content":"`, `"}}` + "\n\n"
			io.WriteString(w, head+strings.Repeat("x", size-len(head)-len(tail))+tail)
			w.(http.Flusher).Flush()
			<-end
		}), nil)
		var once sync.Once
		front := httptest.NewUnstartedServer(g.handler)
		front.Listener = failingListener{front.Listener, size == little, func() {
			once.Do(func() { close(end) })
			time.Sleep(50 * time.Millisecond) // usually enough for the end to arrive
		}}
		front.Start()
		resp, err := front.Client().Post(front.URL+"/mcp", "application/json", strings.NewReader(toolCall("1", "get_x", "")))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%d bytes: the client has got all", size)
		}
		eventually(t, "the call counts as failed", func() bool {
			return strings.Contains(scrape(g), `thoughtgate_mcp_requests_total{method="tools/call",status="error"} 1`)
		})
		front.Close()
	}
}

// A countingListener counts the writes of its connections.
type countingListener struct {
	net.Listener

	writes *atomic.Int32
}

// Accept implements [net.Listener].
func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.writes}, err
}

type countedConn struct {
	net.Conn

	writes *atomic.Int32
}

// Write implements [net.Conn].
func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// A stream that arrives as a whole is written at once. The head of another stream is sent
// before its first event.
func TestStreamWrittenAtOnce(t *testing.T) {
	const answer = `data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}` + "\n\n"
	for _, whole := range []bool{true, false} {
		first, then := "", make(chan string, 1)
		if whole {
			first = chunk(answer) + chunk("")
			close(then)
		}
		g := startGate(t, serveAtOnce(t, first, then), func(s settings) { withRules(t, s) })
		var writes atomic.Int32
		front := httptest.NewUnstartedServer(g.handler)
		front.Listener = countingListener{front.Listener, &writes}
		front.Start()
		t.Cleanup(front.Close)
		resp, err := front.Client().Post(front.URL+"/mcp", "application/json", strings.NewReader(toolCall("1", "get_x", "")))
		if err != nil {
			t.Fatal(err)
		}
		if !whole {
			then <- chunk(answer) + chunk("")
		}
		wantNext(t, resp.Body, answer)
		resp.Body.Close()
		if n := writes.Load(); whole && n != 1 {
			t.Errorf("%d writes; want 1", n)
		}
	}
}

// The client accepts the end of an answer long after the rest.
func TestLateEndIsDelivered(t *testing.T) {
	const testTimeout = time.Second
	const call = `{"jsonrpc":"2.0","id":1,"result":{"content":"`
	for kind, answer := range map[string]string{
		"text/event-stream": "data: " + call + `"}}` + "\n\n",
		"application/json":  call + strings.Repeat("x", 100<<10) + `"}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := startGate(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				io.WriteString(w, answer)
				w.(http.Flusher).Flush()
				time.Sleep(3 * testTimeout / 2)
			}), func(s settings) { s.handler.Limits.WriteTimeout = testTimeout })
			resp := g.post(t, toolCall("1", "get_x", ""))
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); string(got) != answer || err != nil {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(answer))
			}
		})
	}
}
