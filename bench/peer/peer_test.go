package peer_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/load"
	"github.com/thoughtgate/thoughtgate-go/bench/peer"
	"github.com/thoughtgate/thoughtgate-go/bench/proc"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

func dial(t *testing.T, addr string) *load.Conn {
	t.Helper()
	conn, err := load.Dial(t.Context(), addr, 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestEveryKindThroughTheProxy makes every call several times on one connection, with and
// without the proxy.
func TestEveryKindThroughTheProxy(t *testing.T) {
	upstream := httptest.NewServer(peer.Upstream())
	t.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(peer.Proxy(target))
	t.Cleanup(proxy.Close)
	for name, server := range map[string]*httptest.Server{"direct": upstream, "proxy": proxy} {
		addr := server.Listener.Addr().String()
		for _, k := range []workload.Kind{workload.JSON, workload.SSE, workload.Modern, workload.BigJSON, workload.BigSSE} {
			t.Run(name+" "+string(k), func(t *testing.T) {
				blocks := 0
				if strings.HasPrefix(string(k), "big") {
					blocks = 40
				}
				conn, call := dial(t, addr), workload.New(k, addr, blocks)
				for i := range 50 {
					call.Renumber(i)
					if err := conn.Do(call); err != nil {
						t.Fatalf("call %d: %v", i, err)
					}
				}
			})
		}
		t.Run(name+" stream", func(t *testing.T) {
			if err := dial(t, addr).Open(workload.StreamRequest(addr, 1), []byte(workload.FirstEvent)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestUpstreamRefusesUnknownRequests(t *testing.T) {
	w := httptest.NewRecorder()
	peer.Upstream().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0"}`)))
	if w.Code != http.StatusBadRequest {
		t.Errorf("status %d; want 400", w.Code)
	}
}

// TestServe reads the announcement, requests the metrics, and ends the server by closing its
// standard input.
func TestServe(t *testing.T) {
	stdin, closer := io.Pipe()
	said, log := io.Pipe()
	done := make(chan error, 1)
	go func() {
		ctx := peer.UntilClosed(context.Background(), stdin)
		done <- peer.Serve(ctx, peer.Upstream(), slog.New(slog.NewJSONHandler(log, nil)))
	}()
	line := make([]byte, 1<<10)
	n, err := said.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	agents, operators, ok := proc.Listening(line[:n])
	if !ok {
		t.Fatalf("announcement %q", line[:n])
	}
	if err := dial(t, agents).Do(workload.New(workload.JSON, agents, 0)); err != nil {
		t.Error(err)
	}
	resp, err := http.Get("http://" + operators + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if mallocs, err := proc.Metric(text, "go_memstats_mallocs_total"); err != nil || mallocs < 100 {
		t.Errorf("mallocs = %v, %v", mallocs, err)
	}
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Serve = %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Serve did not return after its standard input was closed")
	}
}
