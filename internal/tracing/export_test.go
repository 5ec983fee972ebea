package tracing

// NewOver is New with a given network.
var NewOver = newTracing

// Tracestate returns the W3C tracestate of s, or "" if the agent sent none.
func (s Span) Tracestate() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceState().String()
}
