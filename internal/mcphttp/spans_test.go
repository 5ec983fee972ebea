package mcphttp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

// NF-004: making a call, asking for the upstream's task and fetching its result
// are spans.
func TestStepsAreTraced(t *testing.T) {
	var mu sync.Mutex
	var exported bytes.Buffer
	collector := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		io.Copy(&exported, r.Body)
	})
	tracer, err := tracing.New(tracing.Config{Endpoint: collector, Sample: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlant(t, nil)
	p.gateway = startGate(t, p.up, func(s settings) {
		s.handler.Gate, s.handler.Desk, s.handler.Waiting, s.handler.Tracing = p.gate, p.desk, p.waiting, tracer
		s.upstream.Tracing, s.upstream.Metrics = tracer, s.handler.Metrics
	})
	id := p.start(toolCall("7", "hold_required", `,"task":{}`))
	eventually(t, "there is a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
	p.shop.done(madeIt)
	eventually(t, "the upstream is done", func() bool {
		return strings.Contains(p.ask(legacyAbout("tasks/get", id)), `"status":"completed"`)
	})
	wantText(t, "result", p.ask(legacyAbout("tasks/result", id)), "made it")
	wantText(t, "metrics", scrape(p.gateway), `thoughtgate_upstream_result_streams_total{status="success"} 1`)
	if err := p.desk.Close(t.Context()); err != nil { // what fetched the result has ended with its span
		t.Fatal(err)
	}
	if err := tracer.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{
		"upstream_execution", "tool.name", "hold_required", "execution.path", "upstream.task_id", p.shop.made()[0],
		"lazy_poll", "stream_result", "bytes_streamed",
	} {
		if !bytes.Contains(exported.Bytes(), []byte(want)) {
			t.Errorf("no %s in what was exported", want)
		}
	}
}
