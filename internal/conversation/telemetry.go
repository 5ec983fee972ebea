package conversation

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Telemetry collects the data of one message and its answer for metrics, traces and the log. A
// transport calls Describe when it has read the message, and Finish once at the end.
type Telemetry struct {
	Context *RequestContext
	Start   time.Time

	Label     string       // the method, for metrics and logs
	Era       mcp.Era      // zero before the message was read
	Problem   *mcp.Problem // in the answer; may be nil
	Failed    bool         // the client got another error
	toolError bool         // the answer tells of an error of the tool
	augmented bool         // the client asks for a task

	gateway            *Gateway
	span, upstreamSpan tracing.Span
}

// NewTelemetry returns the telemetry of a message that has just arrived. Describe replaces the
// label.
func (g *Gateway) NewTelemetry(ctx *RequestContext, label string) Telemetry {
	return Telemetry{gateway: g, Context: ctx, Start: time.Now(), Label: label}
}

// Describe notes the method of the message.
func (a *Telemetry) Describe(p jsonrpc.Packet) {
	if p.Batch {
		a.Label = "batch"
		a.gateway.cfg.Metrics.BatchSize(len(p.Messages))
		return
	}
	m := &p.Messages[0]
	a.Label, a.augmented = m.Method, m.Params.Task.Present()
	if m.Kind == jsonrpc.Response {
		a.Label = "response"
	}
}

// Received logs that a message for an upstream has arrived, at level debug.
func (a *Telemetry) Received(upstream string) {
	if !a.gateway.cfg.Log.Enabled(a.Context, slog.LevelDebug) {
		return
	}
	a.gateway.cfg.Log.LogAttrs(a.Context, slog.LevelDebug, "MCP request received",
		slog.String("method", a.Label), slog.Bool("has_task_metadata", a.augmented), slog.String("upstream", upstream))
}

// StartSpan starts the span of the message in ctx. Its parent is the span that the client names
// in the metadata of the message, or else the one that the transport names.
func (a *Telemetry) StartSpan(ctx context.Context, p jsonrpc.Packet, parent tracing.Parent) context.Context {
	if a.gateway.cfg.Tracing == nil {
		return ctx
	}
	if !p.Batch {
		meta := p.Messages[0].Params.Meta
		if inner, traced := meta.Member(mcp.MetaTraceparent).Text(); traced {
			parent.Traceparent = inner
			parent.Tracestate, _ = meta.Member(mcp.MetaTracestate).Text()
		}
	}
	ctx, a.span = a.gateway.cfg.Tracing.StartRequest(ctx, parent)
	return ctx
}

// StartUpstream starts the span of the request to the upstream, which Finish ends.
func (a *Telemetry) StartUpstream(ctx context.Context) (context.Context, tracing.Span) {
	ctx, a.upstreamSpan = a.gateway.cfg.Tracing.StartUpstream(ctx)
	return ctx, a.upstreamSpan
}

// Correlation returns the correlation id of the message, for logs and answers.
func (a *Telemetry) Correlation() string { return a.Context.correlationID() }

// Trace returns the span of the message as a traceparent, or "".
func (a *Telemetry) Trace() string { return a.span.Traceparent() }

// Safely runs do, and turns a panic into a refusal.
func (a *Telemetry) Safely(do func() error, refuse func(*mcp.Problem) error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			a.gateway.cfg.Log.ErrorContext(a.Context, "panic", "panic", cause, "stack", string(debug.Stack()))
			err = refuse(&mcp.Problem{Type: mcp.Internal})
		}
	}()
	return do()
}

// ProblemOf returns the problem to answer a request with that failed with err.
func ProblemOf(err error, shuttingDown bool) *mcp.Problem {
	problem, ok := errors.AsType[*mcp.Problem](err)
	switch {
	case ok:
		return problem
	case errors.Is(err, admission.ErrClient):
		return &mcp.Problem{Type: mcp.ClientLimit, RetryAfter: 1, Cause: err}
	case errors.Is(err, admission.ErrFull):
		return &mcp.Problem{Type: mcp.Overloaded, RetryAfter: 1, Cause: err}
	case shuttingDown:
		return &mcp.Problem{Type: mcp.ShuttingDown, Cause: err}
	default:
		return &mcp.Problem{Type: mcp.Internal, Cause: err}
	}
}

// Answered notes whether the upstream's answer is an error, or tells of an error of the tool. A nil
// answer is neither.
func (a *Telemetry) Answered(m *jsonrpc.Message) {
	a.Failed = m != nil && m.Error.Present()
	a.toolError = m != nil && bytes.Contains(m.Result.Bytes, []byte(`"isError"`)) && m.Result.Member("isError").IsTrue()
}

// Finish counts, records, traces and logs the message, which took the given time and ended with
// err. The request is nil if the message could not be read. The log names the upstream unless it
// is empty.
func (a *Telemetry) Finish(r *Request, upstream string, took time.Duration, err error) {
	outcome := metrics.Success
	//mutate:swap "a.Failed || " "" internal/mcphttp.TestUpstreamErrorsAreCounted an error of the upstream counts as success
	if a.Problem != nil || a.Failed || err != nil {
		outcome = metrics.Error
	}
	a.gateway.cfg.Metrics.RequestDone(a.Label, outcome, took)
	if r != nil && r.judged != nil {
		r.record(a.recorded(err), took)
	}
	if a.Problem != nil {
		a.gateway.cfg.Metrics.Refused(string(a.Problem.Type))
		a.span.Fail(string(a.Problem.Type))
	}
	if a.gateway.cfg.Tracing != nil {
		a.upstreamSpan.End()
		a.span.SetAttrs(tracing.Attrs{Method: a.Label, CorrelationID: a.Correlation(), TaskAugmented: a.augmented})
		a.span.End()
	}
	a.log(upstream, took, errors.Is(err, ErrGone))
}

// recorded returns the outcome of what was forwarded, for the record of calls. The problem of a batch
// may be that of a message that was not forwarded.
func (a *Telemetry) recorded(err error) string {
	switch {
	case errors.Is(err, ErrGone):
		return callrecord.Gone
	case a.Failed, err != nil, a.Problem != nil && (a.Label != "batch" || a.Problem.Type.Upstream()):
		return callrecord.Error
	case a.toolError:
		return callrecord.ToolFail
	default:
		return callrecord.Success
	}
}

func (a *Telemetry) log(upstream string, took time.Duration, clientGone bool) {
	level := slog.LevelDebug // metrics count successes, so the log has them only for debugging
	var ctx context.Context = a.Context
	if a.Problem != nil {
		level, ctx = slog.LevelWarn, a.aboutProblem()
	}
	if !a.gateway.cfg.Log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", a.Label), slog.String("era", a.Era.String()), slog.Bool("client_gone", clientGone), slog.String("took", took.String()),
	}
	if upstream != "" {
		attrs = append(attrs, slog.String("upstream", upstream))
	}
	if a.Problem != nil {
		attrs = append(attrs, slog.String("error_type", string(a.Problem.Type)))
		if a.Problem.Cause != nil {
			attrs = append(attrs, slog.Any("err", a.Problem.Cause))
		}
	}
	a.gateway.cfg.Log.LogAttrs(ctx, level, "request", attrs...)
}

// aboutProblem returns the context of a log line about the problem. Lines that clients can cause
// at will are limited. Lines about held calls and faults of the gate are not.
func (a *Telemetry) aboutProblem() context.Context {
	switch a.Problem.Type {
	case mcp.ApprovalPending, mcp.UpstreamTaskGone, mcp.StoreUnavailable, mcp.Internal:
		return a.Context
	default:
		return a.Context.Limited(string(a.Problem.Type))
	}
}

// A RequestContext is the context of one message, with its attributes for the log. It may outlive
// its message, so it keeps no other part of it.
type RequestContext struct {
	context.Context

	Remote    string // network address of the client; empty for a pipe
	Principal string

	named sync.Once
	name  string
}

// Value implements [context.Context].
func (c *RequestContext) Value(key any) any {
	if key == (logging.RequestKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// LogRequest implements [logging.RequestSource].
func (c *RequestContext) LogRequest() logging.Request {
	return logging.Request{CorrelationID: c.correlationID(), Principal: c.Principal, ClientIP: c.clientIP()}
}

// Limited returns the context of log lines that clients can cause at will, for the given reason.
// Lines about a client at a pipe are not limited: it belongs to the user of the gate.
func (c *RequestContext) Limited(reason string) context.Context {
	if c.Remote == "" {
		return c
	}
	return logging.Limited(c, reason, c.Network())
}

// Network returns the network of the client.
func (c *RequestContext) Network() string { return admission.Address(c.Remote).Network() }

// correlationID returns the correlation id of the message. Most messages need none, so it is made
// at first use.
func (c *RequestContext) correlationID() string {
	c.named.Do(func() { c.name = uuid.NewString() })
	return c.name
}

// clientIP returns the address of the client without the port.
func (c *RequestContext) clientIP() string {
	at, err := netip.ParseAddrPort(c.Remote)
	if err != nil {
		return c.Remote
	}
	return at.Addr().Unmap().String()
}
