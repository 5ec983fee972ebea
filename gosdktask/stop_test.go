package gosdktask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// runs counts the calls of tools.
type runs struct {
	mu sync.Mutex
	of map[string]int
}

func (r *runs) next(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[name]++
	return r.of[name]
}

// sleep waits for the end of its context the first time, and returns at once the next time.
func (r *runs) sleep(ctx context.Context, name string) (*mcp.CallToolResult, error) {
	if r.next(name) > 1 {
		return text("done"), nil
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, mcptask.ErrStopping) {
		return text(fmt.Sprint("ended by ", cause)), nil
	}
	return nil, ctx.Err()
}

// rounds asks for a name, and greets.
func (r *runs) rounds(_ context.Context, c *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	r.next("rounds")
	if c.Params.RequestState == "" {
		return &mcp.CallToolResult{InputRequests: name, RequestState: "asked"}, nil
	}
	answer, ok := c.Params.InputResponses["name"].(*mcp.ElicitResult)
	if !ok {
		return nil, errors.New("no answer")
	}
	return text(fmt.Sprint("Hello, ", answer.Content["name"], "! You were ", c.Params.RequestState)), nil
}

// interruptible opens a server with tools that a stop of the server interrupts.
func (r *runs) interruptible(t *testing.T, store *memstore.Store) *pipe {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	object := map[string]any{"type": "object"}
	tools := map[string]gosdktask.Tool{"rounds": {Mode: gosdktask.Optional}}
	server.AddTool(&mcp.Tool{Name: "rounds", InputSchema: object}, r.rounds)
	for _, name := range []string{"raw", "rawOnce"} {
		tools[name] = gosdktask.Tool{Rerun: name == "raw"}
		server.AddTool(&mcp.Tool{Name: name, InputSchema: object}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return r.sleep(ctx, name)
		})
	}
	for _, name := range []string{"typed", "typedOnce"} {
		tools[name] = gosdktask.Tool{Rerun: name == "typed"}
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			result, err := r.sleep(ctx, name)
			return result, nil, err
		})
	}
	return open(t, server, gosdktask.Options{
		Tools: tools, Store: store, Grace: time.Millisecond, Lease: 500 * time.Millisecond,
	})
}

// call calls a tool as a client of 2026-07-28, and returns the id of its task.
func (p *pipe) task(tool string) string {
	p.t.Helper()
	made := p.call(`"`+tool+`"`, "tools/call", modernParams(`{"name":"`+tool+`","arguments":{}}`))
	if made.member("taskId") == "" {
		p.t.Fatalf("%s: %s %v", tool, made.Result, made.Error)
	}
	return made.member("taskId")
}

// until polls a task until it has the given status.
func (p *pipe) until(id, status string) answer {
	p.t.Helper()
	for {
		got := p.call(`"get"`, "tasks/get", modernParams(`{"taskId":"`+id+`"}`))
		switch now := got.member("status"); now {
		case status:
			return got
		case "", "completed", "failed", "cancelled":
			p.t.Fatalf("the task is %s; want %s: %s %v", now, status, got.Result, got.Error)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A stop of the server interrupts tools. The next process calls the tools of Rerun again; the
// tasks of the others fail. It makes no difference whether the SDK made a result of the tool's
// error.
func TestStopInterruptsTools(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	r := &runs{of: map[string]int{}}
	first := r.interruptible(t, store)
	ids := map[string]string{}
	for _, tool := range []string{"raw", "rawOnce", "typed", "typedOnce"} {
		ids[tool] = first.task(tool)
	}
	first.stop()
	next := r.interruptible(t, store)
	for tool, id := range ids {
		if strings.HasSuffix(tool, "Once") {
			got := next.until(id, "failed")
			if got.member("error", "message") != "Interrupted because the server was stopped. Outcome unknown: it may have run." {
				t.Errorf("%s: %s", tool, got.Result)
			}
			continue
		}
		if got := next.until(id, "completed"); !strings.Contains(string(got.Result), "done") || strings.Contains(string(got.Result), "isError") {
			t.Errorf("%s: %s", tool, got.Result)
		}
	}
	for tool, want := range map[string]int{"raw": 2, "rawOnce": 1, "typed": 2, "typedOnce": 1} {
		if r.of[tool] > want {
			t.Errorf("%s ran %d times; want at most %d", tool, r.of[tool], want)
		}
	}
}

// A task that waits for its client survives a restart of the server, although its tool must not
// be repeated.
func TestWaitingTaskSurvivesRestart(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	r := &runs{of: map[string]int{}}
	first := r.interruptible(t, store)
	id := first.task("rounds")
	asked := first.until(id, "input_required")
	first.stop()
	next := r.interruptible(t, store)
	var questions map[string]json.RawMessage
	if err := json.Unmarshal([]byte(asked.member("inputRequests")), &questions); err != nil || len(questions) != 1 {
		t.Fatalf("%s, %v", asked.Result, err)
	}
	for key := range questions {
		next.call(`"update"`, "tasks/update", modernParams(update(id, key)))
	}
	if got := next.until(id, "completed"); !strings.Contains(string(got.Result), "Hello, Ann! You were asked") {
		t.Errorf("tasks/get: %s", got.Result)
	}
	if r.of["rounds"] != 2 {
		t.Errorf("the tool was called %d times", r.of["rounds"])
	}
}

// A client that has not declared elicitation is not asked.
func TestClientWithoutElicitationIsNotAsked(t *testing.T) {
	for _, tool := range []string{"ask", "rounds"} {
		server := newServer()
		r := &runs{of: map[string]int{}}
		server.AddTool(&mcp.Tool{Name: "rounds", InputSchema: map[string]any{"type": "object"}}, r.rounds)
		p := open(t, server, gosdktask.Options{Tools: map[string]gosdktask.Tool{tool: {Mode: gosdktask.Optional}}})
		modern := strings.Replace(modernParams(`{"name":"`+tool+`","arguments":{}}`), `"elicitation":{},`, ``, 1)
		p.until(p.call("1", "tools/call", modern).member("taskId"), "failed")

		p.call("2", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
		fmt.Fprintln(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		id := p.call("3", "tools/call", `{"name":"`+tool+`","task":{}}`).member("task", "taskId")
		p.send("4", "tasks/result", `{"taskId":"`+id+`"}`)
		for m := p.next(); string(m.ID) != "4" || m.Method != ""; m = p.next() {
			if m.Method == "elicitation/create" {
				t.Errorf("%s: the client is asked", tool)
			}
		}
	}
}
