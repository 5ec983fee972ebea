package tracing_test

import (
	"encoding/hex"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
	sampled  = "00-" + traceID + "-" + parentID + "-01"
)

// TestSpans checks the spans and attributes of NFR-001 in REQ-CORE-003.
func TestSpans(t *testing.T) {
	begin := time.Now()
	c := newCollector(t)
	tr := c.open(t, tracing.Config{
		Headers: map[string]string{"x-api-key": "k1"},
		Version: "1.2.3",
	})
	ctx, request := tr.StartRequest(t.Context(), tracing.Parent{Traceparent: sampled, Tracestate: "vendor=1"})
	request.SetAttrs(tracing.Attrs{Method: "tools/call", CorrelationID: "c-1", TaskAugmented: true})
	_, upstream := tr.StartUpstream(ctx)
	upstream.Fail("upstream_timeout")
	sent := upstream.Traceparent()
	upstream.End()
	request.End()
	closeTracing(t, tr)

	req := c.only(t)
	if diff := cmp.Diff("POST /v1/traces k1 application/x-protobuf thoughtgate/1.2.3", req.head); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	resource := attributes(req.body.GetResourceSpans()[0].GetResource().GetAttributes())
	for name, want := range map[string]any{"service.name": "thoughtgate", "service.version": "1.2.3"} {
		if resource[name] != want {
			t.Errorf("resource %s = %v; want %v", name, resource[name], want)
		}
	}
	got := flatten(req.body)
	if len(got) != 2 {
		t.Fatalf("%d spans; want 2", len(got))
	}
	upstreamID, requestID := got[0].ID, got[1].ID
	want := []span{{
		ID: upstreamID, Name: "mcp.upstream", Kind: "SPAN_KIND_CLIENT", Trace: traceID, Parent: requestID, State: "vendor=1", Flags: 0x101,
		Attrs:  map[string]any{"error.type": "upstream_timeout"},
		Status: "STATUS_CODE_ERROR upstream_timeout",
	}, {
		ID: requestID, Name: "mcp.request", Kind: "SPAN_KIND_SERVER", Trace: traceID, Parent: parentID, State: "vendor=1", Flags: 0x301,
		Attrs:  map[string]any{"method": "tools/call", "correlation_id": "c-1", "task_augmented": true},
		Status: "STATUS_CODE_UNSET ",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for _, s := range req.body.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
		if s.GetStartTimeUnixNano() < uint64(begin.UnixNano()) || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s lasts from %d to %d; want it after %d", s.GetName(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano(), begin.UnixNano())
		}
	}
	if want := "00-" + traceID + "-" + upstreamID + "-01"; sent != want {
		t.Errorf("traceparent sent upstream = %s; want %s", sent, want)
	}
}

// TestApprovalWaitIsLinkedTrace checks that a wait for approval is a new trace that is linked to the held
// request, and that it is sampled if the request is.
func TestApprovalWaitIsLinkedTrace(t *testing.T) {
	c := newCollector(t)
	tr, err := tracing.New(tracing.Config{Endpoint: c.URL, Sample: 0}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now().Add(-time.Hour)
	wait := tracing.Wait{From: from, To: from.Add(time.Minute), Request: sampled, Task: "tg_1", Outcome: "approved"}
	tr.ApprovalWaited(t.Context(), wait)
	wait.Request = "00-" + traceID + "-" + parentID + "-00"
	tr.ApprovalWaited(t.Context(), wait) // not sampled, like its request
	wait.Request = ""
	tr.ApprovalWaited(t.Context(), wait) // not sampled, since Sample is 0
	closeTracing(t, tr)

	spans := c.only(t).body.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
	if len(spans) != 1 {
		t.Fatalf("%d spans; want the one whose request is sampled", len(spans))
	}
	got := spans[0]
	if got.GetName() != "approval.wait" || len(got.GetParentSpanId()) != 0 || hex.EncodeToString(got.GetTraceId()) == traceID {
		t.Errorf("span %s with parent %x in trace %x; want approval.wait at the root of another trace", got.GetName(), got.GetParentSpanId(), got.GetTraceId())
	}
	if d := time.Duration(got.GetEndTimeUnixNano() - got.GetStartTimeUnixNano()); d != time.Minute {
		t.Errorf("the span lasts %v; want %v", d, time.Minute)
	}
	if len(got.GetLinks()) != 1 || hex.EncodeToString(got.GetLinks()[0].GetTraceId()) != traceID || hex.EncodeToString(got.GetLinks()[0].GetSpanId()) != parentID {
		t.Errorf("links %v; want one to the request", got.GetLinks())
	}
	if diff := cmp.Diff(map[string]any{"task": "tg_1", "approval.outcome": "approved"}, attributes(got.GetAttributes())); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestParentTraceContinues(t *testing.T) {
	const unsampled = "00-" + traceID + "-" + parentID + "-00"
	tests := []struct {
		name      string
		parent    tracing.Parent
		continues bool   // the span continues the trace of the agent
		flags     string // the trace flags of the span
		state     string // the tracestate of the span
	}{
		{"sampled", tracing.Parent{Traceparent: sampled}, true, "01", ""},
		{"not sampled", tracing.Parent{Traceparent: unsampled}, true, "00", ""},
		{"random trace id", tracing.Parent{Traceparent: sampled[:53] + "03"}, true, "03", ""},
		{"later version with more", tracing.Parent{Traceparent: "cc" + sampled[2:] + "-what"}, true, "01", ""},
		{"state", tracing.Parent{Traceparent: sampled, Tracestate: "a=1,b=2"}, true, "01", "a=1,b=2"},
		{"bad state", tracing.Parent{Traceparent: sampled, Tracestate: "a=1,=,\x00"}, true, "01", ""},

		{"none", tracing.Parent{}, false, "01", ""},
		{"state alone", tracing.Parent{Tracestate: "a=1"}, false, "01", ""},
		{"upper case", tracing.Parent{Traceparent: strings.ToUpper(sampled)}, false, "01", ""},
		{"short", tracing.Parent{Traceparent: sampled[:54]}, false, "01", ""},
		{"more in version 0", tracing.Parent{Traceparent: sampled + "-what"}, false, "01", ""},
		{"version ff", tracing.Parent{Traceparent: "ff" + sampled[2:]}, false, "01", ""},
		{"zero trace", tracing.Parent{Traceparent: "00-" + strings.Repeat("0", 32) + "-" + parentID + "-01"}, false, "01", ""},
		{"zero parent", tracing.Parent{Traceparent: "00-" + traceID + "-0000000000000000-01"}, false, "01", ""},
		{"not hex", tracing.Parent{Traceparent: strings.Replace(sampled, "4bf9", "4bg9", 1)}, false, "01", ""},
		{"garbage", tracing.Parent{Traceparent: "\xff\x00"}, false, "01", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCollector(t)
			tr := c.open(t, tracing.Config{})
			_, s := tr.StartRequest(t.Context(), tt.parent)
			s.End()
			closeTracing(t, tr)

			got := s.Traceparent()
			if !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-`+tt.flags+`$`).MatchString(got) || strings.Contains(got, parentID) {
				t.Errorf("traceparent = %q; want flags %s and a span id of its own", got, tt.flags)
			}
			if strings.Contains(got, traceID) != tt.continues {
				t.Errorf("traceparent = %q; continues the agent's trace: want %v", got, tt.continues)
			}
			if got := s.Tracestate(); got != tt.state {
				t.Errorf("tracestate = %q; want %q", got, tt.state)
			}
			var want []string // the parents of the exported spans
			switch {
			case tt.flags == "00":
			case tt.continues:
				want = []string{parentID}
			default:
				want = []string{""}
			}
			if diff := cmp.Diff(want, c.parents()); diff != "" {
				t.Errorf("parents (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSampleNone(t *testing.T) {
	c := newCollector(t)
	tr, err := tracing.New(tracing.Config{Endpoint: c.URL, Sample: 0}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := tr.StartRequest(t.Context(), tracing.Parent{})
	_, up := tr.StartUpstream(ctx)
	up.End()
	s.End()
	closeTracing(t, tr)

	c.none(t)
	if !strings.HasSuffix(up.Traceparent(), "-00") || up.Traceparent()[:36] != s.Traceparent()[:36] {
		t.Errorf("traceparents %s and %s; want one trace that is not sampled", s.Traceparent(), up.Traceparent())
	}
}

// TestHostileAttributesAreCleaned checks that long text from agents is truncated, and that invalid text
// does not prevent the export of a batch.
func TestHostileAttributesAreCleaned(t *testing.T) {
	c := newCollector(t)
	tr := c.open(t, tracing.Config{})
	_, s := tr.StartRequest(t.Context(), tracing.Parent{})
	s.SetAttrs(tracing.Attrs{Method: strings.Repeat("m", 1<<20), CorrelationID: "c\xff1"})
	s.Fail("bad\xff")
	s.End()
	closeTracing(t, tr)

	got := flatten(c.only(t).body)[0]
	if n := len(got.Attrs["method"].(string)); n != 256 {
		t.Errorf("method has %d bytes; want 256", n)
	}
	if got.Attrs["correlation_id"] != "c\uFFFD1" || got.Status != "STATUS_CODE_ERROR bad\uFFFD" {
		t.Errorf("correlation_id = %q, status = %q", got.Attrs["correlation_id"], got.Status)
	}
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name string
		cfg  tracing.Config
		want string
	}{
		{"no scheme", tracing.Config{Endpoint: "collector:4318"}, "tracing: endpoint is not an http or https URL"},
		{"gRPC", tracing.Config{Endpoint: "grpc://collector:4317"}, "tracing: endpoint is not an http or https URL"},
		{"no host", tracing.Config{Endpoint: "http:///v1/traces"}, "tracing: endpoint is not an http or https URL"},
		{"unparsable, with a password", tracing.Config{Endpoint: "http://u:hunter2@h:x/"}, "tracing: endpoint is not an http or https URL"},
		{"sample over one", tracing.Config{Endpoint: "http://c", Sample: 1.1}, "tracing: sample 1.1 is not between 0 and 1"},
		{"negative sample", tracing.Config{Endpoint: "http://c", Sample: -1}, "tracing: sample -1 is not between 0 and 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr, err := tracing.New(tt.cfg, slog.New(slog.DiscardHandler))
			if err == nil {
				closeTracing(t, tr)
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEndpointPath(t *testing.T) {
	for path, want := range map[string]string{
		"":               "/v1/traces",
		"/":              "/v1/traces",
		"/otlp/traces":   "/otlp/traces",
		"/api?tenant=42": "/api?tenant=42",
	} {
		t.Run(path, func(t *testing.T) {
			c := newCollector(t)
			tr := c.open(t, tracing.Config{Endpoint: c.URL + path})
			_, s := tr.StartRequest(t.Context(), tracing.Parent{})
			s.End()
			closeTracing(t, tr)
			if got := strings.Fields(c.only(t).head)[1]; got != want {
				t.Errorf("path = %s; want %s", got, want)
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	elsewhere := newCollector(t)
	c := newCollector(t)
	c.answer = func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	tr := c.open(t, tracing.Config{Headers: map[string]string{"x-api-key": "k1"}})
	_, s := tr.StartRequest(t.Context(), tracing.Parent{})
	s.End()
	if err := tr.Close(t.Context()); err == nil {
		t.Error("Close = nil; want an error about lost spans")
	}
	c.only(t)
	elsewhere.none(t)
}

func TestTracingOff(t *testing.T) {
	tr, err := tracing.New(tracing.Config{Sample: 1}, slog.New(slog.DiscardHandler))
	if tr != nil || err != nil {
		t.Fatalf("New = %v, %v; want nil, nil", tr, err)
	}
	ctx := t.Context()
	allocs := testing.AllocsPerRun(100, func() {
		in, request := tr.StartRequest(ctx, tracing.Parent{Traceparent: sampled})
		request.SetAttrs(tracing.Attrs{Method: "tools/call", CorrelationID: "c-1"})
		out, upstream := tr.StartUpstream(in)
		upstream.Fail("upstream_timeout")
		if in != ctx || out != ctx || upstream.Traceparent() != "" || upstream.Tracestate() != "" {
			t.Error("disabled tracing changed the context or returned a trace context")
		}
		upstream.End()
		request.End()
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	closeTracing(t, tr)
}

func BenchmarkOff(b *testing.B) {
	var tr *tracing.Tracing
	benchmark(b, tr, tracing.Parent{Traceparent: sampled})
}

func BenchmarkNotSampled(b *testing.B) {
	tr := newCollector(b).open(b, tracing.Config{})
	defer closeTracing(b, tr)
	benchmark(b, tr, tracing.Parent{Traceparent: sampled[:len(sampled)-1] + "0"})
}

func BenchmarkSampled(b *testing.B) {
	tr := newCollector(b).open(b, tracing.Config{})
	defer closeTracing(b, tr)
	benchmark(b, tr, tracing.Parent{Traceparent: sampled})
}

func benchmark(b *testing.B, tr *tracing.Tracing, parent tracing.Parent) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		ctx, request := tr.StartRequest(b.Context(), parent)
		request.SetAttrs(tracing.Attrs{Method: "tools/call", CorrelationID: "c-1"})
		_, upstream := tr.StartUpstream(ctx)
		_ = upstream.Traceparent()
		upstream.End()
		request.End()
	}
}
