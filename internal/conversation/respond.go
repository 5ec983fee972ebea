package conversation

import (
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A responder makes and sends the gate's own answers to a request.
type responder struct {
	sender

	era wire.Era
	id  []byte // of the request that awaits an answer, if it is one
}

func (r *responder) dialect() mcptask.Dialect {
	d := r.hub.dialect(r.era)
	d.Correlation = r.reply.Correlation()
	return d
}

// answer answers with a message of the gate's own.
func (r *responder) answer(message []byte) error { return r.reply.Answer(Answered, message) }

// problemMessage returns the answer with a problem.
func (r *responder) problemMessage(problem *wire.Problem) []byte {
	r.reply.Note(problem)
	return problem.AppendResponse(nil, r.era, r.id, r.reply.Correlation())
}

// errorMessage returns the message that carries e, with the name under which
// logs speak of it.
func (r *responder) errorMessage(e *jsonrpc.Error) []byte {
	data := jsonrpc.Value{Bytes: e.Data}
	if data.IsObject() {
		var patch jsonrpc.Patch
		patch.Set(data, "correlation_id", jsonrpc.AppendString(nil, r.reply.Correlation()))
		e.Data = patch.Apply(e.Data)
	}
	kind, _ := data.Member("error_type").Text()
	r.reply.Note(&wire.Problem{Type: wire.Type(kind), Detail: e.Message})
	return jsonrpc.AppendErrorResponse(nil, r.id, e)
}

// failure is errorMessage for an error of the gate or of its store.
func (r *responder) failure(err error) []byte { return r.errorMessage(r.dialect().Error(err)) }

// AnswerError answers with an error that belongs to the request.
func (r *responder) AnswerError(e *jsonrpc.Error) error {
	status := Answered
	if r.era == wire.Modern {
		switch e.Code {
		case wire.CodeMissingCapability:
			status = BadRequest
		case jsonrpc.CodeMethodNotFound:
			status = UnknownMethod
		}
		kind, _ := (jsonrpc.Value{Bytes: e.Data}).Member("error_type").Text()
		if wire.Type(kind) == wire.StoreUnavailable || wire.Type(kind) == wire.ShuttingDown {
			status = NotNow
		}
	}
	return r.reply.Answer(status, r.errorMessage(e))
}

// answerFailure answers with an error of the gate or of its store.
func (r *responder) answerFailure(err error) error { return r.AnswerError(r.dialect().Error(err)) }

// resultText returns the message with a result.
func (r *responder) resultText(result mcptask.Text) mcptask.Text {
	return result.Around(`{"jsonrpc":"2.0","id":`+string(r.id)+`,"result":`, "}")
}

// outcomeText returns the message about what became of t, with the answer of
// the upstream as it is.
func (r *responder) outcomeText(t task.Task, a mcptask.Answer) mcptask.Text {
	switch {
	case !a.Error.Present():
		return r.resultText(a.Result)
	case t.Result == nil:
		return mcptask.Text{}.Around(string(r.errorMessage(a.Err(nil))), "")
	default:
		return a.Error.Around(`{"jsonrpc":"2.0","id":`+string(r.id)+`,"error":`, "}")
	}
}

// messageOf returns an answer of the gate's own as a message.
func (r *responder) messageOf(a mcptask.Answer) []byte {
	if a.Error.Present() {
		return r.errorMessage(a.Err(nil))
	}
	message, err := r.resultText(a.Result).Whole(nil)
	if err != nil {
		return r.failure(err)
	}
	return message
}

// StoreFailed returns the problem of a request for which the store is needed and
// cannot be used, because of err.
func (r *responder) StoreFailed(err error) *wire.Problem {
	p := wire.StoreFailed(r.era, err)
	switch {
	case errors.Is(err, task.ErrOutdated):
		p.Detail = "this gate is older than its store and must be updated before it can hold calls; the call did not run"
	case errors.Is(err, task.ErrMaybeCreated):
		p.Detail = "the gate does not know whether it has stored the call: it may still be approved and run"
	}
	return p
}

// storeFailed reports whether err is a failure of the store, and not its answer.
func storeFailed(err error) bool {
	_, known := errors.AsType[*task.Error](err)
	return !known || errors.Is(err, task.ErrUnavailable)
}

// notHeldMessage returns the answer to a request that could not be held.
func (r *responder) notHeldMessage(err error) []byte {
	if storeFailed(err) {
		return r.problemMessage(r.StoreFailed(err))
	}
	return r.messageOf(r.dialect().Refuse(err))
}
