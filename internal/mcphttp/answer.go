package mcphttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Context implements [conversation.Reply].
func (x *exchange) Context() context.Context { return x.ctx }

// Gone implements [conversation.Reply].
func (x *exchange) Gone() bool { return x.h.cfg.Left(x.ctx) }

// Correlation implements [conversation.Reply].
func (x *exchange) Correlation() string { return x.ctx.correlationID() }

// Trace implements [conversation.Reply].
func (x *exchange) Trace() string { return x.span.Traceparent() }

// Note implements [conversation.Reply].
func (x *exchange) Note(problem *wire.Problem) { x.problem = problem }

// Fail implements [conversation.Reply]: it answers the client with err, unless the
// client has gone.
func (x *exchange) Fail(err error) error {
	if x.ctx.Err() != nil {
		return conversation.ErrGone
	}
	problem, ok := errors.AsType[*wire.Problem](err)
	switch {
	case ok:
	case errors.Is(err, admission.ErrClient), errors.Is(err, admission.ErrFull):
		problem = crowded(&x.out, err)
	case x.h.drain.Err() != nil:
		problem = &wire.Problem{Type: wire.ShuttingDown, Cause: err}
	default:
		problem = &wire.Problem{Type: wire.Internal, Cause: err}
	}
	return x.Refuse(problem)
}

// refuseUnread answers a body that is no message.
func (x *exchange) refuseUnread(err error) error {
	if problem, ok := errors.AsType[*wire.Problem](err); ok {
		return x.Refuse(problem)
	}
	unread, ok := errors.AsType[*jsonrpc.ParseError](err)
	if !ok {
		return x.Fail(err)
	}
	return x.refuseID(wire.FromParse(unread), unread.ID.Bytes)
}

// Refuse implements [conversation.Reply]. Once an answer has begun, all that can
// be done is to break it off, so that it is not taken for complete.
func (x *exchange) Refuse(problem *wire.Problem) error { return x.refuseID(problem, x.id()) }

// id returns the id of the request that awaits an answer, nil if none does.
func (x *exchange) id() []byte {
	if x.request == nil { // its body has not been read
		return nil
	}
	return x.request.ID()
}

// refuseID is Refuse for a request with the given id, which is nil if there is
// none.
func (x *exchange) refuseID(problem *wire.Problem, id []byte) error {
	x.problem = problem
	if x.out.began {
		return conversation.ErrBrokenOff
	}
	body := problem.AppendResponse(nil, x.client.era, id, x.Correlation())
	if x.body.unread {
		x.out.header().Set("Connection", "close") // or the server would wait for the body before it answers
	}
	return x.out.message(problem.Status(id != nil), body)
}

// statuses are those of HTTP for answers of the gate's own.
var statuses = map[conversation.Status]int{
	conversation.Answered:      http.StatusOK,
	conversation.BadRequest:    http.StatusBadRequest,
	conversation.UnknownMethod: http.StatusNotFound,
	conversation.NotNow:        http.StatusServiceUnavailable,
}

// Answer implements [conversation.Reply].
func (x *exchange) Answer(status conversation.Status, message []byte) error {
	if message == nil {
		x.out.begin(http.StatusAccepted)
		return nil
	}
	return x.out.message(statuses[status], message)
}

// substitute returns the answer in place of an upstream that failed to give one,
// or nil if the gate has none.
func (x *exchange) substitute(p *conversation.Plan) []byte {
	if p.Instead == nil || x.ctx.Err() != nil {
		return nil
	}
	message := p.Instead()
	if message != nil {
		x.h.cfg.Log.WarnContext(x.repeatable(x.upstream.Name()), "the upstream failed to list: the client gets the last known list",
			"method", x.label)
		clear(x.out.header())
	}
	return message
}

// crowded returns the problem of a request for which there is no room, because
// of what its client does or because of what all do.
func crowded(out *response, err error) *wire.Problem {
	out.header().Set("Retry-After", "1")
	if errors.Is(err, admission.ErrClient) {
		return &wire.Problem{Type: wire.ClientLimit, RetryAfter: 1, Cause: err}
	}
	return &wire.Problem{Type: wire.Overloaded, RetryAfter: 1, Cause: err}
}

// repeatable returns a context for lines that the client can cause as often as it
// likes.
func (x *exchange) repeatable(reason string) context.Context {
	return logging.Limited(x.ctx, reason, x.client.Network())
}
