package mcphttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
)

// leakRequests is the number of requests of TestAllSlotsAreReleased; LEAK_REQUESTS overrides
// it.
const leakRequests = 1000

// Many clients send requests of all kinds, with every outcome. Afterwards no slot is in use.
func TestAllSlotsAreReleased(t *testing.T) {
	total := leakRequests
	if n, err := strconv.Atoi(os.Getenv("LEAK_REQUESTS")); err == nil {
		total = n
	}
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) {
		w.Hold, w.Heartbeat = 10*time.Millisecond, time.Millisecond
	})
	h.listen = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", asEvents)
		io.WriteString(w, ": hello\n\n")
	}
	h.get = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", asEvents)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	listen, listenHeaders := listenFor(`"resourcesListChanged":true`)
	large := strings.Repeat(" ", 100<<10)
	kinds := []func(worker int){
		func(w int) { h.try(t, w, time.Minute, http.MethodPost, toolCall("1", "get_x", "")) },
		func(w int) { h.try(t, w, time.Minute, http.MethodPost, large+toolCall("1", "get_x", "")) },
		func(w int) { h.try(t, w, time.Millisecond, http.MethodPost, toolCall("1", "get_x", "")) }, // gives up
		func(w int) { h.try(t, w, time.Minute, http.MethodPost, toolCall("1", "other", "")) },      // denied
		func(w int) { h.try(t, w, time.Minute, http.MethodPost, "nonsense") },
		func(w int) { h.try(t, w, time.Minute, http.MethodPost, strings.Repeat(" ", 1<<20+1)) },
		func(w int) { h.try(t, w, time.Minute, http.MethodPost, toolCall("1", "hold_x", "")) },        // until the client must call again
		func(w int) { h.try(t, w, 5*time.Millisecond, http.MethodPost, toolCall("1", "hold_x", "")) }, // leaves while it waits
		func(w int) { h.try(t, w, time.Minute, http.MethodPost, listen, listenHeaders...) },
		func(w int) { h.try(t, w, 5*time.Millisecond, http.MethodGet, "", "Accept", asEvents) },
		func(w int) { h.try(t, w, time.Minute, http.MethodPut, "x") },
		func(w int) { h.cutOff(t, w, "Content-Length: 300000", strings.Repeat(" ", 70000)) },
		func(w int) { h.cutOff(t, w, "Transfer-Encoding: chunked", "11170\r\n"+strings.Repeat(" ", 70000)) },
		func(w int) { h.cutOff(t, w, "Content-Length: 0", "") },
	}
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for i := worker; i < total; i += 8 {
				kinds[(i/8+worker)%len(kinds)](worker)
			}
		})
	}
	workers.Wait()
	for pool := range h.handler.Used() {
		eventually(t, "all slots are released: "+pool, func() bool { return h.handler.Used()[pool] == 0 })
	}
}

// try makes a request from a worker's address, and gives up after a while.
func (h *fixture) try(t *testing.T, worker int, testTimeout time.Duration, method, body string, headers ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Content-Type", asJSON)
	r.Header.Set("Accept", asJSON+", "+asEvents)
	r.Header.Set("Mcp-Session-Id", fmt.Sprint("s-", worker))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: workersAddress(worker)}).DialContext, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return // the client gave up, or was refused before it had sent everything
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// cutOff sends part of a request and closes the connection.
func (h *fixture) cutOff(t *testing.T, worker int, length, body string) {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: workersAddress(worker)}).DialContext(t.Context(), "tcp", h.addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", length, body)
}

func workersAddress(worker int) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+worker))}
}
