package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// last is the last step of the tools below, which have one for each second of a job.
const last = 10

// holdAt is the environment variable with the step at which the tools wait until they are stopped.
const holdAt = "RESTART_HOLD_AT"

// job counts to last. Each call is a line in a file.
func job(ctx context.Context, name string) error {
	runs, err := os.OpenFile(os.Args[2]+"."+name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(runs, "called")
	if err = errors.Join(err, runs.Close()); err != nil {
		return err
	}
	run, ok := gosdktask.From(ctx)
	if !ok {
		return errors.New("this is not a task")
	}
	hold, _ := strconv.Atoi(os.Getenv(holdAt))
	for step := range last + 1 {
		if err := run.Set(ctx, "server.step", step); err != nil {
			return err
		}
		if step == hold {
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return nil
}

// serveJobs is a server whose tools end with the stop of the server. Typed tools report that as
// their own error. Those called Once must not be called again.
func serveJobs() {
	var store task.Store = memstore.New(memstore.Options{})
	if strings.HasSuffix(os.Args[2], ".db") {
		var err error
		if store, err = sqlitestore.Open(context.Background(), sqlitestore.Options{File: os.Args[2]}); err != nil {
			log.Fatal(err)
		}
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "jobs", Version: "1"}, nil)
	o := gosdktask.Options{Tools: map[string]gosdktask.Tool{}, Store: store, Grace: time.Millisecond}
	done := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}
	for _, name := range []string{"raw", "rawOnce"} {
		o.Tools[name] = gosdktask.Tool{Rerun: name == "raw"}
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return done, job(ctx, name)
		})
	}
	for _, name := range []string{"typed", "typedOnce"} {
		o.Tools[name] = gosdktask.Tool{Rerun: name == "typed"}
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			return done, nil, job(ctx, name)
		})
	}
	tasks, err := gosdktask.Add(server, o)
	if err != nil {
		log.Fatal(err)
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listen := http.Server{Addr: os.Args[1], Handler: tasks.Handler(handler), ReadHeaderTimeout: time.Minute}
	go func() { log.Fatal(listen.ListenAndServe()) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = errors.Join(tasks.Run(ctx), store.Close())
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// What a client is told after a stop at any moment, and how often each tool was called. A stop
// loses no more than a crash does.
func TestStopAtEveryMoment(t *testing.T) {
	const unknown = "Outcome unknown: it may have run."
	sqlite := map[string]string{"raw": "completed", "typed": "completed", "rawOnce": unknown, "typedOnce": unknown}
	memory := map[string]string{"raw": "Task not found", "typed": "Task not found", "rawOnce": "Task not found", "typedOnce": "Task not found"}
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if how == syscall.SIGTERM && runtime.GOOS == "windows" {
			continue // there is no SIGTERM
		}
		for step := range last + 1 {
			t.Run(fmt.Sprint(how, " after ", step), func(t *testing.T) { stopAt(t, how, step, "tasks.db", sqlite) })
		}
		t.Run(fmt.Sprint(how, " in memory"), func(t *testing.T) { stopAt(t, how, 1, "memory", memory) })
	}
}

func stopAt(t *testing.T, how syscall.Signal, step int, file string, want map[string]string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, address: l.Addr().String(), file: filepath.Join(t.TempDir(), file), env: []string{serve + "=jobs", holdAt + "=" + strconv.Itoa(step)}}
	l.Close()
	w.start()
	ids := map[string]string{}
	for tool := range want {
		ids[tool] = `{"taskId":"` + w.ask("tools/call", `{"name":"`+tool+`","arguments":{},"task":{}}`).Result.Task.TaskID + `"}`
	}
	for _, id := range ids {
		w.until(id, func(a answer) bool { return string(a.Result.Meta["server.step"]) == strconv.Itoa(step) })
	}
	if how == syscall.SIGTERM {
		w.stopped()
	} else {
		w.kill()
	}

	w.env = []string{serve + "=jobs", holdAt + "=-1"}
	w.start()
	defer w.kill()
	for tool, id := range ids {
		a := w.until(id, func(a answer) bool { return a.Result.Status != "working" })
		told := a.Result.Status + ", " + a.Result.Message
		if a.Error != nil {
			told = a.Error.Message
		}
		calls := 1
		if want[tool] == "completed" {
			calls = 2
			if got := w.ask("tasks/result", id).Result.Content; len(got) != 1 || got[0].Text != "done" {
				t.Errorf("%s: the result is %v", tool, got)
			}
		}
		lines, err := os.ReadFile(w.file + "." + tool)
		if err != nil {
			t.Fatal(err)
		}
		ran := strings.Count(string(lines), "called")
		if !strings.Contains(told, want[tool]) || ran != calls {
			t.Errorf("%s was called %d times, and the client was told %q; want %d times, %q", tool, ran, told, calls, want[tool])
		}
		t.Logf("%-9s called %d×, told: %s", tool, ran, told)
	}
}
