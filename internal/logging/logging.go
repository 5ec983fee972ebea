// Package logging makes the log of the gate. Three things hold for every line:
//
//   - it says which request and which held call it is about, if the context of
//     the line says so ([RequestKey], [AboutCall]);
//   - no character of it is invisible or changes how others are seen, whoever
//     wrote the text;
//   - strangers cannot cause many of them ([Limited]).
package logging

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// New returns a logger that writes lines of JSON or, if format is "text", of
// names and values to w.
func New(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	w = plain.NewWriter(w)
	var lines slog.Handler = slog.NewJSONHandler(w, options)
	if format == "text" {
		lines = slog.NewTextHandler(w, options)
	}
	return slog.New(handler{lines, newLimiter(lines)})
}

// A Request is what a line says of the agent's request during which it is
// written.
type Request struct {
	CorrelationID string
	Principal     string
	ClientIP      string
}

// A Call is what a line says of the held call that it is about. The correlation
// id is that of the request which made the call: whatever happens to the call
// later, on whichever replica, is found by it.
type Call struct {
	CorrelationID string
	Principal     string
	TaskID        string
	Tool          string
}

// RequestKey is the key under which the context of a request has its
// [RequestSource].
type RequestKey struct{}

// A RequestSource describes a request. It is asked when a line is written, maybe
// by several goroutines at a time.
type RequestSource interface {
	LogRequest() Request
}

type callKey struct{}

// AboutCall returns a context whose lines are about a held call. Describe is
// called when a line is written, maybe by several goroutines at a time.
func AboutCall(ctx context.Context, describe func() Call) context.Context {
	return context.WithValue(ctx, callKey{}, describe)
}

// handler adds to each line what its context says, and leaves out lines of which
// there are too many.
type handler struct {
	slog.Handler

	limiter *limiter // of all handlers that were made from one
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limiter.admits(ctx, r) {
		return nil
	}
	if attrs := describe(ctx); len(attrs) > 0 {
		r = r.Clone()
		r.AddAttrs(slices.DeleteFunc(attrs, func(a slog.Attr) bool { return has(r, a.Key) })...)
	}
	return h.Handler.Handle(ctx, r)
}

// has reports whether a line says something under key already: no key is there
// twice.
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

// describe returns what ctx says of a line. A call's own correlation id and
// principal come first; a request that the call was not made by is told beside.
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
	if call.CorrelationID == "" {
		call.CorrelationID = request.CorrelationID
	}
	if call.Principal == "" {
		call.Principal = request.Principal
	}
	add("correlation_id", call.CorrelationID)
	if request.CorrelationID != call.CorrelationID {
		add("request_correlation_id", request.CorrelationID)
	}
	add("task_id", call.TaskID)
	add("tool", call.Tool)
	add("principal", call.Principal)
	add("client_ip", request.ClientIP)
	return attrs
}
