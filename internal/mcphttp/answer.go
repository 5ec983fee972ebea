package mcphttp

import (
	"errors"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Why an exchange can end without an answer, or in the middle of one.
var (
	errGone      = errors.New("the client is gone")
	errBrokenOff = errors.New("the answer was broken off")
)

// fail tells the client of err, unless there is nobody left to tell.
func (x *exchange) fail(err error) error {
	if x.ctx.Err() != nil {
		return errGone
	}
	problem, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		problem = &wire.Problem{Type: wire.Internal, Cause: err}
		if x.h.drain.Err() != nil {
			problem.Type = wire.ShuttingDown
		}
	}
	return x.refuse(problem)
}

// refuseUnread answers a body that is no message.
func (x *exchange) refuseUnread(err error) error {
	if problem, ok := errors.AsType[*wire.Problem](err); ok {
		return x.refuse(problem)
	}
	unread, ok := errors.AsType[*jsonrpc.ParseError](err)
	if !ok {
		return x.fail(err)
	}
	x.id = unread.ID.Bytes
	return x.refuse(wire.FromParse(unread))
}

// refuse answers with a problem. Once an answer has begun, all that can be done
// is to break it off, so that it is not taken for complete.
func (x *exchange) refuse(problem *wire.Problem) error {
	x.problem = problem
	if x.began {
		return errBrokenOff
	}
	body := problem.AppendResponse(nil, x.era, x.id, x.correlationID())
	if x.unread {
		x.w.Header().Set("Connection", "close") // or the server would wait for the body before it answers
	}
	return x.answerWith(problem.Status(x.id != nil), body)
}

// answer answers with a message of the gate's own.
func (x *exchange) answer(message []byte) error { return x.answerWith(http.StatusOK, message) }

func (x *exchange) answerWith(status int, message []byte) error {
	x.w.Header().Set("Content-Type", "application/json")
	x.begin(status)
	return x.write(message)
}

// accept answers what needs no answer.
func (x *exchange) accept() error {
	x.begin(http.StatusAccepted)
	return nil
}

// substitute returns the answer in place of an upstream that failed to give one,
// or nil if the gate has none.
func (x *exchange) substitute(p *plan) []byte {
	if p.instead == nil || x.ctx.Err() != nil {
		return nil
	}
	message := p.instead()
	if message != nil {
		x.h.cfg.Log.WarnContext(x.repeatable(x.ctx, x.upstream.Name()), "the upstream failed to list: the client gets the last known list",
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

// write sends a piece of the answer. The error is errGone if the client does not
// take it.
func (x *exchange) write(p []byte) error {
	if x.tryWrite(p) != nil {
		return errGone
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
		return errGone
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
