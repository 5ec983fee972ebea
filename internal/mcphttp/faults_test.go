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
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// EC-MCP-009, CORE-003 F-004.3, F-005.3: an upstream that does not answer in time.
func TestUpstreamTimeout(t *testing.T) {
	release := make(chan struct{})
	up := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	g := startGate(t, up, func(s settings) { s.upstream.ResponseTimeout = 20 * time.Millisecond })

	status, body := g.call(t, ping)

	wantProblem(t, status, body, 200, -32001, "upstream_timeout")
}

// CORE-007 5.2: tool calls have a separate limit.
func TestCallTimeout(t *testing.T) {
	release := make(chan struct{})
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "hang") {
			<-release
		}
		<-time.After(60 * time.Millisecond) // longer than other requests may take
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	t.Cleanup(func() { close(release) })
	g := startGate(t, up, func(s settings) {
		s.upstream.ResponseTimeout, s.upstream.CallTimeout = 20*time.Millisecond, testTimeout
	})
	if status, body := g.call(t, toolCall("1", "slow", "")); status != 200 || !strings.Contains(body, `"result"`) {
		t.Errorf("%d %s; want a result", status, body)
	}
	if status, body := g.call(t, batch(ping, toolCall("2", "slow", ""))); status != 200 || !strings.Contains(body, `"result"`) {
		t.Errorf("in a batch: %d %s; want a result", status, body)
	}
	h := startGate(t, up, func(s settings) { s.upstream.CallTimeout = 20 * time.Millisecond })
	status, body := h.call(t, toolCall("1", "hang", ""))
	wantProblem(t, status, body, 200, -32001, "upstream_timeout")
}

// EC-MCP-009: an upstream that stops in the middle of an answer.
func TestStalledAnswerIsReported(t *testing.T) {
	release := make(chan struct{})
	up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"jsonrpc":"2.0",`)
		w.(http.Flusher).Flush()
		<-release
	})
	t.Cleanup(func() { close(release) })
	g := startGate(t, up, func(s settings) { s.upstream.ResponseTimeout = 20 * time.Millisecond })

	status, body := g.call(t, ping)

	wantProblem(t, status, body, 200, -32001, "upstream_timeout")
}

// EC-MCP-010, CORE-003 F-004.5: the upstream refuses the connection.
func TestUpstreamRefusesConnection(t *testing.T) {
	g := startGate(t, "http://127.0.0.1:1", nil)

	status, body := g.call(t, ping)
	wantProblem(t, status, body, 200, -32000, "upstream_unreachable")

	status, body = g.call(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	wantProblem(t, status, body, 502, -32000, "upstream_unreachable")
}

// The connection breaks before or during an answer.
func TestUpstreamBreaksOff(t *testing.T) {
	tests := []struct{ name, answer string }{
		{"before the headers", ""},
		{"with something that is not HTTP", "SSH-2.0-OpenSSH_9.2p1\r\n"},
		{"in a JSON body", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"jsonrpc\""},
		{"in a chunked body", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"jso\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := startGate(t, serveRaw(t, tt.answer), nil)
			status, body := g.call(t, ping)
			wantProblem(t, status, body, 200, -32002, "upstream_invalid_response")
		})
	}
}

// The stream ends with an error, or breaks visibly if the client can resume it.
func TestStreamBreaksOff(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	const progress = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n"
	const response = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
	const failure = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"error\":1}}\n\n"
	huge := "data: " + strings.Repeat("x", 100<<10)
	tests := []struct {
		name, events string
		want         string // after the complete events; "broken" if the client can see the break
	}{
		{"between events", progress, "upstream_invalid_response"},
		{"within an event", progress + "data: {\"jsonr", "upstream_invalid_response"},
		{"after the response", progress + response, ""},
		{"after the response and one more event", padded(response, 300) + padded(progress, 400), ""},
		{"after the response and one that resembles it", padded(response, 300) + padded(failure, 400), ""},
		{"in a stream that can be resumed", "id: 1\n" + progress, "broken"},
		{"within a huge event", huge, "broken"},
		{"after a huge event", huge + "\n\n", "broken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chunk := fmt.Sprintf("%x\r\n%s\r\n", len(tt.events), tt.events)
			g := startGate(t, serveRaw(t, head+chunk), nil)
			body, err := io.ReadAll(g.post(t, ping).Body)
			switch {
			case tt.want == "broken":
				if err == nil {
					t.Errorf("the stream seems complete: %.200q", body)
				}
			case err != nil:
				t.Error(err)
			case tt.want == "" && string(body) != tt.events:
				t.Errorf("body = %q; want what the upstream sent and no more", body)
			case !strings.Contains(string(body), tt.want):
				t.Errorf("body = %q; want an error of type %q", body, tt.want)
			}
		})
	}
}

// padded returns an event after a comment of n bytes. The gate sends it separately, since it
// first reads 512 bytes at a time.
func padded(event string, n int) string { return ":" + strings.Repeat(".", n) + "\n" + event }

// EC-MCP-011, CORE-003 NFR-003: a full gate refuses a request before reading its body.
func TestMaxConcurrency(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	g := startGate(t, up, func(s settings) { s.handler.Limits.Requests.Total = 1 })
	first := make(chan string)
	go func() {
		_, body := g.call(t, ping)
		first <- body
	}()
	<-arrived

	resp := g.post(t, "this body is not looked at")
	wantProblem(t, resp.StatusCode, readBody(t, resp), 503, -32013, "overloaded")
	if got := resp.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After = %q; want 1", got)
	}

	close(release)
	if body := <-first; !strings.Contains(body, `"result"`) {
		t.Errorf("the call that was under way got %s", body)
	}
	go func() { <-arrived }()
	if status, body := g.call(t, ping); status != 200 || !strings.Contains(body, `"result"`) {
		t.Errorf("afterwards: %d %s; want a result", status, body)
	}
}

// EC-MCP-012, F-006.4: when the client disconnects, the upstream request is cancelled.
func TestClientDisconnects(t *testing.T) {
	for _, how := range []string{"while it waits for headers", "in a stream"} {
		t.Run(how, func(t *testing.T) {
			arrived, left := make(chan struct{}), make(chan struct{})
			up := serve(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if how == "in a stream" {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, ": hello\n\n")
					w.(http.Flusher).Flush()
				}
				close(arrived)
				<-r.Context().Done()
				close(left)
			})
			g := startGate(t, up, nil)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/mcp", strings.NewReader(ping))
				r.Header.Set("Content-Type", "application/json")
				if resp, err := g.Client().Do(r); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-arrived
			cancel()
			<-gone
			select {
			case <-left:
			case <-time.After(testTimeout):
				t.Fatal("the upstream request was not cancelled")
			}
			eventually(t, "the exchange is counted", func() bool {
				return strings.Contains(scrape(g), `thoughtgate_mcp_requests_total{method="ping",status="error"} 1`)
			})
			if log := g.log.String(); strings.Contains(log, "panic") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// Events are forwarded at once.
func TestStreamsAreNotBuffered(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		t.Run(method, func(t *testing.T) {
			next := make(chan string)
			up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for piece := range next {
					io.WriteString(w, piece)
					w.(http.Flusher).Flush()
				}
			})
			g := startGate(t, up, nil)
			var body io.Reader
			if method == http.MethodPost {
				body = strings.NewReader(ping)
			}
			r, _ := http.NewRequestWithContext(t.Context(), method, g.URL+"/mcp", body)
			r.Header.Set("Content-Type", "application/json")
			go func() { next <- "data: 1\n\n" }()
			resp, err := g.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			read := func(want string) {
				t.Helper()
				got := make([]byte, len(want))
				if _, err := io.ReadFull(lines, got); err != nil || string(got) != want {
					t.Fatalf("read %q, %v; want %q", got, err, want)
				}
			}
			read("data: 1\n\n")
			next <- ": still here\n"
			read(": still here\n")
			next <- "data: 2\r"
			next <- "\n\r\n"
			read("data: 2\r\n\r\n")
			close(next)
			if _, err := lines.ReadByte(); err != io.EOF {
				t.Errorf("err = %v; want the end of the stream", err)
			}
		})
	}
}

// A body may be too slow, too large or incomplete.
func TestBadBodiesAreRefused(t *testing.T) {
	const head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	tests := []struct {
		name, request string
		status        int
		errorType     string
	}{
		{"slow", head + "Content-Length: 50\r\n\r\n{", 408, "request_too_slow"},
		{"announced as too large", head + "Content-Length: 101\r\n\r\n", 413, "the body is larger than 100 bytes (limits.max_request_body)"},
		{"too large in chunks", head + "Transfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat(" ", 101) + "\r\n0\r\n\r\n", 413, "the body is larger than 100 bytes (limits.max_request_body)"},
		{"empty", head + "Content-Length: 0\r\n\r\n", 400, "parse_error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := startGate(t, "http://127.0.0.1:1", func(s settings) {
				s.handler.Limits.Body = 100
				if tt.name == "slow" {
					s.handler.Limits.ReadTimeout = 50 * time.Millisecond
				}
			})
			conn, err := net.Dial("tcp", g.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, tt.request)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body := readBody(t, resp); resp.StatusCode != tt.status || !strings.Contains(body, tt.errorType) {
				t.Errorf("%d %s; want %d %s", resp.StatusCode, body, tt.status, tt.errorType)
			}
		})
	}
}

func TestSlowClientReleasesSlot(t *testing.T) {
	done := make(chan struct{})
	up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(done)
		w.Header().Set("Content-Type", "application/json")
		for range 1000 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
		t.Error("the answer fits into the buffers")
	})
	g := startGate(t, up, func(s settings) { s.handler.Limits.WriteTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 57\r\n\r\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}   `)
	<-done
	eventually(t, "the slot is free again", func() bool {
		return strings.Contains(scrape(g), `thoughtgate_mcp_requests_total{method="notifications/initialized",status="error"} 1`)
	})
}

// Streams end at shutdown; calls in progress continue.
func TestEndStreams(t *testing.T) {
	release := make(chan struct{})
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-release
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	g := startGate(t, up, nil)
	answer := make(chan string)
	go func() {
		_, body := g.call(t, ping)
		answer <- body
	}()
	resp, err := g.Client().Get(g.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	if line, err := events.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("read %q, %v", line, err)
	}

	g.handler.EndStreams()

	if rest, err := io.ReadAll(events); err != nil || string(rest) != "\n" {
		t.Errorf("read %q, %v; want a clean end", rest, err)
	}
	close(release)
	if body := <-answer; !strings.Contains(body, `"result"`) {
		t.Errorf("the call under way got %s", body)
	}
}

// The gate does not repeat a request, even if the client declares it idempotent.
func TestForwardedRequestIsSentOnce(t *testing.T) {
	calls := make(chan struct{}, 10)
	first := true
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls <- struct{}{}
		io.Copy(io.Discard, r.Body)
		if first {
			first = false
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			return
		}
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Close()
	})
	g := startGate(t, up, nil)
	g.call(t, ping) // leaves an idle connection for reuse
	<-calls
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(ping))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k")
	resp, err := g.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wantProblem(t, resp.StatusCode, readBody(t, resp), 200, -32002, "upstream_invalid_response")
	if n := len(calls); n != 1 {
		t.Errorf("the upstream was asked %d times; want once", n)
	}
}

// serveRaw starts an upstream that reads a request, writes answer and breaks the connection.
func serveRaw(t *testing.T, answer string) string {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		buf.WriteString(answer)
		buf.Flush()
		conn.Close()
	}))
	t.Cleanup(up.Close)
	return up.URL
}

func scrape(g *gateway) string {
	w := httptest.NewRecorder()
	g.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

func wantProblem(t *testing.T, status int, body string, wantStatus, wantCode int, wantType string) {
	t.Helper()
	if status != wantStatus || !strings.Contains(body, fmt.Sprintf(`"code":%d,`, wantCode)) || !strings.Contains(body, `"error_type":"`+wantType+`"`) {
		t.Errorf("%d %s\nwant %d with code %d and type %s", status, body, wantStatus, wantCode, wantType)
	}
}

func TestUpstreamThatStopsReadingIsGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			accepted <- conn // and never reads
		}
	}()
	g := startGate(t, "http://"+l.Addr().String(), func(s settings) {
		s.upstream.ResponseTimeout = 50 * time.Millisecond
		s.handler.Limits.Body = 64 << 20
	})
	huge := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 32<<20) + `"}}`
	status, body := g.call(t, huge)
	wantProblem(t, status, body, 200, -32001, "upstream_timeout")
	(<-accepted).Close()
}
