// Package slack is a channel to approvers in Slack. It posts each question as a message with
// buttons, and updates the message when the call is decided or ends. Clicks arrive over
// Socket Mode, so that the gate needs no public address.
//
// Text from agents and upstreams is sent as plain text, never as mrkdwn. A message that does
// not show the whole call has no button to approve it.
package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Config configures [New]. URL, People and Groups may be empty.
type Config struct {
	URL      string // the URL of Slack's API
	BotToken string
	AppToken string
	Name     string            // of the channel in the configuration
	Channel  string            // the id of the Slack channel
	People   map[string]string // names of approvers, by ids of Slack users
	Groups   map[string]string // names of groups, by ids of Slack user groups
	Decide   func(context.Context, task.ID, approval.Approver, approval.Ruling) (task.Task, error)
	Explain  func(error) string // see channel.Gate
	Now      func() time.Time
	Log      *slog.Logger
}

// A Slack is a channel of Slack.
type Slack struct {
	cfg       Config
	api       *slack.Client
	directory *directory
	app       *app
}

// metadataType marks questions, so that a question that was sent before a crash is found
// again.
const metadataType = "thoughtgate_question"

// Ask implements [channel.Channel]. The reference is the timestamp of the message.
func (s *Slack) Ask(ctx context.Context, q channel.Question) (string, error) {
	if q.Again {
		if ref, err := s.find(ctx, q); ref != "" || err != nil {
			return ref, channel.NotSent(outboxError(err))
		}
	}
	_, stamp, err := s.api.PostMessageContext(ctx, s.cfg.Channel, s.message(q)...)
	return stamp, outboxError(err)
}

// Update implements [channel.Channel]. It ignores messages that were deleted or never posted.
func (s *Slack) Update(ctx context.Context, ref string, q channel.Question) error {
	if ref == "" {
		var err error
		if ref, err = s.find(ctx, q); ref == "" {
			return outboxError(err)
		}
	}
	_, _, _, err := s.api.UpdateMessageContext(ctx, s.cfg.Channel, ref, s.message(q)...)
	if refused, ok := errors.AsType[slack.SlackErrorResponse](err); ok && refused.Err == "message_not_found" {
		return nil
	}
	return outboxError(err)
}

// Remind implements [channel.Channel]. It replies to the message, and shows the reply in the
// channel.
func (s *Slack) Remind(ctx context.Context, ref string, q channel.Question) error {
	if q.Again {
		if sent, err := s.reminded(ctx, ref, q); sent || err != nil {
			return outboxError(err)
		}
	}
	text := q.ReminderText(maxField)
	_, _, err := s.api.PostMessageContext(ctx, s.cfg.Channel,
		slack.MsgOptionTS(ref), slack.MsgOptionBroadcast(), slack.MsgOptionText(text, true),
		slack.MsgOptionBlocks(slack.NewSectionBlock(plainText(text, maxSection), nil, nil), slack.NewActionBlock(blockDecide, openButton(q))),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionMetadata(slack.SlackMetadata{
			EventType: metadataReminder, EventPayload: map[string]any{"message": q.MessageID()},
		}))
	return outboxError(err)
}

// Report implements [channel.Reporter].
func (s *Slack) Report(ctx context.Context, r channel.Report) error {
	_, _, err := s.api.PostMessageContext(ctx, s.cfg.Channel, slack.MsgOptionText(r.Title, true), slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionBlocks(
		slack.NewHeaderBlock(plainText(r.Title, maxHeader)), slack.NewSectionBlock(plainText(r.Text(maxSection), maxSection), nil, nil),
	))
	return outboxError(err)
}

// metadataReminder marks reminders.
const metadataReminder = "thoughtgate_reminder"

// reminded reports whether the message has a reply with the reminder.
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
		slack.MsgOptionText(q.Summary(maxField), true),
		slack.MsgOptionBlocks(blocks(q)...),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionMetadata(slack.SlackMetadata{
			EventType: metadataType, EventPayload: map[string]any{"task": string(q.Approval.ID)},
		}),
	}
}

// historySize is the number of messages that are searched for a question or a reminder.
const historySize = 200

// find returns the timestamp of the message about q, or "".
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

// outboxError returns err for the outbox: with advice, and as a [channel.NotSentError] if
// Slack refused the request.
func outboxError(err error) error {
	if err == nil {
		return nil
	}
	if limited, ok := errors.AsType[*slack.RateLimitedError](err); ok {
		return &channel.RetryError{After: limited.RetryAfter, Err: channel.NotSent(err)}
	}
	if refused(err) {
		return channel.NotSent(withAdvice(err))
	}
	return withAdvice(err)
}

// refused reports whether Slack certainly did not execute a request.
func refused(err error) bool {
	if answer, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		return !slices.Contains([]string{"fatal_error", "internal_error", "service_unavailable"}, answer.Err) // may be partly executed
	}
	answer, ok := errors.AsType[slack.StatusCodeError](err)
	return ok && answer.Code/100 == 4
}

// withAdvice returns err with advice for operators, if there is any.
func withAdvice(err error) error {
	code, needed := err.Error(), ""
	if refused, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		code, needed = refused.Err, refused.Needed
	}
	if needed != "" && code == "missing_scope" {
		return fmt.Errorf("Slack: %w: the app needs the scope %s", err, needed)
	}
	if advice, known := adviceByCode[code]; known {
		return fmt.Errorf("Slack: %w: %s", err, advice)
	}
	return fmt.Errorf("Slack: %w", err)
}

const newToken = "the token is no longer valid: configure a new one"

// adviceByCode is the advice about errors of Slack.
var adviceByCode = map[string]string{
	"token_revoked": newToken, "token_expired": newToken, "invalid_auth": newToken, "not_authed": newToken, "account_inactive": newToken,
	"is_archived":       "restore the channel, or configure another one",
	"channel_not_found": "invite the app to the channel",
	"not_in_channel":    "invite the app to the channel",
}

// reconnectPause is the time between a failed connection and the next attempt.
const reconnectPause = 5 * time.Second

// Run implements [channel.Runner]. All channels of an app must run at the same time, since
// one of them receives the clicks of all.
func (s *Slack) Run(ctx context.Context, report func(error)) {
	s.app.join(s, report)
	defer s.app.leave(s)
	if s != s.app.listener() {
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		if err := s.listen(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.WarnContext(ctx, "Slack connection ended", "err", s.redact(err))
			s.app.report(s.redacted(err))
		}
		pause.For(ctx, reconnectPause)
	}
}

// redacted returns err for operators, without the tokens.
func (s *Slack) redacted(err error) error { return errors.New(s.redact(outboxError(err))) }

// redact returns the text of an error without the tokens.
func (s *Slack) redact(err error) string {
	return strings.NewReplacer(s.cfg.AppToken, "[secret]", s.cfg.BotToken, "[secret]").Replace(err.Error())
}

// listen receives clicks until the connection ends. The client reconnects by itself when
// Slack requests that.
func (s *Slack) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	socket := socketmode.New(s.api)
	ended := make(chan error, 1)
	go func() { ended <- socket.RunContext(ctx) }()
	var clicks errgroup.Group
	clicks.SetLimit(maxClicks)
	defer clicks.Wait() //nolint:errcheck // always nil
	for {
		select {
		case err := <-ended:
			return err
		case e := <-socket.Events:
			s.connection(ctx, e)
			if data, ok := e.Data.(slack.InteractionCallback); ok {
				s.acknowledge(ctx, socket, e.Request)
				clicks.Go(func() error { s.handleClick(ctx, data); return nil })
			}
		}
	}
}

// connection handles events about the connection.
func (s *Slack) connection(ctx context.Context, e socketmode.Event) {
	switch data := e.Data.(type) {
	case *slack.ConnectionErrorEvent:
		s.cfg.Log.WarnContext(ctx, "Slack cannot be reached: clicks do not arrive", "err", s.redact(data.ErrorObj), "next", data.Backoff)
		s.app.report(s.redacted(data.ErrorObj))
	default:
		if e.Type == socketmode.EventTypeHello {
			s.app.report(nil)
		}
	}
}

// maxClicks is the number of clicks handled at the same time.
const maxClicks = 16

// acknowledge confirms the arrival of a click. Slack expects that within three seconds.
func (s *Slack) acknowledge(ctx context.Context, socket *socketmode.Client, request *socketmode.Request) {
	if request == nil {
		return
	}
	if err := socket.Ack(*request); err != nil {
		s.cfg.Log.WarnContext(ctx, "click not acknowledged to Slack", "err", err)
	}
}

// New returns a channel. It shares the connection of an earlier channel with the same app
// token, since Slack sends each click to any one connection of an app.
func New(c Config, earlier ...channel.Channel) *Slack {
	options := []slack.Option{slack.OptionAppLevelToken(c.AppToken)}
	if c.URL != "" {
		options = append(options, slack.OptionAPIURL(c.URL))
	}
	api := slack.New(c.BotToken, options...)
	s := &Slack{cfg: c, api: api, directory: &directory{names: c.People, teams: c.Groups, now: c.Now, api: api, members: map[string]membership{}}}
	for _, one := range earlier {
		if other, ok := one.(*Slack); ok && other.cfg.URL == c.URL && other.cfg.AppToken == c.AppToken {
			s.app = other.app
		}
	}
	if s.app == nil {
		s.app = &app{reports: map[*Slack]func(error){}}
	}
	s.app.channels = append(s.app.channels, s)
	return s
}

// An app is a Slack app and the channels that use it. The first of them receives the clicks
// of all.
type app struct {
	channels []*Slack

	mu      sync.Mutex
	reports map[*Slack]func(error) // of the channels that run
	isKnown bool                   // whether problem is known
	problem error                  // why clicks do not arrive; nil if they do
}

// listener returns the channel that takes the clicks of all.
func (a *app) listener() *Slack { return a.channels[0] }

// channel returns the channel with a Slack channel id, or nil.
func (a *app) channel(id string) *Slack {
	for _, s := range a.channels {
		if s.cfg.Channel == id {
			return s
		}
	}
	return nil
}

// join registers a running channel.
func (a *app) join(s *Slack, report func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reports[s] = report
	if a.isKnown {
		report(a.problem)
	}
}

// leave removes a channel.
func (a *app) leave(s *Slack) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.reports, s)
	if s == a.listener() {
		a.isKnown, a.problem = false, nil
	}
}

// report tells all running channels whether clicks arrive.
func (a *app) report(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isKnown, a.problem = true, err
	for _, report := range a.reports {
		report(err)
	}
}

// report tells the outbox whether decisions in this channel can be made.
func (s *Slack) report(err error) {
	s.app.mu.Lock()
	defer s.app.mu.Unlock()
	if report := s.app.reports[s]; report != nil {
		report(err)
	}
}
