package mcphttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A reply answers one HTTP request. It implements [conversation.Reply].
type reply struct {
	h       *Handler
	account *conversation.Telemetry
	client  *client
	body    *requestBody
	slot    *slot
	out     response
	request *conversation.Request // nil until the body was read
	stale   bool                  // the answer is an earlier one of the upstream
	failure error                 // why; may be nil
}

// Context implements [conversation.Reply].
func (r *reply) Context() context.Context { return r.account.Context }

// Gone implements [conversation.Reply].
func (r *reply) Gone() bool { return r.h.cfg.ClientGone(r.account.Context) }

// Correlation implements [conversation.Reply].
func (r *reply) Correlation() string { return r.account.Correlation() }

// Trace implements [conversation.Reply].
func (r *reply) Trace() string { return r.account.Trace() }

// NoteProblem implements [conversation.Reply].
func (r *reply) NoteProblem(problem *mcp.Problem) { r.account.Problem = problem }

// BeginWaiting implements [conversation.Reply].
func (r *reply) BeginWaiting() error { return r.slot.park() }

// Fail implements [conversation.Reply].
func (r *reply) Fail(err error) error {
	if r.account.Context.Err() != nil {
		return conversation.ErrGone
	}
	problem, ok := errors.AsType[*mcp.Problem](err)
	switch {
	case ok:
	case errors.Is(err, admission.ErrClient), errors.Is(err, admission.ErrFull):
		problem = overloaded(&r.out, err)
	default:
		problem = conversation.ProblemOf(err, r.h.drain.Err() != nil)
	}
	return r.Refuse(problem)
}

// overloaded returns the problem of a request that exceeds a limit.
func overloaded(out *response, err error) *mcp.Problem {
	out.header().Set("Retry-After", "1")
	return conversation.ProblemOf(err, false)
}

// refuseUnread refuses a body that is not a valid message.
func (r *reply) refuseUnread(err error) error {
	if problem, ok := errors.AsType[*mcp.Problem](err); ok {
		return r.Refuse(problem)
	}
	unread, ok := errors.AsType[*jsonrpc.ParseError](err)
	if !ok {
		return r.Fail(err)
	}
	return r.refuseID(mcp.FromParse(unread), unread.ID.Bytes)
}

// Refuse implements [conversation.Reply]. After an answer has begun it can only be broken off,
// so that the client does not take it for complete.
func (r *reply) Refuse(problem *mcp.Problem) error {
	if r.request == nil { // the body was not read
		return r.refuseID(problem, nil)
	}
	return r.refuseID(problem, r.request.ID())
}

// refuseID refuses the request with the given id, or nil if there is none.
func (r *reply) refuseID(problem *mcp.Problem, id []byte) error {
	r.account.Problem = problem
	if r.out.began {
		return conversation.ErrBrokenOff
	}
	if problem.Challenge != nil {
		r.out.header()["Www-Authenticate"] = r.client.challenged(problem.Challenge)
	}
	body := problem.AppendResponse(nil, r.client.era, id, r.Correlation())
	if r.body.unread {
		r.out.header().Set("Connection", "close") // or the server would wait for the body before it answers
	}
	return r.out.message(problem.Status(id != nil), body)
}

// statuses are the HTTP statuses of the answers of the gate.
var statuses = map[conversation.Status]int{
	conversation.Answered:      http.StatusOK,
	conversation.BadRequest:    http.StatusBadRequest,
	conversation.UnknownMethod: http.StatusNotFound,
	conversation.Unavailable:   http.StatusServiceUnavailable,
}

// Answer implements [conversation.Reply].
func (r *reply) Answer(status conversation.Status, message []byte) error {
	if message == nil {
		r.out.begin(http.StatusAccepted)
		return nil
	}
	return r.out.message(statuses[status], message)
}

// substitute returns the answer to use when the upstream failed with err, which may be nil. It returns nil if
// there is none.
func (r *reply) substitute(p *conversation.Plan, err error) []byte {
	if p.Fallback == nil || r.account.Context.Err() != nil {
		return nil
	}
	message := p.Fallback()
	if message != nil {
		r.stale, r.failure = true, err
		r.h.cfg.Log.WarnContext(r.account.Context.Limited(r.client.upstream.Name()), "the upstream failed to list: the client gets the last known list",
			"method", r.account.Label)
		clear(r.out.header())
	}
	return message
}

// Compose implements [conversation.Reply]. It calls note before the client can send its next
// call. If writing fails after a part was sent, the error is ErrGone or ErrBrokenOff and the
// connection breaks, so that the client does not take the part for an answer.
func (r *reply) Compose(write func(io.Writer) error, note func()) error {
	out := &messageWriter{to: &r.out}
	buffered := bufio.NewWriterSize(out, upstream.PieceSize/2)
	if err := write(buffered); err != nil {
		if out.begun && !errors.Is(err, conversation.ErrGone) {
			return r.Fail(err)
		}
		return err
	}
	if !r.out.began {
		note() // all of it is still in the buffer
		return errors.Join(buffered.Flush(), out.finish())
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if err := r.out.flush(); err != nil {
		return err
	}
	note()
	return out.finish()
}

// A messageWriter writes an answer that is a message, and holds its last byte back.
type messageWriter struct {
	to    *response
	begun bool
	last  byte
}

// Write implements [io.Writer]. Its error is [conversation.ErrGone].
func (o *messageWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !o.to.began {
		o.to.header().Set("Content-Type", "application/json")
		o.to.begin(http.StatusOK)
	}
	if o.begun {
		if err := o.to.write([]byte{o.last}); err != nil {
			return 0, err
		}
	}
	end := len(p) - 1
	if err := o.to.write(p[:end]); err != nil {
		return 0, err
	}
	o.begun, o.last = true, p[end]
	return len(p), nil
}

// finish writes the last byte.
func (o *messageWriter) finish() error { return o.to.sendNow([]byte{o.last}) }

// Wait implements [conversation.Reply].
func (r *reply) Wait() (conversation.Stream, error) {
	//mutate:false internal/app.TestNothingRunsForClientThatLeft an approved call runs for a client that asked for its result and left
	if r.Gone() {
		return nil, conversation.ErrGone
	}
	s := r.newStream()
	s.events, s.lazy = r.client.takesEvents(), true
	return s, nil
}

// Listen implements [conversation.Reply].
func (r *reply) Listen() conversation.Stream { return r.newStream() }

// newStream returns the stream of events that the client is answered with.
func (r *reply) newStream() *stream {
	return &stream{reply: r, out: &r.out, events: true, midEvent: true}
}
