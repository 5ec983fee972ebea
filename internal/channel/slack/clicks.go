package slack

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/slack-go/slack"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// actionTime is how long what follows from a click may take.
const actionTime = 20 * time.Second

// take does what somebody asked for by a click.
func (s *Slack) take(ctx context.Context, click slack.InteractionCallback) {
	ctx, stop := context.WithTimeout(ctx, actionTime)
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

// press does what a button stands for.
func (s *Slack) press(ctx context.Context, click slack.InteractionCallback, action *slack.BlockAction) {
	var p pressed
	if json.Unmarshal([]byte(action.Value), &p) != nil || p.ID == "" || click.Channel.ID != s.cfg.Channel {
		return // the button that opens the inbox, or nothing of ours
	}
	switch action.ActionID {
	case actionApprove:
		s.decide(ctx, click.User.ID, p, approval.Ruling{Decision: approval.Approve, Shown: p.Shown})
	case actionReject:
		if _, err := s.api.OpenViewContext(ctx, click.TriggerID, rejection(p)); err != nil {
			s.answer(ctx, click.User.ID, "The window for the reason cannot be opened. Reject the call in the inbox.")
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
	s.decide(ctx, click.User.ID, p, approval.Ruling{Decision: approval.Reject, Reason: reason})
}

// decide makes a decision in the name of a user. The message changes when the outbox
// sees how the call stands; a user whose decision does not count gets the reason.
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
	if _, err := s.cfg.Decide(ctx, task.ID(p.ID), who, r); err != nil {
		s.answer(ctx, user, "Your decision does not count: "+s.cfg.Explain(err))
	}
}

// whyNot says why somebody could not be recognised.
func (s *Slack) whyNot(err error) string {
	if errors.Is(err, errStranger) {
		return err.Error()
	}
	return s.redact(explained(err))
}

// answer sends a user a message that nobody else sees.
func (s *Slack) answer(ctx context.Context, user, text string) {
	if _, err := s.api.PostEphemeralContext(ctx, s.cfg.Channel, user, slack.MsgOptionText(text, true)); err != nil {
		s.cfg.Log.WarnContext(ctx, "message to a Slack user not sent", "error", s.redact(err), "text", text)
	}
}
