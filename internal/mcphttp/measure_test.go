package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// seriesOf returns the value of a series on the metrics page, or -1 if it is missing.
func seriesOf(g *gateway, series string) float64 {
	for line := range strings.Lines(scrape(g)) {
		if rest, ok := strings.CutPrefix(line, "thoughtgate_"+series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err == nil {
				return value
			}
		}
	}
	return -1
}

// NFR-001 of REQ-CORE-003, mcp_requests_total and mcp_upstream_requests_total: an error answer
// of the upstream does not count as success. A proper refusal does not count as an upstream
// fault.
func TestUpstreamErrorsAreCounted(t *testing.T) {
	rpcError := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such tool"}}`
	result := `{"jsonrpc":"2.0","id":1,"result":{"note":"\"error\": none"}}`
	tests := []struct {
		name              string
		status            int
		kind, body        string
		request, upstream string // the expected outcome labels
	}{
		{"result", 200, "application/json", result, "success", "success"},
		{"result in an event", 200, "text/event-stream", "data: " + result + "\n\n", "success", "success"},
		{"JSON-RPC error", 200, "application/json", rpcError, "error", "success"},
		{"JSON-RPC error in an event", 200, "text/event-stream", "data: " + rpcError + "\n\n", "error", "success"},
		{"status 500", 500, "application/json", result, "error", "error"},
		{"status 503 without a message", 503, "text/plain", "later", "error", "error"},
		{"status 404", 404, "text/plain", "no session", "error", "success"},
		{"nonsense", 200, "text/html", "<html>", "error", "error"},
	}
	for _, governed := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, governed %t", tt.name, governed), func(t *testing.T) {
				up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", tt.kind)
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.body)
				})
				var adjust func(settings)
				if governed {
					h := newFixture(t, nil)
					adjust = func(s settings) { s.handler.Catalog, s.handler.Approvals = h.catalog, h.approvals }
				}
				g := startGate(t, up, adjust)
				g.call(t, toolCall("1", "get_it", ""))
				for series, want := range map[string]string{
					`mcp_requests_total{method="tools/call",status="%s"}`: tt.request,
					`mcp_upstream_requests_total{status="%s"}`:            tt.upstream,
				} {
					other := map[string]string{"success": "error", "error": "success"}[want]
					eventually(t, series+" "+want, func() bool { return seriesOf(g, fmt.Sprintf(series, want)) == 1 })
					if n := seriesOf(g, fmt.Sprintf(series, other)); n != 0 {
						t.Errorf("%s with %s is %v; want 0", series, other, n)
					}
				}
			})
		}
	}
}

// NFR-001 of REQ-CORE-003, mcp_upstream_duration_seconds: the duration includes the whole
// answer.
func TestUpstreamDurationIncludesBody(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "application/json"} {
		t.Run(kind, func(t *testing.T) {
			took := make(chan time.Duration, 1)
			g := startGate(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				begin, end := `{"jsonrpc":"2.0","id":1,`, `"result":{}}`
				if kind == "text/event-stream" {
					begin, end = ": begun\n\n", "data: "+begin+end+"\n\n"
				}
				_, _ = io.WriteString(w, begin)
				_ = http.NewResponseController(w).Flush()
				flushed := time.Now()
				<-time.After(50 * time.Millisecond)
				took <- time.Since(flushed)
				_, _ = io.WriteString(w, end)
			}), nil)
			_, body := g.call(t, toolCall("1", "get_it", ""))
			wantText(t, "answer", body, `"result"`)
			eventually(t, "the request is measured", func() bool { return seriesOf(g, "mcp_upstream_duration_seconds_count") == 1 })
			if sum, least := seriesOf(g, "mcp_upstream_duration_seconds_sum"), (<-took).Seconds(); sum < least {
				t.Errorf("the request took %v s; its answer alone took %v s", sum, least)
			}
		})
	}
}

var counted = regexp.MustCompile(`thoughtgate_mcp_upstream_requests_total\{status="(\w+)"\} (\d+)`)

// upstreamRequests returns the counted upstream requests by outcome.
func upstreamRequests(g *gateway) map[string]int {
	by := make(map[string]int)
	for _, found := range counted.FindAllStringSubmatch(scrape(g), -1) {
		by[found[1]], _ = strconv.Atoi(found[2])
	}
	return by
}

// NFR-001 of REQ-CORE-003: upstream requests for held calls are counted with their outcome.
func TestHeldCallsCountUpstream(t *testing.T) {
	p := newTaskFixture(t, nil)
	before := upstreamRequests(p.gateway)
	p.server.intercepted(func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			w.WriteHeader(http.StatusBadGateway)
		}
		return m.Method == "tools/call"
	})
	req := p.send(toolCall("7", "hold_forbidden", ""))
	p.approve(p.pending(1)[0])
	req.wait(t)
	eventually(t, "the failed call is counted", func() bool {
		return upstreamRequests(p.gateway)["error"] == before["error"]+1
	})
	p.server.intercepted(nil)
	req = p.send(toolCall("8", "hold_forbidden", ""))
	p.approve(p.pending(1)[0])
	p.server.done(madeIt)
	wantText(t, "answer", req.wait(t), "made it")
	eventually(t, "the call is counted", func() bool {
		return upstreamRequests(p.gateway)["success"] > before["success"]
	})
}
