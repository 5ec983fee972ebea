package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// codeOf returns the JSON-RPC code of an error from the peer.
func codeOf(t *testing.T, err error) int64 {
	t.Helper()
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		t.Fatalf("error %v has no code", err)
	}
	return wire.Code
}

// EC-MCP-001, F-004.4.
func TestTools(t *testing.T) {
	type sum struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	type total struct {
		Total int `json:"total"`
	}
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(&mcp.ServerOptions{PageSize: 2})
		mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds."}, func(_ context.Context, _ *mcp.CallToolRequest, in sum) (*mcp.CallToolResult, total, error) {
			if in.A == 13 {
				return nil, total{}, errors.New("unlucky")
			}
			return nil, total{in.A + in.B}, nil
		})
		for n := range 4 {
			addTool(server, fmt.Sprintf("tool-%d", n), func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, &jsonrpc.Error{Code: 4711, Message: "no", Data: json.RawMessage(`{"why":"because"}`)}
			})
		}
		cs := s.serve(t, server).connect(t, nil)

		var names []string
		for tool, err := range cs.Tools(soon(t), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, tool.Name)
		}
		if diff := cmp.Diff([]string{"add", "tool-0", "tool-1", "tool-2", "tool-3"}, names); diff != "" {
			t.Errorf("tools on three pages (-want +got):\n%s", diff)
		}

		res, err := cs.CallTool(soon(t), &mcp.CallToolParams{Name: "add", Arguments: sum{2, 3}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"total": 5.0}, res.StructuredContent); diff != "" {
			t.Errorf("structured content (-want +got):\n%s", diff)
		}
		res, err = cs.CallTool(soon(t), &mcp.CallToolParams{Name: "add", Arguments: sum{A: 13}})
		if err != nil || !res.IsError || res.Content[0].(*mcp.TextContent).Text != "unlucky" {
			t.Errorf("a failing tool returns %+v, %v", res, err)
		}

		_, err = cs.CallTool(soon(t), &mcp.CallToolParams{Name: "tool-0"})
		wire, _ := errors.AsType[*jsonrpc.Error](err)
		if wire == nil || wire.Code != 4711 || string(wire.Data) != `{"why":"because"}` {
			t.Errorf("an error with the server's own code arrived as %v", err)
		}
		_, err = cs.CallTool(soon(t), &mcp.CallToolParams{Name: "nothing"})
		if code := codeOf(t, err); code != jsonrpc.CodeInvalidParams {
			t.Errorf("unknown tool: code %d", code)
		}
	})
}

func TestResources(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			if strings.HasSuffix(r.Params.URI, "missing") {
				return nil, mcp.ResourceNotFoundError(r.Params.URI)
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
				{URI: r.Params.URI, MIMEType: "text/plain", Text: "text of " + r.Params.URI},
				{URI: r.Params.URI, Blob: []byte{0, 255, 10, 13}},
			}}, nil
		}
		server.AddResource(&mcp.Resource{Name: "readme", URI: "file:///readme.txt"}, read)
		server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "notes", URITemplate: "note:///{name}"}, read)
		cs := s.serve(t, server).connect(t, nil)

		list, err := cs.ListResources(soon(t), nil)
		if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != "file:///readme.txt" {
			t.Errorf("resources: %+v, %v", list, err)
		}
		templates, err := cs.ListResourceTemplates(soon(t), nil)
		if err != nil || len(templates.ResourceTemplates) != 1 || templates.ResourceTemplates[0].URITemplate != "note:///{name}" {
			t.Errorf("templates: %+v, %v", templates, err)
		}
		for _, uri := range []string{"file:///readme.txt", "note:///a%20b"} {
			res, err := cs.ReadResource(soon(t), &mcp.ReadResourceParams{URI: uri})
			if err != nil {
				t.Fatal(err)
			}
			want := []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: "text of " + uri}, {URI: uri, Blob: []byte{0, 255, 10, 13}}}
			if diff := cmp.Diff(want, res.Contents); diff != "" {
				t.Errorf("%s (-want +got):\n%s", uri, diff)
			}
		}
		_, err = cs.ReadResource(soon(t), &mcp.ReadResourceParams{URI: "note:///missing"})
		if code := codeOf(t, err); code != jsonrpc.CodeInvalidParams {
			t.Errorf("missing resource: code %d", code)
		}
	})
}

func TestPrompts(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		server.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "who", Required: true}}},
			func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
				return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "Greet " + r.Params.Arguments["who"]}}}}, nil
			})
		cs := s.serve(t, server).connect(t, nil)

		list, err := cs.ListPrompts(soon(t), nil)
		if err != nil || len(list.Prompts) != 1 || list.Prompts[0].Arguments[0].Name != "who" {
			t.Errorf("prompts: %+v, %v", list, err)
		}
		res, err := cs.GetPrompt(soon(t), &mcp.GetPromptParams{Name: "greet", Arguments: map[string]string{"who": "Zoë"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Messages[0].Content.(*mcp.TextContent).Text; got != "Greet Zoë" {
			t.Errorf("prompt says %q", got)
		}
		_, err = cs.GetPrompt(soon(t), &mcp.GetPromptParams{Name: "nothing"})
		if code := codeOf(t, err); code != jsonrpc.CodeInvalidParams {
			t.Errorf("unknown prompt: code %d", code)
		}
	})
}

func TestCompletion(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(&mcp.ServerOptions{
			CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
				return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{
					Values: []string{r.Params.Ref.Name + "/" + r.Params.Argument.Name + "/" + r.Params.Argument.Value}, Total: 100, HasMore: true,
				}}, nil
			},
		})
		cs := s.serve(t, server).connect(t, nil)

		res, err := cs.Complete(soon(t), &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "greet"},
			Argument: mcp.CompleteParamsArgument{Name: "who", Value: "Zo"},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := mcp.CompletionResultDetails{Values: []string{"greet/who/Zo"}, Total: 100, HasMore: true}
		if diff := cmp.Diff(want, res.Completion); diff != "" {
			t.Errorf("completion (-want +got):\n%s", diff)
		}
	})
}

func TestPing(t *testing.T) {
	each(t, legacyVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		addTool(server, "ping-back", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return textResult("pong"), r.Session.Ping(ctx, nil)
		})
		cs := s.serve(t, server).connect(t, nil)

		if err := cs.Ping(soon(t), nil); err != nil {
			t.Error(err)
		}
		if got := callText(t, cs, &mcp.CallToolParams{Name: "ping-back"}); got != "pong" {
			t.Error(got)
		}
		// Outside of calls, the server's ping is sent on the client's GET stream.
		for ss := range server.Sessions() {
			if err := ss.Ping(soon(t), nil); err != nil {
				t.Errorf("ping outside of a call: %v", err)
			}
		}
	})
}

// awkward are arguments that a decoder could change.
const awkward = `{"big":9007199254740993,"bigger":123456789012345678901234567890,"one":1.0,"tiny":1e-400,"minus":-0,` +
	`"name":"Zoë 夜 \ud83d\ude00 \u0000 \u2028 \/","😀":[[],{},null,true,""],"z":1,"a":2}`

// F-004: forwarded values are unchanged.
func TestArgumentsArriveIntact(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		got := make(chan string, 1)
		addTool(server, "take", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			got <- string(r.Params.Arguments)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
		cs := s.serve(t, server).connect(t, nil)

		echo := callText(t, cs, &mcp.CallToolParams{Name: "take", Arguments: json.RawMessage(awkward)})
		if diff := cmp.Diff(awkward, receive(t, got)); diff != "" {
			t.Errorf("server received (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(awkward, echo); diff != "" {
			t.Errorf("client received (-want +got):\n%s", diff)
		}
	})
}

// F-005.2, F-005.4: each answer reaches its request.
func TestConcurrentCalls(t *testing.T) {
	const calls = 64
	each(t, bothEras, func(t *testing.T, s setting) {
		server := newServer(nil)
		// The server answers only after all calls have arrived.
		arrived := make(chan struct{}, calls)
		answer := make(chan struct{})
		addTool(server, "echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			arrived <- struct{}{}
			<-answer
			return textResult(string(r.Params.Arguments)), nil
		})
		cs := s.serve(t, server).connect(t, nil)

		type outcome struct {
			want, got string
			err       error
		}
		outcomes := make(chan outcome, calls)
		for n := range calls {
			go func() {
				arguments := fmt.Sprintf(`{"n":%d}`, n)
				res, err := cs.CallTool(soon(t), &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(arguments)})
				o := outcome{want: arguments, err: err}
				if err == nil {
					o.got = res.Content[0].(*mcp.TextContent).Text
				}
				outcomes <- o
			}()
		}
		for range calls {
			receive(t, arrived)
		}
		close(answer)
		for range calls {
			if o := receive(t, outcomes); o.err != nil || o.got != o.want {
				t.Errorf("got %s, %v; want %s", o.got, o.err, o.want)
			}
		}
	})
}

// The legacy server answers with an event stream and the modern one with JSON, so both are
// covered.
func TestLargeMessages(t *testing.T) {
	const size = 10 << 20
	each(t, bothEras, func(t *testing.T, s setting) {
		text := strings.Repeat("0123456789abcde\n", size/16)
		server := newServer(nil)
		addTool(server, "big", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct{ Text string }
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			return textResult(in.Text + text), nil
		})
		cs := s.serveWith(t, server, mcp.StreamableHTTPOptions{JSONResponse: s.modern()}).connect(t, nil)

		head := strings.Repeat("x", 900<<10)
		got := callText(t, cs, &mcp.CallToolParams{Name: "big", Arguments: map[string]any{"text": head}})
		if got != head+text {
			t.Errorf("%d bytes returned; want %d", len(got), len(head)+len(text))
		}
	})
}

func TestNegotiation(t *testing.T) {
	// A client that requests the newest version gets the newest version of the server.
	want := map[string]string{"2025-11-25": "2025-11-25", modernVersion: modernVersion}
	each(t, bothEras, func(t *testing.T, s setting) {
		where := s.serve(t, newServer(&mcp.ServerOptions{Instructions: "Be kind."}))
		client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
		cs, err := client.Connect(soon(t), &mcp.StreamableClientTransport{Endpoint: where.url, HTTPClient: newHTTPClient(t)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer end(t, cs.Close)

		got := cs.InitializeResult()
		if got.ProtocolVersion != want[s.version] || got.Instructions != "Be kind." || got.ServerInfo.Name != "upstream" {
			t.Errorf("negotiated %+v", got)
		}
		if hasSession := cs.ID() != ""; hasSession == s.modern() {
			t.Errorf("session id %q", cs.ID())
		}
	})
}
