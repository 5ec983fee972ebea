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
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// How a large event begins and ends.
const (
	largeHead = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`
	largeTail = `"}}` + "\n\n"
)

// largeEvent returns an event of size bytes.
func largeEvent(size int) string {
	return largeHead + strings.Repeat("x", size-len(largeHead)-len(largeTail)) + largeTail
}

// withRules has the gate look at every event.
func withRules(t *testing.T, s settings) {
	t.Helper()
	rules := &gate.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})}
	s.handler.Gate = gate.New(rules, time.Now, slog.New(slog.DiscardHandler), nil)
}

// servePieces is an upstream that answers with a stream of what it is given, each piece as
// one chunk.
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

// wantNext reads what must come next.
func wantNext(t *testing.T, in io.Reader, want string) {
	t.Helper()
	began := time.Now()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(in, got); err != nil || string(got) != want {
		t.Fatalf("read %d of %d bytes, %v: %.100q; want %.100q", n, len(want), err, got, want)
	}
	if took := time.Since(began); took > patience/2 {
		t.Fatalf("it took %s until %.100q came", took, want)
	}
}

// Nothing of a complete event stays with the gate while the upstream is silent, however
// large the event is and however much of the next one has arrived with it.
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
			// What fills the buffer of the gate: a small event, and the beginning of a large one.
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

// serveAtOnce is an upstream that sends the head of its answer, which is a stream, with the
// first piece of it in one write, and the rest when it is given that.
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

// A complete event does not wait for the rest of a chunk that has arrived in part.
func TestEventBeforeHalfAChunk(t *testing.T) {
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

// A complete event does not wait until there is room for the large one behind it.
func TestEventBeforeRoom(t *testing.T) {
	first, large := largeEvent(200), largeEvent(500<<10)
	rest := make(chan string, 1)
	g := startGate(t, serveAtOnce(t, chunk(first+large[:100<<10]), rest), func(s settings) { withRules(t, s) })
	var leave []func()
	for range 32 {
		seat := g.client.Room().Seat()
		if err := seat.Take(t.Context(), 1<<20, patience); err != nil {
			t.Fatal(err)
		}
		leave = append(leave, seat.Leave)
	}
	resp, err := g.Client().Get(g.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wantNext(t, resp.Body, first)
	for _, seat := range leave {
		seat()
	}
	rest <- chunk(large[100<<10:]) + chunk("")
	wantNext(t, resp.Body, large)
}

// A haltedStore lists nothing until it is released.
type haltedStore struct {
	task.GateStore

	halted, gaveUp atomic.Bool
	released       chan struct{}
}

// List implements [task.GateStore].
func (s *haltedStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	if s.halted.Load() {
		select {
		case <-s.released:
		case <-time.After(patience / 2): // only if the test fails
			s.gaveUp.Store(true)
		}
	}
	return s.GateStore.List(ctx, q)
}

// A complete event does not wait until the store says whose task the next one is about.
func TestEventBeforeStore(t *testing.T) {
	store := &haltedStore{released: make(chan struct{})}
	h := newFixture(t, func(_ *gate.Settings, desk *approval.Config, _ *conversation.Waiting) {
		store.GateStore, desk.Store = desk.Store, store
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
		t.Errorf("got %s; want %s before the store was asked in vain", got, first)
	}
	close(store.released)
}

// A deafListener accepts connections that take nothing after a large write, or nothing
// at all.
type deafListener struct {
	net.Listener

	deaf    bool   // from the beginning
	refuses func() // is called before a write is refused
}

// Accept implements [net.Listener].
func (l deafListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &deafConn{Conn: c, refuses: l.refuses, deaf: l.deaf}, err
}

type deafConn struct {
	net.Conn

	refuses func()
	deaf    bool
}

// Write implements [net.Conn].
func (c *deafConn) Write(p []byte) (int, error) {
	if c.deaf {
		c.refuses()
		return 0, os.ErrDeadlineExceeded
	}
	c.deaf = len(p) > 30000
	return c.Conn.Write(p)
}

// A client that does not take the end of an answer has not got it, even if the upstream
// has ended its answer properly by then.
func TestEndNotTaken(t *testing.T) {
	const little = 100
	for _, size := range []int{little, 60 << 10, 64 << 10} { // the buffer of net/http is enough, does not fill the buffer of the gate, fills it
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
		front.Listener = deafListener{front.Listener, size == little, func() {
			once.Do(func() { close(end) })
			time.Sleep(50 * time.Millisecond) // if the end has not arrived by then, the test shows less
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

// A countingListener accepts connections whose writes are counted.
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

// A stream that arrives as a whole goes to the client as a whole. The head of another one
// does not wait for its first event.
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

// A client may take the end of an answer that comes long after the rest of it.
func TestLateEnd(t *testing.T) {
	const patience = time.Second
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
				time.Sleep(3 * patience / 2)
			}), func(s settings) { s.handler.Limits.WriteTimeout = patience })
			resp := g.post(t, toolCall("1", "get_x", ""))
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); string(got) != answer || err != nil {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(answer))
			}
		})
	}
}
