// Package e2e_test connects the official Go SDK's client and server, once directly and once
// through the gate, and requires the same behaviour of both.
//
// Every test runs in each relevant protocol version as "direct" and as "gate". The direct run
// shows that the test matches the SDK's behaviour, so a gate run that differs is a defect of
// the gate. The server, the client and the gate are real, and listen on the loopback
// interface.
package e2e_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits every wait in a test. Only failures, and 10 MiB on a slow machine, use all
// of it.
const patience = 2 * time.Minute

const modernVersion = "2026-07-28"

var (
	legacyVersions = []string{"2025-03-26", "2025-06-18", "2025-11-25"}
	allVersions    = append(slices.Clip(legacyVersions), modernVersion)
	bothEras       = []string{"2025-11-25", modernVersion}
)

// A setting is one combination of options of a test.
type setting struct {
	version string // of the protocol
	gated   bool   // clients connect through the gate
}

func (s setting) modern() bool { return s.version == modernVersion }

// each runs test directly and through the gate, in each of the versions.
func each(t *testing.T, versions []string, test func(t *testing.T, s setting)) {
	t.Helper()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Run("direct", func(t *testing.T) { test(t, setting{version: version}) })
			t.Run("gate", func(t *testing.T) { test(t, setting{version: version, gated: true}) })
		})
	}
}

// A site is an MCP server and its URL for clients.
type site struct {
	setting

	url      string
	upstream *upstream
}

// serve starts an official server, stateful in the legacy era and stateless in the modern one.
// If the setting requires it, a gate is in front of the server.
func (s setting) serve(t *testing.T, server *mcp.Server) *site {
	t.Helper()
	return s.serveWith(t, server, mcp.StreamableHTTPOptions{})
}

func (s setting) serveWith(t *testing.T, server *mcp.Server, opts mcp.StreamableHTTPOptions) *site {
	t.Helper()
	t.Cleanup(func() { endSessions(t, server) })
	return s.serveHandler(t, s.handler(server, opts))
}

func (s setting) serveHandler(t *testing.T, handler http.Handler) *site {
	t.Helper()
	up := &upstream{}
	up.start(t, "127.0.0.1:0", handler)
	t.Cleanup(func() { up.stop(t) })
	where := &site{setting: s, url: up.url(), upstream: up}
	if s.gated {
		where.url = gateTo(t, up.url())
	}
	return where
}

func (s setting) handler(server *mcp.Server, opts mcp.StreamableHTTPOptions) http.Handler {
	opts.Stateless = s.modern()
	opts.PropagateRequestCancellation = s.modern()
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &opts)
}

// endSessions ends the sessions that clients left open, as the end of their processes would.
func endSessions(t *testing.T, server *mcp.Server) {
	t.Helper()
	for ss := range server.Sessions() {
		end(t, ss.Close)
	}
}

// end calls closing, and fails the test if it does not return in time.
func end(t *testing.T, closing func() error) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = closing() // errors of connections that the peer closed do not matter
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("closing takes too long")
	}
}

// An upstream is a server that tests can stop and start again.
type upstream struct {
	addr    string
	server  *http.Server
	stopped chan error
	conns   cuttable
}

func (u *upstream) url() string { return "http://" + u.addr + "/mcp" }

func (u *upstream) start(t *testing.T, addr string, handler http.Handler) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	u.addr = listener.Addr().String()
	u.server = &http.Server{Handler: handler, ReadHeaderTimeout: patience, ConnState: func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			u.conns.add(conn)
		}
	}}
	u.stopped = make(chan error, 1)
	go func() { u.stopped <- u.server.Serve(listener) }()
}

// stop closes the listener and every connection.
func (u *upstream) stop(t *testing.T) {
	t.Helper()
	if err := u.server.Close(); err != nil {
		t.Error(err)
	}
	<-u.stopped
}

// restart replaces the server by a new one without state.
func (u *upstream) restart(t *testing.T, handler http.Handler) {
	t.Helper()
	u.stop(t)
	u.start(t, u.addr, handler)
}

// cuttable records the connections of one side, to close them.
type cuttable struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cuttable) add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// connect returns a session of an official client.
func (s *site) connect(t *testing.T, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return s.connectClient(t, mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, opts), newHTTPClient(t))
}

func (s *site) connectClient(t *testing.T, client *mcp.Client, hc *http.Client) *mcp.ClientSession {
	t.Helper()
	cs, err := client.Connect(soon(t),
		&mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: hc},
		&mcp.ClientSessionOptions{ProtocolVersion: s.version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, cs.Close) })
	if got := cs.InitializeResult().ProtocolVersion; got != s.version {
		t.Fatalf("negotiated %s; want %s", got, s.version)
	}
	return cs
}

func newHTTPClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// newServer returns a server without any features.
func newServer(opts *mcp.ServerOptions) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "upstream", Version: "1"}, opts)
}

// anyObject is the schema of a tool that accepts any object.
var anyObject = map[string]any{"type": "object"}

// addTool adds a tool that accepts any arguments.
func addTool(server *mcp.Server, name string, run mcp.ToolHandler) {
	server.AddTool(&mcp.Tool{Name: name, InputSchema: anyObject}, run)
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// callText calls a tool and returns the text of its result.
func callText(t *testing.T, cs *mcp.ClientSession, params *mcp.CallToolParams) string {
	t.Helper()
	res, err := cs.CallTool(soon(t), params)
	if err != nil {
		t.Fatalf("call %s: %v", params.Name, err)
	}
	if res.IsError || len(res.Content) != 1 {
		t.Fatalf("call %s: isError %v, %d contents", params.Name, res.IsError, len(res.Content))
	}
	return res.Content[0].(*mcp.TextContent).Text
}

// soon returns a context with a timeout for fast operations.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// receive returns the next value of c, which must arrive in time.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("timed out")
		panic("unreachable")
	}
}

// eventually waits until condition holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("timed out")
		}
	}
}
