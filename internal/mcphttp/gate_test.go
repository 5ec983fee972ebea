package mcphttp_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A gateway is a handler on a real listener.
type gateway struct {
	*httptest.Server

	addr          string
	target        string // URL of the upstream
	client        *httpclient.Client
	conversations *conversation.Gateway
	handler       *mcphttp.Handler
	metrics       *metrics.Metrics
	log           *logBuffer
}

// testTimeout is the time limit of tests. Only a failing test uses it up.
const testTimeout = time.Minute

// settings are the settings that tests can change.
type settings struct {
	upstream *httpclient.Config
	handler  *handlerConfig
}

// A handlerConfig configures a handler and its conversation.
type handlerConfig struct {
	mcphttp.Config

	Approvals *approval.Service
	Records   gatestore.Records
	Waiting   conversation.Waiting
	Texts     *keyring.Ring

	Protection *oauth.Protection // of both endpoints
}

// startGate starts a gate in front of the upstream at target, with small limits.
func startGate(t testing.TB, target string, adjust func(settings)) *gateway {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{target: target, metrics: metrics.New(), log: new(logBuffer)}
	upstream := httpclient.Config{
		Name: "test", URL: u, ForwardAuthorization: true, Metrics: g.metrics,
		ConnectTimeout: testTimeout, ResponseTimeout: testTimeout, CallTimeout: testTimeout, IdleTimeout: time.Minute, MaxIdle: 100,
	}
	cfg := handlerConfig{Config: mcphttp.Config{
		Catalog:  catalog.New(new(catalog.Settings), time.Now, slog.New(slog.DiscardHandler), nil),
		Settings: mcphttp.Settings{Guard: mcphttp.Guard{Loopback: true}},
		Limits: mcphttp.Limits{
			Requests: admission.Limits{Total: 1000}, Streams: admission.Limits{Total: 1000}, Body: 1 << 20,
			ReadTimeout: testTimeout, WriteTimeout: testTimeout,
		},
		Log:     logging.New(g.log, "json", slog.LevelInfo),
		Metrics: g.metrics,
	}}
	if adjust != nil {
		adjust(settings{&upstream, &cfg})
	}
	client := httpclient.New(upstream)
	g.client = client
	cfg.Routes = map[string]mcphttp.Endpoint{"/mcp": {Upstream: client, Protection: cfg.Protection}, "/mcp/v1": {Upstream: client, Protection: cfg.Protection}}
	cfg.Gateway = conversation.NewGateway(conversation.Config{
		Catalog: cfg.Catalog, Approvals: cfg.Approvals, Records: cfg.Records, Waiting: cfg.Waiting, Texts: cfg.Texts, Parse: cfg.Limits.Parse,
		Log: cfg.Log, Metrics: cfg.Metrics, Tracing: cfg.Tracing,
	})
	g.conversations, g.handler = cfg.Gateway, mcphttp.NewHandler(cfg.Config)
	g.Server = httptest.NewUnstartedServer(g.handler)
	g.Config.ConnContext = mcphttp.WithLocalUser
	g.Start()
	g.addr = g.Listener.Addr().String()
	t.Cleanup(func() {
		g.handler.EndStreams()
		g.Close()
		client.Close()
	})
	return g
}

// post sends one message as a 2025-11-25 client.
func (g *gateway) post(t *testing.T, message string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := g.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// call is post that returns only status and body.
func (g *gateway) call(t *testing.T, message string) (int, string) {
	t.Helper()
	resp := g.post(t, message)
	return resp.StatusCode, readBody(t, resp)
}

func readBody(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A logBuffer collects log output.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// serve starts an upstream with handler handle.
func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}
