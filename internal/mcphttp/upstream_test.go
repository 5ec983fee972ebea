package mcphttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

const pong = `{"jsonrpc":"2.0","id":1,"result":{}}`

func answerPong(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, pong)
}

// Certificates are verified, also with a private CA, and HTTP/2 is used where offered.
func TestUpstreamTLS(t *testing.T) {
	spoken := make(chan string, 1)
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		spoken <- r.Proto
		answerPong(w, r)
	}))
	up.EnableHTTP2 = true
	up.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	up.StartTLS()
	t.Cleanup(up.Close)
	authority := x509.NewCertPool()
	authority.AddCert(up.Certificate())

	trusting := startGate(t, up.URL, func(s settings) { s.upstream.TLS = &tls.Config{RootCAs: authority} })
	resp := trusting.post(t, ping)
	if body, proto := readBody(t, resp), <-spoken; body != pong || proto != "HTTP/2.0" {
		t.Errorf("%s over %s; want %s over HTTP/2.0", body, proto, pong)
	}

	wary := startGate(t, up.URL, nil)
	status, body := wary.call(t, ping)
	wantProblem(t, status, body, 200, -32000, "upstream_unreachable")
}

func TestUpstreamHeaders(t *testing.T) {
	seen := make(chan http.Header, 1)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		answerPong(w, r)
	})
	tests := []struct {
		name   string
		adjust func(settings)
		want   string // of Authorization
	}{
		{"the client's own", nil, "Bearer mine"},
		{"not sent on", func(s settings) { s.upstream.ForwardAuthorization = false }, ""},
		{"the gate's", func(s settings) { s.upstream.Headers = http.Header{"Authorization": {"Bearer ours"}} }, "Bearer ours"},
		{"the gate's in any case", func(s settings) {
			s.upstream.ForwardAuthorization = false
			s.upstream.Headers = http.Header{"Authorization": {"Bearer ours"}}
		}, "Bearer ours"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := startGate(t, up+"/x?fixed=1", tt.adjust)
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(ping))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer mine")
			for _, hop := range []string{"Keep_Alive", "Transfer_Encoding", "Proxy_Authorization", "Proxy.Connection", "content_length", "Proxy-Authorization", "Te"} {
				r.Header.Set(hop, "7")
			}
			resp, err := g.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got := <-seen
			if got.Get("Authorization") != tt.want {
				t.Errorf("Authorization = %q; want %q", got.Get("Authorization"), tt.want)
			}
			for name, values := range got {
				if slices.Contains(values, "7") {
					t.Errorf("%s reached the upstream, although it is hop-by-hop", name)
				}
			}
		})
	}
}

// The trace context is forwarded in headers, and in _meta if the message has it.
func TestTraceContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	spans := serve(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	tracer, err := tracing.New(tracing.Config{Endpoint: spans, Sample: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tracer.Close(context.Background()) })
	type request struct {
		header string
		body   string
	}
	seen := make(chan request, 1)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- request{r.Header.Get("Traceparent"), string(body)}
		answerPong(w, r)
	})
	g := startGate(t, up, func(s settings) { s.handler.Tracing = tracer })

	g.call(t, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"traceparent":"`+parent+`","x":1}}}`)
	got := <-seen
	child := regexp.MustCompile(`^00-0af7651916cd43dd8448eb211c80319c-([0-9a-f]{16})-01$`).FindStringSubmatch(got.header)
	if child == nil || child[1] == "b7ad6b7169203331" {
		t.Errorf("traceparent = %q; want a child of %s", got.header, parent)
	}
	if want := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"traceparent":"` + got.header + `","x":1}}}`; got.body != want {
		t.Errorf("body = %s\nwant   %s", got.body, want)
	}

	g.call(t, ping)
	if got := <-seen; got.body != ping || got.header == "" {
		t.Errorf("body = %s with traceparent %q; want the unchanged body and a header", got.body, got.header)
	}
}
