package slack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/slack-go/slack"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	actionTime = 20 * time.Second // how long what follows from a click may take
	lastTime   = 4 * time.Second  // how long it may still take when the gate stops or takes another configuration
	answerTime = 5 * time.Second  // how long it may take after that to tell the user
)

// take does what somebody asked for by a click in any channel of the app. Slack knows that
// the click has arrived and does not send it again, so that what was begun is brought to
// an end after ctx has ended.
func (s *Slack) take(ctx context.Context, click slack.InteractionCallback) {
	ctx, stop := outlive(ctx)
	defer stop()
	switch click.Type {
	case slack.InteractionTypeBlockActions:
		for _, action := range click.ActionCallback.BlockActions {
			s.press(ctx, click, action)
		}
	case slack.InteractionTypeViewSubmission:
		s.submit(ctx, click)
	default: // nothing of ours
	}
}

// outlive returns a context for a click that goes on for a while after ctx has ended.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	going, stop := context.WithTimeout(context.WithoutCancel(ctx), actionTime)
	forget := context.AfterFunc(ctx, func() {
		pause.For(going, lastTime)
		stop()
	})
	return going, func() { forget(); stop() }
}

// press does what a button stands for.
func (s *Slack) press(ctx context.Context, click slack.InteractionCallback, action *slack.BlockAction) {
	var p pressed
	ours := action.ActionID == actionApprove || action.ActionID == actionReject
	if !ours || json.Unmarshal([]byte(action.Value), &p) != nil || p.ID == "" {
		return // the button that opens the inbox, or nothing of ours
	}
	p.Channel = click.Channel.ID
	at := s.at(ctx, click.User.ID, p.Channel)
	switch {
	case at == nil:
	case action.ActionID == actionApprove:
		at.decide(ctx, click.User.ID, p, approval.Ruling{Decision: approval.Approve, Shown: p.Shown})
	default:
		if _, err := at.api.OpenViewContext(ctx, click.TriggerID, rejection(p)); err != nil {
			at.answer(ctx, click.User.ID, "The window for the reason cannot be opened. Reject the call in the inbox.")
		}
	}
}

// submit rejects a call with the reason that somebody gave.
func (s *Slack) submit(ctx context.Context, click slack.InteractionCallback) {
	var p pressed
	if click.View.CallbackID != viewReject || json.Unmarshal([]byte(click.View.PrivateMetadata), &p) != nil {
		return
	}
	reason := ""
	if state := click.View.State; state != nil {
		reason = state.Values[blockReason][blockReason].Value
	}
	if at := s.at(ctx, click.User.ID, p.Channel); at != nil {
		at.decide(ctx, click.User.ID, p, approval.Ruling{Decision: approval.Reject, Reason: reason})
	}
}

// at returns the channel of the gate in which a user has clicked. If the gate has none
// there, it tells the user and returns nil: the channel was moved or removed, or another
// gate with other channels uses the app.
func (s *Slack) at(ctx context.Context, user, channel string) *Slack {
	found := s.app.channel(channel)
	if found == nil {
		s.cfg.Log.WarnContext(ctx, "click in a Slack channel that is not configured", "slack_channel", channel)
		s.answerIn(ctx, channel, user, "Your decision does not count: the gate takes no decisions in this Slack channel. Decide in the inbox.")
	}
	return found
}

// decide makes a decision in the name of a user. The message changes when the outbox
// sees how the call stands. The user is told if the decision does not count, or is not
// enough for a decision about the call.
func (s *Slack) decide(ctx context.Context, user string, p pressed, r approval.Ruling) {
	who, err := s.people.approver(ctx, user)
	if err != nil {
		s.answer(ctx, user, "Your decision does not count: "+s.whyNot(err))
		if !errors.Is(err, errStranger) {
			s.report(s.redacted(err)) // nobody can decide here
		}
		return
	}
	s.report(nil)
	after, err := s.cfg.Decide(ctx, task.ID(p.ID), who, r)
	switch {
	case errors.Is(err, approval.ErrUnsure):
		s.answer(ctx, user, "It is not known whether your decision counts: "+s.cfg.Explain(err))
	case err != nil && ctx.Err() != nil:
		s.answer(ctx, user, "The gate had no time to make sure that your decision counts. Look at the call in the inbox.")
	case err != nil:
		s.answer(ctx, user, "Your decision does not count: "+s.cfg.Explain(err))
	case after.State == task.InputRequired:
		s.answer(ctx, user, fmt.Sprintf("Your approval is recorded: %d of %d approvals.", len(after.Approval.Approvals), after.Approval.Quorum))
	}
}

// whyNot says why somebody could not be recognised.
func (s *Slack) whyNot(err error) string {
	switch {
	case errors.Is(err, errStranger):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "Slack did not answer in time. Click again, or decide in the inbox."
	default:
		return s.redact(explained(err))
	}
}

// answer sends a user a message in the channel that nobody else sees.
func (s *Slack) answer(ctx context.Context, user, text string) {
	s.answerIn(ctx, s.cfg.Channel, user, text)
}

// answerIn is answer for any channel of Slack. It has time of its own: that of ctx may be
// over.
func (s *Slack) answerIn(ctx context.Context, channel, user, text string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer stop()
	if _, err := s.api.PostEphemeralContext(ctx, channel, user, slack.MsgOptionText(text, true)); err != nil {
		s.cfg.Log.WarnContext(ctx, "message to a Slack user not sent", "error", s.redact(err), "text", text)
	}
}
