package wrap_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// children returns the child processes of a process.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	return all
}

// alive reports whether a process runs.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// A killed server is restarted, however slowly, and its hints count again. The client gets an error for the interrupted call, and all
// processes end with the agent.
func TestKilledServerIsRestarted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	slow := []string{"sh", "-c", `if [ -e "$0" ]; then sleep 6; fi; : >"$0"; exec "$@"`, filepath.Join(t.TempDir(), "started")}
	session, cmd := s.connect(append(slow, s.server("filesystem", dir)...))
	first := children(t, cmd.Process.Pid)
	if len(first) != 1 {
		t.Fatalf("the gate has the children %v", first)
	}
	if err := syscall.Kill(first[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the killed server has ended", func() bool { return !slices.Contains(children(t, cmd.Process.Pid), first[0]) })
	if text, failed := call(t, session, "list_directory", map[string]any{"path": dir}); failed {
		t.Errorf("after the restart: %s", text)
	}
	second := children(t, cmd.Process.Pid)
	session.Close()
	for _, pid := range append(second, cmd.Process.Pid) {
		eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool { return !alive(pid) })
	}
}

// When a gate is killed, its server ends, and the next gate finds the held call again.
func TestHeldCallSurvivesKilledGate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	session, cmd := s.connect(s.server("filesystem", dir))
	servers := children(t, cmd.Process.Pid)
	path := filepath.Join(dir, "a.txt")
	go func() {
		_, _ = session.CallTool(context.WithoutCancel(t.Context()), &mcp.CallToolParams{Name: "write_file", Arguments: map[string]any{"path": path, "content": "x"}})
	}()
	at := s.announced()
	token, err := os.ReadFile(at[2])
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call is held", func() bool { return s.pending(at[1], strings.TrimSpace(string(token))) == 1 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range servers {
		eventually(t, "the server has ended", func() bool { return !alive(pid) })
	}
	again, _ := s.connect(s.server("filesystem", dir))
	go s.approveNext("approve")
	if text, failed := call(t, again, "write_file", map[string]any{"path": path, "content": "x"}); failed {
		t.Errorf("the repeated call: %s", text)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "x" {
		t.Errorf("the file has %q (%v)", got, err)
	}
}

// announced waits until a gate has printed the address of its inbox, and returns the line with
// the address and the token file.
func (s *site) announced() (at []string) {
	s.t.Helper()
	eventually(s.t, "the gate prints the address of its inbox", func() bool {
		at = inboxLine.FindStringSubmatch(s.printed())
		return at != nil
	})
	return at
}

// pending returns the number of pending calls.
func (s *site) pending(url, token string) int {
	var list struct{ Approvals []struct{ ID string } }
	s.api(http.MethodGet, url+"/api/approvals?state=pending", token, nil, &list)
	return len(list.Approvals)
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(25 * time.Millisecond) // the gate limits requests
	}
}
