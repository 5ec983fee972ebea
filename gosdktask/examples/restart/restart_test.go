package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serve is the environment variable that makes the test binary run as the server.
const serve = "RESTART_SERVE"

func TestMain(m *testing.M) {
	switch os.Getenv(serve) {
	case "":
	case "jobs":
		serveJobs()
		return
	default:
		main()
		return
	}
	os.Exit(m.Run())
}

// A world is a server that the test kills and starts again.
type world struct {
	t       *testing.T
	address string
	file    string
	env     []string // for the server
	server  *exec.Cmd
}

func (w *world) start() {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	w.server = exec.CommandContext(context.WithoutCancel(w.t.Context()), self, w.address, w.file)
	w.server.Env = append(append(os.Environ(), serve+"=1", "GORACE=atexit_sleep_ms=0"), w.env...)
	if err := w.server.Start(); err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", w.address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the server did not start to listen")
		}
	}
}

// kill kills the server with SIGKILL.
func (w *world) kill() {
	w.t.Helper()
	if err := w.server.Process.Kill(); err != nil {
		w.t.Error(err)
	}
	_ = w.server.Wait() // it was killed, so its exit status is an error
}

// An answer is the part of a response that the tests look at.
type answer struct {
	Result struct {
		Task    struct{ TaskID string }
		Status  string
		Message string                     `json:"statusMessage"`
		Meta    map[string]json.RawMessage `json:"_meta"`
		Content []struct{ Text string }
	}
	Error *struct{ Message string }
}

func (w *world) ask(method, params string) (a answer) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.address,
		strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(body), "data: ")
	if err := json.Unmarshal([]byte(data), &a); err != nil {
		w.t.Fatalf("%s: %v in %q", method, err, body)
	}
	return a
}

// until polls a task until done reports true.
func (w *world) until(params string, done func(answer) bool) answer {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := w.ask("tasks/get", params)
		if done(a) {
			return a
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the task is %+v", a)
		}
	}
}

// stopped stops the server with SIGTERM.
func (w *world) stopped() {
	w.t.Helper()
	if err := w.server.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	if err := w.server.Wait(); err != nil {
		w.t.Error(err)
	}
}

// After a server was killed or stopped while its tasks ran, the next process repeats the tools
// with Rerun, which continue where they stopped. The tasks of other tools fail, with an error that
// says that the outcome is unknown. Both kinds end a few seconds after the restart, long before
// their TTL.
func TestTasksEndAfterRestart(t *testing.T) {
	t.Run("SIGKILL", func(t *testing.T) { tasksEnd(t, (*world).kill) })
	t.Run("SIGTERM", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("there is no SIGTERM")
		}
		tasksEnd(t, (*world).stopped)
	})
}

func tasksEnd(t *testing.T, stop func(*world)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, address: l.Addr().String(), file: filepath.Join(t.TempDir(), "tasks.db")}
	l.Close()
	w.start()
	counts := `{"taskId":"` + w.ask("tools/call", `{"name":"count","arguments":{"to":60},"task":{}}`).Result.Task.TaskID + `"}`
	pays := `{"taskId":"` + w.ask("tools/call", `{"name":"pay","arguments":{},"task":{}}`).Result.Task.TaskID + `"}`
	w.until(counts, func(a answer) bool { return len(a.Result.Meta["server.counted"]) > 0 })
	stop(w)

	w.start()
	defer w.kill()
	began := time.Now()
	w.until(counts, func(a answer) bool { return a.Result.Status == "completed" })
	if text := w.ask("tasks/result", counts).Result.Content[0].Text; !strings.HasSuffix(text, "to 60") || strings.HasPrefix(text, "counted from 0 ") {
		t.Errorf("the repeatable task returned %s", text)
	}
	paid := w.until(pays, func(a answer) bool { return a.Result.Status != "working" })
	if paid.Result.Status != "failed" || !strings.HasSuffix(paid.Result.Message, "Outcome unknown: it may have run.") {
		t.Errorf("the task that must not be repeated: %+v", paid)
	}
	t.Logf("both tasks ended %v after the restart", time.Since(began))
}
