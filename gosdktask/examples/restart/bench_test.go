package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

const (
	tasksAtOnce = 500
	steps       = 20 // each reports its progress
	notes       = 5  // variables that each task sets
)

// BenchmarkTasksAtOnce calls a tool 500 times at once over HTTP. The tool reports its progress and
// sets variables, as fast as it can. The benchmark reports the median time until a client had its
// task, and until the task had ended.
func BenchmarkTasksAtOnce(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		benchmarkAtOnce(b, func() task.Store { return memstore.New(memstore.Options{}) })
	})
	b.Run("sqlite", func(b *testing.B) {
		benchmarkAtOnce(b, func() task.Store {
			store, err := sqlitestore.Open(b.Context(), sqlitestore.Options{File: filepath.Join(b.TempDir(), "tasks.db")})
			if err != nil {
				b.Fatal(err)
			}
			return store
		})
	})
}

// A stopwatch notes when something has happened.
type stopwatch struct {
	mu    sync.Mutex
	begun time.Time
	times []time.Duration
}

func (s *stopwatch) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, time.Since(s.begun))
}

// quantile returns the time at which a part of all had happened.
func (s *stopwatch) quantile(part float64) float64 {
	slices.Sort(s.times)
	return s.times[int(part*float64(len(s.times)-1))].Seconds()
}

// work reports progress and sets variables.
func work(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	run, _ := gosdktask.From(ctx)
	for i := range steps {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{Progress: float64(i), Total: steps}); err != nil {
			return nil, err
		}
		if i%(steps/notes) == 0 {
			if err := run.Set(ctx, "server.note", i); err != nil {
				return nil, err
			}
		}
	}
	return &mcp.CallToolResult{}, nil
}

func benchmarkAtOnce(b *testing.B, open func() task.Store) {
	b.Helper()
	created, ended := &stopwatch{}, &stopwatch{}
	for b.Loop() {
		b.StopTimer()
		store := open()
		server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "work", InputSchema: map[string]any{"type": "object"}}, work)
		tasks, err := gosdktask.Add(server, gosdktask.Options{
			Tools: map[string]gosdktask.Tool{"work": {}}, Store: store, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = tasks.Run(ctx) })
		site := httptest.NewServer(tasks.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})))
		b.StartTimer()

		created.begun, ended.begun = time.Now(), time.Now()
		var clients sync.WaitGroup
		for range tasksAtOnce {
			clients.Go(func() { callAndPoll(b, site.URL, created, ended) })
		}
		clients.Wait()

		b.StopTimer()
		stop()
		running.Wait()
		site.Close()
		_ = store.Close()
		b.StartTimer()
	}
	b.ReportMetric(created.quantile(.5), "s/create-p50")
	b.ReportMetric(created.quantile(.99), "s/create-p99")
	b.ReportMetric(ended.quantile(.5), "s/end-p50")
	b.ReportMetric(ended.quantile(1), "s/end-last")
}

// callAndPoll calls the tool, and polls its task once a second until it has ended.
func callAndPoll(b *testing.B, url string, created, ended *stopwatch) {
	b.Helper()
	made := request(b, url, "tools/call", "work", `"name":"work","arguments":{}`)
	created.note()
	_, id, _ := strings.Cut(made, `"taskId":"`)
	id, _, ok := strings.Cut(id, `"`)
	if !ok {
		b.Errorf("the call did not become a task: %s", made)
		return
	}
	for {
		time.Sleep(time.Second)
		got := request(b, url, "tasks/get", id, `"taskId":"`+id+`"`)
		switch {
		case strings.Contains(got, `"status":"completed"`):
			ended.note()
			return
		case !strings.Contains(got, `"status":"working"`):
			b.Errorf("the task is %s", got)
			return
		}
	}
}

func request(b *testing.B, url, method, name, params string) string {
	b.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`, method, params)
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return ""
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {name},
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Error(err)
		return ""
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		b.Error(err)
	}
	return string(text)
}
