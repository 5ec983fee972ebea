package demo_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a session of the official client with a running server.
func connect(t *testing.T, s *demo.Server, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:   srv.URL,
		HTTPClient: &http.Client{Transport: transport},
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	if got := cs.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("negotiated %s; want %s", got, version)
	}
	return cs
}

func text(t *testing.T, res *mcp.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return res.Content[0].(*mcp.TextContent).Text
}

func TestOfficialClient(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			told := make(chan float64, 10)
			s := demo.New()
			cs := connect(t, s, version, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					told <- r.Params.Progress
				},
			})

			hints := map[string][2]bool{}
			for tool, err := range cs.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				hints[tool.Name] = [2]bool{tool.Annotations.ReadOnlyHint, *tool.Annotations.DestructiveHint}
			}
			want := map[string][2]bool{
				"list_files": {true, false}, "read_file": {true, false}, "slow_report": {true, false}, "big_report": {true, false},
				"write_file": {false, true}, "delete_file": {false, true},
			}
			if diff := cmp.Diff(want, hints); diff != "" {
				t.Errorf("read-only and destructive hints (-want +got):\n%s", diff)
			}

			bonuses := map[string]any{"path": "/payroll/bonuses.csv"}
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_file", Arguments: bonuses})
			if got := text(t, res, err); got != "deleted /payroll/bonuses.csv" {
				t.Error(got)
			}
			res, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_file", Arguments: bonuses})
			if got := text(t, res, err); !res.IsError {
				t.Errorf("a deleted file says %q", got)
			}
			res, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "big_report", Arguments: map[string]any{"megabytes": 2}})
			if got := len(text(t, res, err)); got != 2<<20 {
				t.Errorf("big report has %d bytes", got)
			}

			slow := &mcp.CallToolParams{Name: "slow_report", Arguments: map[string]any{"seconds": 0.01}}
			slow.SetProgressToken("p")
			res, err = cs.CallTool(t.Context(), slow)
			text(t, res, err)
			if first, last := <-told, <-told; first != 0 || last != 1 {
				t.Errorf("progress %v, %v; want 0, 1", first, last)
			}
		})
	}
}

// The client cancels a running call, and the server notices.
func TestOfficialClientCancels(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			s := demo.New()
			ctx, cancel := context.WithCancel(t.Context())
			cs := connect(t, s, version, &mcp.ClientOptions{
				ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { cancel() },
			})
			slow := &mcp.CallToolParams{Name: "slow_report", Arguments: map[string]any{"seconds": 300}}
			slow.SetProgressToken("p")

			if _, err := cs.CallTool(ctx, slow); err == nil {
				t.Error("a cancelled call succeeded")
			}

			settled(t, s)
			if got := s.Calls()[0].Outcome; got != demo.Cancelled {
				t.Errorf("outcome %s; want cancelled", got)
			}
		})
	}
}

// settled waits until no call is running.
func settled(t *testing.T, s *demo.Server) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for slices.ContainsFunc(s.Calls(), func(c demo.Call) bool { return c.Outcome == demo.Running }) {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("still running: %v", s.Calls())
		}
	}
}
