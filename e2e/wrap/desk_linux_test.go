package wrap_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Two servers with the same name, in two projects, share the inbox of their user. The wrap
// that serves it is killed, and the other one serves it at the same address. The same call to
// both servers is two calls: each runs only on its own server.
func TestTwoWrapsShareAnInbox(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, second := t.TempDir(), t.TempDir()
	one, serving := s.connect(s.server("filesystem", first))
	at := s.announced()
	token, err := os.ReadFile(at[2])
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(token))
	eventually(t, "the first wrap serves the inbox", func() bool { return s.reachable(at[1], secret) })
	two, _ := s.connect(s.server("filesystem", second))
	for _, other := range inboxLine.FindAllStringSubmatch(s.printed(), -1) {
		if other[1] != at[1] || other[2] != at[2] {
			t.Errorf("one inbox is %v, another %v", at[1:], other[1:])
		}
	}
	params := &mcp.CallToolParams{Name: "write_file", Arguments: map[string]any{"path": filepath.Join(second, "a.txt"), "content": "x"}}
	done := make(chan error, 1)
	go func() { _, _ = one.CallTool(context.WithoutCancel(t.Context()), params) }()
	eventually(t, "the first call is held", func() bool { return s.pending(at[1], secret) == 1 })
	go func() {
		_, err := two.CallTool(context.WithoutCancel(t.Context()), params)
		done <- err
	}()
	eventually(t, "both calls are held", func() bool { return s.pending(at[1], secret) == 2 })
	if err := serving.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second wrap serves the inbox", func() bool { return s.pending(at[1], secret) == 2 })
	s.tryDecide(at[1], secret, "approve") // either of the two calls
	s.tryDecide(at[1], secret, "approve")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(second, "a.txt")); err != nil || string(got) != "x" {
		t.Errorf("the file has %q (%v)", got, err)
	}
}

// reachable reports whether the inbox answers.
func (s *site) reachable(url, token string) bool {
	list := struct{ Approvals []struct{ ID string } }{}
	s.api("GET", url+"/api/approvals?state=pending", token, nil, &list)
	return list.Approvals != nil
}
