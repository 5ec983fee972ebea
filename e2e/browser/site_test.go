// Package browser_test connects a real browser, the official Go SDK's client and its server to
// a gate: Chromium uses the inbox, and agents make calls. Errors that the browser reports, and
// above all violations of the pages' security policy, fail the test.
//
// The tests need Debian's chromium, which they install if they may, and npm for axe-core. If
// these are not available, the tests are skipped, or fail if CI is set in the environment.
package browser_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// patience limits every wait in a test.
const patience = 2 * time.Minute

// A site is a gate with an upstream.
type site struct {
	agents    string // the gate's URL for agents
	operators string // the gate's URL for operators
	token     string // of the only operator, if there are no others
	agent     string // the token of agents, if they need one
	upstream  *upstream
	gate      *app.App
}

// An upstream has the tools of the tests, and records their calls.
type upstream struct {
	server *mcp.Server

	mu  sync.Mutex
	ran []string
}

func (u *upstream) calls() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.ran...)
}

var yes, no = true, false

// addTool adds a tool that accepts any arguments and does nothing.
func (u *upstream) addTool(name, description string) {
	u.server.AddTool(&mcp.Tool{
		Name: name, Description: description, InputSchema: map[string]any{"type": "object"},
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no},
	}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.ran = append(u.ran, r.Params.Name)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done: " + r.Params.Name}}}, nil
	})
}

const plainRules = `
rules:
  - {match: "read_*", action: forward}
  - {match: "refund_*", action: approve, reason: "money leaves the company"}
  - {match: "*", action: approve, reason: "deleted is deleted"}
default: deny
waiting: {hold: 1h}
`

// open starts a gate with the given rules in front of an upstream with a few tools.
func open(t *testing.T, rules string) *site {
	t.Helper()
	return openInFront(t, rules, "", func(h http.Handler) http.Handler { return h })
}

// openInFront starts a gate as open does. More are settings of the upstream, which protect may wrap.
func openInFront(t *testing.T, rules, more string, protect func(http.Handler) http.Handler) *site {
	t.Helper()
	return openStored(t, "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), rules, more, protect)
}

// openStored starts a gate as openInFront does, with a store.
func openStored(t *testing.T, store, rules, more string, protect func(http.Handler) http.Handler) *site {
	t.Helper()
	u := &upstream{server: mcp.NewServer(&mcp.Implementation{Name: "backoffice", Version: "1"}, nil)}
	u.addTool("delete_file", "Delete a file for good.")
	u.addTool("refund_payment", "Send money back to a customer.\n\nThe payment must be less than 90 days old.")
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return u.server }, nil)
	backend := httptest.NewServer(protect(handler))
	t.Cleanup(func() {
		for session := range u.server.Sessions() {
			_ = session.Close()
		}
		backend.CloseClientConnections()
		backend.Close()
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "gate.yaml")
	text := fmt.Sprintf("version: 1\nlisten: 127.0.0.1:0\nstore: %q\nupstreams: [{name: backoffice, url: %q%s}]\n%s",
		store, backend.URL+"/mcp", more, rules)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Sources{Channels: app.ChannelKinds(), File: file, Overrides: []config.Override{
		{Source: "test", Setting: "operators.listen", Values: []string{"127.0.0.1:0"}},
		{Source: "test", Setting: "shutdown.drain", Values: []string{"1s"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := app.New(cfg, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- gate.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("gate: %v", err)
		}
	})
	return &site{
		agents: "http://" + gate.AgentAddr() + "/mcp", operators: "http://" + gate.OperatorAddr(),
		token: gate.GeneratedToken(), upstream: u, gate: gate,
	}
}

// A call is a tool call that an agent waits for.
type call struct {
	done chan struct{}
	text string
	err  error
}

// ask calls a tool as an agent, and returns at once.
func (s *site) ask(t *testing.T, tool string, arguments any) *call {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	client := mcp.NewClient(&mcp.Implementation{Name: "support-agent", Version: "2.1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.agents, HTTPClient: &http.Client{Transport: s}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.ListTools(ctx, nil); err != nil {
		t.Fatal(err)
	}
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		res, err := session.CallTool(ctx, &mcp.CallToolParams{
			Name: tool, Arguments: arguments, Meta: mcp.Meta{"client.reason": "The customer asked for it twice."},
		})
		if c.err = err; err == nil && len(res.Content) > 0 {
			c.text = res.Content[0].(*mcp.TextContent).Text
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-c.done
		_ = session.Close()
	})
	return c
}

// RoundTrip sends a request of an agent with its token.
func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.agent != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+s.agent)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// wait returns the outcome of the call.
func (c *call) wait(t *testing.T) string {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatal("the agent still waits")
	}
	if c.err != nil {
		return "error: " + c.err.Error()
	}
	return c.text
}
