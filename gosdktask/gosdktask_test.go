package gosdktask_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A site is a server with tasks over HTTP.
type site struct {
	t      *testing.T
	url    string
	server *mcp.Server
	tasks  *gosdktask.Tasks
	store  *memstore.Store
	ids    int
	head   http.Header // added to every request
}

// modes returns the modes of the tools of newServer.
func modes() map[string]gosdktask.Tool {
	return map[string]gosdktask.Tool{
		"optional": {Mode: gosdktask.Optional}, "required": {Mode: gosdktask.Required}, "wait": {Mode: gosdktask.Optional}, "panic": {Mode: gosdktask.Optional},
		"broken": {Mode: gosdktask.Optional}, "ask": {Mode: gosdktask.Optional}, "progress": {Mode: gosdktask.Optional}, "variables": {Mode: gosdktask.Optional},
	}
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

var name = mcp.InputRequestMap{"name": &mcp.ElicitParams{
	Message: "Who?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}},
}}

func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	for name, run := range map[string]mcp.ToolHandler{
		"forbidden": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("done"), nil },
		"optional":  func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("done"), nil },
		"required":  func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("done"), nil },
		"panic":     func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("oops") },
		"wait": func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"broken": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: 1234, Message: "the job broke", Data: json.RawMessage(`{"why":"rust"}`)}
		},
		"progress": func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{Progress: 3, Total: 10}); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"ask":       ask,
		"variables": variables,
	} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, run)
	}
	return server
}

// ask asks the client for a name.
func ask(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answers, err := gosdktask.Ask(ctx, name)
	if err != nil {
		return nil, err
	}
	answer, _ := answers["name"].(*mcp.ElicitResult)
	return text("Hello, " + fmt.Sprint(answer.Content["name"]) + "!"), nil
}

// variables offers a choice and waits for it.
func variables(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	run, _ := gosdktask.From(ctx)
	if err := run.Set(ctx, "server.choices", []string{"red", "blue"}); err != nil {
		return nil, err
	}
	var choice string
	err := run.Wait(ctx, "client.choice", &choice)
	return text(choice), err
}

func newSite(t *testing.T, options *mcp.StreamableHTTPOptions, change ...func(*gosdktask.Options)) *site {
	t.Helper()
	store := memstore.New(memstore.Options{})
	o := gosdktask.Options{Tools: modes(), Store: store, Grace: time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	server := newServer()
	tasks, err := gosdktask.Add(server, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, server: server, tasks: tasks, store: store}
	s.serve(options)
	return s
}

// serve serves until the test ends, and then ends running tasks.
func (s *site) serve(options *mcp.StreamableHTTPOptions) {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server }, options)
	listening := httptest.NewServer(authenticated(s.tasks.Handler(handler)))
	s.url = listening.URL
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.tasks.Run(ctx) })
	s.t.Cleanup(func() {
		listening.CloseClientConnections()
		listening.Close()
		stop()
		running.Wait()
		_ = s.store.Close()
	})
}

var stateless = &mcp.StreamableHTTPOptions{Stateless: true}

// An answer is an HTTP response to the client.
type answer struct {
	status int
	Result json.RawMessage `json:"result"`
	Error  *jsonrpc.Error  `json:"error"`
}

// member returns a member of the result. Names are the path to it.
func (a answer) member(path ...string) string {
	value := a.Result
	for _, name := range path {
		var o map[string]json.RawMessage
		if json.Unmarshal(value, &o) != nil {
			return ""
		}
		value = o[name]
	}
	return strings.Trim(string(value), `"`)
}

// post sends a request of 2025-11-25.
func (s *site) post(method, params string) answer {
	s.t.Helper()
	return s.send(method, params, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}})
}

// modern sends a request of 2026-07-28 as a client that supports tasks. The params have no
// _meta.
func (s *site) modern(method, params string, more ...string) answer {
	s.t.Helper()
	params = modernParams(params, more...)
	var names struct{ Name, TaskID string }
	_ = json.Unmarshal([]byte(params), &names)
	return s.send(method, params, http.Header{
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {names.Name + names.TaskID},
	})
}

// modernParams adds to params the _meta of a client of 2026-07-28 that supports tasks.
func modernParams(params string, more ...string) string {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}` + strings.Join(more, "") + `}`
	params = strings.TrimSuffix(params, "}")
	if params != "{" {
		meta = "," + meta
	}
	return params + meta + "}"
}

func (s *site) send(method, params string, header http.Header) answer {
	s.t.Helper()
	s.ids++
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, s.ids, method, params)
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = header
	maps.Copy(r.Header, s.head)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		s.head = http.Header{"Mcp-Session-Id": {id}}
	}
	return s.read(res)
}

// read parses an answer, which is a body or an event.
func (s *site) read(res *http.Response) answer {
	s.t.Helper()
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadString('\n')
		text := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if strings.HasPrefix(text, "{") && (strings.Contains(text, `"result"`) || strings.Contains(text, `"error"`)) {
			a := answer{status: res.StatusCode}
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				s.t.Fatalf("%v in %s", err, text)
			}
			return a
		}
		if question := elicitation(text); question != "" {
			s.deliver(question)
		}
		if errors.Is(err, io.EOF) {
			return answer{status: res.StatusCode}
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// until polls a task until it has the given status.
func (s *site) until(ask func(method, params string) answer, id, status string) answer {
	s.t.Helper()
	for {
		a := ask("tasks/get", `{"taskId":"`+id+`"}`)
		if a.Error != nil {
			s.t.Fatalf("tasks/get: %v", a.Error)
		}
		switch got := a.member("status"); got {
		case status:
			return a
		case "completed", "failed", "cancelled":
			s.t.Fatalf("the task is %s; want %s: %s", got, status, a.Result)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// current asks for a task as a client of 2026-07-28, for until.
func (s *site) current(method, params string) answer { return s.modern(method, params) }

// A client of 2025-11-25 sees that the server supports tasks, asks for one, and gets its
// result.
func TestTaskOnRequest2025(t *testing.T) {
	s := newSite(t, stateless)
	hello := s.post("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if got := hello.member("capabilities", "tasks"); got != `{"cancel":{},"requests":{"tools":{"call":{}}}}` {
		t.Errorf("capabilities.tasks = %s; a server with unidentified clients must not list tasks", got)
	}
	if got := s.post("tools/list", `{}`).member("tools"); !strings.Contains(got, `"execution":{"taskSupport":"required"}`) ||
		strings.Count(got, "taskSupport") != len(modes()) {
		t.Errorf("tools: %s", got)
	}
	made := s.post("tools/call", `{"name":"optional","task":{"ttl":60000}}`)
	id := made.member("task", "taskId")
	if made.member("task", "status") != "working" || made.member("task", "ttl") != "60000" || made.member("task", "pollInterval") != "500" {
		t.Fatalf("%s %v", made.Result, made.Error)
	}
	s.until(s.post, id, "completed")
	got := s.post("tasks/result", `{"taskId":"`+id+`"}`)
	if got.member("_meta", "io.modelcontextprotocol/related-task", "taskId") != id || !strings.Contains(string(got.Result), `"done"`) || got.member("resultType") != "" {
		t.Errorf("tasks/result: %s %v", got.Result, got.Error)
	}
	for name, want := range map[string]int64{"forbidden": -32601, "optional": 0} {
		if a := s.post("tools/call", `{"name":"`+name+`","task":{}}`); want == 0 && a.Error != nil || want != 0 && (a.Error == nil || a.Error.Code != want) {
			t.Errorf("%s as a task: %s %v", name, a.Result, a.Error)
		}
	}
	for name, want := range map[string]int64{"forbidden": 0, "optional": 0, "required": -32601} {
		a := s.post("tools/call", `{"name":"`+name+`"}`)
		if want == 0 && !strings.Contains(string(a.Result), `"done"`) || want != 0 && (a.Error == nil || a.Error.Code != want) {
			t.Errorf("%s without a task: %s %v", name, a.Result, a.Error)
		}
	}
	for params, want := range map[string]int64{`{"name":"optional","task":{"ttl":-1}}`: -32602, `{"name":"optional","task":{"ttl":"x"}}`: -32602} {
		if a := s.post("tools/call", params); a.Error == nil || a.Error.Code != want {
			t.Errorf("%s: %s %v", params, a.Result, a.Error)
		}
	}
	if a := s.post("tasks/list", `{}`); a.Error == nil || a.Error.Code != -32601 {
		t.Errorf("an unidentified client lists tasks: %s", a.Result)
	}
}

// A client of 2026-07-28 gets a task because it supports tasks, and gets the result with
// tasks/get.
func TestTaskForSupportingClient2026(t *testing.T) {
	s := newSite(t, stateless)
	if got := s.modern("server/discover", `{}`).member("capabilities"); !strings.Contains(got, `"io.modelcontextprotocol/tasks":{}`) || strings.Contains(got, `"tasks":{"`) {
		t.Errorf("capabilities: %s", got)
	}
	made := s.modern("tools/call", `{"name":"optional","arguments":{}}`)
	id := made.member("taskId")
	if made.member("resultType") != "task" || made.member("pollIntervalMs") != "500" || !strings.Contains(made.member("_meta"), "serverInfo") {
		t.Fatalf("%s %v", made.Result, made.Error)
	}
	got := s.until(s.current, id, "completed")
	if got.member("result", "resultType") != "complete" || !strings.Contains(got.member("result", "content"), "done") {
		t.Errorf("tasks/get: %s", got.Result)
	}
	if a := s.send("tasks/get", `{"taskId":"`+id+`"}`, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tasks/get"}, "Mcp-Name": {"other"}}); a.status != 400 || a.Error == nil || a.Error.Code != -32020 {
		t.Errorf("a header that names another task: %d %v", a.status, a.Error)
	}
	for _, method := range []string{"tasks/result", "tasks/list"} {
		if a := s.modern(method, `{"taskId":"`+id+`"}`); a.Error == nil || a.Error.Code != -32601 {
			t.Errorf("%s: %s %v", method, a.Result, a.Error)
		}
	}
}

// A tool's JSON-RPC error reaches the client unchanged. The text of a panic does not reach the
// client. Cancelling a task ends its tool.
func TestEndOfToolEndsTask(t *testing.T) {
	s := newSite(t, stateless)
	broken := s.modern("tools/call", `{"name":"broken"}`).member("taskId")
	if got := s.until(s.current, broken, "failed"); got.member("error") != `{"code":1234,"message":"the job broke","data":{"why":"rust"}}` {
		t.Errorf("a JSON-RPC error: %s", got.Result)
	}
	panics := s.modern("tools/call", `{"name":"panic"}`).member("taskId")
	if got := s.until(s.current, panics, "failed"); got.member("error", "code") != "-32603" || strings.Contains(string(got.Result), "oops") {
		t.Errorf("a panic: %s", got.Result)
	}
	waits := s.modern("tools/call", `{"name":"wait"}`).member("taskId")
	if a := s.modern("tasks/cancel", `{"taskId":"`+waits+`"}`); a.member("resultType") != "complete" {
		t.Errorf("tasks/cancel: %s %v", a.Result, a.Error)
	}
	s.until(s.current, waits, "cancelled")
	reports := s.modern("tools/call", `{"name":"progress"}`).member("taskId")
	for s.modern("tasks/get", `{"taskId":"`+reports+`"}`).member("statusMessage") != "3 of 10" {
		time.Sleep(5 * time.Millisecond)
	}
}

// Client and server exchange variables while a tool runs. A task is created together with the
// variables of its call, or not at all.
func TestClientAndToolExchangeVariables(t *testing.T) {
	s := newSite(t, stateless)
	id := s.modern("tools/call", `{"name":"variables"}`, `,"client.reason":"taste"`).member("taskId")
	for {
		got := s.modern("tasks/get", `{"taskId":"`+id+`"}`)
		if got.member("_meta", "client.reason") != "taste" {
			t.Fatalf("the variable of the call: %s", got.Result)
		}
		if got.member("_meta", "server.choices") == `["red","blue"]` {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.modern("tasks/update", `{"taskId":"`+id+`","inputResponses":{}}`, `,"client.choice":"blue"`)
	if got := s.until(s.current, id, "completed"); !strings.Contains(got.member("result", "content"), "blue") {
		t.Errorf("tasks/get: %s", got.Result)
	}
	if a := s.modern("tools/call", `{"name":"wait"}`, `,"server.choices":[]`); a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("a client's server.choices: %s %v", a.Result, a.Error)
	}
}

// A task asks a client of 2026-07-28, which answers with tasks/update.
func TestTaskAsksClient2026(t *testing.T) {
	s := newSite(t, stateless)
	id := s.modern("tools/call", `{"name":"ask"}`).member("taskId")
	asked := s.until(s.current, id, "input_required")
	var questions map[string]struct{ Method string }
	if err := json.Unmarshal([]byte(asked.member("inputRequests")), &questions); err != nil || len(questions) != 1 {
		t.Fatalf("%s, %v", asked.Result, err)
	}
	for key, q := range questions {
		if q.Method != "elicitation/create" {
			t.Errorf("the question is %s", asked.Result)
		}
		s.modern("tasks/update", update(id, key))
	}
	if got := s.until(s.current, id, "completed"); !strings.Contains(got.member("result", "content"), "Hello, Ann!") {
		t.Errorf("tasks/get: %s", got.Result)
	}
}

// A task asks a client of 2025-11-25 in its HTTP session, while the client waits for the
// result.
func TestTaskAsksWaitingClient2025(t *testing.T) {
	s := newSite(t, nil)
	s.post("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}`)
	s.notify("notifications/initialized")
	id := s.post("tools/call", `{"name":"ask","task":{}}`).member("task", "taskId")
	s.until(s.post, id, "input_required")
	got := s.post("tasks/result", `{"taskId":"`+id+`"}`)
	if !strings.Contains(string(got.Result), "Hello, Ann!") {
		t.Errorf("tasks/result: %s %v", got.Result, got.Error)
	}
}

// A tool that asks a client that cannot be asked fails without waiting.
func TestAskFailsWithoutClient(t *testing.T) {
	s := newSite(t, stateless)
	id := s.post("tools/call", `{"name":"ask","task":{}}`).member("task", "taskId")
	got := s.post("tasks/result", `{"taskId":"`+id+`"}`)
	if got.Error == nil && got.member("isError") != "true" {
		t.Errorf("tasks/result: %s %v", got.Result, got.Error)
	}
}

// elicitation returns the answer to a message that asks for a name in a task, and nothing for
// other messages.
func elicitation(message string) string {
	var r struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	if json.Unmarshal([]byte(message), &r) != nil || r.Method != "elicitation/create" || r.Params.Meta["io.modelcontextprotocol/related-task"] == nil {
		return ""
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"Ann"}}}`, r.ID)
}

// notify sends a notification.
func (s *site) notify(method string) { s.deliver(`{"jsonrpc":"2.0","method":"` + method + `"}`) }

// deliver sends a message that has no answer.
func (s *site) deliver(message string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(message))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = http.Header{"Mcp-Protocol-Version": {"2025-11-25"}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	maps.Copy(r.Header, s.head)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		s.t.Errorf("%s: %s", message, res.Status)
	}
}

// firstKey returns the key of a question of a task.
func firstKey(t *testing.T, asked answer) string {
	t.Helper()
	var questions map[string]json.RawMessage
	if err := json.Unmarshal([]byte(asked.member("inputRequests")), &questions); err != nil || len(questions) == 0 {
		t.Fatalf("%s, %v", asked.Result, err)
	}
	for key := range questions {
		return key
	}
	return ""
}

// The error of a call that must be a task says so.
func TestRequiredToolSaysWhy(t *testing.T) {
	s := newSite(t, stateless)
	if got := s.post("tools/call", `{"name":"required"}`).Error; got == nil || got.Code != jsonrpc.CodeMethodNotFound || got.Message != "Tool requires task augmentation" {
		t.Errorf("required: %+v", got)
	}
	if got := s.post("tools/call", `{"name":"forbidden","task":{}}`).Error; got == nil || got.Message != "Tool does not support task augmentation" {
		t.Errorf("forbidden: %+v", got)
	}
}
