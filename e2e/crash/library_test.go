package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// The environment variables of a server with its own tools: its address, its store, a folder in
// which each call of a tool is a line, and the step at which tools wait until they are stopped.
const (
	libraryAddress = "CRASH_TEST_LIBRARY"
	libraryStore   = "CRASH_TEST_STORE"
	libraryCalls   = "CRASH_TEST_CALLS"
	libraryHold    = "CRASH_TEST_HOLD"
)

// lastStep is the last step of a tool, which has one for each second of a job.
const lastStep = 10

func openLibraryStore(ctx context.Context, url string) (task.Store, error) {
	kind, rest, _ := strings.Cut(url, ":")
	switch kind {
	case "sqlite":
		return sqlitestore.Open(ctx, sqlitestore.Options{File: rest})
	case "redis":
		return redisstore.Open(ctx, redisstore.Options{URL: url})
	default:
		return pgstore.Open(ctx, pgstore.Options{URL: url})
	}
}

// libraryJob takes steps. If the context ends, a typed tool returns a result with isError, as the
// Go SDK does, and a raw one an error.
func libraryJob(name string) mcptask.Work {
	return func(ctx context.Context) ([]byte, error) {
		calls, err := os.OpenFile(filepath.Join(os.Getenv(libraryCalls), name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = fmt.Fprintln(calls, "called")
		if err = errors.Join(err, calls.Close()); err != nil {
			return nil, err
		}
		run, _ := mcptask.From(ctx)
		hold, _ := strconv.Atoi(os.Getenv(libraryHold))
		for step := range lastStep + 1 {
			if err := run.Set(ctx, "server.step", step); err != nil {
				return nil, err
			}
			if step != hold {
				continue
			}
			<-ctx.Done()
			if strings.HasPrefix(name, "typed") {
				return []byte(`{"content":[{"type":"text","text":"context canceled"}],"isError":true}`), nil
			}
			return nil, ctx.Err()
		}
		return []byte(`{"content":[{"type":"text","text":"done"}]}`), nil
	}
}

// serveLibrary is the server. It ends on SIGTERM.
func serveLibrary() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := openLibraryStore(ctx, os.Getenv(libraryStore))
	if err != nil {
		return err
	}
	s := &mcptask.Server{Store: store, Now: time.Now, Lease: time.Second, Grace: time.Millisecond, Rerun: func(t task.Task) mcptask.Work {
		if strings.HasSuffix(t.Call.Name, "Once") {
			return nil
		}
		return libraryJob(t.Call.Name)
	}}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", os.Getenv(libraryAddress))
	if err != nil {
		return err
	}
	listening := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(answerLibrary(s, r)) // an error means that the client has gone
	})}
	ended := make(chan error, 1)
	go func() { ended <- listening.Serve(listener) }()
	err = errors.Join(s.Housekeep(ctx), listening.Close(), store.Close())
	<-ended
	return err
}

// answerLibrary returns the result or the error of a request, as JSON.
func answerLibrary(s *mcptask.Server, r *http.Request) []byte {
	d := mcptask.Dialect{Era: mcptask.V2025}
	var request struct {
		Method string
		Params json.RawMessage
	}
	err := json.NewDecoder(r.Body).Decode(&request)
	var result []byte
	if err == nil && request.Method == mcpname.ToolsCall {
		var call struct{ Name string }
		err = json.Unmarshal(request.Params, &call)
		var made task.Task
		if err == nil {
			made, err = s.Launch(r.Context(), task.Draft{
				Owner: "ann", TTL: time.Hour, Call: task.Call{Method: request.Method, Name: call.Name, Message: string(request.Params)},
			}, libraryJob(call.Name))
		}
		if err == nil {
			result, err = d.CreateResult(made)
		}
	} else if err == nil {
		result, err = s.Handle(r.Context(), mcptask.Request{Dialect: d, Owner: "ann", Method: request.Method, Params: request.Params})
	}
	if err != nil {
		result, _ = json.Marshal(map[string]any{"error": d.Error(err).Message})
	}
	return result
}

// After a stop of a server at any moment, and after a crash, its clients are told the same and its
// tools are called as often, with every store.
func TestLibraryServerIsStoppedAtEveryMoment(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	t.Run("sqlite", func(t *testing.T) { stopLibraryAtEveryMoment(t, "sqlite:"+filepath.Join(t.TempDir(), "tasks.db")) })
	t.Run("postgres", func(t *testing.T) {
		server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
		if testenv.Available(t, err) {
			defer func() { _ = server.Stop() }()
			stopLibraryAtEveryMoment(t, server.URL())
		}
	})
	t.Run("redis", func(t *testing.T) {
		server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
		if testenv.Available(t, err) {
			defer func() { _ = server.Stop() }()
			stopLibraryAtEveryMoment(t, server.URL())
		}
	})
}

func stopLibraryAtEveryMoment(t *testing.T, store string) {
	t.Helper()
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for step := range lastStep + 1 {
			t.Run(fmt.Sprint(how, " after ", step), func(t *testing.T) { stopLibrary(t, store, how, step) })
		}
	}
}

// A libraryClient is the client of a server.
type libraryClient struct {
	t       *testing.T
	address string
	env     []string
}

// start starts the server. The function stops it.
func (c *libraryClient) start(hold int) (stop func(os.Signal)) {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	server := exec.CommandContext(context.WithoutCancel(c.t.Context()), self)
	server.Env = append(append(os.Environ(), c.env...), libraryHold+"="+strconv.Itoa(hold), "GORACE=atexit_sleep_ms=0")
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, func() bool {
		conn, err := net.Dial("tcp", c.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return func(how os.Signal) {
		if err := server.Process.Signal(how); err != nil {
			c.t.Error(err)
		}
		if err := server.Wait(); err != nil && how == syscall.SIGTERM {
			c.t.Error(err)
		}
	}
}

// A libraryAnswer has the parts of answers that the test reads.
type libraryAnswer struct {
	Task          struct{ TaskID string }
	Status        string
	StatusMessage string
	Meta          map[string]json.RawMessage `json:"_meta"`
	Content       []struct{ Text string }
	Error         string
}

func (c *libraryClient) ask(method, params string) (a libraryAnswer) {
	c.t.Helper()
	body := fmt.Appendf(nil, `{"method":%q,"params":%s}`, method, params)
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+c.address, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Close = true
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		c.t.Fatalf("%s: %v in %s", method, err, text)
	}
	return a
}

func stopLibrary(t *testing.T, store string, how syscall.Signal, step int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := t.TempDir()
	c := &libraryClient{t: t, address: l.Addr().String()}
	c.env = []string{libraryAddress + "=" + c.address, libraryStore + "=" + store, libraryCalls + "=" + calls}
	_ = l.Close()
	stop := c.start(step)
	tools := []string{"raw", "rawOnce", "typed", "typedOnce"}
	refs := make([]string, len(tools))
	for i, tool := range tools {
		refs[i] = `{"taskId":"` + c.ask(mcpname.ToolsCall, `{"name":"`+tool+`"}`).Task.TaskID + `"}`
	}
	for _, ref := range refs {
		eventually(t, func() bool {
			return string(c.ask(mcpname.TasksGet, ref).Meta["server.step"]) == strconv.Itoa(step)
		})
	}
	stop(how)
	stop = c.start(-1)
	defer stop(syscall.SIGKILL)
	for i, tool := range tools {
		var a libraryAnswer
		eventually(t, func() bool {
			a = c.ask(mcpname.TasksGet, refs[i])
			return a.Status != "working"
		})
		lines, err := os.ReadFile(filepath.Join(calls, tool))
		if err != nil {
			t.Fatal(err)
		}
		called, told := strings.Count(string(lines), "called"), a.Status+" "+a.StatusMessage+a.Error
		t.Logf("%-9s called %d×, told: %s", tool, called, told)
		if strings.HasSuffix(tool, "Once") {
			if called != 1 || a.Status != "failed" || !strings.HasSuffix(told, "Outcome unknown: it may have run.") {
				t.Errorf("%s was called %d times, and the client was told: %s", tool, called, told)
			}
			continue
		}
		if result := c.ask(mcpname.TasksResult, refs[i]); called != 2 || len(result.Content) != 1 || result.Content[0].Text != "done" {
			t.Errorf("%s was called %d times, and the client was told: %s, %+v", tool, called, told, result)
		}
	}
}
