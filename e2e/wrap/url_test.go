package wrap_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// overHTTP starts server-everything over HTTP, and returns its URL.
func (s *site) overHTTP() (url string) {
	s.t.Helper()
	address := freeAddress(s.t)
	cmd := s.command(s.server("everything", "streamableHttp"))
	_, port, _ := strings.Cut(address, ":")
	cmd.Env = append(cmd.Env, "PORT="+port)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url = "http://127.0.0.1:" + port + "/mcp"
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			return url
		}
	}
	s.t.Fatal("the server did not start")
	return ""
}

// wrappedURL returns the command of an agent for a server over HTTP behind the gate.
func (s *site) wrappedURL(url string) []string {
	s.t.Helper()
	file, err := program()
	if err != nil {
		s.t.Fatal(err)
	}
	token := filepath.Join(s.state, "token")
	if err := os.WriteFile(token, []byte("not-looked-at\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	config := filepath.Join(s.state, "wrap.yaml")
	if err := os.WriteFile(config, []byte("version: 1\nrules: [{match: echo, action: approve}]\ndefault: forward\n"+ownApproval), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return []string{file, "wrap", "--config", config, "--name", "remote", "--token-file", token, "--header", "X-Team: tools", "--url", url}
}

// The Go SDK starts the gate and reaches a server from npm over HTTP: it gets the server's
// requests and progress, and a call waits for approval.
func TestWrapURL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cmd := s.command(s.wrappedURL(s.overHTTP()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	progress := make(chan struct{}, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress <- struct{}{} },
	})
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if text, failed := call(t, session, "get-sum", map[string]any{"a": 1, "b": 2}); failed || !strings.Contains(text, "3") {
		t.Errorf("a call that is forwarded: %q", text)
	}
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
	go s.approveNext("approve")
	if text, failed := call(t, session, "echo", map[string]any{"message": "it holds"}); failed || !strings.Contains(text, "it holds") {
		t.Errorf("an approved call was answered %q", text)
	}
	go s.approveNext("reject")
	if text, failed := call(t, session, "echo", map[string]any{"message": "hi"}); !failed {
		t.Errorf("a rejected call was answered %q", text)
	}
	if strings.Contains(s.printed(), "not-looked-at") {
		t.Error("the token is in the log")
	}
}

// The TypeScript SDK works in the same way.
func TestWrapURLTypeScript(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.typeScript(map[string]any{"command": s.wrappedURL(s.overHTTP()), "calls": []any{
		map[string]any{"name": "get-sum", "args": map[string]any{"a": 1, "b": 2}},
		map[string]any{"name": "get-tiny-image", "args": map[string]any{}},
		map[string]any{"name": "echo", "args": map[string]any{"message": "it holds"}},
	}})
}
