// Command restart is a server whose tasks survive a crash, because they are stored in a file.
// Start it with an address and the name of the file, stop or kill it while a task runs, and start
// it again.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

type in struct {
	To int `json:"to"`
}

// count may be called again after a crash. It continues where it stopped.
func count(ctx context.Context, _ *mcp.CallToolRequest, args in) (*mcp.CallToolResult, any, error) {
	run, ok := gosdktask.From(ctx)
	if !ok {
		return nil, nil, fmt.Errorf("counting to %d takes too long to wait for", args.To)
	}
	var done int
	if _, err := run.Get(ctx, "server.counted", &done); err != nil {
		return nil, nil, err
	}
	begun := done
	for ; done < args.To; done++ {
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if err := run.Set(ctx, "server.counted", done+1); err != nil {
			return nil, nil, err
		}
	}
	text := fmt.Sprintf("counted from %d to %d", begun, done)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

// pay must not be called twice for one task.
func pay(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	<-ctx.Done() // simulates a slow bank
	return nil, nil, ctx.Err()
}

func main() {
	store, err := sqlitestore.Open(context.Background(), sqlitestore.Options{File: os.Args[2]})
	if err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "restart", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, count)
	mcp.AddTool(server, &mcp.Tool{Name: "pay"}, pay)
	tasks, err := gosdktask.Add(server, gosdktask.Options{
		Tools: map[string]gosdktask.Tool{"count": {Mode: gosdktask.Required, Rerun: true}, "pay": {Mode: gosdktask.Required}},
		Store: store, Grace: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listen := http.Server{Addr: os.Args[1], Handler: tasks.Handler(handler), ReadHeaderTimeout: time.Minute}
	go func() { log.Fatal(listen.ListenAndServe()) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := errors.Join(tasks.Run(ctx), store.Close()); err != nil { // Run returns when running tools have ended
		log.Print(err)
	}
}
