package mcphttp_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A forwardedCall has the bytes of a call on both sides of the gate.
type forwardedCall struct{ request, answer, end string }

// forwardedCalls are calls and answers of about 1 KiB.
func forwardedCalls() map[string]forwardedCall {
	text := strings.Repeat(`The north bridge carries 4,120 cars a day.\n`, 18)
	result := `{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"` + text + `"}],"isError":false}}`
	event := "event: message\ndata: " + result + "\n\n"
	legacy := "MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: 5f0c2b64-7d1c-4b8e-9a53-0d6f4f6f9f11\r\n"
	modern := "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: read_file\r\n"
	modernMeta := `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}`
	request := func(headers, meta string) string {
		body := `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"read_file","arguments":{"text":"` + text + `"}` + meta + `}}`
		return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s", headers, len(body), body)
	}
	json := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(result), result)
	events := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(event), event)
	return map[string]forwardedCall{
		"json":   {request(legacy, ""), json, result[len(result)-20:]},
		"sse":    {request(legacy, ""), events, event[len(event)-20:]},
		"modern": {request(modern, modernMeta), json, result[len(result)-20:]},
	}
}

// canned starts an upstream that always sends the same answer and allocates nothing.
func canned(tb testing.TB, answer string) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				read, text := make([]byte, 64<<10), []byte(answer)
				for {
					if _, err := conn.Read(read); err != nil {
						return
					}
					if _, err := conn.Write(text); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// A rawClient repeats one request on one connection.
type rawClient struct {
	net.Conn

	request []byte
	end     []byte // of each answer
	buf     []byte
}

// do makes one call. It allocates nothing.
func (c *rawClient) do() error {
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	for n := 0; ; {
		m, err := c.Read(c.buf[n:])
		if n += m; bytes.HasSuffix(c.buf[:n], c.end) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w after %q", err, c.buf[:n])
		}
	}
}

// startForwarding starts a gate between a client and an upstream that allocate nothing.
func startForwarding(tb testing.TB, call forwardedCall) *rawClient {
	tb.Helper()
	c := dialGate(tb, canned(tb, call.answer))
	c.request, c.end = []byte(call.request), []byte(call.end)
	for range 10 { // both sides have their connections and buffers then
		if err := c.do(); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// dialGate starts a gate that tries 100 rules, and connects a client.
func dialGate(tb testing.TB, upstream string) *rawClient {
	tb.Helper()
	rules := make([]policy.Rule, 100)
	for i := range rules {
		rules[i] = policy.Rule{Match: fmt.Sprintf("*_%d", i), Action: policy.Approve}
	}
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: rules, Default: policy.Rule{Action: policy.Forward}, Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	tb.Cleanup(func() { _ = store.Close() })
	judging := catalog.New(&catalog.Settings{Policy: snapshot}, time.Now, slog.New(slog.DiscardHandler), nil)
	approvals, err := approval.New(approval.Config{
		Store: store, Judge: judging.Recheck,
		Workflow: func(string) (approval.Workflow, bool) { return approval.Workflow{Timeout: time.Hour}, true },
	})
	if err != nil {
		tb.Fatal(err)
	}
	g := startGate(tb, upstream, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Records = judging, approvals, store
		all := admission.Limits{Total: 1000, Anonymous: 1000, Client: 1000}
		s.handler.Limits.Requests, s.handler.Limits.Streams, s.handler.Limits.Anonymous = all, all, 1000
		s.handler.Bodies = admission.NewPool(admission.Limits{Total: 1 << 30, Client: 1 << 30})
	})
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return &rawClient{Conn: conn, buf: make([]byte, 64<<10)}
}

// BenchmarkForward makes sequential calls. Its allocations are those of the gate.
func BenchmarkForward(b *testing.B) {
	for name, call := range forwardedCalls() {
		b.Run(name, func(b *testing.B) {
			c := startForwarding(b, call)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNotification measures GOV-004 NF-001.4, 50 ms: the time of an upstream's task report
// through the gate.
func BenchmarkNotification(b *testing.B) {
	const status = `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"u-1","status":"working",` +
		`"createdAt":"2026-11-18T09:00:00Z","lastUpdatedAt":"2026-11-18T09:00:00Z","ttl":60000}}`
	said := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			_, _ = io.WriteString(w, "data: "+status+"\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-said:
			case <-r.Context().Done():
				return
			}
		}
	}))
	b.Cleanup(upstream.Close)
	c := dialGate(b, upstream.URL)
	c.request = []byte("GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: s-1\r\n\r\n")
	c.end = []byte(status + "\n\n\r\n")
	if err := c.do(); err != nil {
		b.Fatal(err)
	}
	c.request = nil
	for b.Loop() {
		said <- struct{}{}
		if err := c.do(); err != nil {
			b.Fatal(err)
		}
	}
	_ = c.Close() // ends the stream of the upstream
}

// A few more allocations are allowed, because the race detector empties pools.
func TestForwardAllocations(t *testing.T) {
	most := map[string]float64{"json": 70, "sse": 100, "modern": 82}
	for name, call := range forwardedCalls() {
		c := startForwarding(t, call)
		n := testing.AllocsPerRun(500, func() {
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
		})
		if n > most[name] {
			t.Errorf("%s: %v allocations; want at most %v", name, n, most[name])
		}
	}
}
