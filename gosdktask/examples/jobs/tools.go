package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type in struct {
	Name    string  `json:"name,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

// add adds a tool that runs after the client has answered its questions.
func add(s *mcp.Server, name string, run func(ctx context.Context, args in, answers string) (string, error), questions ...string) {
	open := mcp.InputRequestMap{}
	for _, q := range questions {
		open[q] = &mcp.ElicitParams{Message: q + "?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}
	}
	mcp.AddTool(s, &mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *mcp.CallToolRequest, args in) (*mcp.CallToolResult, any, error) {
		if len(r.Params.InputResponses) < len(open) {
			return &mcp.CallToolResult{InputRequests: open}, nil, nil
		}
		answers, err := json.Marshal(r.Params.InputResponses)
		if err != nil {
			return nil, nil, err
		}
		text, err := run(ctx, args, string(answers))
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, err
	})
}

func greet(_ context.Context, args in, _ string) (string, error) {
	return "Hello, " + args.Name + "!", nil
}
func answered(_ context.Context, _ in, answers string) (string, error) { return answers, nil }
func failing(context.Context, in, string) (string, error)              { return "", errors.New("it did not work") }

func protocolError(context.Context, in, string) (string, error) {
	return "", &jsonrpc.Error{Code: -32603, Message: "broken"}
}

func slow(ctx context.Context, args in, _ string) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(time.Duration(args.Seconds * float64(time.Second))):
		return "computed", nil
	}
}

// newServer returns a server with the tools that the suite calls. Its code does not mention
// tasks.
func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "jobs", Version: "1"}, nil)
	add(server, "greet", greet)
	add(server, "slow_compute", slow)
	add(server, "failing_job", failing)
	add(server, "protocol_error_job", protocolError)
	add(server, "confirm_delete", answered, "confirm")
	add(server, "multi_input", answered, "first", "second")
	add(server, "test_tool_with_task", answered, "user_name")
	return server
}
