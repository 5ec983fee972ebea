package gosdktask_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// research is a tool that takes long. It does not mention tasks.
func research(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	select {
	case <-time.After(50 * time.Millisecond):
		return text("42"), nil, nil
	case <-ctx.Done(): // the task was cancelled or has expired, or the server is stopping
		return nil, nil, ctx.Err()
	}
}

// A server over HTTP, and a client that makes a task, polls it and fetches the result.
func Example() {
	server := mcp.NewServer(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "research"}, research)
	tasks, err := gosdktask.Add(server, gosdktask.Options{
		Tools: map[string]gosdktask.Tool{"research": {Mode: gosdktask.Optional, Rerun: true, TTL: time.Hour}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // in a program: signal.NotifyContext
	var running sync.WaitGroup
	running.Go(func() { fmt.Println("stopped:", tasks.Run(ctx)) })
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listening := httptest.NewServer(tasks.Handler(handler))

	made := post(listening.URL, "tools/call", `{"name":"research","arguments":{},"task":{}}`)
	fmt.Println("new:", made.Task.Status)
	id := `{"taskId":"` + made.Task.TaskID + `"}`
	for post(listening.URL, "tasks/get", id).Status != "completed" {
		time.Sleep(10 * time.Millisecond) // a real client waits for the pollInterval of the task
	}
	fmt.Println("result:", post(listening.URL, "tasks/result", id).Content[0].Text)

	listening.Close()
	stop()
	running.Wait()
	// Output:
	// new: working
	// result: 42
	// stopped: <nil>
}

// A tool reports its status, keeps a variable, and asks the client.
func ExampleFrom() {
	greet := func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		run, ok := gosdktask.From(ctx)
		if !ok {
			return text("Hello, whoever you are!"), nil, nil // the client does not support tasks
		}
		if err := run.Status(ctx, "thinking"); err != nil {
			return nil, nil, err
		}
		if err := run.Set(ctx, "server.step", 1); err != nil { // the client sees it, and a second run finds it
			return nil, nil, err
		}
		var step int
		_, err := run.Get(ctx, "server.step", &step)
		return text(fmt.Sprint("step ", step)), nil, err
	}
	serve("greet", greet, func(ask func(method, params string) answerOf) {
		fmt.Println(ask("tools/call", `{"name":"greet","arguments":{}}`).Content[0].Text)
		id := `{"taskId":"` + ask("tools/call", `{"name":"greet","arguments":{},"task":{}}`).Task.TaskID + `"}`
		fmt.Println(ask("tasks/result", id).Content[0].Text)
	})
	// Output:
	// Hello, whoever you are!
	// step 1
}

// A tool that asks its client gets an error from one that cannot be asked.
func ExampleAsk() {
	order := func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		answers, err := gosdktask.Ask(ctx, mcp.InputRequestMap{"size": &mcp.ElicitParams{
			Message:         "Which size?",
			RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"size": map[string]any{"type": "integer"}}},
		}})
		if err != nil {
			return text("The default size, because " + strings.TrimPrefix(err.Error(), "mcptask: ")), nil, nil
		}
		return text(fmt.Sprint(answers["size"].(*mcp.ElicitResult).Content["size"])), nil, nil
	}
	serve("order", order, func(ask func(method, params string) answerOf) {
		fmt.Println(ask("tools/call", `{"name":"order","arguments":{}}`).Content[0].Text)
	})
	// Output:
	// The default size, because the client cannot be asked
}

// A tool finds out why it must end.
func ExampleTasks_Run() {
	causes := make(chan error, 1)
	wait := func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, nil, ctx.Err()
	}
	serve("wait", wait, func(ask func(method, params string) answerOf) {
		id := `{"taskId":"` + ask("tools/call", `{"name":"wait","arguments":{},"task":{}}`).Task.TaskID + `"}`
		fmt.Println(ask("tasks/cancel", id).Status)
		fmt.Println(errors.Is(<-causes, mcptask.ErrCancelled))
	})
	// Output:
	// cancelled
	// true
}

// Over a pipe, wrap the transport.
func ExampleTasks_Transport() {
	server := mcp.NewServer(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "research"}, research)
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: map[string]gosdktask.Tool{"research": {}}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = tasks.Run(ctx) })
	here, there := mcp.NewInMemoryTransports() // in a program: &mcp.StdioTransport{}
	running.Go(func() { _ = server.Run(ctx, tasks.Transport(there)) })

	client, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(ctx, here, nil)
	if err != nil {
		log.Fatal(err)
	}
	result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "research"}) // without support of tasks
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Content[0].(*mcp.TextContent).Text)
	stop()
	running.Wait()
	// Output: 42
}

// serve runs a server with one tool while a client talks to it.
func serve(name string, tool mcp.ToolHandlerFor[struct{}, any], client func(ask func(method, params string) answerOf)) {
	server := mcp.NewServer(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: name}, tool)
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: map[string]gosdktask.Tool{name: {}}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = tasks.Run(ctx) })
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listening := httptest.NewServer(tasks.Handler(handler))
	client(func(method, params string) answerOf { return post(listening.URL, method, params) })
	listening.Close()
	stop()
	running.Wait()
}

// An answerOf has the members of results that the examples read.
type answerOf struct {
	Task    struct{ TaskID, Status string }
	Status  string
	Content []struct{ Text string }
}

// post sends a request of 2025-11-25 and returns the result.
func post(url, method, params string) answerOf {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url,
		strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		log.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	event, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		log.Fatal(err)
	}
	_, data, _ := bytes.Cut(event, []byte("data: "))
	var got struct{ Result answerOf }
	if err := json.Unmarshal(data, &got); err != nil {
		log.Fatal(err)
	}
	return got.Result
}
