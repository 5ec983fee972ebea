package mcptask_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// answer is an MCP server with one slow tool, which it runs as a task.
func answer(ctx context.Context, s *mcptask.Server, r mcptask.Request) (json.RawMessage, error) {
	if r.Method != "tools/call" {
		return s.Handle(ctx, r)
	}
	t, err := s.Launch(ctx, task.Draft{
		ID: "task-1", Owner: r.Owner, TTL: time.Hour, // leave the ID out to get one that cannot be guessed
		Call: task.Call{Method: r.Method, Name: "greet", Message: string(r.Params)},
	}, greet)
	if err != nil {
		return nil, err
	}
	return r.Dialect.CreateResult(t)
}

// greet outlives its request: the context ends with the task.
func greet(context.Context) ([]byte, error) {
	return []byte(`{"content":[{"type":"text","text":"Hello!"}]}`), nil
}

// Serve MCP tasks from your own server. It may use any transport, but must know the owner and
// the era of each request.
func Example() {
	clock := func() time.Time { return time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC) }
	store := memstore.New(memstore.Options{})
	defer store.Close()
	s := &mcptask.Server{Store: store, Now: clock}
	ctx, stop := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { _ = s.Housekeep(ctx) }) // until the program ends
	defer keeping.Wait()
	defer stop()

	for id, m := range []struct{ method, params string }{
		{"tools/call", `{"name":"greet","task":{"ttl":60000}}`},
		{"tasks/result", `{"taskId":"task-1"}`},
		{"tasks/get", `{"taskId":"task-2"}`},
	} {
		r := mcptask.Request{Owner: "alice", Method: m.method, Params: json.RawMessage(m.params)}
		result, err := answer(ctx, s, r)
		if err != nil {
			fmt.Printf("%s\n", jsonrpc.AppendErrorResponse(nil, fmt.Append(nil, id), r.Dialect.Error(err)))
			continue
		}
		fmt.Printf("%s\n", jsonrpc.AppendResult(nil, fmt.Append(nil, id), result))
	}
	// Output:
	// {"jsonrpc":"2.0","id":0,"result":{"task":{"taskId":"task-1","status":"working","statusMessage":"Running","createdAt":"2026-08-22T10:30:00Z","lastUpdatedAt":"2026-08-22T10:30:00Z","ttl":3600000,"pollInterval":500},"_meta":{"io.modelcontextprotocol/model-immediate-response":"The call is being worked on."}}}
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Hello!"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"task-1"}}}}
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Task not found","data":{"error_type":"task_not_found"}}}
}

// The same task in the two eras of the protocol.
func ExampleDialect() {
	now := time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC)
	t, err := task.New(task.Draft{
		ID: "tg_1", Owner: "alice", Workflow: "ops", TTL: time.Hour,
		Call: task.Call{Method: "tools/call", Name: "delete_file", Message: "{}"},
	}, now)
	if err != nil {
		panic(err)
	}
	for _, e := range []lifecycle.Event{
		lifecycle.Submit{By: "gate", Deadline: now.Add(10 * time.Minute)},
		lifecycle.Reject{By: "bob", Reason: "path not allowed"},
	} {
		if t, err = lifecycle.Apply(t, e, now); err != nil {
			panic(err)
		}
	}
	for _, d := range []mcptask.Dialect{{Era: mcptask.V2025}, {Era: mcptask.V2026}} {
		answer, err := d.Outcome(t)
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Status(t))
		text := answer.Result
		if answer.Error.Present() {
			text = answer.Error
		}
		_ = text.Compose(os.Stdout, nil)
		fmt.Println()
	}
	// Output:
	// failed
	// {"content":[{"type":"text","text":"Rejected by an approver: \"path not allowed\". The tool did not run."}],"isError":true}
	// completed
	// {"resultType":"complete","content":[{"type":"text","text":"Rejected by an approver: \"path not allowed\". The tool did not run."}],"isError":true}
}

// Servers declare tasks in several forms.
func ExampleDetectServer() {
	for _, capabilities := range []string{
		`{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`,
		`{"tasks":{"requests":{"tools":{}}}}`,
		`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`,
	} {
		s := schema.DetectServer([]byte(capabilities))
		fmt.Println(s.Call, s.List, s.Cancel, s.Extension)
	}
	// Output:
	// true true true false
	// true false false false
	// false false false true
}

// A tool asks its client, and ends until the client has answered. Meanwhile its task needs no
// process.
func ExampleSuspend() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	greet := func(ctx context.Context) ([]byte, error) {
		run, _ := mcptask.From(ctx)
		answers, state, err := run.Given(ctx)
		switch {
		case err != nil:
			return nil, err
		case state == "":
			question := json.RawMessage(`{"method":"elicitation/create","params":{"message":"Who are you?"}}`)
			return nil, mcptask.Suspend(schema.Object{{Name: "who", Value: question}}, "asked")
		default:
			return fmt.Appendf(nil, `{"content":[],"structuredContent":%s}`, answers[0].Value), nil
		}
	}
	s := &mcptask.Server{
		Store: store, Now: time.Now,
		Resume: func(context.Context, task.Task) mcptask.Work { return greet },
		// Ask sends the question to a client of 2025-11-25, while it waits for the result.
		Ask: func(context.Context, task.Task, []byte) ([]byte, error) {
			return []byte(`{"action":"accept","content":{"name":"Ann"}}`), nil
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { _ = s.Housekeep(ctx) })
	defer keeping.Wait()
	defer stop()

	t, err := s.Launch(ctx, task.Draft{Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: "greet", Message: "{}"}}, greet)
	if err != nil {
		fmt.Println(err)
		return
	}
	params := fmt.Appendf(nil, `{"taskId":%q}`, t.ID)
	result, err := s.Handle(ctx, mcptask.Request{Owner: "alice", Method: "tasks/result", Params: params})
	var read struct{ StructuredContent json.RawMessage }
	_ = json.Unmarshal(result, &read)
	fmt.Println(string(read.StructuredContent), err)
	// Output: {"action":"accept","content":{"name":"Ann"}} <nil>
}
