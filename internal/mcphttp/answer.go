package mcphttp

import (
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// correlationID returns the name under which logs and answers speak of the
// exchange. Most exchanges need none, so it is made when first asked for.
func (x *exchange) correlationID() string {
	if x.corr == "" {
		x.corr = uuid.NewString()
	}
	return x.corr
}

// fail tells the client of err, unless there is nobody left to tell.
func (x *exchange) fail(err error) {
	if x.r.Context().Err() != nil {
		x.leave()
	}
	problem, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		problem = &wire.Problem{Type: wire.Internal, Cause: err}
		if x.h.drain.Err() != nil {
			problem.Type = wire.ShuttingDown
		}
	}
	x.refuse(problem)
}

// refuseUnread answers a body that is no message.
func (x *exchange) refuseUnread(err error) {
	unread, ok := errors.AsType[*jsonrpc.ParseError](err)
	if !ok {
		x.fail(err)
		return
	}
	x.id = unread.ID.Bytes
	x.refuse(wire.FromParse(unread))
}

// refuse answers with a problem. Once an answer has begun, all that can be done
// is to break it off, so that it is not taken for complete.
func (x *exchange) refuse(problem *wire.Problem) {
	x.problem = problem
	if x.began {
		panic(http.ErrAbortHandler)
	}
	body := problem.AppendResponse(nil, x.era, x.id, x.correlationID())
	x.w.Header().Set("Content-Type", "application/json")
	if x.unread {
		x.w.Header().Set("Connection", "close") // or the server would wait for the body before it answers
	}
	x.begin(problem.Status(x.id != nil))
	x.write(body)
}

// answer answers with a message of the gate's own.
func (x *exchange) answer(message []byte) { x.answerWith(http.StatusOK, message) }

func (x *exchange) answerWith(status int, message []byte) {
	x.w.Header().Set("Content-Type", "application/json")
	x.begin(status)
	x.write(message)
}

// fallBack answers in place of an upstream that failed to, if the gate can.
func (x *exchange) fallBack() bool {
	if x.instead == nil || x.r.Context().Err() != nil {
		return false
	}
	message := x.instead()
	if message == nil {
		return false
	}
	x.h.cfg.Log.WarnContext(x.r.Context(), "the upstream failed to give a list, so the client gets the last one",
		"method", x.label, "correlation_id", x.correlationID())
	clear(x.w.Header())
	x.answer(message)
	return true
}

// begin sends the status and the headers.
func (x *exchange) begin(status int) {
	x.began, x.status = true, status
	x.w.WriteHeader(status)
}

// write sends a piece of the answer, and gives up on a client that does not
// take it.
func (x *exchange) write(p []byte) {
	if x.tryWrite(p) != nil {
		x.leave()
	}
}

func (x *exchange) tryWrite(p []byte) error {
	if err := x.control.SetWriteDeadline(time.Now().Add(x.h.cfg.Limits.WriteTimeout)); err != nil {
		return err
	}
	_, err := x.w.Write(p) //nolint:gosec // JSON or events, and said to be that
	return err
}

// cut breaks the connection, from any goroutine, which ends the exchange.
func (x *exchange) cut() {
	_ = x.control.SetWriteDeadline(time.Unix(1, 0))
	_, _ = x.w.Write([]byte("\r")) // ends no event
	_ = x.control.Flush()
}

// flush sends what has been written on its way.
func (x *exchange) flush() {
	if err := x.control.Flush(); err != nil {
		x.leave()
	}
}

// leave ends the exchange because the client is gone.
func (x *exchange) leave() {
	x.gone = true
	panic(http.ErrAbortHandler)
}
