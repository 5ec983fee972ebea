// Command variables is a server whose tool makes a plan, lets its client choose, and then
// continues. The plan and the choice are variables of the task. Client and server can read them
// at any time, and they survive a lost connection.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

// research writes variables whose names begin with "server.". The client writes those that
// begin with "client.", in the _meta of its call or of tasks/update.
func research(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	run, ok := gosdktask.From(ctx)
	if !ok {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "There is nobody to choose."}}}, nil, nil
	}
	plan := []string{"papers", "patents"}
	if err := run.Set(ctx, "server.plan", plan); err != nil {
		return nil, nil, err
	}
	if err := run.Status(ctx, "waiting for a choice: set client.choice"); err != nil {
		return nil, nil, err
	}
	var choice string
	if err := run.Wait(ctx, "client.choice", &choice); err != nil {
		return nil, nil, err
	}
	text := "read all " + choice
	if !slices.Contains(plan, choice) {
		text = "no such choice: " + choice
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "variables", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "research"}, research)
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: map[string]gosdktask.Tool{"research": {Mode: gosdktask.Optional}}})
	if err != nil {
		log.Fatal(err)
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listen := http.Server{Addr: os.Args[1], Handler: tasks.Handler(handler), ReadHeaderTimeout: time.Minute}
	go func() { log.Fatal(listen.ListenAndServe()) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := tasks.Run(ctx); err != nil { // returns when running tools have ended
		log.Print(err)
	}
}
