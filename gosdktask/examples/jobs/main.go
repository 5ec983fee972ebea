// Command jobs is a server with slow tools, over HTTP. It passes the task tests of the official
// conformance suite.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

func main() {
	server := newServer()
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: map[string]gosdktask.Mode{
		"slow_compute": gosdktask.Optional, "failing_job": gosdktask.Required, "protocol_error_job": gosdktask.Optional,
		"confirm_delete": gosdktask.Optional, "multi_input": gosdktask.Optional, "test_tool_with_task": gosdktask.AskFirst,
	}})
	if err != nil {
		log.Fatal(err)
	}
	go tasks.Run(context.Background())
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listen := http.Server{Addr: os.Args[1], Handler: tasks.HTTP(handler), ReadHeaderTimeout: time.Minute}
	log.Fatal(listen.ListenAndServe())
}
