package e2e_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestClientCancels(t *testing.T) {
	each(t, allVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		started, ended := make(chan struct{}), make(chan error, 1)
		addTool(server, "wait", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			close(started)
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		addTool(server, "next", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return textResult("still here"), nil
		})
		cs := s.serve(t, server).connect(t, nil)

		ctx, cancel := context.WithCancel(soon(t))
		returned := make(chan error, 1)
		go func() {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
			returned <- err
		}()
		receive(t, started)
		cancel()

		if err := receive(t, returned); !errors.Is(err, context.Canceled) {
			t.Errorf("the call returned %v", err)
		}
		if err := receive(t, ended); !errors.Is(err, context.Canceled) {
			t.Errorf("the tool ended with %v", err)
		}
		if got := callText(t, cs, &mcp.CallToolParams{Name: "next"}); got != "still here" {
			t.Error(got)
		}
	})
}

func TestServerCancels(t *testing.T) {
	each(t, []string{"2025-06-18", "2025-11-25"}, func(t *testing.T, s setting) {
		server := newServer(nil)
		asked, withdrawn := make(chan struct{}), make(chan struct{})
		addTool(server, "ask", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-asked:
					cancel()
				case <-inner.Done():
				}
			}()
			if _, err := r.Session.Elicit(inner, &mcp.ElicitParams{Message: "?", RequestedSchema: branchSchema}); !errors.Is(err, context.Canceled) {
				t.Errorf("the server's request ended with %v", err)
			}
			// The SDK cancels its request on the stream of the call, so the call must not end
			// before.
			select {
			case <-withdrawn:
			case <-time.After(patience):
				t.Error("the client's handler is still running")
			}
			return textResult("never mind"), nil
		})
		cs := s.serve(t, server).connect(t, &mcp.ClientOptions{
			ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				close(asked)
				select {
				case <-ctx.Done():
					close(withdrawn)
				case <-time.After(patience):
				}
				return nil, context.Canceled
			},
		})

		if got := callText(t, cs, &mcp.CallToolParams{Name: "ask"}); got != "never mind" {
			t.Error(got)
		}
	})
}

func TestSessionEnds(t *testing.T) {
	each(t, legacyVersions, func(t *testing.T, s setting) {
		server := newServer(nil)
		where := s.serve(t, server)
		cs := where.connect(t, nil)
		id := cs.ID()
		if got := sessionsOf(server); got != 1 {
			t.Fatalf("%d sessions", got)
		}

		if err := cs.Close(); err != nil {
			t.Error(err)
		}

		if got := sessionsOf(server); got != 0 {
			t.Errorf("%d sessions after DELETE", got)
		}
		resp := where.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", id, "Mcp-Protocol-Version", s.version)
		if resp.status != http.StatusNotFound {
			t.Errorf("a request in an ended session is answered with %d", resp.status)
		}
	})
}

func sessionsOf(server *mcp.Server) int {
	n := 0
	for range server.Sessions() {
		n++
	}
	return n
}

// A restarted server has no sessions, and the client must get its answer about that.
func TestServerRestarts(t *testing.T) {
	each(t, legacyVersions, func(t *testing.T, s setting) {
		before, after := newServer(nil), newServer(nil)
		hello := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return textResult("hello"), nil
		}
		addTool(before, "hello", hello)
		addTool(after, "hello", hello)
		where := s.serve(t, before)
		cs := where.connect(t, nil)
		callText(t, cs, &mcp.CallToolParams{Name: "hello"})

		where.upstream.restart(t, s.handler(after, mcp.StreamableHTTPOptions{}))
		endSessions(t, before)
		t.Cleanup(func() { endSessions(t, after) })

		eventually(t, func() bool {
			_, err := cs.CallTool(soon(t), &mcp.CallToolParams{Name: "hello"})
			if err == nil {
				t.Fatal("the old session still works")
			}
			return errors.Is(err, mcp.ErrSessionMissing)
		})
		if got := callText(t, where.connect(t, nil), &mcp.CallToolParams{Name: "hello"}); got != "hello" {
			t.Error(got)
		}
	})
}

// A resumer counts the requests that resume a stream.
type resumer struct {
	http.RoundTripper

	resumed chan string
}

func (r *resumer) RoundTrip(req *http.Request) (*http.Response, error) {
	if id := req.Header.Get("Last-Event-ID"); id != "" {
		offer(r.resumed, id)
	}
	return r.RoundTripper.RoundTrip(req)
}

// A call continues when its connection is lost: the client resumes the stream with the id of
// the last event, and gets the answer.
func TestCallOutlivesItsConnection(t *testing.T) {
	cuts := []struct {
		name string
		cut  func(client, server *cuttable, r *mcp.CallToolRequest)
	}{
		{"the server closes the stream", func(_, _ *cuttable, r *mcp.CallToolRequest) {
			r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		}},
		{"the server's connections break", func(_, server *cuttable, _ *mcp.CallToolRequest) { server.cut() }},
		{"the client's connections break", func(client, _ *cuttable, _ *mcp.CallToolRequest) { client.cut() }},
	}
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			each(t, []string{"2025-11-25"}, func(t *testing.T, s setting) {
				var where *site
				clientSide := new(cuttable)
				seen := make(chan struct{})
				server := newServer(nil)
				addTool(server, "long", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "p", Progress: 1})
					if err != nil {
						return nil, err
					}
					<-seen
					tt.cut(clientSide, &where.upstream.conns, r)
					return textResult("worth the wait"), ctx.Err()
				})
				where = s.serveWith(t, server, mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
				transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, addr)
					if err == nil {
						clientSide.add(conn)
					}
					return conn, err
				}}
				t.Cleanup(transport.CloseIdleConnections)
				watched := &resumer{RoundTripper: transport, resumed: make(chan string, 10)}
				client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
					ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { close(seen) },
				})
				cs := where.connectClient(t, client, &http.Client{Transport: watched})

				params := &mcp.CallToolParams{Name: "long"}
				params.SetProgressToken("p")
				if got := callText(t, cs, params); got != "worth the wait" {
					t.Error(got)
				}
				receive(t, watched.resumed)
			})
		})
	}
}

// A client disconnects during a call. In the legacy era the call continues, and the answer can
// be fetched. In the modern era the call is cancelled. EC-MCP-012, F-006.4.
func TestClientDisconnectsDuringCall(t *testing.T) {
	each(t, bothEras, func(t *testing.T, s setting) {
		server := newServer(nil)
		started, finish := make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		addTool(server, "wait", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "p", Progress: 1}); err != nil {
				t.Error(err)
			}
			close(started)
			select {
			case <-ctx.Done():
			case <-finish:
			}
			ended <- ctx.Err()
			return textResult("too late?"), nil
		})
		where := s.serveWith(t, server, mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
		headers := where.open(t)

		stream := where.stream(t, http.MethodPost, where.request(`1`, "tools/call", `"name":"wait","arguments":{}`), append(headers, "Mcp-Method", "tools/call", "Mcp-Name", "wait")...)
		var last string
		for event := stream.next(t); ; event = stream.next(t) {
			if last = event.id; event.data != "" {
				break
			}
		}
		receive(t, started)
		stream.close()

		if s.modern() {
			if err := receive(t, ended); !errors.Is(err, context.Canceled) {
				t.Errorf("the tool ended with %v", err)
			}
			return
		}
		close(finish)
		if err := receive(t, ended); err != nil {
			t.Errorf("the tool ended with %v", err)
		}
		resumed := where.stream(t, http.MethodGet, "", append(headers, "Last-Event-ID", last)...)
		want := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"too late?"}]}}`
		if got := resumed.next(t); got.data != want {
			t.Errorf("resumed with %s; want %s", got.data, want)
		}
	})
}
