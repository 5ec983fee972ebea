package mcpstdio

import (
	"errors"
	"log/slog"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// describe notes what the exchange is about.
func (x *exchange) describe() {
	if x.packet.Batch {
		x.label = "batch"
		x.a.cfg.Metrics.BatchSize(len(x.packet.Messages))
		return
	}
	x.label = x.packet.Messages[0].Method
	if x.isResponse() {
		x.label = "response"
	}
}

// trace starts the span of the exchange, as a child of the one that the client names
// in the metadata of its message.
func (x *exchange) trace() {
	var parent tracing.Parent
	if !x.packet.Batch {
		meta := x.packet.Messages[0].Params.Meta
		parent.Traceparent, _ = meta.Member(wire.MetaTraceparent).Text()
		parent.Tracestate, _ = meta.Member(wire.MetaTracestate).Text()
	}
	x.ctx.Context, x.span = x.a.cfg.Tracing.StartRequest(x.ctx.Context, parent)
}

// end forgets the exchange, given how it ended, and counts and logs it.
func (x *exchange) end(err error) {
	x.settle()
	if x.request != nil {
		x.request.End()
	}
	x.cancel()
	outcome := metrics.Success
	if x.problem != nil || x.failed || err != nil {
		outcome = metrics.Error
	}
	x.a.cfg.Metrics.RequestDone(x.label, outcome, time.Since(x.start))
	if x.problem != nil {
		x.a.cfg.Metrics.Refused(string(x.problem.Type))
		x.span.Fail(string(x.problem.Type))
	}
	x.endSpans()
	x.log(err)
}

func (x *exchange) endSpans() {
	if x.a.cfg.Tracing == nil {
		return
	}
	x.upstreamSpan.End()
	x.span.SetAttrs(tracing.Attrs{Method: x.label, CorrelationID: x.Correlation(), TaskAugmented: x.augmented()})
	x.span.End()
}

// augmented reports whether the client asks for a task.
func (x *exchange) augmented() bool {
	return len(x.packet.Messages) == 1 && x.packet.Messages[0].Params.Task.Present()
}

func (x *exchange) log(err error) {
	level := slog.LevelDebug // success is counted, and logged only for debugging
	if x.problem != nil {
		level = slog.LevelWarn
	}
	if !x.a.cfg.Log.Enabled(x.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", x.label), slog.String("era", x.era.String()), slog.Duration("took", time.Since(x.start)),
		slog.Bool("client_gone", errors.Is(err, conversation.ErrGone)),
	}
	if x.problem != nil {
		attrs = append(attrs, slog.String("error_type", string(x.problem.Type)), slog.Any("cause", x.problem.Cause))
	}
	x.a.cfg.Log.LogAttrs(x.ctx, level, "request", attrs...)
}
