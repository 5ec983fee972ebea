// Command stdio is a server with a slow tool. Its client starts it and talks to it over a pipe.
package main

import (
	"context"
	"log"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

func slow(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(10 * time.Second):
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	}
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "stdio", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "slow"}, slow)
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: map[string]gosdktask.Tool{"slow": {Mode: gosdktask.Optional}}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = tasks.Run(ctx) })                     // it only fails with its store
	err = server.Run(ctx, tasks.Transport(&mcp.StdioTransport{})) // returns when the client has closed the pipe
	stop()
	running.Wait()
	log.Print(err)
}
