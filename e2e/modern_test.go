//nolint:staticcheck // sampling and roots are deprecated, and still spoken
package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sealed is a request state that must be returned unchanged.
const sealed = "v1.夜 \"quoted\" \\ \u2028 =?base64?eA==?= \t{}"

// A tool that needs input returns the requests in its result, and the client calls again with
// the responses. In the legacy era, the server's SDK sends the requests to the client instead.
func TestInputRequired(t *testing.T) {
	each(t, []string{"2025-06-18", "2025-11-25", modernVersion}, func(t *testing.T, s setting) {
		server := newServer(nil)
		addTool(server, "deploy", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Params.InputResponses == nil {
				return &mcp.CallToolResult{RequestState: sealed, InputRequests: mcp.InputRequestMap{
					"branch": &mcp.ElicitParams{Message: "Which branch?", RequestedSchema: branchSchema},
					"idea":   &mcp.CreateMessageParams{MaxTokens: 5, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "Polly"}}}},
					"home":   &mcp.ListRootsParams{},
				}}, nil
			}
			if r.Params.RequestState != sealed {
				return nil, fmt.Errorf("the returned state is %q", r.Params.RequestState)
			}
			answers, err := json.Marshal(r.Params.InputResponses)
			return textResult(string(answers)), err
		})
		client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, answers())
		client.AddRoots(&mcp.Root{URI: "file:///home"})
		cs := s.serve(t, server).connectClient(t, client, newHTTPClient(t))

		got := callText(t, cs, &mcp.CallToolParams{Name: "deploy"})
		for _, want := range []string{`"branch":{"action":"accept","content":{"branch":"main — Which branch?"}}`, `Polly!`, `file:///home`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s", got, want)
			}
		}
	})
}

// A client may also make each round itself.
func TestInputRequiredDrivenByClient(t *testing.T) {
	each(t, []string{modernVersion}, func(t *testing.T, s setting) {
		server := newServer(nil)
		addTool(server, "deploy", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if answer, ok := r.Params.InputResponses["ok"].(*mcp.ElicitResult); ok {
				return textResult(answer.Action + " " + r.Params.RequestState), nil
			}
			return &mcp.CallToolResult{RequestState: sealed, InputRequests: mcp.InputRequestMap{
				"ok": &mcp.ElicitParams{Message: "Sure?", RequestedSchema: branchSchema},
			}}, nil
		})
		opts := answers()
		opts.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
		cs := s.serve(t, server).connect(t, opts)

		first, err := cs.CallTool(soon(t), &mcp.CallToolParams{Name: "deploy"})
		if err != nil {
			t.Fatal(err)
		}
		if !first.NeedsInput() || len(first.InputRequests) != 1 || first.RequestState != sealed {
			t.Fatalf("first round: %+v", first)
		}
		got := callText(t, cs, &mcp.CallToolParams{
			Name: "deploy", RequestState: first.RequestState,
			InputResponses: mcp.InputResponseMap{"ok": &mcp.ElicitResult{Action: "decline"}},
		})
		if diff := cmp.Diff("decline "+sealed, got); diff != "" {
			t.Errorf("second round (-want +got):\n%s", diff)
		}
	})
}

// A server that only needs another call sends a state and no requests.
func TestInputRequiredWithoutRequests(t *testing.T) {
	each(t, []string{modernVersion}, func(t *testing.T, s setting) {
		server := newServer(nil)
		addTool(server, "slow", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if len(r.Params.RequestState) == 2 {
				return textResult("after " + r.Params.RequestState), nil
			}
			return &mcp.CallToolResult{RequestState: r.Params.RequestState + "x", InputRequests: mcp.InputRequestMap{}}, nil
		})
		cs := s.serve(t, server).connect(t, nil)

		if got := callText(t, cs, &mcp.CallToolParams{Name: "slow"}); got != "after xx" {
			t.Error(got)
		}
	})
}

// The metadata and headers that describe a modern client reach the server with every request.
// F-004.2.
func TestRequestMetadata(t *testing.T) {
	each(t, []string{modernVersion}, func(t *testing.T, s setting) {
		server := newServer(nil)
		type seen struct {
			Meta   map[string]any
			Header map[string]string
		}
		got := make(chan seen, 1)
		names := []string{"Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "Mcp-Param-Unknown", "Mcp-Session-Id", "X-Custom", "Traceparent", "Authorization"}
		server.AddTool(&mcp.Tool{Name: "look", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				now := seen{Meta: r.Params.Meta, Header: map[string]string{}}
				for _, name := range names {
					now.Header[name] = strings.Join(r.Extra.Header.Values(name), "|")
				}
				got <- now
				return textResult(""), nil
			})
		where := s.serve(t, server)
		client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, answers())
		cs := where.connectClient(t, client, &http.Client{Transport: &headerAdder{newHTTPClient(t).Transport}})
		if _, err := cs.ListTools(soon(t), nil); err != nil { // the client learns x-mcp-header from the list
			t.Fatal(err)
		}

		callText(t, cs, &mcp.CallToolParams{
			Meta: mcp.Meta{"example.com/own": map[string]any{"n": 1.5}, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			Name: "look", Arguments: map[string]any{"region": "süd"},
		})

		want := seen{
			Meta: map[string]any{
				"example.com/own": map[string]any{"n": 1.5},
				"traceparent":     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				"io.modelcontextprotocol/protocolVersion":    modernVersion,
				"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
				"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{"form": map[string]any{}}, "roots": map[string]any{"listChanged": true}, "sampling": map[string]any{}},
			},
			Header: map[string]string{
				"Mcp-Protocol-Version": modernVersion, "Mcp-Method": "tools/call", "Mcp-Name": "look",
				"Mcp-Param-Region": "=?base64?c8O8ZA==?=", "Mcp-Param-Unknown": "kept", "Mcp-Session-Id": "",
				"X-Custom": "a|b", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Authorization": "Bearer t",
			},
		}
		if diff := cmp.Diff(want, receive(t, got)); diff != "" {
			t.Errorf("the server received (-want +got):\n%s", diff)
		}
	})
}

// A headerAdder adds headers that the SDK does not send.
type headerAdder struct{ http.RoundTripper }

func (h *headerAdder) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header["X-Custom"] = []string{"a", "b"}
	r.Header.Set("Mcp-Param-Unknown", "kept")
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	r.Header.Set("Authorization", "Bearer t")
	return h.RoundTripper.RoundTrip(r)
}

func TestListen(t *testing.T) {
	each(t, []string{modernVersion}, func(t *testing.T, s setting) {
		server := newServer(nil)
		hello := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return textResult("hello"), nil
		}
		addTool(server, "hello", hello)
		where := s.serve(t, server)

		listen := where.stream(t, http.MethodPost,
			where.request(`"l1"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":true}`),
			"Mcp-Protocol-Version", modernVersion, "Mcp-Method", "subscriptions/listen")

		ack := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l1"},"notifications":{"toolsListChanged":true}}}`
		if diff := cmp.Diff(ack, listen.next(t).data); diff != "" {
			t.Errorf("acknowledged (-want +got):\n%s", diff)
		}
		for range 2 {
			addTool(server, "hello", hello)
			changed := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l1"}}}`
			if diff := cmp.Diff(changed, listen.next(t).data); diff != "" {
				t.Errorf("notified (-want +got):\n%s", diff)
			}
		}
		listen.close()
		eventually(t, func() bool { return sessionsOf(server) == 0 })
	})
}
