//go:build unix

package bridge_test

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nullSignal tests whether a process exists.
const nullSignal = syscall.Signal(0)

// A client that leaves while the server reads its request does not end a shared process.
func TestClientLeavingDuringWriteKeepsProcess(t *testing.T) {
	t.Parallel()
	s := open(t, "shared: true", "")
	pid := s.pid("")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.gate.AgentAddr()+"/mcp",
		strings.NewReader(call("1", "echo", `{"x":"`+strings.Repeat("x", 900<<10)+`"}`)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Fatal("a server that does not run has answered")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if now := s.pid(""); now != pid {
		t.Errorf("process %d was replaced by %d", pid, now)
	}
}
