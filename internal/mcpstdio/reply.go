package mcpstdio

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

// A reply answers one message or batch of the client. It implements [conversation.Reply].
type reply struct {
	account conversation.Telemetry
	out     *output
	left    context.Context       // ends when the client leaves
	cancel  context.CancelFunc    // ends the context of the account
	settle  func()                // closes settled
	settled chan struct{}         // closed when the client waits for the gate or was answered; nil before limit
	request *conversation.Request // nil before the message was parsed
	batch   bool                  // the message is a batch
}

func (a *Agent) newReply(ctx context.Context) *reply {
	account := a.cfg.Gateway.NewTelemetry(&conversation.RequestContext{Context: ctx, Principal: a.cfg.Principal.ID}, "unread")
	return &reply{account: account, out: &a.out, left: a.left, cancel: func() {}, settle: func() {}}
}

// limit gives the message its own context, which ends when the client cancels the request or
// leaves.
func (r *reply) limit() {
	r.account.Context.Context, r.cancel = context.WithCancel(r.account.Context.Context)
	r.settled = make(chan struct{})
	r.settle = sync.OnceFunc(func() { close(r.settled) })
}

// safely runs do and answers a panic with an error.
func (r *reply) safely(do func() error) error { return r.account.Safely(do, r.Refuse) }

// end ends the message, counts it and logs it.
func (r *reply) end(err error) {
	r.settle()
	if r.request != nil {
		r.request.End()
	}
	r.cancel()
	r.account.Finish(r.request, "", time.Since(r.account.Start), err)
}

// Context implements [conversation.Reply].
func (r *reply) Context() context.Context { return r.account.Context }

// Gone implements [conversation.Reply].
func (r *reply) Gone() bool { return r.account.Context.Err() != nil }

// Correlation implements [conversation.Reply].
func (r *reply) Correlation() string { return r.account.Correlation() }

// Trace implements [conversation.Reply].
func (r *reply) Trace() string { return r.account.Trace() }

// NoteProblem implements [conversation.Reply].
func (r *reply) NoteProblem(problem *mcp.Problem) { r.account.Problem = problem }

// BeginWaiting implements [conversation.Reply].
func (r *reply) BeginWaiting() error { return nil }

// Fail implements [conversation.Reply].
func (r *reply) Fail(err error) error {
	if r.account.Context.Err() != nil {
		return conversation.ErrGone
	}
	return r.Refuse(conversation.ProblemOf(err, false))
}

// Refuse implements [conversation.Reply]. Only requests and unreadable messages get an answer.
func (r *reply) Refuse(problem *mcp.Problem) error {
	if r.request != nil && r.request.ID() == nil && !r.batch {
		r.account.Problem = problem
		return nil
	}
	var id []byte
	if r.request != nil {
		id = r.request.ID()
	}
	return r.refuseID(problem, id)
}

// refuseID refuses the request with the given id, or nil if it is unknown.
func (r *reply) refuseID(problem *mcp.Problem, id []byte) error {
	r.account.Problem = problem
	return r.out.send(problem.AppendResponse(nil, r.account.Era, id, r.Correlation()))
}

// Answer implements [conversation.Reply].
func (r *reply) Answer(_ conversation.Status, message []byte) error {
	if message == nil {
		return nil
	}
	return r.out.send(message)
}

// Compose implements [conversation.Reply]. It buffers the message, so that other messages can
// be sent meanwhile: the server may send one that the client must read before this message can
// be completed.
func (r *reply) Compose(write func(io.Writer) error, note func()) error {
	var message bytes.Buffer
	if err := write(&message); err != nil {
		return err
	}
	if r.account.Context.Err() != nil {
		return conversation.ErrGone
	}
	return r.out.sendNoted(message.Bytes(), note)
}

// Wait implements [conversation.Reply].
func (r *reply) Wait() (conversation.Stream, error) { return r.Listen(), nil }

// Listen implements [conversation.Reply]. The context then ends when the client leaves.
func (r *reply) Listen() conversation.Stream {
	stop := context.AfterFunc(r.left, r.cancel)
	context.AfterFunc(r.account.Context, func() { stop() })
	r.settle()
	return &stream{reply: r}
}

// A stream sends the messages that belong to one request.
type stream struct {
	reply *reply

	mu     sync.Mutex
	closed bool
}

// CanSendEarly implements [conversation.Stream].
func (s *stream) CanSendEarly() bool { return true }

// Started implements [conversation.Stream].
func (s *stream) Started() bool { return true }

// Send implements [conversation.Stream].
func (s *stream) Send(message []byte) error {
	if s.reply.account.Context.Err() != nil {
		return conversation.ErrGone
	}
	if message == nil {
		return nil
	}
	return s.reply.out.send(message)
}

// SetResumePoint implements [conversation.Stream]. A pipe cannot be resumed.
func (s *stream) SetResumePoint(string) error { return nil }

// Heartbeat implements [conversation.Stream]. On a pipe, only messages can show that the gate is alive.
func (s *stream) Heartbeat(string) bool { return s.reply.account.Context.Err() == nil }

// Insert implements [conversation.Stream].
func (s *stream) Insert(write func(io.Writer) error) bool {
	var message bytes.Buffer
	if err := write(&message); err != nil {
		return s.open() // nothing was sent
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.Send(message.Bytes()) == nil
}

func (s *stream) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed
}

// Compose implements [conversation.Stream].
func (s *stream) Compose(write func(io.Writer) error, note func()) error {
	return s.reply.Compose(write, note)
}

// Close implements [conversation.Stream].
func (s *stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
