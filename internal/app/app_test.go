package app_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// start runs the gate that the YAML text configures. The returned function stops the gate,
// waits, and returns the error of Run.
func start(t testing.TB, text string) (*app.App, func() error) {
	t.Helper()
	a, err := newApp(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return a, run(t, a)
}

// run runs a until the returned function is called.
func run(t testing.TB, a *app.App) func() error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

func newApp(t testing.TB, text string) (*app.App, error) {
	t.Helper()
	return app.New(load(t, text), slog.New(slog.DiscardHandler))
}

func load(t testing.TB, text string) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "thoughtgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Sources{Channels: app.ChannelKinds(), File: file})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "sqlite:") && cfg.Storage.Timeout == config.Default().Storage.Timeout {
		cfg.Storage.Timeout = time.Minute // for a busy machine
	}
	return cfg
}

func gatewayFor(upstream string) string {
	return "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nstore: 'memory:'\nupstreams: [{url: " + upstream + "}]\n"
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestOperatorsListener(t *testing.T) {
	a, stop := start(t, gatewayFor("http://127.0.0.1:1/mcp"))
	defer http.DefaultClient.CloseIdleConnections()
	operators := "http://" + a.OperatorAddr()
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ready", "/metrics": "thoughtgate_mcp_connections_active",
	} {
		if status, body := get(t, operators+path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("GET %s: %d %.100q; want 200 and %q", path, status, body, want)
		}
	}
	if status, _ := get(t, operators+"/mcp"); status != http.StatusNotFound {
		t.Errorf("the operators' listener serves agents: %d", status)
	}
	if status, _ := get(t, "http://"+a.AgentAddr()+"/metrics"); status != http.StatusNotFound {
		t.Errorf("the agents' listener serves operators: %d", status)
	}
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// A stopping gate is not ready, finishes running calls, and accepts no new ones.
func TestDrain(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(arrived)
		<-release
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer up.Close()
	a, stop := start(t, gatewayFor(up.URL))
	answer := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	go func() {
		resp, err := client.Post("http://"+a.AgentAddr()+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- string(body)
	}()
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // the operators' listener answers /readyz until the gate has stopped
		status, _ := get(t, "http://"+a.OperatorAddr()+"/readyz")
		if status == http.StatusServiceUnavailable {
			break
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("the gate stopped during a call: %v", err)
	default:
	}

	close(release)

	if body := <-answer; !strings.Contains(body, `"result"`) {
		t.Errorf("the running call got %s", body)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run = %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Each upstream has its own path.
func TestSeveralUpstreams(t *testing.T) {
	named := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"i am":"`+name+` `+r.Header.Get("X-Key")+`"}}`)
		}))
	}
	crm, files := named("crm"), named("files")
	defer crm.Close()
	defer files.Close()
	a, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nupstreams:\n"+
		"- {name: crm, url: "+crm.URL+", headers: {X-Key: secret}}\n- {name: files, url: "+files.URL+"}\n")
	for path, want := range map[string]string{"/mcp/crm": "crm secret", "/mcp/files": "files "} {
		resp, err := http.Post("http://"+a.AgentAddr()+path, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(body), `"`+want+`"`) {
			t.Errorf("%s: %s; want %q", path, body, want)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// New fails at once if an address is in use, and releases everything that it opened.
func TestAddressTaken(t *testing.T) {
	a, stop := start(t, gatewayFor("http://127.0.0.1:1/mcp"))
	cfg := load(t, gatewayFor("http://127.0.0.1:1/mcp"))
	cfg.Operators.Listen = a.OperatorAddr()
	if _, err := app.New(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "operators") {
		t.Errorf("New = %v; want an error about the operators' address", err)
	}
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}
