package conversation

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A clientSender runs held calls with the credentials of a request.
type clientSender struct {
	caller

	recognition Authentication
	refused     *refusal
}

// A caller runs held calls, and returns the definitions of their tools.
type caller interface {
	approval.Sender
	approval.Definer
}

// send returns the sender that runs held calls with the session and the credentials of this
// request.
func (s *sender) send() approval.Sender { return s.sendBy(s.client.Caller(), newRefusal()) }

// sendBy is send with an existing caller. It notes refusals of the upstream in refused.
func (s *sender) sendBy(c *upstream.Caller, refused *refusal) approval.Sender {
	return clientSender{caller: c, recognition: s.client.Authentication(), refused: refused}
}

// Call implements [approval.Sender].
func (s clientSender) Call(ctx context.Context, t task.Task, m approval.UpstreamRequest) (approval.Outcome, error) {
	outcome, err := s.caller.Call(ctx, t, m)
	if failed := refusalIn(err); failed != nil {
		s.refused.ofCall.Store(failed.Refusal)
	}
	return outcome, err
}

// Poll implements [approval.Sender].
func (s clientSender) Poll(ctx context.Context, t task.Task) (approval.Report, error) {
	report, err := s.caller.Poll(ctx, t)
	s.refused.note(err)
	return report, err
}

// Fetch implements [approval.Sender].
func (s clientSender) Fetch(ctx context.Context, t task.Task) (approval.Outcome, error) {
	outcome, err := s.caller.Fetch(ctx, t)
	s.refused.note(err)
	return outcome, err
}

// Revoked implements [approval.Revocable].
func (s clientSender) Revoked() bool { return !s.recognition.Valid() }

// A refusal tells a request that the upstream refused its session or credentials. A refused call
// has ended. After a refused question about a task of the upstream, a client with another session
// or new credentials can ask again.
type refusal struct {
	ofCall   atomic.Pointer[approval.Refusal]
	once     sync.Once
	asking   *approval.SendError // set before isAsking is closed
	isAsking chan struct{}
}

func newRefusal() *refusal { return &refusal{isAsking: make(chan struct{})} }

func (r *refusal) note(err error) {
	if failed := refusalIn(err); failed != nil {
		r.once.Do(func() {
			r.asking = failed
			close(r.isAsking)
		})
	}
}

// refusalIn returns err if it is a refusal of the client by the upstream, and nil otherwise.
func refusalIn(err error) *approval.SendError {
	if failed, ok := errors.AsType[*approval.SendError](err); ok && failed.Refusal != nil {
		return failed
	}
	return nil
}

// Refused returns the problem of a client that the upstream has refused.
func Refused(r *approval.Refusal) *mcp.Problem {
	if problem, ok := errors.AsType[*mcp.Problem](r.Cause); ok {
		return problem
	}
	switch r.Status {
	case http.StatusUnauthorized:
		return &mcp.Problem{Type: mcp.Unauthenticated, Detail: "the upstream does not accept the credentials of this request; the call did not run", Challenge: r.Challenge}
	case http.StatusForbidden:
		return &mcp.Problem{Type: mcp.InsufficientScope, Detail: "the upstream wants credentials with more rights; the call did not run", Challenge: r.Challenge}
	default:
		return &mcp.Problem{Type: mcp.SessionGone}
	}
}
