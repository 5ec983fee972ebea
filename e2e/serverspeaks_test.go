//nolint:staticcheck // sampling, roots and logging are deprecated, and still spoken
package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// EC-MCP-015, F-006.2: each event is forwarded at once.
func TestProgress(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		heard := make(chan struct{}, 3)
		addTool(server, "work", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for n := range 3 {
				err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: r.Params.GetProgressToken(), Progress: float64(n), Total: 3, Message: fmt.Sprint("step ", n),
				})
				if err != nil {
					return nil, err
				}
				// The server waits for the client before the next step, so events must not be
				// delayed.
				select {
				case <-heard:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return textResult("done"), nil
		})
		var got []mcp.ProgressNotificationParams
		cs := s.serve(t, server).connect(t, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				got = append(got, mcp.ProgressNotificationParams{ProgressToken: r.Params.ProgressToken, Progress: r.Params.Progress, Total: r.Params.Total, Message: r.Params.Message})
				heard <- struct{}{}
			},
		})

		params := &mcp.CallToolParams{Name: "work"}
		params.SetProgressToken("tok-1")
		callText(t, cs, params)

		want := []mcp.ProgressNotificationParams{
			{ProgressToken: "tok-1", Progress: 0, Total: 3, Message: "step 0"},
			{ProgressToken: "tok-1", Progress: 1, Total: 3, Message: "step 1"},
			{ProgressToken: "tok-1", Progress: 2, Total: 3, Message: "step 2"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

func TestProgressOfTheClient(t *testing.T) {
	each(t, legacyVersions, func(t *testing.T, s setting) {
		told := make(chan float64, 1)
		server := newServer(&mcp.ServerOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationServerRequest) { told <- r.Params.Progress },
		})
		cs := s.serve(t, server).connect(t, nil)

		if err := cs.NotifyProgress(soon(t), &mcp.ProgressNotificationParams{ProgressToken: 7, Progress: 0.5}); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, told); got != 0.5 {
			t.Errorf("progress %v; want 0.5", got)
		}
	})
}

// answers is a client that answers every request of the server.
func answers() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if r.Params.Message == "Really?" {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"branch": "main — " + r.Params.Message}}, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			asked := r.Params.Messages[0].Content.(*mcp.TextContent).Text
			return &mcp.CreateMessageResult{Role: "assistant", Model: "parrot-1", Content: &mcp.TextContent{Text: asked + "!"}}, nil
		},
	}
}

var branchSchema = json.RawMessage(`{"type":"object","properties":{"branch":{"type":"string"}},"required":["branch"]}`)

// The server sends requests on the stream of the call, and the client posts its answers.
func TestElicitationSamplingAndRoots(t *testing.T) {
	each(t, []string{"2025-06-18", "2025-11-25"}, func(t *testing.T, s setting) {
		server := newServer(nil)
		addTool(server, "ask", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			elicited, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Which branch?", RequestedSchema: branchSchema})
			if err != nil {
				return nil, err
			}
			declined, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Really?", RequestedSchema: branchSchema})
			if err != nil {
				return nil, err
			}
			sampled, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{
				MaxTokens: 10, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "Polly"}}},
			})
			if err != nil {
				return nil, err
			}
			roots, err := r.Session.ListRoots(ctx, nil)
			if err != nil {
				return nil, err
			}
			return textResult(fmt.Sprintf("%s %s, %s, %s %s, %s",
				elicited.Action, elicited.Content["branch"], declined.Action,
				sampled.Model, sampled.Content.(*mcp.TextContent).Text, roots.Roots[0].URI)), nil
		})
		client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, answers())
		client.AddRoots(&mcp.Root{URI: "file:///home"})
		where := s.serve(t, server)
		cs := where.connectClient(t, client, newHTTPClient(t))

		got := callText(t, cs, &mcp.CallToolParams{Name: "ask"})
		if want := "accept main — Which branch?, decline, parrot-1 Polly!, file:///home"; got != want {
			t.Errorf("the server got the answers %q; want %q", got, want)
		}
	})
}

// Outside of calls, the same requests are sent on the client's GET stream.
func TestServerRequestsUseGetStream(t *testing.T) {
	each(t, []string{"2025-06-18", "2025-11-25"}, func(t *testing.T, s setting) {
		server := newServer(nil)
		s.serve(t, server).connect(t, answers())

		for ss := range server.Sessions() {
			res, err := ss.Elicit(soon(t), &mcp.ElicitParams{Message: "?", RequestedSchema: branchSchema})
			if err != nil || res.Content["branch"] != "main — ?" {
				t.Errorf("elicited %+v, %v", res, err)
			}
		}
	})
}

// A request that is answered on a web page: the client accepts it, and a notification reports
// the completion.
func TestElicitationByURL(t *testing.T) {
	each(t, []string{"2025-11-25"}, func(t *testing.T, s setting) {
		server := newServer(nil)
		completed := make(chan string, 1)
		addTool(server, "login", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Mode: "url", Message: "Log in", URL: "https://example.com/login?a=1&b=2", ElicitationID: "e-1"})
			if err != nil {
				return nil, err
			}
			return textResult(res.Action), r.Session.NotifyElicitationComplete(ctx, &mcp.ElicitationCompleteParams{ElicitationID: "e-1"})
		})
		cs := s.serve(t, server).connect(t, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				if r.Params.URL != "https://example.com/login?a=1&b=2" || r.Params.ElicitationID != "e-1" {
					t.Errorf("elicitation of %s with id %s", r.Params.URL, r.Params.ElicitationID)
				}
				return &mcp.ElicitResult{Action: "accept"}, nil
			},
			ElicitationCompleteHandler: func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
				offer(completed, r.Params.ElicitationID)
			},
		})

		if got := callText(t, cs, &mcp.CallToolParams{Name: "login"}); got != "accept" {
			t.Error(got)
		}
		if got := receive(t, completed); got != "e-1" {
			t.Errorf("completed %q", got)
		}
	})
}

func TestRootsListChanged(t *testing.T) {
	each(t, legacyVersions, func(t *testing.T, s setting) {
		changed := make(chan []*mcp.Root, 1)
		server := newServer(&mcp.ServerOptions{
			RootsListChangedHandler: func(ctx context.Context, r *mcp.RootsListChangedRequest) {
				go func() { // in the background: a blocked handler would prevent reading the answer
					res, err := r.Session.ListRoots(context.WithoutCancel(ctx), nil)
					if err != nil {
						t.Errorf("list roots: %v", err)
						res = &mcp.ListRootsResult{}
					}
					changed <- res.Roots
				}()
			},
		})
		client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
		s.serve(t, server).connectClient(t, client, newHTTPClient(t))

		client.AddRoots(&mcp.Root{URI: "file:///new"})
		if got := receive(t, changed); len(got) != 1 || got[0].URI != "file:///new" {
			t.Errorf("roots %v", got)
		}
	})
}

func TestLogging(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		addTool(server, "talk", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for _, level := range []mcp.LoggingLevel{"debug", "info", "error"} {
				if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Logger: "l", Data: map[string]any{"n": 1}}); err != nil {
					return nil, err
				}
			}
			return textResult("done"), nil
		})
		logged := make(chan string, 10)
		cs := s.serve(t, server).connect(t, &mcp.ClientOptions{
			LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
				logged <- fmt.Sprint(r.Params.Level, r.Params.Logger, r.Params.Data)
			},
		})
		params := &mcp.CallToolParams{Name: "talk"}
		if s.modern() {
			params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "info"}
		} else if err := cs.SetLoggingLevel(soon(t), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			t.Fatal(err)
		}
		callText(t, cs, params)

		for _, want := range []string{"infolmap[n:1]", "errorlmap[n:1]"} {
			if got := receive(t, logged); got != want {
				t.Errorf("logged %q; want %q", got, want)
			}
		}
	})
}

// F-006.1.
func TestListChanged(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		noTool := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return textResult(""), nil }
		noPrompt := func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		}
		noResource := func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		}
		addTool(server, "old", noTool)
		server.AddPrompt(&mcp.Prompt{Name: "old"}, noPrompt)
		server.AddResource(&mcp.Resource{Name: "old", URI: "x:///old"}, noResource)
		changed := make(chan string, 10)
		cs := s.serve(t, server).connect(t, &mcp.ClientOptions{
			ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { offer(changed, "tools") },
			PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { offer(changed, "prompts") },
			ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { offer(changed, "resources") },
		})
		if s.modern() {
			// Connect does not wait until the subscription has arrived. The server delays its
			// notification of a change, and every further change extends the delay, so
			// attempts must not be too frequent.
			eventually(t, func() bool {
				addTool(server, "probe", noTool)
				select {
				case <-changed:
					return true
				case <-time.After(100 * time.Millisecond):
					return false
				}
			})
			drain(changed)
		}

		addTool(server, "new", noTool)
		expect(t, changed, "tools")
		server.AddPrompt(&mcp.Prompt{Name: "new"}, noPrompt)
		expect(t, changed, "prompts")
		server.AddResource(&mcp.Resource{Name: "new", URI: "x:///new"}, noResource)
		expect(t, changed, "resources")

		tools, err := cs.ListTools(soon(t), nil)
		if err != nil || len(tools.Tools) < 2 {
			t.Errorf("tools: %+v, %v", tools, err)
		}
	})
}

// offer sends v to c if c is not full. A blocked handler would block the SDK's session.
func offer(c chan<- string, v string) {
	select {
	case c <- v:
	default:
	}
}

func drain(c <-chan string) {
	for len(c) > 0 {
		<-c
	}
}

// expect waits for the given text; other texts may come first.
func expect(t *testing.T, c <-chan string, want string) {
	t.Helper()
	for receive(t, c) != want {
		continue
	}
}

func TestResourceUpdatesReachSubscriber(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		subscribed, unsubscribed := make(chan string, 1), make(chan string, 1)
		server := newServer(&mcp.ServerOptions{
			SubscribeHandler: func(_ context.Context, r *mcp.SubscribeRequest) error {
				subscribed <- r.Params.URI
				return nil
			},
			UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error {
				unsubscribed <- r.Params.URI
				return nil
			},
		})
		server.AddResource(&mcp.Resource{Name: "log", URI: "file:///log"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		})
		updated := make(chan string, 1)
		cs := s.serve(t, server).connect(t, &mcp.ClientOptions{
			ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { offer(updated, r.Params.URI) },
		})

		if err := cs.Subscribe(soon(t), &mcp.SubscribeParams{URI: "file:///log"}); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, subscribed); got != "file:///log" {
			t.Errorf("subscribed to %s", got)
		}
		// The subscription takes effect when its handler has returned.
		eventually(t, func() bool {
			if err := server.ResourceUpdated(soon(t), &mcp.ResourceUpdatedNotificationParams{URI: "file:///log"}); err != nil {
				t.Fatal(err)
			}
			return len(updated) > 0
		})
		if got := receive(t, updated); got != "file:///log" {
			t.Errorf("updated %s", got)
		}
		if err := cs.Unsubscribe(soon(t), &mcp.UnsubscribeParams{URI: "file:///log"}); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, unsubscribed); got != "file:///log" {
			t.Errorf("unsubscribed from %s", got)
		}
	})
}
