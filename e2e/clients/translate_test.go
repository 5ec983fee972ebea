package clients_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// The TypeScript clients of each era use a server of the other: that of the Go SDK, and the official one of 2025-11-25.
// The gate holds one call of each.
func TestTranslatedClients(t *testing.T) {
	testenv.NeedNode(t)
	serve := func(t *testing.T, modern bool) string {
		t.Helper()
		library := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, nil)
		library.AddTool(&mcp.Tool{Name: "echo", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Echo: hello"}}}, nil
		})
		library.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				if modern && method == "initialize" {
					return nil, errors.New("this server has no sessions")
				}
				return next(ctx, method, r)
			}
		})
		server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return library }, &mcp.StreamableHTTPOptions{Stateless: modern}))
		t.Cleanup(server.Close)
		return server.URL
	}
	for _, test := range []struct {
		name, client string
		server       func(t *testing.T) string
	}{
		{"legacy client, modern Go server", "sdk.mjs", func(t *testing.T) string { return serve(t, true) }},
		{"modern client, legacy Go server", "modern.mjs", func(t *testing.T) string { return serve(t, false) }},
		{"modern client, legacy TypeScript server", "modern.mjs", func(t *testing.T) string { return everything(t).String() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &site{}
			s.url, s.operator, s.token = runGate(t, fmt.Sprintf("store: %q\nupstreams: [{name: demo, url: %q, translate: true}]\nrules: [{match: echo, action: approve}]\ndefault: forward\n",
				"sqlite:"+filepath.Join(t.TempDir(), "gate.db"), test.server(t)))
			a := start(t, test.client, s.url)
			var tools []struct{ Name string }
			a.tell("list", nil).await("returned", &tools)
			if len(tools) == 0 {
				t.Error("the client sees no tools")
			}
			call := a.tell("call", map[string]any{"name": "echo", "args": map[string]string{"message": "hello"}})
			s.approveAll(t)
			var got result
			call.await("returned", &got)
			if end := got.told(); end.isError || end.text != "Echo: hello" {
				t.Errorf("the client got %+v", end)
			}
		})
	}
}
