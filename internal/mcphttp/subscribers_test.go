package mcphttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// GOV-004 10.1 "SSE registry: add/remove", 10.4 "SSE client disconnect": 100 subscribers lose their streams and all come again at once.
// Each is told how its task stands, and how it ends, once; nothing is left of
// those that went. F-009.7, F-011.2.
func TestHundredSubscribersReconnect(t *testing.T) {
	const subscribers = 100
	h := newFixture(t, nil)
	h.get = silent
	ids := make([]string, subscribers)
	each(subscribers, func(i int) { ids[i] = taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`), h.as(i)...)) })
	for round := range 3 {
		streams := make([]*rawStream, subscribers)
		each(subscribers, func(i int) {
			streams[i] = h.open(t, h.as(i)...)
			streams[i].next() // the upstream's hello
		})
		eventually(t, "all listen", func() bool { return h.hub.Listening() == subscribers })
		if round == 2 {
			each(subscribers, func(i int) {
				h.reject(task.ID(ids[i]), "")
				if got := streams[i].next(); !strings.Contains(got, ids[i]) || !strings.Contains(got, `"status":"failed"`) {
					t.Errorf("subscriber %d was told %s", i, got)
				}
			})
		}
		for _, s := range streams {
			s.conn.Close()
		}
		eventually(t, "nobody listens", func() bool { return h.hub.Listening() == 0 })
	}
}

// each calls do with 0 to n-1 at the same time, and waits.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// as returns the headers of one of many clients.
func (h *fixture) as(i int) []string { return []string{"Mcp-Session-Id", fmt.Sprintf("s-%d", i)} }

// A rawStream is a GET stream on a connection of its own.
type rawStream struct {
	conn   net.Conn
	events *jsonrpc.EventReader
}

func (h *fixture) open(t *testing.T, headers ...string) *rawStream {
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() })
	r, _ := http.NewRequest(http.MethodGet, h.URL+"/mcp", nil)
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Write(conn)
	return &rawStream{conn: conn, events: jsonrpc.NewEventReader(plainBody(conn), 1<<20)}
}

// plainBody returns the body of a chunked response as it comes.
func plainBody(conn net.Conn) io.Reader {
	body, w := io.Pipe()
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			_, err = io.Copy(w, resp.Body)
		}
		w.CloseWithError(err)
	}()
	return body
}

func (s *rawStream) next() string {
	for {
		e, err := s.events.Next()
		if err != nil {
			return err.Error()
		}
		if len(e.Data) > 0 {
			return string(e.Data)
		}
	}
}

// newNarrowFixture starts a gate whose clients have this long to take each piece
// of what they are sent, and has one listen that reads nothing.
func newNarrowFixture(t *testing.T, writeTimeout time.Duration) *fixture {
	t.Helper()
	h := newFixture(t, nil)
	h.get = silent
	h.gateway = startGate(t, serve(t, h.serve), func(s settings) {
		s.handler.Gate, s.handler.Desk, s.handler.Waiting = h.gate, h.desk, conversation.Waiting{Hold: patience, Beat: 20 * time.Millisecond}
		s.handler.Limits.WriteTimeout = writeTimeout
	})
	narrow := httptest.NewUnstartedServer(h.handler)
	narrow.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		c.(*net.TCPConn).SetWriteBuffer(1 << 10)
		return ctx
	}
	narrow.Start()
	t.Cleanup(narrow.Close)
	slow, err := net.Dial("tcp", narrow.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slow.Close() })
	slow.(*net.TCPConn).SetReadBuffer(1 << 10)
	io.WriteString(slow, "GET /mcp HTTP/1.1\r\nHost: "+h.addr+"\r\nAccept: text/event-stream\r\nMcp-Session-Id: slow\r\n\r\n")
	eventually(t, "it listens", func() bool { return h.hub.Listening() == 1 })
	return h
}

// fill has something told to the client that reads nothing. Variables are told,
// so that its buffers fill up.
func (h *fixture) fill(t *testing.T) {
	t.Helper()
	big := strings.Repeat("x", 3000)
	held := h.ask(toolCall("3", "hold_x", `,"task":{},"_meta":{"client.note":"`+big+`"}`), "Mcp-Session-Id", "slow")
	h.ask(legacyAbout("tasks/cancel", taskID(t, held)), "Mcp-Session-Id", "slow")
}

// A client that does not read holds up nobody: others are told of their tasks
// while the gate waits for it, which it does here for longer than a test takes.
// F-011.3.
func TestSlowSubscriberHoldsUpNobody(t *testing.T) {
	h := newNarrowFixture(t, time.Hour)
	quick := h.stream(t, http.MethodGet, "")
	quick()
	for range 100 { // 600 kB, where some kB fit into the buffers
		h.fill(t)
	}
	for range 20 {
		id := taskID(t, h.ask(toolCall("3", "hold_y", `,"task":{}`)))
		wantText(t, "quick", quick(), id, "working")
		h.ask(legacyAbout("tasks/cancel", id))
		wantText(t, "quick", quick(), id, "cancelled")
	}
	if n := h.hub.Listening(); n != 2 {
		t.Errorf("%d listen; want the slow one to be there all the while", n)
	}
}

// A client that does not read loses its stream. F-011.3.
func TestSlowSubscriberIsDropped(t *testing.T) {
	h := newNarrowFixture(t, 10*time.Second)
	for range 100 { // more than fits into the buffers
		h.fill(t)
	}
	eventually(t, "it is dropped", func() bool { return h.hub.Listening() == 0 })
}

// The last event that a listener gets is true, however many things happen at once.
func TestLastToldIsTrue(t *testing.T) {
	h := newFixture(t, func(_ *gate.Settings, _ *approval.Config, w *conversation.Waiting) { w.PerOwner = 100 })
	h.get = silent
	next := h.stream(t, http.MethodGet, "")
	next()
	const calls = 30
	want := make(map[string]string)
	var mu sync.Mutex
	each(calls, func(i int) {
		id := taskID(t, h.ask(toolCall("3", fmt.Sprintf("hold_%d", i), `,"task":{}`)))
		status := "completed"
		switch i % 3 {
		case 0:
			h.approve(task.ID(id))
			h.ask(legacyAbout("tasks/result", id))
		case 1:
			h.reject(task.ID(id), "")
			status = "failed"
		case 2:
			h.ask(legacyAbout("tasks/cancel", id))
			status = "cancelled"
		}
		mu.Lock()
		defer mu.Unlock()
		want[id] = status
	})
	ended := make(map[string]bool)
	seen := make(map[string]bool)
	for len(ended) < calls {
		message := next()
		if seen[message] {
			t.Errorf("told twice: %s", message)
		}
		seen[message] = true
		id := taskID(t, message)
		if ended[id] {
			t.Errorf("told after the end: %s", message)
		}
		if !strings.Contains(message, `"status":"working"`) {
			ended[id] = true
			wantText(t, "the end", message, `"status":"`+want[id]+`"`)
		}
	}
}
