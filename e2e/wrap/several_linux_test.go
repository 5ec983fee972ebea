package wrap_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// several returns a command that wraps a file server, a memory and a server over HTTP as one.
func (s *site) several(dir string) []string {
	s.t.Helper()
	one := s.wrapped(nil)
	flags := slices.Clone(one[:slices.Index(one, "--name")])
	return append(flags, "--server", "files="+strings.Join(s.server("filesystem", dir), " "),
		"--server", "memory="+strings.Join(s.server("memory"), " "), "--server", "web="+s.overHTTP())
}

// Several servers are one for the agent. Calls are held and approved by the server's own names, the end of one
// server hurts only its own calls, and all of them end with the agent.
func TestWrapSeveral(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	session, cmd := s.connectTo(s.several(dir))
	var names []string
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	for _, want := range []string{"read_text_file", "memory__read_graph", "web__echo"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing in %q", want, names)
		}
	}
	read := func() string {
		text, _ := call(t, session, "read_text_file", map[string]any{"path": filepath.Join(dir, "a.txt")})
		return text
	}
	if text := read(); text != "hello" {
		t.Errorf("read_text_file = %q", text)
	}
	go s.approveNext("approve")
	call(t, session, "write_file", map[string]any{"path": filepath.Join(dir, "b.txt"), "content": "new"})
	if got, err := os.ReadFile(filepath.Join(dir, "b.txt")); err != nil || string(got) != "new" {
		t.Errorf("after the approval the file has %q (%v)", got, err)
	}
	go s.approveNext("reject")
	if text, failed := call(t, session, "memory__delete_entities", map[string]any{"entityNames": []string{"x"}}); !failed {
		t.Errorf("a rejected call was answered %q", text)
	}
	servers := children(t, cmd.Process.Pid)
	if len(servers) != 2 {
		t.Fatalf("%d processes of servers, want 2", len(servers))
	}
	for _, pid := range servers {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), "server-memory") {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if text := read(); text != "hello" {
		t.Errorf("after the end of another server, read_text_file = %q", text)
	}
	eventually(t, "the server works again", func() bool {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "memory__read_graph"})
		return err == nil && !result.IsError
	})
	servers = children(t, cmd.Process.Pid)
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range servers {
		eventually(t, "the servers end with the agent", func() bool { return !alive(pid) })
	}
}

// The TypeScript SDK uses several servers as one.
func TestWrapSeveralTypeScript(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var calls []any
	for _, c := range memories {
		order := c.(map[string]any)
		calls = append(calls, map[string]any{"name": "memory__" + order["name"].(string), "args": order["args"]})
	}
	s.typeScript(map[string]any{"command": s.several(t.TempDir()), "calls": calls})
}
