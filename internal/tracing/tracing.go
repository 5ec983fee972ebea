// Package tracing sends a span for each step of a request to an OpenTelemetry collector, and
// passes the W3C trace context of the agent on to the upstream:
//
//	ctx, span := t.StartRequest(ctx, tracing.Parent{Traceparent: header})
//	defer span.End()
//	span.SetAttrs(tracing.Attrs{Method: "tools/call"})
//
// [New] combines the OpenTelemetry SDK, which samples, batches and encodes, with the small client
// of package otlp.
//
// Tracing is off by default. A nil [*Tracing] and the zero [Span] do nothing and do not
// allocate, so callers need not check whether tracing is on. The package sets no global state.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// batchDelay is the time that a finished span waits for others, and exportTimeout the time
	// limit for all attempts to export a batch. Both are the defaults of the SDK. They are set
	// here so that environment variables cannot change them.
	batchDelay    = 5 * time.Second
	exportTimeout = 30 * time.Second

	// maxValueLength truncates text from agents, such as an unknown method.
	maxValueLength = 256
)

// A Config configures [New].
type Config struct {
	// Endpoint is the URL of the collector. The default path is /v1/traces.
	// Empty turns tracing off.
	Endpoint string
	// Headers are sent with every export, and are never logged.
	Headers map[string]string
	// Sample is the share of traces to record, from 0 to 1. It applies to traces that begin
	// at the gate. A trace that began at the agent is recorded if the agent records it.
	Sample float64
	// Version is the version of the gateway.
	Version string
}

// Tracing starts spans. The nil *Tracing is valid and off.
type Tracing struct {
	provider  *sdktrace.TracerProvider
	collector *collector
	tracer    trace.Tracer
}

// New returns a Tracing that exports to the collector of cfg until [Tracing.Close], or nil if
// cfg has no endpoint. A collector that cannot be reached is logged, and is not an error.
func New(cfg Config, log *slog.Logger) (*Tracing, error) {
	return newTracing(cfg, log, http.DefaultTransport.(*http.Transport).Clone())
}

func newTracing(cfg Config, log *slog.Logger, transport *http.Transport) (*Tracing, error) {
	if cfg.Endpoint == "" {
		return nil, nil // tracing is off
	}
	if !(cfg.Sample >= 0 && cfg.Sample <= 1) { // in this form to reject NaN
		return nil, fmt.Errorf("tracing: sample %v is not between 0 and 1", cfg.Sample)
	}
	to, err := newCollector(cfg, log, transport)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	exporter, err := otlptrace.New(context.Background(), to)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValueLength
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter,
			sdktrace.WithMaxQueueSize(sdktrace.DefaultMaxQueueSize),
			sdktrace.WithMaxExportBatchSize(sdktrace.DefaultMaxExportBatchSize),
			sdktrace.WithBatchTimeout(batchDelay),
			sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(linkSampler{sdktrace.TraceIDRatioBased(cfg.Sample)})),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "thoughtgate"),
			attribute.String("service.version", cfg.Version),
			attribute.String("telemetry.sdk.name", "opentelemetry"),
			attribute.String("telemetry.sdk.language", "go"),
			attribute.String("telemetry.sdk.version", sdk.Version()),
		)),
	)
	return &Tracing{
		provider:  provider,
		collector: to,
		tracer:    provider.Tracer("thoughtgate", trace.WithInstrumentationVersion(cfg.Version)),
	}, nil
}

// Close exports the spans that have ended, and stops all goroutines before it returns. If ctx
// ends first, Close drops the remaining spans. It returns an error if spans were dropped or
// the last export failed.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, t.collector.abort)
	defer stop()
	err := t.provider.Shutdown(context.WithoutCancel(ctx)) // with ctx, Shutdown would return before its goroutine
	if err != nil {
		return fmt.Errorf("tracing: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}

// A Parent is the trace context of a request: the values of the W3C headers traceparent and
// tracestate. A malformed parent is ignored.
type Parent struct {
	Traceparent, Tracestate string
}

// StartRequest starts the span of a request from an agent. It is a child of parent if that is
// valid, and otherwise the root of a new trace.
func (t *Tracing) StartRequest(ctx context.Context, parent Parent) (context.Context, Span) {
	if t != nil && parent.Traceparent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
			"traceparent": parent.Traceparent,
			"tracestate":  parent.Tracestate,
		})
	}
	return t.start(ctx, "mcp.request", trace.SpanKindServer)
}

// StartUpstream starts the span of a request to an upstream, a child of the span in ctx. The
// caller sends its [Span.Traceparent] and [Span.Tracestate] to the upstream.
func (t *Tracing) StartUpstream(ctx context.Context) (context.Context, Span) {
	return t.start(ctx, "mcp.upstream", trace.SpanKindClient)
}

// StartPolicy starts the span of evaluating the policy for a message.
func (t *Tracing) StartPolicy(ctx context.Context) (context.Context, Span) {
	return t.start(ctx, "policy.evaluate", trace.SpanKindInternal)
}

// A Step is a kind of request to an upstream for a held call.
type Step string

// The steps of NF-004 in REQ-GOV-004.
const (
	StepExecution Step = "upstream_execution" // send the call
	StepPoll      Step = "lazy_poll"          // get the status of the nested task
	StepResult    Step = "stream_result"      // fetch the result of the nested task
	StepListen    Step = "sse_forward"        // receive the events of the nested task
)

// StartStep starts the span of a step, a child of the span in ctx if there is one. The span
// is linked to the request with the given traceparent. That request is the one whose call
// was held, and may have ended days ago.
func (t *Tracing) StartStep(ctx context.Context, s Step, request string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, string(s), trace.SpanKindClient, linkTo(ctx, request)...)
}

// linkTo returns a link to the span with a traceparent, or nil if it is empty or malformed.
func linkTo(ctx context.Context, traceparent string) []trace.SpanStartOption {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // remove the present span
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return nil
	}
	return []trace.SpanStartOption{trace.WithLinks(trace.Link{SpanContext: span})}
}

// StepAttrs describe a step. Zero values are omitted.
type StepAttrs struct {
	Tool         string
	Path         string // how the call runs, such as metrics.PathSync
	UpstreamTask string
	Bytes        int64 // the size of the result
	Clients      int   // the number of clients that receive the events
}

// SetStep describes the step of s.
func (s Span) SetStep(a StepAttrs) {
	if !s.recording() {
		return
	}
	for name, value := range map[string]string{"tool.name": a.Tool, "execution.path": a.Path, "upstream.task_id": a.UpstreamTask} {
		if value != "" {
			s.span.SetAttributes(text(name, value))
		}
	}
	if a.Bytes > 0 {
		s.span.SetAttributes(attribute.Int64("bytes_streamed", a.Bytes))
	}
	if a.Clients > 0 {
		s.span.SetAttributes(attribute.Int("client_count", a.Clients))
	}
}

// A Wait is the time from holding a call to its decision.
type Wait struct {
	From, To time.Time
	Request  string // the traceparent of the held request; empty if it was not traced
	Task     string
	Outcome  string
}

// ApprovalWaited records a wait as a new trace that is linked to the held request. It is not a
// child of that request, which may have ended days ago.
func (t *Tracing) ApprovalWaited(ctx context.Context, w Wait) {
	if t == nil {
		return
	}
	options := append(linkTo(ctx, w.Request), trace.WithNewRoot(), trace.WithTimestamp(w.From),
		trace.WithAttributes(text("task", w.Task), text("approval.outcome", w.Outcome)))
	_, span := t.tracer.Start(ctx, "approval.wait", options...)
	span.End(trace.WithTimestamp(w.To))
}

// A linkSampler samples a linked root span if the linked span is sampled, and leaves all other
// spans to the embedded sampler.
type linkSampler struct{ sdktrace.Sampler }

// ShouldSample implements [sdktrace.Sampler].
func (l linkSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	switch {
	case len(p.Links) == 0:
		return l.Sampler.ShouldSample(p)
	case p.Links[0].SpanContext.IsSampled():
		return sdktrace.AlwaysSample().ShouldSample(p)
	default:
		return sdktrace.NeverSample().ShouldSample(p)
	}
}

func (t *Tracing) start(ctx context.Context, name string, kind trace.SpanKind, more ...trace.SpanStartOption) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, append(more, trace.WithSpanKind(kind))...)
	return ctx, Span{span}
}

// A Span is one timed step of a request. The zero Span is off.
type Span struct {
	span trace.Span
}

// Attrs describe a request.
type Attrs struct {
	Method        string // empty if the message was malformed
	CorrelationID string
	TaskAugmented bool // the agent asked for a task
}

// SetAttrs describes the request of s.
func (s Span) SetAttrs(a Attrs) {
	if !s.recording() {
		return
	}
	s.span.SetAttributes(text("correlation_id", a.CorrelationID), attribute.Bool("task_augmented", a.TaskAugmented))
	if a.Method != "" {
		s.span.SetAttributes(text("method", a.Method))
	}
}

// SetVerdict records the verdict of the policy, and the snapshot of the policy.
func (s Span) SetVerdict(action, snapshot string) {
	if s.recording() {
		s.span.SetAttributes(text("policy.action", action), text("policy.snapshot", snapshot))
	}
}

// Fail marks s as failed. ErrorType is the stable error_type of the answer and of the log.
func (s Span) Fail(errorType string) {
	if !s.recording() {
		return
	}
	s.span.SetStatus(codes.Error, valid(errorType))
	s.span.SetAttributes(text("error.type", errorType))
}

// End ends s. Later changes of attributes have no effect.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Traceparent returns the W3C traceparent with which a receiver continues the trace below s,
// or "" if s is off.
func (s Span) Traceparent() string {
	if s.span == nil {
		return ""
	}
	return traceparent(s.span.SpanContext())
}

// Traceparent returns [Span.Traceparent] of the span in ctx.
func Traceparent(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		return traceparent(sc)
	}
	return ""
}

func traceparent(sc trace.SpanContext) string {
	flags := sc.TraceFlags() & (trace.FlagsSampled | trace.FlagsRandom)
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + flags.String()
}

// recording reports whether s keeps attributes. If not, callers need not build them.
func (s Span) recording() bool { return s.span != nil && s.span.IsRecording() }

// text returns a string attribute.
func text(name, value string) attribute.KeyValue { return attribute.String(name, valid(value)) }

// valid returns s as valid UTF-8. With one invalid byte, for example from a header, protobuf
// would refuse to encode the whole batch.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
