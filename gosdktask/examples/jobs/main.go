// Command jobs is a server with slow tools, over HTTP. It passes the task tests of the official
// conformance suite.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

func main() {
	server := newServer()
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: map[string]gosdktask.Tool{
		"slow_compute": {Mode: gosdktask.Optional}, "failing_job": {Mode: gosdktask.Required}, "protocol_error_job": {Mode: gosdktask.Optional},
		"confirm_delete": {Mode: gosdktask.Optional}, "multi_input": {Mode: gosdktask.Optional}, "test_tool_with_task": {Mode: gosdktask.AskFirst},
	}})
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
