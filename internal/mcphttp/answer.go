package mcphttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Context implements [conversation.Reply].
func (x *exchange) Context() context.Context { return x.ctx }

// Correlation implements [conversation.Reply].
func (x *exchange) Correlation() string { return x.ctx.correlationID() }

// Trace implements [conversation.Reply].
func (x *exchange) Trace() string { return x.span.Traceparent() }

// Note implements [conversation.Reply].
func (x *exchange) Note(problem *wire.Problem) { x.problem = problem }

// Fail implements [conversation.Reply]: it tells the client of err, unless there
// is nobody left to tell.
func (x *exchange) Fail(err error) error {
	if x.ctx.Err() != nil {
		return conversation.ErrGone
	}
	problem, ok := errors.AsType[*wire.Problem](err)
	switch {
	case ok:
	case errors.Is(err, admission.ErrClient), errors.Is(err, admission.ErrFull):
		problem = x.crowded(err)
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
	if x.began {
		return conversation.ErrBrokenOff
	}
	body := problem.AppendResponse(nil, x.era, id, x.Correlation())
	if x.unread {
		x.w.Header().Set("Connection", "close") // or the server would wait for the body before it answers
	}
	return x.answerWith(problem.Status(id != nil), body)
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
		x.begin(http.StatusAccepted)
		return nil
	}
	return x.answerWith(statuses[status], message)
}

func (x *exchange) answerWith(status int, message []byte) error {
	x.w.Header().Set("Content-Type", "application/json")
	x.begin(status)
	return x.write(message)
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
		clear(x.w.Header())
	}
	return message
}

// begin sends the status and the headers.
func (x *exchange) begin(status int) {
	x.began, x.status = true, status
	x.w.WriteHeader(status)
}

// write sends a piece of the answer. The error is [conversation.ErrGone] if the
// client does not take it.
func (x *exchange) write(p []byte) error {
	if x.tryWrite(p) != nil {
		return conversation.ErrGone
	}
	return nil
}

func (x *exchange) tryWrite(p []byte) error {
	if err := x.control.SetWriteDeadline(time.Now().Add(x.h.cfg.Limits.WriteTimeout)); err != nil {
		return err
	}
	_, err := x.w.Write(p)
	return err
}

// cut breaks the connection, from any goroutine, which ends the exchange.
func (x *exchange) cut() {
	_ = x.control.SetWriteDeadline(time.Unix(1, 0))
	_, _ = x.w.Write([]byte("\r")) // ends no event
	_ = x.control.Flush()
}

// flush sends what has been written on its way.
func (x *exchange) flush() error {
	if x.control.Flush() != nil {
		return conversation.ErrGone
	}
	return nil
}

// sendNow sends a piece of the answer on its way.
func (x *exchange) sendNow(p []byte) error {
	if err := x.write(p); err != nil {
		return err
	}
	return x.flush()
}
