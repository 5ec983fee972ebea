package conversation

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An invitation asks the user of a host, by URL elicitation, to open the page on
// which a held call is decided. The page asks for a login as always, and
// whatever the host answers decides nothing: hosts without a user decline within
// milliseconds.

// invitations are those that legacy clients were sent.
type invitations struct {
	mu  sync.Mutex
	all map[invitationKey]*invitation
}

// An invitation is one that a legacy client was sent.
type invitation struct {
	until time.Time // when its task ends at the latest
	over  bool      // the client knows that there is nothing left to decide
}

type invitationKey struct {
	peer string
	task task.ID
}

// maxInvitations is how many are remembered. While as many are open, nobody else is
// invited, so that nobody is invited twice.
const maxInvitations = 10_000

// add notes an invitation, and reports whether it is the first of this client to
// this task.
func (i *invitations) add(key invitationKey, until, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all[key] != nil {
		return false
	}
	if i.all == nil {
		i.all = make(map[invitationKey]*invitation)
	}
	if len(i.all) >= maxInvitations {
		maps.DeleteFunc(i.all, func(_ invitationKey, one *invitation) bool { return one.over || one.until.Before(now) })
	}
	if len(i.all) >= maxInvitations {
		return false
	}
	i.all[key] = &invitation{until: until}
	return true
}

// open reports whether the client was invited and does not know yet that there is
// nothing left to decide.
func (i *invitations) open(key invitationKey) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	one := i.all[key]
	return one != nil && !one.over
}

// end notes that the client knows that there is nothing left to decide, and
// reports whether the invitation was open.
func (i *invitations) end(key invitationKey) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	one := i.all[key]
	if one == nil || one.over {
		return false
	}
	one.over = true
	return true
}

// opensURLs reports whether a client with these capabilities can ask its user to
// open a URL.
func opensURLs(capabilities jsonrpc.Value) bool {
	return capabilities.Member("elicitation").Member("url").IsObject()
}

// invites reports whether users are invited to decide about t at its page.
func (r *Request) invites(t task.Task) bool {
	w := r.hub.Waiting()
	return t.State == task.InputRequired && w.Page != nil && w.AskHost != nil && w.AskHost(t.Workflow)
}

// invitation returns the params of the elicitation that invites to the page of t.
func (r *Request) invitation(t task.Task, elicitation string) []byte {
	d := r.dialect()
	d.Page = nil // the host shows the URL beside the message
	params := append([]byte(`{"mode":"url",`), elicitation...)
	params = jsonrpc.AppendString(append(params, `"url":`...), r.hub.Waiting().Page(t.ID))
	params = jsonrpc.AppendString(append(params, `,"message":`...), d.StatusMessage(t))
	return append(params, '}')
}

// invitesByRound reports whether a modern client is invited to decide about t, of
// which its request m has just been made. A request that attaches to a task is not:
// the one that made the task was.
func (h hold) invitesByRound(m *jsonrpc.Message, t task.Task) bool {
	return h.era == wire.Modern && h.invites(t) && opensURLs(m.Params.Meta.Member(wire.MetaCapabilities))
}

// invitingRound asks a modern client at once to repeat its request, with an invitation.
// The client waits for t when it does.
func (h hold) invitingRound(t task.Task) []byte {
	asked := append([]byte(`{"approval":{"method":"elicitation/create","params":`), h.invitation(t, "")...)
	return h.nextRound(append(asked, `}}`...), roundState{task: t.ID, round: 1, invited: true})
}

// invite invites a legacy client on the stream on which it waits for t, once in
// its session. The gate must have seen the session begin.
func (w *waiting) invite(t task.Task) error {
	from := w.client.From()
	if _, session := gate.SessionIn(from.Key); !session || !w.stream.Early() ||
		w.era != wire.Legacy || w.client.Transport().Version != wire.Version20251125 ||
		!w.invites(t) || !w.hub.cfg.Gate.About(from).OpensURLs {
		return nil
	}
	ctx := w.reply.Context()
	id, err := w.hub.texts.Seal(ctx, string(t.ID), string(useInvite), w.peer())
	if err != nil { // the client can wait without
		w.hub.cfg.Log.WarnContext(ctx, "the host is not asked to open the approval page", "task_id", t.ID, "cause", err)
		return nil
	}
	if !w.hub.invitations.add(invitationKey{w.peer(), t.ID}, t.ExpiresAt, time.Now()) {
		return nil
	}
	elicitation := `"elicitationId":"` + string(t.ID) + `",`
	return w.stream.Send(join(`{"jsonrpc":"2.0","id":"`, sealedPrefix, id, `","method":"elicitation/create","params":`,
		string(w.invitation(t, elicitation)), `}`))
}

// whenDecided returns a channel that gets t once it is decided, if the client was
// invited to decide it. It is nil if the client was not.
func (w *waiting) whenDecided(ctx context.Context, t task.Task) <-chan task.Task {
	if !w.hub.invitations.open(invitationKey{w.peer(), t.ID}) {
		return nil
	}
	decided := make(chan task.Task, 1)
	go func() {
		defer w.hub.surviving(ctx, t.ID)
		steps, err := w.hub.cfg.Desk.Follow(ctx, t.Owner, []task.ID{t.ID})
		if err != nil {
			return // the end of the wait says so as well
		}
		defer steps.Close()
		for {
			news, err := steps.Next(ctx, longestResult)
			if err != nil || len(steps.Open()) == 0 && len(news) == 0 {
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

// completeInvitation notifies a client that was invited to decide about t that there
// is nothing left to decide, if that is so.
func (w *waiting) completeInvitation(t task.Task) {
	if t.State == task.InputRequired || !w.hub.invitations.end(invitationKey{w.peer(), t.ID}) {
		return
	}
	// If the client is gone, the wait ends for that reason.
	_ = w.stream.Send(join(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"`, string(t.ID), `"}}`))
}

// planInvitationAnswer returns the plan of a response to one of the gate's
// invitations, or nil if m is another response: those are for the upstream.
func (r *Request) planInvitationAnswer(ctx context.Context, m *jsonrpc.Message) *Plan {
	ours, err := r.answersInvitation(ctx, m)
	switch {
	case err != nil:
		return r.refuses(r.StoreFailed(err))
	case !ours:
		return nil
	default:
		return answers(func(context.Context) error { return r.answer(nil) })
	}
}

// answersInvitation reports whether m is the response to an invitation that this
// client was sent, by whichever replica. Nothing becomes of it.
func (r *Request) answersInvitation(ctx context.Context, m *jsonrpc.Message) (bool, error) {
	id, _ := m.ID.Text()
	if m.Kind != jsonrpc.Response || !IsSealed(id) {
		return false, nil
	}
	about, err := r.hub.texts.Open(ctx, id[len(sealedPrefix):], string(useInvite), r.peer())
	if errors.Is(err, keyring.ErrForeign) {
		return false, nil
	}
	if err == nil {
		action, _ := m.Result.Member("action").Text()
		r.hub.cfg.Log.DebugContext(ctx, "the host answered an invitation to the approval page", "task_id", about, "action", plain.Line(action, maxSaid))
	}
	return err == nil, err
}
