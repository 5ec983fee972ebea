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
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// GOV-004 10.1 "SSE registry: add/remove", 10.4 "SSE client disconnect", F-009.7, F-011.2: 100
// subscribers lose their streams and reconnect at once. Each gets the current status and the
// end once. Nothing remains of the lost streams.
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
		eventually(t, "all clients listen", func() bool { return h.conversations.OpenStreams() == subscribers })
		if round == 2 {
			each(subscribers, func(i int) {
				h.reject(task.ID(ids[i]), "")
				if got := streams[i].next(); !strings.Contains(got, ids[i]) || !strings.Contains(got, `"status":"failed"`) {
					t.Errorf("subscriber %d got %s", i, got)
				}
			})
		}
		for _, s := range streams {
			s.conn.Close()
		}
		eventually(t, "no client listens", func() bool { return h.conversations.OpenStreams() == 0 })
	}
}

// each calls do concurrently with 0 to n-1.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// as returns the headers of one of many clients.
func (h *fixture) as(i int) []string { return []string{"Mcp-Session-Id", fmt.Sprintf("s-%d", i)} }

// A rawStream is a GET stream on its own connection.
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

// plainBody returns the body of a chunked response as it arrives.
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

// newNarrowFixture starts a gate with the given write timeout, and one client that subscribes
// and does not read.
func newNarrowFixture(t *testing.T, writeTimeout time.Duration) *fixture {
	t.Helper()
	h := newFixture(t, nil)
	h.get = silent
	h.gateway = startGate(t, serve(t, h.serve), func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Hold: testTimeout, Heartbeat: 20 * time.Millisecond}
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
	eventually(t, "the client listens", func() bool { return h.conversations.OpenStreams() == 1 })
	return h
}

// fill sends large notifications to the client that does not read, so that its buffers fill up.
func (h *fixture) fill(t *testing.T) {
	t.Helper()
	big := strings.Repeat("x", 3000)
	held := h.ask(toolCall("3", "hold_x", `,"task":{},"_meta":{"client.note":"`+big+`"}`), "Mcp-Session-Id", "slow")
	h.ask(legacyAbout("tasks/cancel", taskID(t, held)), "Mcp-Session-Id", "slow")
}

// F-011.3: others are notified while the gate waits for a client that does not read. The wait
// is longer than a test.
func TestSlowSubscriberDoesNotDelayOthers(t *testing.T) {
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
	if n := h.conversations.OpenStreams(); n != 2 {
		t.Errorf("%d streams are open; want the slow one to stay open", n)
	}
}

// F-011.3: a client that does not read loses its stream.
func TestSlowSubscriberIsDropped(t *testing.T) {
	h := newNarrowFixture(t, 10*time.Second)
	for range 100 { // more than fits into the buffers
		h.fill(t)
	}
	eventually(t, "the client is dropped", func() bool { return h.conversations.OpenStreams() == 0 })
}

// The last event is current although the task changes concurrently.
func TestLastEventIsCurrent(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.PerOwner = 100 })
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
			t.Errorf("duplicate notification: %s", message)
		}
		seen[message] = true
		id := taskID(t, message)
		if ended[id] {
			t.Errorf("notification after the end: %s", message)
		}
		if !strings.Contains(message, `"status":"working"`) {
			ended[id] = true
			wantText(t, "the end", message, `"status":"`+want[id]+`"`)
		}
	}
}
