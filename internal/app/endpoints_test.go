package app_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
)

// serverVariable makes the test program an MCP server over standard input and output.
const serverVariable = "APP_TEST_STDIO_SERVER"

func TestMain(m *testing.M) {
	if name := os.Getenv(serverVariable); name != "" {
		_ = newServer(name, nil).Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	if address := os.Getenv(relayVariable); address != "" {
		relay(address)
		return
	}
	// The Redis client leaves a timer of one second behind when it is closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// newServer returns a server whose tools say its name and their own.
func newServer(name string, seen func(http.Header)) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{
		Instructions: "Use " + name + ".", SubscribeHandler: func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{name + " " + r.Params.Ref.Name + r.Params.Ref.URI}}}, nil
		},
	})
	for _, tool := range []string{"search", "delete", "hold", "only_" + name} {
		s.AddTool(&mcp.Tool{Name: tool, Title: "T " + name, InputSchema: map[string]any{"type": "object", "x-kept": 1.0}, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: tool == "search"}},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if extra := r.GetExtra(); extra != nil && seen != nil {
					seen(extra.Header)
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " " + tool + " " + string(r.Params.Arguments)}}}, nil
			})
	}
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		result, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "from " + name, RequestedSchema: map[string]any{"type": "object"}})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " heard " + result.Action}}}, nil, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "greeting of " + name}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "text of " + name}}}, nil
	}
	s.AddResource(&mcp.Resource{Name: "own", URI: name + "://own"}, read)
	s.AddResource(&mcp.Resource{Name: "same", URI: "both://same"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "any", URITemplate: name + "://items/{id}"}, read)
	return s
}

// A threeRig is a gate with an endpoint of three servers: files and crm over HTTP, and the program notes.
type threeRig struct {
	*testing.T
	gate *app.App
	mu   sync.Mutex
	seen map[string][]http.Header // by server

	servers map[string]*mcp.Server // over HTTP
}

func startThree(t *testing.T, version, more string) *threeRig {
	t.Helper()
	return startThreeWith(t, version, "", more)
}

// startThreeWith is startThree with settings of the endpoint.
func startThreeWith(t *testing.T, version, settings, more string) *threeRig {
	t.Helper()
	r := &threeRig{T: t, seen: map[string][]http.Header{}, servers: map[string]*mcp.Server{}}
	serve := func(name string) string {
		server := newServer(name, func(h http.Header) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[name] = append(r.seen[name], h)
		})
		r.servers[name] = server
		up := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: version == modernVersion}))
		t.Cleanup(func() {
			eventually(t, "the sessions with "+name+" have ended", func() bool {
				for range server.Sessions() {
					return false
				}
				return true
			})
			up.CloseClientConnections()
			up.Close()
		})
		return up.URL
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gate, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: "+adminToken+"}\nstore: 'memory:'\nupstreams:\n"+
		"- {name: files, url: "+serve("files")+", headers: {X-Key: of-files}}\n"+
		"- {name: crm, url: "+serve("crm")+", headers: {X-Key: of-crm}}\n"+
		"- {name: notes, command: ['"+program+"'], env: {"+serverVariable+": notes}}\n"+
		"endpoints: [{path: /mcp, "+settings+"servers: [{upstream: files}, {upstream: crm, rename: {only_crm: customers}, exclude: ['sea*']}, {upstream: notes, prefix: n}]}]\n"+more)
	r.gate = gate
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// connect returns a session of the official client, which must be closed before the gate stops.
func (r *threeRig) connect(version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	r.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	cs, err := client.Connect(r.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + r.gate.AgentAddr() + "/mcp", HTTPClient: &http.Client{Transport: headerAdder{transport}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(transport.CloseIdleConnections)
	return cs
}

// A headerAdder sends secrets that are not for the servers.
type headerAdder struct{ http.RoundTripper }

func (h headerAdder) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer of-the-client")
	r.Header.Set("X-Api-Key", "of-the-client")
	r.Header.Set("Cookie", "a=of-the-client")
	r.Header.Set("X-Other", "of-the-client")
	r.Header.Set("X-Forwarded-Access-Token", "of-the-client") // of a proxy that signs users in
	r.Header.Set("Content-Secret", "of-the-client")
	r.Header.Set("Trace-Token", "of-the-client")
	return h.RoundTripper.RoundTrip(r)
}

func textOf(t *testing.T, result *mcp.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	return result.Content[0].(*mcp.TextContent).Text
}

const modernVersion = "2026-07-28"

var bothEras = []string{"2025-11-25", modernVersion}

// Clients use three servers as one, in both eras.
func TestEndpointOfThreeServers(t *testing.T) {
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			r := startThree(t, version, "rules: [{match: delete, upstream: crm, action: deny, reason: not in the crm}, {match: '*', action: forward}]\ndefault: deny\n")
			cs := r.connect(version, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept"}, nil
			}})
			if got := cs.InitializeResult().Instructions; !strings.Contains(got, "# files\nUse files.") || !strings.Contains(got, "beginning with crm__)\nUse crm.") || !strings.Contains(got, "Use notes.") {
				t.Errorf("instructions: %s", got)
			}
			tools, err := cs.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range tools.Tools {
				names = append(names, tool.Name)
				if schema := fmt.Sprint(tool.InputSchema); tool.Title != "" && !strings.Contains(schema, "x-kept:1") {
					t.Errorf("%s: the schema is %s", tool.Name, schema)
				}
			}
			slices.Sort(names)
			want := []string{"ask", "crm__ask", "crm__hold", "customers", "delete", "hold", "n__ask", "n__delete", "n__hold", "n__only_notes", "n__search", "only_files", "search"}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("tools (-want +got):\n%s\nmeta %v", diff, tools.Meta)
			}
			for name, want := range map[string]string{
				"search": `files search {"a":1.50}`, "n__search": `notes search {"a":1.50}`, "customers": `crm only_crm {"a":1.50}`,
				"crm__delete": "not in the crm", "crm__search": "Unknown tool", "crm__only_crm": "Unknown tool", "other__x": "unknown tool",
				"ask": "files heard accept", "crm__ask": "crm heard accept", "n__ask": "notes heard accept",
			} {
				var arguments any = jsonText(`{"a":1.50}`)
				if strings.HasSuffix(name, "ask") {
					arguments = nil
				}
				if version == modernVersion && strings.HasSuffix(name, "ask") {
					continue // the SDK's server asks in results there
				}
				result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
				if got := textOf(t, result, err); !strings.Contains(got, want) {
					t.Errorf("%s: %s; want %s", name, got, want)
				}
			}
			wantOthers(t, cs)
			if err := cs.Close(); err != nil {
				t.Error(err)
			}
			r.wantOwnHeaders()
		})
	}
}

type jsonText string

func (j jsonText) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// wantOthers uses what is not a tool.
func wantOthers(t *testing.T, cs *mcp.ClientSession) {
	t.Helper()
	prompts, err := cs.ListPrompts(t.Context(), nil)
	if err != nil || len(prompts.Prompts) != 3 || prompts.Prompts[1].Name != "crm__greet" {
		t.Errorf("prompts: %v, %v", prompts, err)
	}
	prompt, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "n__greet"})
	if err != nil || prompt.Description != "greeting of notes" {
		t.Errorf("prompt: %v, %v", prompt, err)
	}
	for uri, want := range map[string]string{"crm://own": "text of crm", "notes://items/7": "text of notes", "files://own": "text of files", "both://same": "text of files", "none://x": "no available server"} {
		var got string
		if result, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err != nil {
			got = err.Error()
		} else {
			got = result.Contents[0].Text
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %s", uri, got, want)
		}
	}
	resources, err := cs.ListResources(t.Context(), nil)
	if err != nil || len(resources.Resources) != 4 || !strings.Contains(fmt.Sprint(resources.Meta), "both://same") {
		t.Errorf("resources: %+v, %v", resources, err)
	}
	for ref, want := range map[*mcp.CompleteReference]string{{Type: "ref/prompt", Name: "crm__greet"}: "crm greet", {Type: "ref/resource", URI: "notes://items/{id}"}: "notes notes://items/{id}"} {
		result, err := cs.Complete(t.Context(), &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "a", Value: "b"}})
		if err != nil || result.Completion.Values[0] != want {
			t.Errorf("completion: %v, %v; want %s", result, err, want)
		}
	}
}

// wantOwnHeaders checks that each server got only its own headers.
func (r *threeRig) wantOwnHeaders() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, all := range r.seen {
		for _, h := range all {
			if h.Get("X-Key") != "of-"+name {
				r.Errorf("%s got the key %s", name, h.Get("X-Key"))
			}
			for key, values := range h {
				if strings.Contains(strings.Join(values, " "), "of-the-client") {
					r.Errorf("%s got %s: %s", name, key, values)
				}
			}
		}
	}
	if len(r.seen) != 2 {
		r.Errorf("calls reached %d servers", len(r.seen))
	}
}

// A call is held under the names of its server, and runs there.
func TestEndpointHoldsCalls(t *testing.T) {
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			r := startThree(t, version, "rules: [{match: hold, action: approve}, {match: '*', action: forward}]\ndefault: deny\n")
			cs := r.connect(version, nil)
			defer cs.Close()
			answer := make(chan string, 1)
			go func() {
				result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "n__hold", Arguments: jsonText(`{"b":2}`)})
				answer <- textOf(t, result, err)
			}()
			id := awaitPending(t, r.gate)
			_, shown, _ := request(t, http.DefaultClient, "GET", "http://"+r.gate.OperatorAddr()+"/api/approvals/"+id, "", "Authorization", "Bearer "+adminToken)
			if !strings.Contains(shown, `"tool":"hold"`) || !strings.Contains(shown, `"upstream":"notes"`) {
				t.Errorf("the approver sees %s", shown)
			}
			approveCall(t, r.gate, id)
			select {
			case got := <-answer:
				if got != `notes hold {"b":2}` {
					t.Errorf("got %s", got)
				}
			case <-time.After(time.Minute):
				t.Fatal("no answer")
			}
		})
	}
}

// What an endpoint of several servers answers itself has the form that 2026-07-28 requires.
func TestEndpointAnswersAsModernServer(t *testing.T) {
	r := startThree(t, modernVersion, "rules: [{match: '*', action: forward}]\ndefault: deny\n")
	ask := func(version, method, params string) (int, string) {
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientCapabilities":{}}}}`
		status, answer, _ := request(t, http.DefaultClient, "POST", "http://"+r.gate.AgentAddr()+"/mcp", body,
			"Mcp-Protocol-Version", version, "Mcp-Method", method, "Mcp-Name", "none://x", "Accept", "application/json, text/event-stream")
		return status, answer
	}
	for _, tt := range []struct {
		version, method, params string
		status                  int
		want                    string
	}{
		{modernVersion, "server/discover", "", 200, `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"thoughtgate",`},
		{modernVersion, "prompts/list", "", 200, `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"thoughtgate",`},
		{"2099-01-01", "server/discover", "", 400, `"code":-32022,"message":"unsupported protocol version","data":{"error_type":"unsupported_protocol_version"`},
		{"2099-01-01", "tools/list", "", 400, `"supported":["2026-07-28"],"requested":"2099-01-01"`},
		{modernVersion, "resources/read", `"uri":"none://x",`, 200, `"uri":"none://x"`},
		{modernVersion, "resources/subscribe", `"uri":"none://x",`, 404, `"code":-32601`},
		{modernVersion, "resources/unsubscribe", `"uri":"none://x",`, 404, `"code":-32601`},
	} {
		status, answer := ask(tt.version, tt.method, tt.params)
		if status != tt.status || !strings.Contains(answer, tt.want) {
			t.Errorf("%s in %s: %d %s; want %d and %s", tt.method, tt.version, status, answer, tt.status, tt.want)
		}
	}
}
