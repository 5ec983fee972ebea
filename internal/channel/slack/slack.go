// Package slack is a channel to people in Slack. It posts each question as a message
// with buttons, changes the message when the call is decided or ends, and takes the
// clicks over Socket Mode, so that the gate needs no public address.
//
// Everything that agents and upstreams wrote is sent as plain text, never as mrkdwn.
// A call that does not fit into a message has no button to approve it: what people
// have not seen they do not approve.
package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Config says where questions go, and who may answer them. URL may be empty;
// People and Groups may be.
type Config struct {
	URL      string // of Slack's API
	BotToken string
	AppToken string
	Channel  string            // the id of the channel
	People   map[string]string // names of approvers by the ids of Slack users
	Groups   map[string]string // names of groups by the ids of Slack user groups
	Decide   func(context.Context, task.ID, approval.Approver, approval.Ruling) (task.Task, error)
	Explain  func(error) string // says in words why a decision was refused
	Now      func() time.Time
	Log      *slog.Logger
}

// A Slack is a channel of Slack. [Apps] makes it.
type Slack struct {
	cfg    Config
	api    *slack.Client
	people *people
	app    *app
}

// metadataType marks the messages of the gate, so that one which was sent before a
// crash is found again.
const metadataType = "thoughtgate_question"

// Ask implements [channel.Channel]. The reference is the time stamp of the message.
func (s *Slack) Ask(ctx context.Context, q channel.Question) (string, error) {
	if q.Again {
		if ref, err := s.find(ctx, q); ref != "" || err != nil {
			return ref, channel.Unsent(explained(err))
		}
	}
	_, stamp, err := s.api.PostMessageContext(ctx, s.cfg.Channel, s.message(q)...)
	return stamp, explained(err)
}

// Update implements [channel.Channel]. A message that somebody has deleted, or that was
// never posted, needs no update.
func (s *Slack) Update(ctx context.Context, ref string, q channel.Question) error {
	if ref == "" {
		var err error
		if ref, err = s.find(ctx, q); ref == "" {
			return explained(err)
		}
	}
	_, _, _, err := s.api.UpdateMessageContext(ctx, s.cfg.Channel, ref, s.message(q)...)
	if refused, ok := errors.AsType[slack.SlackErrorResponse](err); ok && refused.Err == "message_not_found" {
		return nil
	}
	return explained(err)
}

// Remind implements [channel.Channel]: it writes below the message, where the channel
// sees it too.
func (s *Slack) Remind(ctx context.Context, ref string, q channel.Question) error {
	if q.Again {
		if sent, err := s.reminded(ctx, ref, q); sent || err != nil {
			return explained(err)
		}
	}
	text := reminder(q)
	_, _, err := s.api.PostMessageContext(ctx, s.cfg.Channel,
		slack.MsgOptionTS(ref), slack.MsgOptionBroadcast(), slack.MsgOptionText(text, true),
		slack.MsgOptionBlocks(slack.NewSectionBlock(plainText(text, maxSection), nil, nil)),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionMetadata(slack.SlackMetadata{
			EventType: metadataReminder, EventPayload: map[string]any{"message": q.MessageID()},
		}))
	return explained(err)
}

// metadataReminder marks reminders.
const metadataReminder = "thoughtgate_reminder"

// reminded reports whether a reminder is below the message.
func (s *Slack) reminded(ctx context.Context, ref string, q channel.Question) (bool, error) {
	replies, _, _, err := s.api.GetConversationRepliesContext(ctx, &slack.GetConversationRepliesParameters{
		ChannelID: s.cfg.Channel, Timestamp: ref, Limit: historySize, IncludeAllMetadata: true,
	})
	if refused, ok := errors.AsType[slack.SlackErrorResponse](err); ok && refused.Err == "thread_not_found" {
		return false, nil // the message was deleted
	}
	return slices.ContainsFunc(replies, func(m slack.Message) bool {
		return m.Metadata.EventType == metadataReminder && m.Metadata.EventPayload["message"] == q.MessageID()
	}), err
}

// Address implements [channel.Channel].
func (s *Slack) Address() string { return s.cfg.URL + s.cfg.Channel }

func (s *Slack) message(q channel.Question) []slack.MsgOption {
	return []slack.MsgOption{
		slack.MsgOptionText(summary(q), true),
		slack.MsgOptionBlocks(blocks(q)...),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionMetadata(slack.SlackMetadata{
			EventType: metadataType, EventPayload: map[string]any{"task": string(q.Approval.ID)},
		}),
	}
}

// historySize is how many messages since the call was held are searched for it.
const historySize = 200

// find returns the time stamp of the message about q, if there is one.
func (s *Slack) find(ctx context.Context, q channel.Question) (string, error) {
	search := slack.GetConversationHistoryParameters{ChannelID: s.cfg.Channel, Limit: historySize, IncludeAllMetadata: true}
	if held := q.Approval.CreatedAt; !held.IsZero() {
		search.Oldest = fmt.Sprintf("%d.000000", held.Add(-time.Minute).Unix())
	}
	history, err := s.api.GetConversationHistoryContext(ctx, &search)
	if err != nil {
		return "", err
	}
	for _, m := range history.Messages {
		if m.Metadata.EventType == metadataType && m.Metadata.EventPayload["task"] == string(q.Approval.ID) {
			return m.Timestamp, nil
		}
	}
	return "", nil
}

// explained returns err as operators read it. It is a [channel.UnsentError] if Slack has
// refused to do something.
func explained(err error) error {
	if err == nil {
		return nil
	}
	if limited, ok := errors.AsType[*slack.RateLimitedError](err); ok {
		return &channel.RetryError{After: limited.RetryAfter, Err: channel.Unsent(err)}
	}
	if refused(err) {
		return channel.Unsent(advised(err))
	}
	return advised(err)
}

// refused reports whether Slack surely did not do what it was asked to.
func refused(err error) bool {
	if answer, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		return !slices.Contains([]string{"fatal_error", "internal_error", "service_unavailable"}, answer.Err) // it may have done a part
	}
	answer, ok := errors.AsType[slack.StatusCodeError](err)
	return ok && answer.Code/100 == 4
}

// advised returns err with what to do about it, if that is known.
func advised(err error) error {
	code, needed := err.Error(), ""
	if refused, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		code, needed = refused.Err, refused.Needed
	}
	if needed != "" && code == "missing_scope" {
		return fmt.Errorf("Slack: %w: the app needs the scope %s", err, needed)
	}
	if advice, known := advices[code]; known {
		return fmt.Errorf("Slack: %w: %s", err, advice)
	}
	return fmt.Errorf("Slack: %w", err)
}

const newToken = "the token is not valid any more: put a new one into the configuration"

// advices say what to do about errors of Slack.
var advices = map[string]string{
	"token_revoked": newToken, "token_expired": newToken, "invalid_auth": newToken, "not_authed": newToken, "account_inactive": newToken,
	"is_archived":       "restore the channel, or put another one into the configuration",
	"channel_not_found": "invite the app to the channel",
	"not_in_channel":    "invite the app to the channel",
}

// reconnect is how long the channel waits before it connects again after a failure.
const reconnect = 5 * time.Second

// Run takes what people do in Slack until ctx ends. All channels of an app must run, and
// for the same time: one of them takes what people do in all.
func (s *Slack) Run(ctx context.Context, report func(error)) {
	s.app.join(s, report)
	defer s.app.leave(s)
	if s != s.app.listener() {
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		if err := s.listen(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.WarnContext(ctx, "Slack connection ended", "error", s.redact(err))
			s.app.report(s.redacted(err))
		}
		pause.For(ctx, reconnect)
	}
}

// redacted returns err as operators read it, without the tokens.
func (s *Slack) redacted(err error) error { return errors.New(s.redact(explained(err))) }

// redact returns the text of an error without the tokens.
func (s *Slack) redact(err error) string {
	return strings.NewReplacer(s.cfg.AppToken, "[secret]", s.cfg.BotToken, "[secret]").Replace(err.Error())
}

// listen takes what people do until the connection ends for good. Slack asks now and
// then to connect again, which the client does by itself.
func (s *Slack) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	socket := socketmode.New(s.api)
	ended := make(chan error, 1)
	go func() { ended <- socket.RunContext(ctx) }()
	var clicks errgroup.Group
	clicks.SetLimit(clicksAtOnce)
	defer clicks.Wait() //nolint:errcheck // none returns one
	for {
		select {
		case err := <-ended:
			return err
		case e := <-socket.Events:
			s.connection(ctx, e)
			if data, ok := e.Data.(slack.InteractionCallback); ok {
				s.acknowledge(ctx, socket, e.Request)
				clicks.Go(func() error { s.take(ctx, data); return nil })
			}
		}
	}
}

// connection reports what an event says about the connection.
func (s *Slack) connection(ctx context.Context, e socketmode.Event) {
	switch data := e.Data.(type) {
	case *slack.ConnectionErrorEvent:
		s.cfg.Log.WarnContext(ctx, "Slack cannot be reached: clicks do not arrive", "error", s.redact(data.ErrorObj), "next", data.Backoff)
		s.app.report(s.redacted(data.ErrorObj))
	default:
		if e.Type == socketmode.EventTypeHello {
			s.app.report(nil)
		}
	}
}

// clicksAtOnce is how many clicks are worked on at the same time.
const clicksAtOnce = 16

// acknowledge confirms to Slack that a click arrived, which it wants to know within three
// seconds.
func (s *Slack) acknowledge(ctx context.Context, socket *socketmode.Client, request *socketmode.Request) {
	if request == nil {
		return
	}
	if err := socket.Ack(*request); err != nil {
		s.cfg.Log.WarnContext(ctx, "click not acknowledged to Slack", "error", err)
	}
}
