package slack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/slack-go/slack"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

const (
	clickTimeout = 20 * time.Second // for one click
	graceTime    = 4 * time.Second  // for one click after the gate stops or the configuration changes
	tellTimeout  = 5 * time.Second  // for telling the user about the result after that
)

// handleClick handles a click in any channel of the app. The click was acknowledged and
// Slack does not send it again, so it is handled to its end even if ctx ends.
func (s *Slack) handleClick(ctx context.Context, click slack.InteractionCallback) {
	ctx, stop := withGrace(ctx)
	defer stop()
	switch click.Type {
	case slack.InteractionTypeBlockActions:
		for _, action := range click.ActionCallback.BlockActions {
			s.handleButton(ctx, click, action)
		}
	case slack.InteractionTypeViewSubmission:
		s.handleRejection(ctx, click)
	default: // not from messages of the gate
	}
}

// withGrace returns a context for a click that lasts some time longer than ctx.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	going, stop := context.WithTimeout(context.WithoutCancel(ctx), clickTimeout)
	forget := context.AfterFunc(ctx, func() {
		pause.For(going, graceTime)
		stop()
	})
	return going, func() { forget(); stop() }
}

// handleButton handles a click on a button.
func (s *Slack) handleButton(ctx context.Context, click slack.InteractionCallback, action *slack.BlockAction) {
	var p buttonValue
	ours := action.ActionID == actionApprove || action.ActionID == actionReject
	if !ours || json.Unmarshal([]byte(action.Value), &p) != nil || p.ID == "" {
		return // the button that opens the inbox, or a button of another app
	}
	p.Channel = click.Channel.ID
	at := s.channelOf(ctx, click.User.ID, p.Channel)
	switch {
	case at == nil:
	case action.ActionID == actionApprove:
		at.decide(ctx, click.User.ID, p, approval.Ruling{Decision: approval.Approve, Shown: p.Shown})
	default:
		if _, err := at.api.OpenViewContext(ctx, click.TriggerID, rejection(p)); err != nil {
			at.tell(ctx, click.User.ID, "The window for the reason cannot be opened. Reject the call in the inbox.")
		}
	}
}

// handleRejection rejects a call with the reason from the window.
func (s *Slack) handleRejection(ctx context.Context, click slack.InteractionCallback) {
	var p buttonValue
	if click.View.CallbackID != viewReject || json.Unmarshal([]byte(click.View.PrivateMetadata), &p) != nil {
		return
	}
	reason := ""
	if state := click.View.State; state != nil {
		reason = state.Values[blockReason][blockReason].Value
	}
	if at := s.channelOf(ctx, click.User.ID, p.Channel); at != nil {
		at.decide(ctx, click.User.ID, p, approval.Ruling{Decision: approval.Reject, Reason: reason})
	}
}

// channelOf returns the channel in which a user has clicked. If the gate has no such channel,
// because the configuration changed or another gate uses the app, it tells the user and
// returns nil.
func (s *Slack) channelOf(ctx context.Context, user, place string) *Slack {
	found := s.app.channel(place)
	if found == nil {
		s.cfg.Log.WarnContext(ctx, "click in a Slack channel that is not configured", "slack_channel", place)
		s.tellIn(ctx, place, user, "Your decision does not count: the gate takes no decisions in this Slack channel. Decide in the inbox.")
	}
	return found
}

// decide decides about a call for a user. The outbox then updates the message. The user is
// told if the decision does not count, or if the call needs further approvals.
func (s *Slack) decide(ctx context.Context, user string, p buttonValue, r approval.Ruling) {
	who, err := s.directory.approver(ctx, user)
	if err != nil {
		s.tell(ctx, user, "Your decision does not count: "+s.whyNot(err))
		if !errors.Is(err, errNotApprover) {
			s.report(s.redacted(err)) // decisions are not possible
		}
		return
	}
	s.report(nil)
	r.Via = gatetask.Via{Kind: gatetask.ViaChannel, Channel: s.cfg.Name, Account: user}
	if told := (channel.Gate{Decide: s.cfg.Decide, Explain: s.cfg.Explain}).DecideFor(ctx, task.ID(p.ID), who, r); told != "" {
		s.tell(ctx, user, told)
	}
}

// whyNot returns the text for a user who was not recognised as an approver.
func (s *Slack) whyNot(err error) string {
	switch {
	case errors.Is(err, errNotApprover):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "Slack did not answer in time. Click again, or decide in the inbox."
	default:
		return s.redact(outboxError(err))
	}
}

// tell sends a message in the channel that only one user sees.
func (s *Slack) tell(ctx context.Context, user, text string) {
	s.tellIn(ctx, s.cfg.Channel, user, text)
}

// tellIn is tell for any Slack channel. It works after ctx has ended.
func (s *Slack) tellIn(ctx context.Context, place, user, text string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer stop()
	if _, err := s.api.PostEphemeralContext(ctx, place, user, slack.MsgOptionText(text, true)); err != nil {
		s.cfg.Log.WarnContext(ctx, "message to a Slack user not sent", "err", s.redact(err), "text", text)
	}
}

// A directory maps Slack users to approvers. It caches the members of user groups for a
// minute.
type directory struct {
	names map[string]string // of approvers, by their ids in Slack
	teams map[string]string // groups of the gate, by ids of Slack user groups
	now   func() time.Time
	api   *slack.Client

	mu      sync.Mutex
	members map[string]membership // by user group
}

// A membership has the members of a user group.
type membership struct {
	users []string
	until time.Time
}

// membershipLife is the time for which a membership is cached.
const membershipLife = time.Minute

var errNotApprover = errors.New("you are not set up as an approver: ask the administrator of the gate")

// approver returns the approver for a Slack user.
func (p *directory) approver(ctx context.Context, id string) (approval.Approver, error) {
	user, err := p.member(ctx, id)
	if err != nil {
		return approval.Approver{}, err
	}
	groups, err := p.groups(ctx, id)
	if err != nil {
		return approval.Approver{}, err
	}
	a := approval.Approver{Name: p.names[id], Groups: groups, Roles: []string{"approver"}}
	//mutate:swap `[]string{"slack:" + id}` "nil" TestOneUserCountsOnce a Slack user with a changed e-mail address counts again
	a.Aliases = []string{"slack:" + id} // the same person after a change of the e-mail address
	email := user.Profile.Email
	//mutate:false TestOnlyApproversDecideInSlack an address that Slack has not confirmed counts
	if !user.IsEmailConfirmed {
		email = ""
	}
	if email != "" {
		a.Aliases = append(a.Aliases, email)
	}
	switch {
	case a.Name != "":
		return a, nil
	case len(groups) > 0 && email != "":
		a.Name = email
		return a, nil
	default:
		return approval.Approver{}, errNotApprover
	}
}

// member returns a user who is a person and a member of the workspace.
func (p *directory) member(ctx context.Context, id string) (*slack.User, error) {
	user, err := p.api.GetUserInfoContext(ctx, id)
	if err != nil {
		return nil, err
	}
	//mutate:swap "user.IsBot || " "" TestOnlyApproversDecideInSlack a bot decides in Slack
	if user.IsBot || user.Deleted || user.IsStranger || user.ID != id {
		return nil, errNotApprover
	}
	return user, nil
}

// groups returns the groups of a user in the gate.
func (p *directory) groups(ctx context.Context, id string) ([]string, error) {
	var found []string
	for _, group := range slices.Sorted(maps.Keys(p.teams)) {
		users, err := p.membersOf(ctx, group)
		if err != nil {
			return nil, err
		}
		if slices.Contains(users, id) {
			found = append(found, p.teams[group])
		}
	}
	return found, nil
}

func (p *directory) membersOf(ctx context.Context, group string) ([]string, error) {
	now := p.now()
	p.mu.Lock()
	known := p.members[group]
	p.mu.Unlock()
	if now.Before(known.until) {
		return known.users, nil
	}
	users, err := p.api.GetUserGroupMembersContext(ctx, group)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[group] = membership{users: users, until: now.Add(membershipLife)}
	return users, nil
}
