package app_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A list that is served from memory is marked, however its server fails, and the inbox names a server that
// cannot be used.
func TestEndpointStaleListIsMarked(t *testing.T) {
	for name, fail := range map[string]func(*plainServer){
		"hangs":          func(s *plainServer) { s.hangs.Store(true) },
		"has stopped":    (*plainServer).stop,
		"answers 503":    func(s *plainServer) { s.broken.Store(true) },
		"hangs on pages": func(s *plainServer) { s.more.Store(`,"nextCursor":"slow"`) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
			r := startPlain(t, a, b)
			if list := r.list(); strings.Contains(list, "thoughtgate/") || !strings.Contains(list, `"b__x"`) {
				t.Fatalf("the first list is %s", list)
			}
			fail(b)
			for range 2 {
				has(t, r.list(), `"name":"x"`, `"name":"b__x"`, `"thoughtgate/stale":["b"]`)
			}
			_, page, _ := request(t, http.DefaultClient, "GET", "http://"+r.gate.OperatorAddr()+"/", "", "Authorization", "Bearer "+adminToken)
			if named := strings.Contains(page, "Server b of /mcp: unavailable"); named == b.broken.Load() {
				t.Errorf("the inbox names the server: %t", named)
			}
		})
	}
}

// When a server returns, one request tries it at a time until it has answered. Then all clients get a list
// change, and the lists that they ask for then are complete.
func TestEndpointReturnIsNoHerd(t *testing.T) {
	const clients = 30
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	r := startPlain(t, a, b)
	sessions := make([]*plainRig, clients)
	for i := range sessions {
		sessions[i] = &plainRig{T: t, gate: r.gate}
		sessions[i].begin()
		has(t, sessions[i].list(), `"b__x"`)
	}
	b.stop()
	has(t, r.call("b__x"), "upstream_unreachable")

	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	var listed, complete, connected atomic.Int64
	for _, s := range sessions {
		running.Go(func() {
			s.onListChange(&connected, func() (done bool) {
				done = !strings.Contains(s.list(), "thoughtgate/")
				if listed.Add(1); done {
					complete.Add(1)
				}
				return done
			})
		})
	}
	eventually(t, "all clients listen", func() bool { return connected.Load() == clients })

	var now, most atomic.Int64
	released := make(chan struct{})
	b.before.Store(func(r *http.Request) {
		select {
		case <-released:
			return
		default:
		}
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	b.start(t)
	eventually(t, "other clients have a list", func() bool { return listed.Load() >= clients-1 })
	close(released)
	eventually(t, "all clients have the complete list", func() bool { return complete.Load() == clients })
	if n := most.Load(); n > 3 { // one, and those that have ended but the server does not know yet
		t.Errorf("%d of %d clients tried the server at the same time", n, clients)
	}
}

// onListChange calls f after each list change until it returns true.
func (r *plainRig) onListChange(connected *atomic.Int64, f func() bool) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.gate.AgentAddr()+"/mcp", nil)
	if err != nil {
		r.Error(err)
		return
	}
	request.Header.Set("Mcp-Session-Id", r.session)
	request.Header.Set("Accept", "text/event-stream")
	events, err := http.DefaultClient.Do(request)
	if err != nil {
		r.Error(err)
		return
	}
	defer events.Body.Close()
	for lines := bufio.NewScanner(events.Body); lines.Scan(); {
		switch {
		case strings.HasPrefix(lines.Text(), ": connected"):
			connected.Add(1)
		case strings.Contains(lines.Text(), "notifications/tools/list_changed") && f():
			return
		}
	}
}

// The list of twenty servers with 2,000 tools in all, and what find_tools makes of it.
func BenchmarkEndpointList(b *testing.B) {
	const schema = `"inputSchema":{"type":"object","properties":{"id":{"type":"string","description":"The identifier of the thing"},"limit":{"type":"integer","minimum":1,"maximum":100},` +
		`"fields":{"type":"array","items":{"type":"string"},"description":"The fields to return"}},"required":["id"]}`
	var tools []string
	for i := range 100 {
		tools = append(tools, fmt.Sprintf(`{"name":"change_thing_%d","description":"Changes thing %d of the workspace. Returns its identifier and when it was changed last. Fails if the user may not change it.",%s}`, i, i, schema))
	}
	server := httptest.NewServer(&plainServer{name: "many", tools: strings.Join(tools, ","), gone: make(chan struct{})})
	defer server.Close()
	text := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nstore: 'memory:'\nrules: [{match: 'drop_*', action: deny}, {match: '*', action: forward}]\ndefault: deny\nupstreams:\n"
	var members strings.Builder
	for i := range 20 {
		text += fmt.Sprintf("- {name: s%d, url: '%s'}\n", i, server.URL)
		fmt.Fprintf(&members, "{upstream: s%d}, ", i)
	}
	text += "endpoints: [{path: /mcp, servers: [" + members.String() + "]}, {path: /search, search: true, servers: [" + members.String() + "]}]\n"
	gate, stop := start(b, text)
	defer stop()
	defer http.DefaultClient.CloseIdleConnections()
	for _, bench := range []struct{ name, path, body string }{
		{"list", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`},
		{"find", "/search", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"find_tools","arguments":{"query":"change thing 7"}}}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			post := func(session, body string) (string, http.Header) {
				_, answer, head := request(b, http.DefaultClient, "POST", "http://"+gate.AgentAddr()+bench.path, body, "Mcp-Session-Id", session, "Accept", "application/json, text/event-stream")
				return answer, head
			}
			_, head := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
			session, size := head.Get("Mcp-Session-Id"), 0
			b.ReportAllocs()
			for b.Loop() {
				answer, _ := post(session, bench.body)
				if size = len(answer); !strings.Contains(answer, "change_thing_7") {
					b.Fatal(answer)
				}
			}
			var memory runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&memory)
			b.ReportMetric(float64(size), "answer-B")
			b.ReportMetric(float64(memory.HeapAlloc), "heap-B")
		})
	}
}
