package mcphttp_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Clients get only the upstream headers that they need, and none that would be attributed to
// the gate.
func TestReplyHeaders(t *testing.T) {
	up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{
			"Set-Cookie", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Location", "Refresh", "Link", "Access-Control-Allow-Origin",
			"Content-Security-Policy", "Server", "X-Powered-By", "Proxy-Authenticate", "Upgrade", "Nel", "Report-To", "Public-Key-Pins", "Content-Location",
		} {
			w.Header().Set(name, "theirs")
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Www-Authenticate", `Bearer resource_metadata="https://x/"`)
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Mcp-Protocol-Version", "2025-11-25")
		w.Header().Set("Mcp-Session-Id", "s-2")
		w.Header().Set("Trailer", "X-Late")
		fmt.Fprint(w, pong)
		w.Header().Set("X-Late", "theirs")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "theirs")
	})
	g := startGate(t, up, nil)
	kept := []string{"Content-Length", "Content-Type", "Date", "Mcp-Protocol-Version", "Retry-After", "Www-Authenticate"}
	for message, want := range map[string][]string{
		ping: kept,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`: append([]string{"Mcp-Session-Id"}, kept...),
	} {
		resp := g.post(t, message)
		readBody(t, resp)
		got := make(map[string]bool)
		for name := range resp.Header {
			got[name] = true
		}
		wanted := make(map[string]bool)
		for _, name := range want {
			wanted[name] = true
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s: the client got other headers (-want +got):\n%s", message, diff)
		}
		if len(resp.Trailer) != 0 {
			t.Errorf("the client got the trailer %v", resp.Trailer)
		}
	}
}

// raw serves an upstream that answers every request with text.
func raw(t *testing.T, text string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = conn.Write([]byte(text))
					_ = r.Body.Close()
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// A redirect, a protocol switch or an invalid status becomes an error.
func TestImproperAnswersAreRefused(t *testing.T) {
	body := fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(pong), pong)
	for text, kind := range map[string]string{
		"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\n" + body:                            "upstream_redirect",
		"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n" + body:                                     "upstream_redirect",
		"HTTP/1.1 304 Not Modified\r\n\r\n":                                                         "upstream_redirect",
		"HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\n" + body:                                "upstream_redirect",
		"HTTP/1.1 308 Permanent Redirect\r\nLocation: /x\r\n" + body:                                "upstream_redirect",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n" + body:                                 "upstream_invalid_response",
		"HTTP/1.1 099 Odd\r\n" + body:                                                               "upstream_invalid_response",
		"HTTP/1.1 999 Odd\r\n" + body:                                                               "upstream_invalid_response",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + body:                                      "upstream_invalid_response",
		"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Type: text/event-stream\r\n\r\ndata: x": "upstream_invalid_response",
	} {
		g := startGate(t, raw(t, text), nil)
		g.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		status, got := g.call(t, ping)
		if status != http.StatusOK || !strings.Contains(got, `"error_type":"`+kind+`"`) || !strings.Contains(got, `"id":1`) {
			t.Errorf("%q: %d %s; want an answer with %s", text, status, got, kind)
		}
		g = startGate(t, raw(t, text), nil) // without the connection that the upstream is closing
		status, got = g.call(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		if status != http.StatusBadGateway || !strings.Contains(got, kind) {
			t.Errorf("%q: a notification was answered %d %s", text, status, got)
		}
	}
	g := startGate(t, raw(t, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"+body), nil)
	if status, got := g.call(t, ping); status != http.StatusOK || got != pong {
		t.Errorf("after informational answers: %d %s", status, got)
	}
}

func TestHeldCallIsNotRedirected(t *testing.T) {
	h := newFixture(t, nil)
	h.answer = func(w http.ResponseWriter, _ string) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	request := h.send(toolCall("1", "hold_x", ""))
	id := h.pending(1)[0]
	h.approve(id)
	wantText(t, "the client", request.wait(t), `"id":1`, "may have run")
	h.wantRan(`hold_x {"x":1}`)
	if now, err := h.approvals.Get(t.Context(), task.AnyOwner().Ref(id)); err != nil || now.State != task.Failed {
		t.Errorf("the task is %v, %v; want it failed", now.State, err)
	}
}

// The upstream gets only the configured query parameters, and its own URL's parameters stay.
func TestQueryParametersAreFiltered(t *testing.T) {
	seen := make(chan string, 1)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.RawQuery
		answerPong(w, r)
	})
	tests := []struct{ own, given, want string }{
		{"", "a=1", ""},
		{"", "region=eu&a=1&region=us", "region=eu&region=us"},
		{"?tenant=ours", "tenant=theirs", "tenant=ours"},
		{"?tenant=ours", "%74enant=theirs&region=a%26tenant%3Dtheirs", "tenant=ours&region=a%26tenant%3Dtheirs"},
		{"?a=ours", "a=theirs&tenant=x", "a=ours&tenant=x"},
		{"?a=ours", "tenant=x;a=theirs", "a=ours"},
		{"?a=ours", "Tenant=x&tenant[]=y", "a=ours"},
	}
	for _, tt := range tests {
		g := startGate(t, up+"/x"+tt.own, func(s settings) {
			if tt.given != "a=1" {
				s.upstream.ForwardQuery = []string{"tenant", "region"}
			}
		})
		u, _ := url.Parse(g.URL + "/mcp")
		u.RawQuery = tt.given
		resp, err := g.Client().Post(u.String(), "application/json", strings.NewReader(ping))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := <-seen; got != tt.want {
			t.Errorf("%q with %q: the upstream got %q; want %q", tt.own, tt.given, got, tt.want)
		}
	}
}
