package mcphttp_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

// spans are what a collector has been sent: by the name of the span, the
// attributes of the last one with that name.
type spans struct {
	mu     sync.Mutex
	byName map[string]map[string]string
}

func (s *spans) collect(_ http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	batch := new(collectorpb.ExportTraceServiceRequest)
	_ = proto.Unmarshal(raw, batch) // what is missing fails the test
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range batch.GetResourceSpans() {
		for _, span := range of.GetScopeSpans()[0].GetSpans() {
			attributes := make(map[string]string)
			for _, a := range span.GetAttributes() {
				attributes[a.GetKey()] = a.GetValue().String()
			}
			s.byName[span.GetName()] = attributes
		}
	}
}

// NF-004: making a call, asking for the upstream's task and fetching its result
// are spans, each with its attributes.
func TestStepsAreTraced(t *testing.T) {
	exported := &spans{byName: make(map[string]map[string]string)}
	collector := serve(t, exported.collect)
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
	theirs := p.shop.made()[0]
	exported.mu.Lock()
	defer exported.mu.Unlock()
	for name, want := range map[string]map[string]string{
		"upstream_execution": {"tool.name": "hold_required", "execution.path": "task", "upstream.task_id": theirs},
		"lazy_poll":          {"upstream.task_id": theirs},
		"stream_result":      {"upstream.task_id": theirs, "bytes_streamed": ""},
	} {
		got, sent := exported.byName[name]
		if !sent {
			t.Errorf("no span %s among %v", name, exported.byName)
		}
		for key, value := range want {
			if text, ok := got[key]; !ok || !strings.Contains(text, value) {
				t.Errorf("span %s: %s is %q; want %q", name, key, text, value)
			}
		}
	}
}
