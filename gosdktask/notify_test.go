package gosdktask_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

// A client of 2026-07-28 is told of the tasks that it names in a subscription, and of
// no others.
func TestSubscription(t *testing.T) {
	s := newSite(t, stateless)
	id := s.modern("tools/call", `{"name":"ask"}`).member("taskId")
	messages := s.stream(`{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":{`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}},`+
		`"notifications":{"taskIds":["`+id+`","another"]}}}`,
		http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
	first := <-messages
	if first.Method != "notifications/subscriptions/acknowledged" || !strings.Contains(string(first.Params), `"taskIds":["`+id+`"]`) {
		t.Errorf("the first message is %s %s", first.Method, first.Params)
	}
	asked := answer{}
	for m := range messages {
		if asked.Result = m.Params; asked.member("status") == "input_required" {
			break
		}
	}
	if asked.member("_meta", "io.modelcontextprotocol/subscriptionId") != "l1" {
		t.Errorf("the notification is %s", asked.Result)
	}
	var questions map[string]json.RawMessage
	if err := json.Unmarshal([]byte(asked.member("inputRequests")), &questions); err != nil {
		t.Fatal(err)
	}
	for key := range questions {
		s.modern("tasks/update", `{"taskId":"`+id+`","inputResponses":{"`+key+`":{"action":"accept","content":{"name":"Ann"}}}}`)
	}
	var last answer
	for m := range messages { // until the server ends the stream
		if m.Method == "notifications/tasks" {
			last.Result = m.Params
		}
	}
	if last.member("status") != "completed" || !strings.Contains(last.member("result"), "Hello, Ann!") {
		t.Errorf("the last notification is %s", last.Result)
	}
}

// A client of 2025-11-25 is told of its tasks on the stream of its session.
func TestSessionIsTold(t *testing.T) {
	s := newSite(t, nil)
	s.post("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	s.notify("notifications/initialized")
	messages := s.stream("", http.Header{"Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Session-Id": s.head["Mcp-Session-Id"]})
	id := s.post("tools/call", `{"name":"wait","task":{}}`).member("task", "taskId")
	s.post("tasks/cancel", `{"taskId":"`+id+`"}`)
	for m := range messages {
		got := answer{Result: m.Params}
		if m.Method != "notifications/tasks/status" || got.member("taskId") != id || got.member("_meta") != "" {
			t.Errorf("%s %s", m.Method, m.Params)
		}
		if got.member("status") == "cancelled" {
			return
		}
	}
	t.Error("the client was not told that the task was cancelled")
}

// A message is one that the server sends of its own.
type message struct {
	Method string
	Params json.RawMessage
}

// stream returns the messages of a stream until it ends: of the answer to a request or,
// without one, of the session.
func (s *site) stream(request string, header http.Header) <-chan message {
	s.t.Helper()
	method := http.MethodPost
	if request == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(request))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = header
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		s.t.Fatal(res.Status)
	}
	messages := make(chan message, 100)
	go func() {
		defer close(messages)
		defer res.Body.Close()
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var m message
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &m) == nil {
				messages <- m
			}
		}
	}()
	return messages
}

// The same over a pipe, where the client may also list its tasks.
func TestPipe(t *testing.T) {
	server := newServer()
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: modes(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = server.Run(ctx, tasks.Transport(&mcp.IOTransport{Reader: toServer, Writer: fromServer}))
	})
	running.Go(func() { tasks.Run(ctx) })
	t.Cleanup(func() { stop(); fromClient.Close(); fromServer.Close(); running.Wait() })

	lines, told := bufio.NewReader(toClient), false
	call := func(id int, method, params string) answer {
		t.Helper()
		fmt.Fprintf(fromClient, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if question := elicitation(line); question != "" {
				fmt.Fprintln(fromClient, question)
				continue
			}
			told = told || ended(line)
			var a answer
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			if a.Result != nil || a.Error != nil {
				return a
			}
		}
	}
	hello := call(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}`)
	if got := hello.member("capabilities", "tasks", "list"); got != "{}" {
		t.Errorf("capabilities: %s", hello.Result)
	}
	fmt.Fprintln(fromClient, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	id := call(2, "tools/call", `{"name":"ask","task":{}}`).member("task", "taskId")
	if got := call(3, "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(string(got.Result), "Hello, Ann!") {
		t.Errorf("tasks/result: %s %v", got.Result, got.Error)
	}
	if got := call(4, "tasks/list", `{}`); !strings.Contains(string(got.Result), id) {
		t.Errorf("tasks/list: %s %v", got.Result, got.Error)
	}
	for !told {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		told = ended(line)
	}
}

// ended reports whether a message tells that a task has completed.
func ended(message string) bool {
	return strings.Contains(message, `"notifications/tasks/status"`) && strings.Contains(message, `"status":"completed"`)
}
