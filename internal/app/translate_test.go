package app_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
)

const legacyVersion = "2025-11-25"

// serverOf is a real server that speaks one era only.
type serverOf struct {
	*mcp.Server
	url       string
	refused   atomic.Int64 // requests of the other era, besides attempts to find out the era
	cancelled chan struct{}
	waiting   chan struct{}
	left      chan struct{} // closed when the client of a modern request of the tool wait has left
}

func newServerOf(t *testing.T, version string) *serverOf {
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
	s.url = up.URL
	return s
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
	s.AddTool(&mcp.Tool{Name: "add", InputSchema: object, OutputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "halfway"})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "three"}}, StructuredContent: map[string]any{"sum": 3}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "fail", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := &mcp.CallToolResult{}
		r.SetError(io.ErrUnexpectedEOF)
		return r, nil
	})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, ok := r.Params.InputResponses["name"].(*mcp.ElicitResult)
		if !ok {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{
				Mode: "form", Message: "Who are you?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}},
			}}, RequestState: "round 1"}, nil
		}
		text, _ := answer.Content["name"].(string)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello " + text}}}, nil
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
}

func connectAgent(t *testing.T, version, url string) *agentOf {
	t.Helper()
	a := &agentOf{progress: make(chan string, 10), updated: make(chan string, 10), changed: make(chan struct{}, 10)}
	client := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann, asked " + r.Params.Message}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { a.progress <- r.Params.Message },
		ResourceUpdatedHandler:      func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { a.updated <- r.Params.URI },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { a.changed <- struct{}{} },
	})
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

// Clients and servers of different eras work together.
func TestTranslate(t *testing.T) {
	for client, server := range map[string]string{legacyVersion: modernVersion, modernVersion: legacyVersion} {
		t.Run("client of "+client, func(t *testing.T) {
			s := newServerOf(t, server)
			gate, stop := start(t, strings.Replace(gatewayFor(s.url), "url: "+s.url, "url: "+s.url+", translate: true", 1)+"default: forward\n")
			a := connectAgent(t, client, "http://"+gate.AgentAddr()+"/mcp")
			testLists(t, a)
			testCalls(t, a)
			testQuestions(t, a)
			testNews(t, a, s)
			testCancel(t, a, s)
			if n := s.refused.Load(); n > 0 {
				t.Errorf("the server got %d requests of another era", n)
			}
			a.Close()
			http.DefaultClient.CloseIdleConnections()
			if err := stop(); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
}

func testLists(t *testing.T, a *agentOf) {
	t.Helper()
	about := a.InitializeResult()
	if about.ServerInfo.Name != "library" || about.Instructions != "ask the librarian" || about.Capabilities.Prompts == nil {
		t.Errorf("the server is %+v", about)
	}
	tools, err := a.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 4 {
		t.Fatalf("tools: %+v, %v", tools, err)
	}
	prompt, err := a.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet"})
	if err != nil || len(prompt.Messages) != 1 {
		t.Errorf("prompt: %+v, %v", prompt, err)
	}
	book, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "book://1"})
	if err != nil || book.Contents[0].Text != "once upon a time" {
		t.Errorf("resource: %+v, %v", book, err)
	}
	if _, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "book://2"}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("missing resource: %v", err)
	}
	templates, err := a.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("templates: %+v, %v", templates, err)
	}
	completed, err := a.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: mcp.CompleteParamsArgument{Name: "who", Value: "Ae"}})
	if err != nil || completed.Completion.Values[0] != "Aesop" {
		t.Errorf("completion: %+v, %v", completed, err)
	}
}

func testCalls(t *testing.T, a *agentOf) {
	t.Helper()
	params := &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 1, "b": 2}}
	params.SetProgressToken("p1")
	sum, err := a.CallTool(t.Context(), params)
	if err != nil || text(sum) != "three" || sum.StructuredContent == nil {
		t.Errorf("add: %+v, %v", sum, err)
	}
	if got := receive(t, a.progress); got != "halfway" {
		t.Errorf("progress %q", got)
	}
	failed, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "fail"})
	if err != nil || !failed.IsError {
		t.Errorf("fail: %+v, %v", failed, err)
	}
	if _, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "missing"}); err == nil {
		t.Error("a missing tool can be called")
	}
}

func testQuestions(t *testing.T, a *agentOf) {
	t.Helper()
	for range 2 {
		asked, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask"})
		if err != nil || text(asked) != "hello Ann, asked Who are you?" {
			t.Errorf("ask: %+v, %v", asked, err)
		}
	}
}

func testNews(t *testing.T, a *agentOf, s *serverOf) {
	t.Helper()
	if err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "book://1"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the resource is updated", func() bool {
		s.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "book://1"})
		select {
		case uri := <-a.updated:
			return uri == "book://1"
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	s.AddTool(&mcp.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
	receive(t, a.changed)
}

func testCancel(t *testing.T, a *agentOf, s *serverOf) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
		ended <- err
	}()
	receive(t, s.waiting)
	cancel()
	receive(t, s.cancelled)
	if err := receive(t, ended); err == nil {
		t.Error("a cancelled call has a result")
	}
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
			s := newServerOf(t, legacyVersion)
			for _, tool := range []string{"plain", "held"} {
				s.AddTool(&mcp.Tool{Name: tool, InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Session.ID()}}}, nil
				})
			}
			gate, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: "+adminToken+"}\nstore: 'memory:'\nupstreams: [{url: "+s.url+", translate: true}]\n"+
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
