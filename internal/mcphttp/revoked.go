package mcphttp

import (
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// errRevoked says that the gate no longer recognises the agent that waits.
var errRevoked = errors.New("the agent is no longer recognised by what it showed")

// A clientSender makes a held call with the credentials of a request.
type clientSender struct {
	*upstream.Caller

	valid func() bool
}

// Revoked implements [approval.Revocable].
func (s clientSender) Revoked() bool { return !s.valid() }

func (x *exchange) sendBy(c *upstream.Caller) approval.Sender {
	return clientSender{Caller: c, valid: x.validity()}
}

// validity returns what reports whether the gate, as it is configured at that
// time, takes the sender of the request for the same agent as it did.
func (x *exchange) validity() func() bool {
	h, since, agent := x.h, x.since, x.agent
	shown := x.r.WithContext(context.WithoutCancel(x.r.Context()))
	shown.Body, shown.Header = nil, x.r.Header.Clone()
	if x.authorization != nil {
		shown.Header["Authorization"] = x.authorization
	}
	ctx := context.WithoutCancel(x.ctx) // the agent may be asked about after its request has ended
	return func() bool {
		now := h.current.Load()
		switch {
		case now.over == since.over:
			return true
		case now.Identity == nil:
			return agent.Principal.Anonymous
		}
		again, err := now.Identity.Recognise(ctx, shown)
		return err == nil && again.Principal.ID == agent.Principal.ID && again.Principal.Anonymous == agent.Principal.Anonymous
	}
}

// waitFailed returns the answer to a request whose wait has failed.
func (x *exchange) waitFailed(err error) []byte {
	if !errors.Is(err, errRevoked) {
		return x.errorMessage(x.dialect().Error(err))
	}
	x.problem = &wire.Problem{Type: wire.Unauthenticated, Detail: "the credentials of this request are no longer accepted", Cause: err}
	return x.problem.AppendResponse(nil, x.era, x.id, x.correlationID())
}
