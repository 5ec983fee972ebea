package wrap_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// serve starts the gate with a program as its upstream, and returns the gate's URL for agents.
func (s *site) serve(command []string) (url string) {
	s.t.Helper()
	file, err := program()
	if err != nil {
		s.t.Fatal(err)
	}
	words, err := json.Marshal(command)
	if err != nil {
		s.t.Fatal(err)
	}
	agents, operators := freeAddress(s.t), freeAddress(s.t)
	text := fmt.Sprintf("version: 1\nlisten: %s\noperators: {listen: %s}\nupstreams:\n  - name: files\n    command: %s\n    env: {MEMORY_FILE_PATH: %s}\n"+
		"rules: [{match: 'read_*', action: forward}, {match: 'get*', action: forward}, {match: 'search_*', action: forward}, "+
		"{match: 'trigger*', action: forward}, {match: 'toggle*', action: forward}, {match: 'echo', action: forward}]\ndefault: approve\nwaiting: {hold: 1m}\n",
		agents, operators, words, filepath.Join(s.state, "memory.jsonl"))
	config := filepath.Join(s.state, "gate.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.command([]string{file, "serve", "--config", config})
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("the gate ended with %v", err)
		}
	})
	s.inbox, s.tokenFile = "http://"+operators, filepath.Join(s.state, "thoughtgate", "operator-token")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if resp, err := http.Get("http://" + operators + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + agents + "/mcp"
			}
		}
	}
	s.t.Fatal("the gate did not become ready")
	return ""
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := testenv.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// The Go SDK uses a program from npm over HTTP: reads are forwarded, and writes wait for
// approval.
func TestServeFilesystem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := s.serve(s.server("filesystem", dir))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if text, _ := call(t, session, "read_text_file", map[string]any{"path": filepath.Join(dir, "a.txt")}); text != "hello" {
		t.Errorf("read_text_file = %q", text)
	}
	approved := filepath.Join(dir, "b.txt")
	go s.approveNext("approve")
	call(t, session, "write_file", map[string]any{"path": approved, "content": "new"})
	if got, err := os.ReadFile(approved); err != nil || string(got) != "new" {
		t.Errorf("after the approval the file has %q (%v)", got, err)
	}
}

// server-everything sends notifications, requests to its client, and progress.
func TestServeEverything(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	url := s.serve(s.server("everything"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	progress := make(chan struct{}, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress <- struct{}{} },
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if text, failed := call(t, session, "trigger-elicitation-request", map[string]any{}); failed || !strings.Contains(text, "declined") {
		t.Errorf("a tool that sends a request to the client: %q", text)
	}
	params := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 1, "steps": 3}}
	params.SetProgressToken("p")
	if _, err := session.CallTool(ctx, params); err != nil {
		t.Fatal(err)
	}
	select {
	case <-progress:
	case <-ctx.Done():
		t.Error("no progress reached the client")
	}
}

// The TypeScript SDK does the same over HTTP.
func TestServeMemoryTypeScript(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	url := s.serve(s.server("memory"))
	s.typeScript(map[string]any{"url": url, "calls": memories})
}
