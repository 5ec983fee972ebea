package gosdktask

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A peer is the client that sent a request, for which a tool runs.
type peer struct {
	session      *mcp.ServerSession
	info         *mcp.Implementation
	capabilities *mcp.ClientCapabilities
	extra        *mcp.RequestExtra
}

type peerKey struct{}

func peerOf(r mcp.Request) peer {
	session, _ := r.GetSession().(*mcp.ServerSession)
	p := peer{session: session}
	if about, ok := r.(interface {
		ClientInfo() *mcp.Implementation
		ClientCapabilities() *mcp.ClientCapabilities
	}); ok {
		p.info, p.capabilities = about.ClientInfo(), about.ClientCapabilities()
	}
	if extra := r.GetExtra(); extra != nil {
		p.extra = &mcp.RequestExtra{TokenInfo: extra.TokenInfo, Header: extra.Header}
	}
	return p
}

// connect returns the session in which a task calls its tool. The session of the request may
// end before the task does. The new session has no client: progress that the tool reports
// becomes the status message of the task, and requests to the client are refused. Instead, the
// tool must return InputRequests or call [Ask].
func (t *Tasks) connect(ctx context.Context, p peer) (*mcp.ServerSession, error) {
	c := &taskConn{status: nil, in: make(chan sdk.Message, 1), done: make(chan struct{})}
	if run, ok := From(ctx); ok {
		c.status = run.Status
	}
	return t.server.Connect(ctx, c, &mcp.ServerSessionOptions{State: &mcp.ServerSessionState{
		InitializeParams: &mcp.InitializeParams{ProtocolVersion: version2026, ClientInfo: p.info, Capabilities: p.capabilities},
	}})
}

// A taskConn is the connection of such a session, and also its transport.
type taskConn struct {
	status func(ctx context.Context, text string) error
	in     chan sdk.Message
	done   chan struct{}
	close  sync.Once
}

// Connect implements [mcp.Transport].
func (c *taskConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements [mcp.Connection].
func (c *taskConn) SessionID() string { return "" }

// Close implements [mcp.Connection].
func (c *taskConn) Close() error {
	c.close.Do(func() { close(c.done) })
	return nil
}

// Read implements [mcp.Connection].
func (c *taskConn) Read(ctx context.Context) (sdk.Message, error) {
	select {
	case m := <-c.in:
		return m, nil
	case <-c.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements [mcp.Connection].
func (c *taskConn) Write(ctx context.Context, m sdk.Message) error {
	r, ok := m.(*sdk.Request)
	switch {
	case !ok:
		return nil
	case r.IsCall():
		return c.answer(ctx, r)
	case r.Method == mcpname.NotifyProgress && c.status != nil:
		return c.status(ctx, progressText(r.Params))
	default:
		return nil
	}
}

// answer answers pings, which keep a session alive, and refuses all other requests.
func (c *taskConn) answer(ctx context.Context, r *sdk.Request) error {
	response := &sdk.Response{ID: r.ID, Result: json.RawMessage("{}")}
	if r.Method != mcpname.Ping {
		response = &sdk.Response{ID: r.ID, Error: &sdk.Error{Code: sdk.CodeMethodNotFound, Message: "a task cannot ask its client this way"}}
	}
	select {
	case c.in <- response:
		return nil
	case <-c.done:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

// progressText returns a tool's progress as text.
func progressText(params json.RawMessage) string {
	var p mcp.ProgressNotificationParams
	if json.Unmarshal(params, &p) != nil {
		return ""
	}
	switch {
	case p.Message != "":
		return p.Message
	case p.Total > 0:
		return fmt.Sprintf("%v of %v", p.Progress, p.Total)
	default:
		return fmt.Sprint(p.Progress)
	}
}
