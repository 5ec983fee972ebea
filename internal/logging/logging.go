// Package logging creates the gate's logger. Its handler does three things:
//
//   - it adds the request and the held call of the context to each line
//     ([RequestKey], [AboutCall]);
//   - it escapes invisible characters and characters that change how others look;
//   - it limits how often clients can cause the same line ([Limited]).
//
// For example:
//
//	log := logging.New(os.Stderr, "json", slog.LevelInfo)
//	log.WarnContext(logging.Limited(ctx, "overloaded", address), "request refused")
package logging

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// New returns a logger that writes to w: JSON, key=value lines if format is "text", or lines for people
// if it is [Terminal].
func New(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	//mutate:swap "w = safetext" "_ = safetext" internal/app.TestHostileTextInLog invisible characters are written to the log
	w = safetext.NewWriter(w)
	var lines slog.Handler = slog.NewJSONHandler(w, options)
	switch format {
	case "text":
		lines = slog.NewTextHandler(w, options)
	case Terminal:
		lines = newTerminal(w, level)
	}
	return slog.New(handler{lines, newLimiter(lines)})
}

// A Request describes the agent's request that a line was logged for.
type Request struct {
	CorrelationID string
	Principal     string
	ClientIP      string
}

// A Call describes the held call that a line is about. CorrelationID comes from the
// request that made the call, so that one search finds every later step, on all replicas.
type Call struct {
	CorrelationID string
	Principal     string
	TaskID        string
	Tool          string
}

// RequestKey is the context key of a request's [RequestSource].
type RequestKey struct{}

// A RequestSource describes a request. Several goroutines may call LogRequest at once.
type RequestSource interface {
	LogRequest() Request
}

type callKey struct{}

// AboutCall returns a context for lines about a held call. Several goroutines may call
// describe at once.
func AboutCall(ctx context.Context, describe func() Call) context.Context {
	return context.WithValue(ctx, callKey{}, describe)
}

// handler adds the attributes of the context to each line, and drops lines over the limit.
type handler struct {
	slog.Handler

	limiter *limiter // shared by all handlers derived from one
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limiter.allow(ctx, r) {
		return nil
	}
	if attrs := describe(ctx); len(attrs) > 0 {
		r = r.Clone()
		r.AddAttrs(slices.DeleteFunc(attrs, func(a slog.Attr) bool { return has(r, a.Key) })...)
	}
	return h.Handler.Handle(ctx, r)
}

// has reports whether r already has an attribute with this key.
func has(r slog.Record, key string) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		found = a.Key == key
		return !found
	})
	return found
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.limiter}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.limiter}
}

// describe returns the attributes that ctx adds to a line. The correlation id and the
// principal of a call win over those of the request; a different request is logged as
// request_correlation_id.
func describe(ctx context.Context) []slog.Attr {
	var request Request
	if source, ok := ctx.Value(RequestKey{}).(RequestSource); ok {
		request = source.LogRequest()
	}
	var call Call
	if about, ok := ctx.Value(callKey{}).(func() Call); ok {
		call = about()
	}
	var attrs []slog.Attr
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	call.CorrelationID = cmp.Or(call.CorrelationID, request.CorrelationID)
	add("correlation_id", call.CorrelationID)
	if request.CorrelationID != call.CorrelationID {
		add("request_correlation_id", request.CorrelationID)
	}
	add("task_id", call.TaskID)
	add("tool", call.Tool)
	add("principal", cmp.Or(call.Principal, request.Principal))
	add("client_ip", request.ClientIP)
	return attrs
}
