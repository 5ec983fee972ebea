package mcphttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/spans"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// heardRequests records the requests to an upstream.
type heardRequests struct {
	mu  sync.Mutex
	all []heardRequest
}

type heardRequest struct{ method, header, meta string }

// with returns a handler that records each request before serve gets it.
func (h *heardRequests) with(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if p, err := jsonrpc.Parse(body, jsonrpc.Limits{}); err == nil && !p.Batch {
			m := &p.Messages[0]
			meta, _ := m.Params.Meta.Member("traceparent").Text()
			h.mu.Lock()
			h.all = append(h.all, heardRequest{m.Method, r.Header.Get("Traceparent"), meta})
			h.mu.Unlock()
		}
		serve(w, r)
	}
}

func (h *heardRequests) method(t *testing.T, method string) heardRequest {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.all {
		if one.method == method {
			return one
		}
	}
	t.Fatalf("the upstream did not hear %s", method)
	return heardRequest{}
}

// telemetry has the spans and the log of a gate.
type telemetry struct {
	*spans.Collector

	heard *heardRequests
	log   *logBuffer
}

// trace starts the gate of p with a span collector and a debug log. The returned function ends
// everything that is traced.
func (p *taskFixture) trace(t *testing.T) (*telemetry, func()) {
	t.Helper()
	exported, heard, log := new(spans.Collector), new(heardRequests), new(logBuffer)
	tracer, err := tracing.New(tracing.Config{Endpoint: serve(t, exported.ServeHTTP), Sample: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.gateway = startGate(t, serve(t, heard.with(p.server.serve)), func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting, s.handler.Tracing = p.catalog, p.approvals, p.waiting, tracer
		s.upstream.Tracing, s.upstream.Metrics = tracer, s.handler.Metrics
		s.handler.Log = logging.New(log, "json", slog.LevelDebug)
		s.upstream.Log = s.handler.Log
	})
	return &telemetry{exported, heard, log}, func() {
		p.handler.EndStreams()
		if err := p.approvals.Close(t.Context()); err != nil { // waits for the fetch of the result and its span
			t.Fatal(err)
		}
		if err := tracer.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	creation = "11111111111111111111111111111111" // the trace of the request that makes the call
	contact  = "22222222222222222222222222222222" // the trace of the requests that ask about the call
)

func traced(headers []string, trace string) []string {
	return append(headers, "Traceparent", "00-"+trace+"-aaaaaaaaaaaaaaaa-01")
}

func wantAttributes(t *testing.T, s spans.Span, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if text, ok := s.Attributes[key]; !ok || !strings.Contains(text, value) {
			t.Errorf("span %s: %s is %q; want %q", s.Name, key, text, value)
		}
	}
}

// NF-004: making a call, polling the upstream's task and fetching its result are spans with
// attributes. Each is a child of its request, linked to the request that made the call, and
// sent to the upstream as parent. The log has them too.
func TestStepsAreTraced(t *testing.T) {
	p := newTaskFixture(t, nil)
	exported, end := p.trace(t)
	heard, log := exported.heard, exported.log
	id := p.start(toolCall("7", "hold_required", `,"task":{}`), traced(nil, creation)...)
	eventually(t, "the upstream has a task", func() bool { return p.state(id).Execution.UpstreamTask != "" })
	p.server.done(madeIt)
	eventually(t, "the upstream is done", func() bool {
		return strings.Contains(p.ask(legacyAbout("tasks/get", id), traced(nil, contact)...), `"status":"completed"`)
	})
	wantText(t, "result", p.ask(legacyAbout("tasks/result", id), traced(nil, contact)...), "made it")
	eventually(t, "the result is counted", func() bool { // the client may have it a moment before
		return strings.Contains(scrape(p.gateway), `thoughtgate_upstream_result_streams_total{status="success"} 1`)
	})
	size := p.state(id).Result.Size
	end()

	theirs := p.server.made()[0]
	request := exported.Find(t, "mcp.request", func(s spans.Span) bool { return s.Trace == creation })
	policy := exported.Find(t, "policy.evaluate", func(s spans.Span) bool { return s.Trace == creation })
	if request.Parent != "aaaaaaaaaaaaaaaa" || policy.Parent != request.ID {
		t.Errorf("the request has parent %s, the verdict %s; want those of the client and of the request %s", request.Parent, policy.Parent, request.ID)
	}
	for name, want := range map[string]map[string]string{
		"upstream_execution": {"tool.name": "hold_required", "execution.path": "task", "upstream.task_id": theirs},
		"lazy_poll":          {"upstream.task_id": theirs},
		"stream_result":      {"upstream.task_id": theirs, "bytes_streamed": fmt.Sprintf(":%d", size)},
	} {
		step := exported.Find(t, name, spans.Any)
		wantAttributes(t, step, want)
		if len(step.Links) != 1 || step.Links[0] != creation+"-"+request.ID {
			t.Errorf("span %s is linked to %v; want the request that made the call", name, step.Links)
		}
		if step.Parent != "" {
			exported.Find(t, "mcp.request", func(s spans.Span) bool { return s.ID == step.Parent && s.Trace == step.Trace })
		}
	}
	execution := exported.Find(t, "upstream_execution", spans.Any)
	if sent := heard.method(t, "tools/call").header; !strings.HasPrefix(sent, execution.Traceparent()) {
		t.Errorf("the call was sent with parent %s; want the execution %s", sent, execution.Traceparent())
	}
	poll := exported.Find(t, "lazy_poll", spans.Any)
	if sent := heard.method(t, "tasks/get").header; !strings.HasPrefix(sent, poll.Traceparent()) || poll.Trace != contact {
		t.Errorf("the upstream was asked with parent %s; want the poll %s, in the trace of the client", sent, poll.Traceparent())
	}
	for _, line := range []string{"upstream execution", "lazy poll", "streaming result"} {
		wantLogged(t, log, line, `"task_id":"`+id+`"`, `"tool":"hold_required"`)
	}
	wantLogged(t, log, "lazy poll", `"upstream_task_id":"`+theirs+`"`, `"status":"completed"`)
	wantLogged(t, log, "streaming result", `"upstream_task_id":"`+theirs+`"`, `"bytes":`)
}

// wantLogged checks that one line with the message has all the texts.
func wantLogged(t *testing.T, log *logBuffer, message string, texts ...string) {
	t.Helper()
next:
	for line := range strings.Lines(log.String()) {
		for _, text := range append(texts, `"msg":"`+message+`"`) {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		return
	}
	t.Errorf("no line %q with %q in\n%s", message, texts, log)
}

// NF-004: a subscription to an upstream task is a span with the task and the number of
// listening clients, linked to the request that made the call. A modern upstream gets the
// execution span in _meta too. The log has connections, subscriptions and forwarded
// notifications.
func TestListeningIsTraced(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	exported, end := p.trace(t)
	heard, log := exported.heard, exported.log
	own := taskID(t, p.ask(modernCall("hold_optional", tasksExtension), traced(modernHeaders("hold_optional"), creation)...))
	p.approve(task.ID(own))
	get, headers := about("tasks/get", own)
	eventually(t, "the gate knows of the task", func() bool {
		p.ask(get, headers...)
		now := p.state(own)
		return now.Execution != nil && now.Execution.UpstreamTask != ""
	})
	theirs := p.server.made()[0]
	listen, headers := listenTo(own)
	first, second := p.stream(t, http.MethodPost, listen, headers...), p.stream(t, http.MethodPost, listen, headers...)
	for _, next := range []func() string{first, second} {
		next()
		wantText(t, "status", next(), own, `"status":"working"`)
	}
	eventually(t, "the gate subscribes", func() bool { now, _ := notifier.listeners(); return now == 1 })
	eventually(t, "the upstream has acknowledged", func() bool { return strings.Contains(log.String(), "SSE upstream subscribed") })
	end()

	request := exported.Find(t, "mcp.request", func(s spans.Span) bool { return s.Trace == creation })
	forward := exported.Find(t, "sse_forward", spans.Any)
	wantAttributes(t, forward, map[string]string{"upstream.task_id": theirs, "client_count": "2"})
	if len(forward.Links) != 1 || forward.Links[0] != creation+"-"+request.ID || forward.Parent != "" {
		t.Errorf("the span has parent %q and links %v; want a separate trace, linked to the request that made the call", forward.Parent, forward.Links)
	}
	if sent := heard.method(t, "subscriptions/listen"); !strings.HasPrefix(sent.header, forward.Traceparent()) || sent.meta != sent.header {
		t.Errorf("the upstream got the subscription %+v; want parent %s", sent, forward.Traceparent())
	}
	execution := exported.Find(t, "upstream_execution", spans.Any)
	if sent := heard.method(t, "tools/call"); !strings.HasPrefix(sent.header, execution.Traceparent()) || sent.meta != sent.header {
		t.Errorf("the call was sent with %+v; want parent %s", sent, execution.Traceparent())
	}
	wantLogged(t, log, "SSE client connected", `"task_id":"`+own+`"`, `"client_count":2`)
	wantLogged(t, log, "SSE upstream subscribed", `"task_id":"`+own+`"`, `"upstream_task_id":"`+theirs+`"`)
	wantLogged(t, log, "SSE notification forwarded", `"task_id":"`+own+`"`, `"status":"working"`)
}
