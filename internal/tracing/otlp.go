package tracing

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// encode returns the OTLP request for spans, of which there is at least one.
// All spans of this package have the same resource and scope, and none has
// events or links.
func encode(spans []sdktrace.ReadOnlySpan) ([]byte, error) {
	scope := spans[0].InstrumentationScope()
	encoded := make([]*tracepb.Span, len(spans))
	for i, s := range spans {
		encoded[i] = encodeSpan(s)
	}
	return proto.Marshal(&collectorpb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{
			Resource: &resourcepb.Resource{Attributes: encodeAttributes(spans[0].Resource().Attributes())},
			ScopeSpans: []*tracepb.ScopeSpans{{
				Scope: &commonpb.InstrumentationScope{Name: scope.Name, Version: text(scope.Version)},
				Spans: encoded,
			}},
		}},
	})
}

func encodeSpan(s sdktrace.ReadOnlySpan) *tracepb.Span {
	sc := s.SpanContext()
	traceID, spanID := sc.TraceID(), sc.SpanID()
	span := &tracepb.Span{
		TraceId:           traceID[:],
		SpanId:            spanID[:],
		TraceState:        sc.TraceState().String(),
		Flags:             encodeFlags(sc, s.Parent()),
		Name:              s.Name(),
		Kind:              encodeKind(s.SpanKind()),
		StartTimeUnixNano: nanoseconds(s.StartTime()),
		EndTimeUnixNano:   nanoseconds(s.EndTime()),
		Attributes:        encodeAttributes(s.Attributes()),
		Links:             encodeLinks(s.Links()),
		Status:            encodeStatus(s.Status()),
	}
	if parent := s.Parent().SpanID(); parent.IsValid() {
		span.ParentSpanId = parent[:]
	}
	return span
}

func encodeLinks(links []sdktrace.Link) []*tracepb.Span_Link {
	out := make([]*tracepb.Span_Link, len(links))
	for i, l := range links {
		traceID, spanID := l.SpanContext.TraceID(), l.SpanContext.SpanID()
		out[i] = &tracepb.Span_Link{
			TraceId: traceID[:], SpanId: spanID[:], TraceState: l.SpanContext.TraceState().String(),
			Flags: encodeFlags(l.SpanContext, l.SpanContext),
		}
	}
	return out
}

// encodeFlags returns the W3C flags of a span and whether its parent is in
// another process.
func encodeFlags(sc, parent trace.SpanContext) uint32 {
	flags := uint32(sc.TraceFlags()) | uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
	if parent.IsRemote() {
		flags |= uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	return flags
}

func encodeKind(k trace.SpanKind) tracepb.Span_SpanKind {
	switch k {
	case trace.SpanKindServer:
		return tracepb.Span_SPAN_KIND_SERVER
	case trace.SpanKindClient:
		return tracepb.Span_SPAN_KIND_CLIENT
	default:
		return tracepb.Span_SPAN_KIND_INTERNAL
	}
}

func encodeStatus(s sdktrace.Status) *tracepb.Status {
	if s.Code != codes.Error {
		return nil // unset
	}
	return &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: text(s.Description)}
}

func encodeAttributes(attrs []attribute.KeyValue) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, len(attrs))
	for i, kv := range attrs {
		out[i] = &commonpb.KeyValue{Key: text(string(kv.Key)), Value: encodeValue(kv.Value)}
	}
	return out
}

func encodeValue(v attribute.Value) *commonpb.AnyValue {
	switch v.Type() {
	case attribute.BOOL:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v.AsBool()}}
	case attribute.INT64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v.AsInt64()}}
	default:
		return encodeText(v)
	}
}

func encodeText(v attribute.Value) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: text(v.String())}}
}

// text returns s as protobuf accepts it. One invalid byte, in a header say,
// would otherwise make the whole batch unsendable.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func nanoseconds(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// A rejectedError says that the collector took a batch, but not all of it.
type rejectedError struct {
	spans   int64
	message string
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("collector rejected %d spans: %s", e.spans, e.message)
}

// rejection returns a [rejectedError] if the answer to an accepted batch says
// that spans were left out.
func rejection(answer []byte) error {
	var resp collectorpb.ExportTraceServiceResponse
	if err := proto.Unmarshal(answer, &resp); err != nil {
		return nil //nolint:nilerr // the status already said that the batch was taken
	}
	if n := resp.GetPartialSuccess().GetRejectedSpans(); n > 0 {
		return &rejectedError{spans: n, message: resp.GetPartialSuccess().GetErrorMessage()}
	}
	return nil
}
