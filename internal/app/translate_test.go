package app_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
)

const legacyVersion = "2025-11-25"

// serverOf is a real server that speaks one era only.
type serverOf struct {
	*mcp.Server
	address   string       // settings of the upstream
	refused   atomic.Int64 // requests of the other era, besides attempts to find out the era
	cancelled chan struct{}
	waiting   chan struct{}
	left      chan struct{} // closed when the client of a modern request of the tool wait has left
}

func newServerOf(t *testing.T, version, transport string) *serverOf {
	t.Helper()
	s := &serverOf{cancelled: make(chan struct{}, 1), waiting: make(chan struct{}, 1), left: make(chan struct{})}
	s.Server = mcp.NewServer(&mcp.Implementation{Name: "library", Version: "3"}, &mcp.ServerOptions{
		Instructions: "ask the librarian",
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Argument.Value + "sop"}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	s.addFeatures()
	if transport == "stdio" {
		s.serveProgram(t, version)
	} else {
		s.serveHTTP(t, version)
	}
	return s
}

// serveProgram makes the upstream a program that relays its standard input and output.
func (s *serverOf) serveProgram(t *testing.T, version string) {
	t.Helper()
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if version == modernVersion && method == "initialize" || version != modernVersion && method == "server/discover" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server does not speak that"}
			}
			return next(ctx, method, r)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { _ = s.Run(context.WithoutCancel(t.Context()), &mcp.IOTransport{Reader: conn, Writer: conn}) })
		}
	})
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.address = "command: ['" + program + "'], env: {" + relayVariable + ": '" + l.Addr().String() + "'}"
}

// relayVariable makes the test program relay its standard input and output to an address.
const relayVariable = "APP_TEST_RELAY"

func relay(address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	go func() { io.Copy(conn, os.Stdin); conn.Close() }()
	io.Copy(os.Stdout, conn)
}

func (s *serverOf) serveHTTP(t *testing.T, version string) {
	t.Helper()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.Server }, &mcp.StreamableHTTPOptions{Stateless: version == modernVersion})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		isModern := strings.Contains(string(body), `"io.modelcontextprotocol/protocolVersion"`)
		if r.Method == http.MethodPost && isModern != (version == modernVersion) {
			if !strings.Contains(string(body), "server/discover") {
				s.refused.Add(1)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"this server does not speak that"}}`)
			return
		}
		if isModern && strings.Contains(string(body), `"name":"wait"`) {
			defer context.AfterFunc(r.Context(), func() { close(s.left) })()
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(up.Close)
	s.address = "url: " + up.URL
}

func (s *serverOf) addFeatures() {
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello"}}}}, nil
	})
	s.AddResource(&mcp.Resource{Name: "book", URI: "book://1"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "book://1", Text: "once upon a time"}}}, nil
	})
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "books", URITemplate: "book://{id}"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	})
	object := map[string]any{"type": "object"}
	s.AddTool(&mcp.Tool{Name: "list", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: []int{1}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "log", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, level := range []mcp.LoggingLevel{"debug", "warning"} {
			r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Data: level})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "guarded", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "guarded"}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "add", InputSchema: object, OutputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "halfway"})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "three"}}, StructuredContent: map[string]any{"sum": 3}, Meta: mcp.Meta{"example.com/seen": r.Params.Meta["example.com/sent"]}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "fail", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := &mcp.CallToolResult{}
		r.SetError(io.ErrUnexpectedEOF)
		return r, nil
	})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, ok := r.Params.InputResponses["name"].(*mcp.ElicitResult)
		if !ok {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
				"name": &mcp.ElicitParams{
					Mode: "form", Message: "Who are you?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}},
				},
				"poem":  &mcp.CreateMessageParams{MaxTokens: 5, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "a poem"}}}},
				"where": &mcp.ListRootsParams{},
			}, RequestState: "round 1"}, nil
		}
		name, _ := answer.Content["name"].(string)
		poem, where := "none", "nowhere"
		switch r := r.Params.InputResponses["poem"].(type) {
		case *mcp.CreateMessageResult:
			poem = r.Content.(*mcp.TextContent).Text
		case *mcp.CreateMessageWithToolsResult:
			poem = r.Content[0].(*mcp.TextContent).Text
		}
		if r, ok := r.Params.InputResponses["where"].(*mcp.ListRootsResult); ok {
			where = r.Roots[0].URI
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + "; " + poem + "; " + where}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "wait", InputSchema: object}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.waiting <- struct{}{}
		select {
		case <-ctx.Done():
		case <-s.left:
		}
		s.cancelled <- struct{}{}
		return nil, context.Canceled
	})
}

// agentOf is a real client that speaks one version.
type agentOf struct {
	*mcp.ClientSession
	progress chan string
	updated  chan string
	changed  chan struct{}
	logged   chan string
}

func connectAgent(t *testing.T, version, url string) *agentOf {
	t.Helper()
	a := &agentOf{progress: make(chan string, 10), updated: make(chan string, 10), changed: make(chan struct{}, 10), logged: make(chan string, 10)}
	client := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann, asked " + r.Params.Message}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "roses"}}, nil
		},
		LoggingMessageHandler:       func(_ context.Context, r *mcp.LoggingMessageRequest) { a.logged <- fmt.Sprint(r.Params.Data) },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { a.progress <- r.Params.Message },
		ResourceUpdatedHandler:      func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { a.updated <- r.Params.URI },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { a.changed <- struct{}{} },
	})
	client.AddRoots(&mcp.Root{URI: "file:///home"})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	a.ClientSession = session
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("the client speaks %s; want %s", got, version)
	}
	return a
}

// A crossing is a client of one era that uses a server of another through a gate.
type crossing struct {
	*agentOf
	server *serverOf
	gate   *app.App

	modern  bool // the client
	program bool // the server
}

func (x *crossing) url() string { return "http://" + x.gate.AgentAddr() + "/mcp" }

// A crossed feature says how a feature works for modern clients of legacy servers, and the reverse. The table in
// docs/clients.md is made of these. A text is empty if the feature does not exist between the two.
type crossed struct {
	feature string
	modern  string // "translated", "degraded: how", or "impossible: " and the type of the error
	legacy  string
	try     func(t *testing.T, x *crossing) (told string) // told is what the client is told
}

func (c crossed) how(modern bool) string {
	if modern {
		return c.modern
	}
	return c.legacy
}

var crossedFeatures = []crossed{
	{"tools, their errors, `_meta`", "translated", "translated", crossTools},
	{"structured content that is no object", "", "degraded: left out", crossStructure},
	{"prompts, resources, completion", "translated", "translated", crossPrompts},
	{"progress, cancelling", "translated", "translated", crossProgress},
	{"log messages, their level", "degraded: programs: none", "degraded: programs: none", crossLogs},
	{"elicitation, sampling, roots", "degraded: ten minutes, one replica; programs: fail while the client listens", "translated", crossQuestions},
	{"changed lists, subscriptions", "translated", "translated", crossNews},
	{"held calls, approvals", "translated", "translated", crossApproval},
	{"tasks of the server", "translated", "degraded: results without task: ten minutes, one replica", crossTasks},
	{"tools with tasks, client without", "degraded: waits", "degraded: waits", crossWithoutTasks},
	{"batches", "", "degraded: one request for each message", crossBatch},
}

// The documentation says what TestTranslate tries.
func TestDocsTranslation(t *testing.T) {
	table := "| feature | client of 2026-07-28, older server | older client, server of 2026-07-28 |\n|---|---|---|\n"
	for _, c := range crossedFeatures {
		table += "| " + strings.Join([]string{c.feature, c.modern, c.legacy}, " | ") + " |\n"
	}
	doctest.Generated(t, "../../docs/clients.md", "translation", table)
}

// Clients and servers of different eras work together.
func TestTranslate(t *testing.T) {
	for client, server := range map[string]string{legacyVersion: modernVersion, modernVersion: legacyVersion} {
		for _, transport := range []string{"http", "stdio"} {
			t.Run("client of "+client+"/"+transport, func(t *testing.T) {
				s := newServerOf(t, server, transport)
				gate, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: "+adminToken+"}\nstore: 'memory:'\nupstreams: [{"+s.address+", translate: true}]\n"+
					"rules: [{match: guarded, action: approve}, {match: '*', action: forward}]\ndefault: forward\n")
				x := &crossing{connectAgent(t, client, "http://"+gate.AgentAddr()+"/mcp"), s, gate, client == modernVersion, transport == "stdio"}
				for _, c := range crossedFeatures {
					if c.how(x.modern) != "" {
						t.Run(c.feature, func(t *testing.T) { c.check(t, x) })
					}
				}
				if n := s.refused.Load(); n > 0 {
					t.Errorf("the server got %d requests of another era", n)
				}
				x.Close()
				http.DefaultClient.CloseIdleConnections()
				if err := stop(); err != nil {
					t.Errorf("Run = %v", err)
				}
			})
		}
	}
}

func (c crossed) check(t *testing.T, x *crossing) {
	t.Helper()
	how, detail, _ := strings.Cut(c.how(x.modern), ": ")
	told := c.try(t, x)
	switch how {
	case "translated", "degraded":
		if told != "" || (how == "degraded") != (detail != "") {
			t.Errorf("the client is told %s; want %s %s", told, how, detail)
		}
	case "impossible":
		wants(t, c.feature, told, `"error_type":"`+strings.Trim(detail, "`")+`"`)
	default:
		t.Errorf("the table says %q", how)
	}
}

func crossTools(t *testing.T, x *crossing) string {
	t.Helper()
	about := x.InitializeResult()
	if about.ServerInfo.Name != "library" || about.Instructions != "ask the librarian" || about.Capabilities.Prompts == nil {
		t.Errorf("the server is %+v", about)
	}
	tools, err := x.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 7 {
		t.Fatalf("tools: %+v, %v", tools, err)
	}
	sum, err := x.CallTool(t.Context(), &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 1, "b": 2}, Meta: mcp.Meta{"example.com/sent": "yes"}})
	if err != nil || text(sum) != "three" || sum.StructuredContent == nil || sum.Meta["example.com/seen"] != "yes" {
		t.Errorf("add: %+v, %v", sum, err)
	}
	failed, err := x.CallTool(t.Context(), &mcp.CallToolParams{Name: "fail"})
	if err != nil || !failed.IsError {
		t.Errorf("fail: %+v, %v", failed, err)
	}
	if _, err := x.CallTool(t.Context(), &mcp.CallToolParams{Name: "missing"}); err == nil {
		t.Error("a missing tool can be called")
	}
	return ""
}

func crossStructure(t *testing.T, x *crossing) string {
	t.Helper()
	got, err := x.CallTool(t.Context(), &mcp.CallToolParams{Name: "list"})
	if err != nil || got.StructuredContent != nil {
		t.Errorf("list: %+v, %v", got, err)
	}
	return ""
}

func crossPrompts(t *testing.T, x *crossing) string {
	t.Helper()
	prompt, err := x.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet"})
	if err != nil || len(prompt.Messages) != 1 {
		t.Errorf("prompt: %+v, %v", prompt, err)
	}
	book, err := x.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "book://1"})
	if err != nil || book.Contents[0].Text != "once upon a time" {
		t.Errorf("resource: %+v, %v", book, err)
	}
	if _, err := x.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "book://2"}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("missing resource: %v", err)
	}
	templates, err := x.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("templates: %+v, %v", templates, err)
	}
	completed, err := x.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: mcp.CompleteParamsArgument{Name: "who", Value: "Ae"}})
	if err != nil || completed.Completion.Values[0] != "Aesop" {
		t.Errorf("completion: %+v, %v", completed, err)
	}
	return ""
}

func crossProgress(t *testing.T, x *crossing) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: "add"}
	params.SetProgressToken("p1")
	if _, err := x.CallTool(t.Context(), params); err != nil {
		t.Error(err)
	}
	if got := receive(t, x.progress); got != "halfway" {
		t.Errorf("progress %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := x.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
		ended <- err
	}()
	receive(t, x.server.waiting)
	cancel()
	receive(t, x.server.cancelled)
	if err := receive(t, ended); err == nil {
		t.Error("a cancelled call has a result")
	}
	return ""
}

func crossLogs(t *testing.T, x *crossing) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: "log"}
	if x.modern {
		params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "info"}
	} else if err := x.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Error(err)
	}
	if _, err := x.CallTool(t.Context(), params); err != nil {
		t.Error(err)
	}
	if x.program { // the gate cannot know whose they are
		if len(x.logged) > 0 {
			t.Errorf("logged %q", receive(t, x.logged))
		}
		return ""
	}
	if got := receive(t, x.logged); got != "warning" {
		t.Errorf("logged %q", got)
	}
	return ""
}

func crossQuestions(t *testing.T, x *crossing) string {
	t.Helper()
	if x.program && x.modern { // the program sends its questions on the stream of the session, without their call
		if asked, err := x.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask"}); err == nil || !strings.Contains(err.Error(), "method not found") {
			t.Errorf("ask: %+v, %v", asked, err)
		}
		return ""
	}
	for range 2 {
		asked, err := x.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask"})
		if err != nil || text(asked) != "Ann, asked Who are you?; roses; file:///home" {
			t.Errorf("ask: %+v, %v", asked, err)
		}
	}
	return ""
}

func crossNews(t *testing.T, x *crossing) string {
	t.Helper()
	if err := x.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "book://1"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the resource is updated", func() bool {
		x.server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "book://1"})
		select {
		case uri := <-x.updated:
			return uri == "book://1"
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	x.server.AddTool(&mcp.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
	receive(t, x.changed)
	return ""
}

func crossApproval(t *testing.T, x *crossing) string {
	t.Helper()
	ended := make(chan string, 1)
	go func() {
		got, err := x.CallTool(t.Context(), &mcp.CallToolParams{Name: "guarded"})
		ended <- fmt.Sprint(text(got), err)
	}()
	approveCall(t, x.gate, awaitPending(t, x.gate))
	if got := receive(t, ended); got != "guarded<nil>" {
		t.Errorf("the held call: %s", got)
	}
	return ""
}

func crossBatch(t *testing.T, x *crossing) string {
	t.Helper()
	post := func(session, body string) (string, http.Header) {
		_, answer, head := request(t, http.DefaultClient, http.MethodPost, x.url(), body, "Content-Type", "application/json",
			"Accept", "application/json, text/event-stream", "Mcp-Session-Id", session)
		return answer, head
	}
	_, begun := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`)
	answers, _ := post(begun.Get("Mcp-Session-Id"), `[{"jsonrpc":"2.0","id":9,"method":"tools/list"},{"jsonrpc":"2.0","id":10,"method":"prompts/list"}]`)
	wants(t, "a batch", answers, `"id":9`, `"tools"`, `"id":10`, `"prompts"`)
	return ""
}

func text(r *mcp.CallToolResult) string {
	if r == nil || len(r.Content) == 0 {
		return ""
	}
	content, _ := r.Content[0].(*mcp.TextContent)
	return content.Text
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

// The calls of a modern client run in one session of a legacy server, also those that were held.
func TestTranslatedCallsShareSession(t *testing.T) {
	for name, header := range map[string]string{"local": "X-None", "behind a proxy": "X-Forwarded-For"} {
		t.Run(name, func(t *testing.T) {
			s := newServerOf(t, legacyVersion, "http")
			for _, tool := range []string{"plain", "held"} {
				s.AddTool(&mcp.Tool{Name: tool, InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Session.ID()}}}, nil
				})
			}
			gate, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: "+adminToken+"}\nstore: 'memory:'\nupstreams: [{"+s.address+", translate: true}]\n"+
				"rules: [{match: held, action: approve}, {match: '*', action: forward}]\ndefault: forward\n")
			transport := http.DefaultTransport.(*http.Transport).Clone()
			defer transport.CloseIdleConnections()
			client := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: "http://" + gate.AgentAddr() + "/mcp", HTTPClient: &http.Client{Transport: oneHeader{transport, header}},
			}, &mcp.ClientSessionOptions{ProtocolVersion: modernVersion})
			if err != nil {
				t.Fatal(err)
			}
			where := make(map[string]string)
			for _, tool := range []string{"plain", "held"} {
				got := make(chan string, 1)
				go func() {
					result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
					got <- textOf(t, result, err)
				}()
				if tool == "held" {
					approveCall(t, gate, awaitPending(t, gate))
				}
				where[tool] = receive(t, got)
			}
			if where["plain"] == "" || where["plain"] != where["held"] {
				t.Errorf("the calls ran in the sessions %v", where)
			}
			session.Close()
			if got := sessionFrom(t, gate, "127.0.0.2", header); name != "local" && (got == "" || got == where["plain"]) {
				t.Errorf("a client of another network has the session %q, too", got)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// sessionFrom returns the session of the tool held for a client at an address.
func sessionFrom(t *testing.T, gate *app.App, address, header string) string {
	t.Helper()
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext}
	defer transport.CloseIdleConnections()
	client := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + gate.AgentAddr() + "/mcp", HTTPClient: &http.Client{Transport: oneHeader{transport, header}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: modernVersion})
	if err != nil {
		t.Skip("no second address on this machine: ", err)
	}
	defer session.Close()
	got := make(chan string, 1)
	go func() {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "held"})
		got <- textOf(t, result, err)
	}()
	approveCall(t, gate, awaitPending(t, gate))
	return receive(t, got)
}

// oneHeader adds a header to requests.
type oneHeader struct {
	http.RoundTripper
	name string
}

func (h oneHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, "192.0.2.1")
	return h.RoundTripper.RoundTrip(r)
}
