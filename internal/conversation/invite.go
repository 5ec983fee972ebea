package conversation

import (
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An invitation asks the user of a host, by URL elicitation, to open the page on
// which a held call is decided. The page asks for a login as always, and
// the answer of the host decides nothing: hosts without a user decline within
// milliseconds.

// An inviter invites the user of one client to decide on a held call, by URL elicitation.
type inviter struct {
	sender *sender
	out    responder
}

// invites reports whether users are invited to decide t on its page.
func (i inviter) invites(t task.Task) bool {
	w := i.out.gateway.Waiting()
	return t.State == task.InputRequired && w.Page != nil && w.AskHost != nil && w.AskHost(t.Workflow)
}

// opensURLs reports whether a client with these capabilities can ask its user to open a URL.
func opensURLs(capabilities jsonrpc.Value) bool {
	return capabilities.Member("elicitation").Member("url").IsObject()
}

// byRound reports whether a modern client is invited to decide t, which its request m has just
// created. A request that attaches to a task gets no invitation.
func (i inviter) byRound(m *jsonrpc.Message, t task.Task) bool {
	return i.out.era == mcp.Modern && i.invites(t) && opensURLs(m.Params.Meta.Member(mcpname.MetaClientCapabilities))
}

// params returns the params of the elicitation for t.
func (i inviter) params(t task.Task, elicitation string) []byte {
	d := i.out.dialect()
	d.Gate.ApprovalURL = nil // the host shows the URL beside the message
	return mcp.ElicitURL(i.out.gateway.Waiting().Page(t.ID), d.StatusMessage(t), elicitation)
}

// InviteToConnect answers a request for which the gate has no token. If the client can, it asks its user to open
// the page on which people connect, and repeats the request.
func (r *Request) InviteToConnect(p *mcp.Problem) error {
	if r.packet.Batch || len(r.packet.Messages) == 0 {
		return r.out.reply.Refuse(p)
	}
	m, sender := &r.packet.Messages[0], r.sender.client.Identity()
	switch {
	case r.out.era == mcp.Modern && mcp.TakesInput(m.Method) && opensURLs(m.Params.Meta.Member(mcpname.MetaClientCapabilities)):
		if m.Params.Member("inputResponses").Present() {
			break // the user has not connected in time
		}
		result := append([]byte(`{"resultType":"input_required","inputRequests":{"connect":{"method":"elicitation/create","params":`), mcp.ElicitURL(p.Connect, p.Error(), "")...)
		return r.out.answer(jsonrpc.AppendResult(nil, r.out.id, append(result, `}}}`...)))
	case r.sender.client.Transport().Version == mcp.Version20251125 && r.gateway.cfg.Catalog.Handshake(sender).OpensURLs:
		p = p.Elicits()
	}
	return r.out.reply.Refuse(p)
}

// send invites a legacy client on the stream on which it waits for t, once in its session. The
// gate must have seen the session begin.
func (i inviter) send(stream Stream, t task.Task) error {
	sender := i.sender.client.Identity()
	if _, session := catalog.SessionIn(sender.Key); !session || !stream.CanSendEarly() ||
		i.out.era != mcp.Legacy || i.sender.client.Transport().Version != mcp.Version20251125 ||
		!i.invites(t) || !i.out.gateway.cfg.Catalog.Handshake(sender).OpensURLs {
		return nil
	}
	ctx := i.out.reply.Context()
	id, err := i.out.gateway.texts.Seal(ctx, string(t.ID), string(useInvite), i.sender.peer())
	if err != nil { // the client can wait without an invitation
		i.out.gateway.cfg.Log.WarnContext(ctx, "cannot invite the user to the approval page", "task_id", t.ID, "err", err)
		return nil
	}
	if !i.out.gateway.invite(invitationKey{i.sender.peer(), t.ID}, invited) {
		return nil
	}
	return stream.Send(join(`{"jsonrpc":"2.0","id":"`, sealedPrefix, id, `","method":"elicitation/create","params":`,
		string(i.params(t, string(t.ID))), `}`))
}

// whenDecided returns a channel that gets t when it is decided. It is nil if the client was not
// invited.
func (i inviter) whenDecided(ctx context.Context, t task.Task) <-chan task.Task {
	if now, _ := i.out.gateway.invitations.get(invitationKey{i.sender.peer(), t.ID}); now != invited {
		return nil
	}
	decided := make(chan task.Task, 1)
	go func() {
		defer i.out.gateway.recoverPanic(ctx, t.ID)
		steps, err := i.out.gateway.cfg.Approvals.Follow(ctx, t.Owner, []task.ID{t.ID})
		if err != nil {
			return // the wait for the task reports the error
		}
		defer steps.Close()
		for {
			news, err := steps.Next(ctx, maxResultWait)
			if err != nil || len(steps.Unfinished()) == 0 && len(news) == 0 {
				return
			}
			for _, now := range news {
				if now.State != task.InputRequired {
					decided <- now
					return
				}
			}
		}
	}()
	return decided
}

// complete notifies an invited client once t is decided.
func (i inviter) complete(stream Stream, t task.Task) {
	key := invitationKey{i.sender.peer(), t.ID}
	if now, _ := i.out.gateway.invitations.get(key); t.State == task.InputRequired || now != invited || !i.out.gateway.invite(key, completed) {
		return
	}
	// If the client is gone, the wait ends with that error.
	_ = stream.Send(join(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"`, string(t.ID), `"}}`))
}

// planAnswer returns the plan of a response to an invitation, or nil for any other response.
func (i inviter) planAnswer(ctx context.Context, m *jsonrpc.Message) *Plan {
	ours, err := i.answered(ctx, m)
	switch {
	case err != nil:
		return refuse(i.out, i.out.storeProblem(err))
	case !ours:
		return nil
	default:
		return answers(func(context.Context) error { return i.out.answer(nil) })
	}
}

// answered reports whether m is the response to an invitation that any replica has sent to this
// client. The response has no effect.
func (i inviter) answered(ctx context.Context, m *jsonrpc.Message) (bool, error) {
	id, _ := m.ID.Text()
	if m.Kind != jsonrpc.Response || !IsSealed(id) {
		return false, nil
	}
	about, err := i.out.gateway.texts.Open(ctx, id[len(sealedPrefix):], string(useInvite), i.sender.peer())
	if errors.Is(err, keyring.ErrForeign) {
		return false, nil
	}
	if err == nil {
		action, _ := m.Result.Member("action").Text()
		i.out.gateway.cfg.Log.DebugContext(ctx, "invitation to the approval page answered", "task_id", about, "action", safetext.Line(action, maxReason))
	}
	return err == nil, err
}

type invitationKey struct {
	peer string
	task task.ID
}

// An invitation is the state of an invitation.
type invitation uint8

const (
	invited   invitation = iota + 1
	completed            // the client was notified that the call is decided
)

// invite advances the state of an invitation, and reports whether it has changed.
func (g *Gateway) invite(key invitationKey, now invitation) (news bool) {
	g.invitations.update(key, func(before invitation) invitation {
		news = before == now-1
		return max(before, now)
	})
	return news
}
