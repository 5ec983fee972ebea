package translate_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/translate"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// BenchmarkCall compares calls that are translated with calls that are forwarded, to the same server. The figures
// contain the server.
func BenchmarkCall(b *testing.B) {
	var calls atomic.Int64
	modern := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query","arguments":{"region":"eu"},` + modernMeta + `}}`
	legacy := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query","arguments":{"region":"eu"}}}`
	for _, test := range []struct {
		name, body string
		server     http.HandlerFunc
		begin      bool
	}{
		{"modern/forwarded", modern, modernServer(&calls), false},
		{"legacy/translated", legacy, modernServer(&calls), true},
		{"legacy/forwarded", legacy, legacyServer(func(http.ResponseWriter, *http.Request, string, string) bool { return false }), true},
		{"modern/translated", modern, legacyServer(func(http.ResponseWriter, *http.Request, string, string) bool { return false }), false},
	} {
		b.Run(test.name, func(b *testing.B) {
			server := httptest.NewServer(test.server)
			defer server.Close()
			at, _ := url.Parse(server.URL)
			store := memstore.New(memstore.Options{})
			sessions := upstream.NewSessions(func() gatestore.Records { return store }, slog.New(slog.DiscardHandler))
			client := httpclient.New(httpclient.Config{Name: "server", URL: at, ResponseTimeout: time.Minute, CallTimeout: time.Minute, Sessions: sessions})
			tr := translate.New(translate.Config{Name: "server", Client: client, Sessions: sessions, MaxMessage: 1 << 20, Patience: time.Minute})
			defer client.Close()
			defer tr.Close()
			header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
			if !test.begin {
				header["Mcp-Method"], header["Mcp-Name"], header["Mcp-Param-Region"] = []string{"tools/call"}, []string{"query"}, []string{"eu"}
			}
			send := func(body string) http.Header {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", strings.NewReader(body))
				r.Header = header.Clone()
				resp, err := tr.RoundTrip(r, httpclient.Peer{Principal: "ann", Owner: "ann"})
				if err != nil {
					b.Fatal(err)
				}
				defer resp.Body.Close()
				if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					b.Fatalf("%d %s, %v", resp.StatusCode, text, err)
				}
				return resp.Header
			}
			if test.begin {
				began := send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`)
				header.Set("Mcp-Session-Id", began.Get("Mcp-Session-Id"))
			}
			for b.Loop() {
				send(test.body)
			}
		})
	}
}
