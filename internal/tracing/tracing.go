// Package tracing reports to an OpenTelemetry collector what happened to each
// request, and carries W3C trace context from the agent to the upstream.
//
// [New] ties the OpenTelemetry SDK, which samples and batches, to a small
// exporter for OTLP over HTTP. The official exporter is not used because it
// calls methods by reflected name, after which the linker must keep every
// method of the whole program.
//
// Tracing is off by default: a nil [*Tracing] starts nothing and the zero
// [Span] records nothing, both without allocating, so callers never ask
// whether it is on. Nothing global is set.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// batchDelay is how long a finished span waits for others, exportTimeout
	// how long one batch may take with all its attempts. Both are the SDK's
	// own defaults, written down so that the environment cannot change them.
	batchDelay    = 5 * time.Second
	exportTimeout = 30 * time.Second

	// maxValueLength cuts what an agent wrote, such as an unknown method.
	maxValueLength = 256
)

// A Config says where spans go.
type Config struct {
	// Endpoint is the URL of the collector. Without a path it gets /v1/traces.
	// Empty turns tracing off.
	Endpoint string
	// Headers are sent with every export, and are never logged.
	Headers map[string]string
	// Sample is the share of traces to record, from 0 to 1, among those that
	// begin here. A trace that an agent began is recorded if the agent does.
	Sample float64
	// Version is the version of the gateway.
	Version string
}

// Tracing starts spans. The nil *Tracing is valid and off.
type Tracing struct {
	provider *sdktrace.TracerProvider
	exporter *exporter
	tracer   trace.Tracer
}

// New returns a Tracing that exports to the collector of cfg until
// [Tracing.Close], or nil if cfg names none. A collector that cannot be
// reached is not an error: that is logged to log while it lasts.
func New(cfg Config, log *slog.Logger) (*Tracing, error) {
	return newTracing(cfg, log, http.DefaultTransport.(*http.Transport).Clone())
}

func newTracing(cfg Config, log *slog.Logger, transport *http.Transport) (*Tracing, error) {
	if cfg.Endpoint == "" {
		return nil, nil // the Tracing that is off
	}
	if !(cfg.Sample >= 0 && cfg.Sample <= 1) { // so written because of NaN
		return nil, fmt.Errorf("tracing: sample %v is not between 0 and 1", cfg.Sample)
	}
	exp, err := newExporter(cfg, log, transport)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValueLength
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exp,
			sdktrace.WithMaxQueueSize(sdktrace.DefaultMaxQueueSize),
			sdktrace.WithMaxExportBatchSize(sdktrace.DefaultMaxExportBatchSize),
			sdktrace.WithBatchTimeout(batchDelay),
			sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(linked{sdktrace.TraceIDRatioBased(cfg.Sample)})),
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
		provider: provider,
		exporter: exp,
		tracer:   provider.Tracer("thoughtgate", trace.WithInstrumentationVersion(cfg.Version)),
	}, nil
}

// Close exports the spans that have ended and stops. When ctx ends first, what
// is left is given up; Close then returns an error, as it does whenever the
// last export failed. Either way nothing is running any more when it returns.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, t.exporter.abort)
	defer stop()
	err := t.provider.Shutdown(context.WithoutCancel(ctx)) // with ctx it would return before its goroutine
	if err != nil {
		return fmt.Errorf("tracing: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}

// A Parent is the trace context that came with a request, as in the W3C
// headers traceparent and tracestate. A malformed one is ignored.
type Parent struct {
	Traceparent, Tracestate string
}

// StartRequest starts the span of a request from an agent, below parent if
// that is valid and as the root of a new trace otherwise.
func (t *Tracing) StartRequest(ctx context.Context, parent Parent) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if parent.Traceparent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
			"traceparent": parent.Traceparent,
			"tracestate":  parent.Tracestate,
		})
	}
	return t.start(ctx, "mcp.request", trace.SpanKindServer)
}

// StartUpstream starts the span of a request to an upstream, below the span in
// ctx. The upstream is to get its [Span.Traceparent] and [Span.Tracestate].
func (t *Tracing) StartUpstream(ctx context.Context) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, "mcp.upstream", trace.SpanKindClient)
}

// StartPolicy starts the span of asking policy about a message.
func (t *Tracing) StartPolicy(ctx context.Context) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, "policy.evaluate", trace.SpanKindInternal)
}

// A Step is something that is done upstream for a held call.
type Step string

// The steps of NF-004 in REQ-GOV-004.
const (
	StepExecution Step = "upstream_execution" // the call is made
	StepPoll      Step = "lazy_poll"          // the upstream's own task is asked for
	StepResult    Step = "stream_result"      // its result is fetched
	StepListen    Step = "sse_forward"        // it is listened to
)

// StartStep starts the span of a step, below the span in ctx if there is one. It
// is linked to the request whose call was held, which has that traceparent and
// may have ended days ago.
func (t *Tracing) StartStep(ctx context.Context, s Step, request string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, string(s), append(linkTo(ctx, request), trace.WithSpanKind(trace.SpanKindClient))...)
	return ctx, Span{span}
}

// linkTo returns the link to the span with a traceparent, or nothing if there is
// none.
func linkTo(ctx context.Context, traceparent string) []trace.SpanStartOption {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // which is not the one to link to
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return nil
	}
	return []trace.SpanStartOption{trace.WithLinks(trace.Link{SpanContext: span})}
}

// StepAttrs describe a step. Empty ones are left out.
type StepAttrs struct {
	Tool         string
	Path         string // how the call is made
	UpstreamTask string
	Bytes        int64 // of the result
	Clients      int   // that get what the upstream says
}

// SetStep describes the step of s.
func (s Span) SetStep(a StepAttrs) {
	if !s.recording() {
		return
	}
	for name, value := range map[string]string{"tool.name": a.Tool, "execution.path": a.Path, "upstream.task_id": a.UpstreamTask} {
		if value != "" {
			s.span.SetAttributes(attribute.String(name, value))
		}
	}
	if a.Bytes > 0 {
		s.span.SetAttributes(attribute.Int64("bytes_streamed", a.Bytes))
	}
	if a.Clients > 0 {
		s.span.SetAttributes(attribute.Int("client_count", a.Clients))
	}
}

// A Wait is the time from holding a call to the decision about it.
type Wait struct {
	From, To time.Time
	Request  string // the traceparent of the request that was held; empty if that was not traced
	Task     string
	Outcome  string
}

// ApprovalWaited records a wait as a trace of its own, linked to the request
// that was held: that one may have ended days ago.
func (t *Tracing) ApprovalWaited(ctx context.Context, w Wait) {
	if t == nil {
		return
	}
	options := append(linkTo(ctx, w.Request), trace.WithNewRoot(), trace.WithTimestamp(w.From),
		trace.WithAttributes(attribute.String("task", w.Task), attribute.String("approval.outcome", w.Outcome)))
	_, span := t.tracer.Start(ctx, "approval.wait", options...)
	span.End(trace.WithTimestamp(w.To))
}

// linked samples a trace that begins here like the one that it is linked to,
// and others as the embedded sampler does.
type linked struct{ sdktrace.Sampler }

// ShouldSample implements [sdktrace.Sampler].
func (l linked) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	switch {
	case len(p.Links) == 0:
		return l.Sampler.ShouldSample(p)
	case p.Links[0].SpanContext.IsSampled():
		return sdktrace.AlwaysSample().ShouldSample(p)
	default:
		return sdktrace.NeverSample().ShouldSample(p)
	}
}

func (t *Tracing) start(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// A Span is one timed step of a request. The zero Span is off.
type Span struct {
	span trace.Span
}

// Attrs describe a request.
type Attrs struct {
	Method        string // empty if the message could not be read
	CorrelationID string
	TaskAugmented bool // the agent asked for a task
}

// SetAttrs describes the request of s.
func (s Span) SetAttrs(a Attrs) {
	if !s.recording() {
		return
	}
	s.SetMethod(a.Method)
	s.span.SetAttributes(
		attribute.String("correlation_id", a.CorrelationID),
		attribute.Bool("task_augmented", a.TaskAugmented),
	)
}

// SetVerdict records what policy said, and which snapshot of it.
func (s Span) SetVerdict(action, snapshot string) {
	if s.recording() {
		s.span.SetAttributes(attribute.String("policy.action", action), attribute.String("policy.snapshot", snapshot))
	}
}

// SetMethod records the MCP method that s is about, unless it is empty.
func (s Span) SetMethod(method string) {
	if s.recording() && method != "" {
		s.span.SetAttributes(attribute.String("method", method))
	}
}

// Fail marks s as failed. The errorType is the stable error_type that is also
// in the answer and in the log.
func (s Span) Fail(errorType string) {
	if !s.recording() {
		return
	}
	s.span.SetStatus(codes.Error, errorType)
	s.span.SetAttributes(attribute.String("error.type", errorType))
}

// End ends s. Attributes that are set later are lost.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Traceparent returns the W3C traceparent that makes s the parent of what the
// receiver does, or "" if s is off.
func (s Span) Traceparent() string {
	if s.span == nil {
		return ""
	}
	return traceparent(s.span.SpanContext())
}

// Traceparent is [Span.Traceparent] of the span in ctx.
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

// Tracestate returns the W3C tracestate that belongs to [Span.Traceparent]. It
// is empty if the agent sent none.
func (s Span) Tracestate() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceState().String()
}

// recording saves building attributes for a span that is off or not sampled.
func (s Span) recording() bool { return s.span != nil && s.span.IsRecording() }
