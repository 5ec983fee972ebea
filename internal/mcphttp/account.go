package mcphttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// finish counts and logs the exchange, given how it ended. The server breaks the
// connection of one that has no complete answer.
func (x *exchange) finish(err error) {
	x.gone = x.gone || errors.Is(err, conversation.ErrGone)
	took := time.Since(x.start)
	x.account(took)
	if err != nil || took > x.out.timeout/2 && x.out.extend() != nil { // the server writes the end, perhaps long after the rest
		panic(http.ErrAbortHandler)
	}
}

// safely serves the exchange, and turns a panic into an answer.
func (x *exchange) safely(serve func() error) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		x.h.cfg.Log.ErrorContext(x.ctx, "panic", "panic", cause, "stack", string(debug.Stack()))
		err = x.Refuse(&wire.Problem{Type: wire.Internal})
	}()
	return serve()
}

// account counts, traces and logs how the exchange ended.
func (x *exchange) account(took time.Duration) {
	outcome := metrics.Success
	if x.problem != nil || x.gone || x.failed || x.out.status >= http.StatusBadRequest {
		outcome = metrics.Error
	}
	x.h.cfg.Metrics.RequestDone(x.label, outcome, took)
	if x.problem != nil {
		x.h.cfg.Metrics.Refused(string(x.problem.Type))
		x.span.Fail(string(x.problem.Type))
	}
	x.endSpan()
	x.log()
}

func (x *exchange) endSpan() {
	if x.h.cfg.Tracing == nil {
		return
	}
	x.span.SetAttrs(tracing.Attrs{Method: x.label, CorrelationID: x.Correlation(), TaskAugmented: x.augmented})
	x.span.End()
}

func (x *exchange) log() {
	level := slog.LevelDebug // success is counted, and logged only for debugging
	var ctx context.Context = x.ctx
	if x.problem != nil {
		level, ctx = slog.LevelWarn, x.aboutProblem(x.problem.Type)
	}
	if !x.h.cfg.Log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", x.label),
		slog.String("era", x.client.era.String()),
		slog.Bool("client_gone", x.gone),
		slog.Duration("took", time.Since(x.start)),
	}
	if x.upstream != nil {
		attrs = append(attrs, slog.String("upstream", x.upstream.Name()))
	}
	if x.problem != nil {
		attrs = append(attrs, slog.String("error_type", string(x.problem.Type)), slog.Any("cause", x.problem.Cause))
	}
	x.h.cfg.Log.LogAttrs(ctx, level, "request", attrs...)
}

// aboutProblem returns the context of a line about a problem. Clients can cause
// most kinds of problems as often as they like, so the log has few of those
// lines. It has all that may concern a held call, or a fault of the gate.
func (x *exchange) aboutProblem(t wire.Type) context.Context {
	switch t {
	case wire.ApprovalPending, wire.UpstreamTaskGone, wire.StoreUnavailable, wire.Internal:
		return x.ctx
	default:
		return x.repeatable(string(t))
	}
}
