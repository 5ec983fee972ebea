package app

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slack"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// newOutbox returns what asks people on channels, or nil if there are none.
func (a *App) newOutbox() (*channel.Outbox, error) {
	if len(a.cfg.Channels) == 0 || a.desk == nil {
		return nil, nil //nolint:nilnil // no outbox is not an error
	}
	all := map[string]channel.Channel{}
	for _, c := range a.cfg.Channels {
		a.metrics.CanSend(c.Name)
		one, err := a.newChannel(c)
		if err != nil {
			return nil, err
		}
		all[c.Name] = one
	}
	return channel.New(channel.Config{
		Store: a.keep.Store, Cases: a.desk.Cases(), Channels: all, Of: a.channelsOf, Page: a.page,
		Name: string(task.NewID(time.Now())), Metrics: a.metrics, Now: time.Now, Log: a.log,
	}), nil
}

// newChannel returns the channel that c describes.
func (a *App) newChannel(c config.Channel) (channel.Channel, error) {
	if token := c.Slack.BotToken.Reveal(); token != "" {
		chat := slack.Config{
			BotToken: token, AppToken: c.Slack.AppToken.Reveal(), Channel: c.Slack.Channel, People: c.Slack.People, Groups: c.Slack.Groups,
			Decide: a.desk.Decide, Explain: api.Message, Now: time.Now, Log: a.log,
		}
		if u := c.Slack.URL; u != nil {
			chat.URL = strings.TrimSuffix(u.String(), "/") + "/"
		}
		return slack.New(chat), nil
	}
	key, err := webhook.ParseKey(c.Webhook.Secret.Reveal())
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Config{
		URL: c.Webhook.URL, Key: key, Private: c.Webhook.AllowPrivate, Timeout: c.Webhook.Timeout, Now: time.Now,
	}), nil
}

// runDesk does the housekeeping of held calls, and asks people, until ctx ends.
func (a *App) runDesk(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	if a.outbox != nil {
		asking.Go(func() { a.outbox.Run(ctx) })
	}
	return a.desk.Run(ctx)
}

// channelsOf returns the channels of a workflow of the configuration that is in
// force now.
func (a *App) channelsOf(workflow string) []string {
	all := *a.workflows.Load()
	i := slices.IndexFunc(all, func(w config.Workflow) bool { return w.Name == workflow })
	if i < 0 {
		return nil
	}
	return all[i].Channels
}

// systems returns the systems that decide by signed messages.
func systems(cfg config.Config) (map[string]api.System, error) {
	all := map[string]api.System{}
	for _, c := range cfg.Channels {
		answers := c.Webhook.Answers
		if answers.Approver == "" {
			continue
		}
		key, err := webhook.ParseKey(answers.Secret.Reveal())
		if err != nil {
			return nil, err
		}
		all[c.Name] = api.System{Key: key, Approver: approval.Approver{
			Name: answers.Approver, Groups: answers.Groups, Roles: []string{"approver"},
		}}
	}
	return all, nil
}

// channelStatuses returns how the channels do.
func (a *App) channelStatuses() []channel.Status {
	if a.outbox == nil {
		return nil
	}
	return a.outbox.Statuses()
}

// channelSettings returns what cfg says of channels, in a form that can be compared.
func channelSettings(cfg config.Config) (all []any) {
	for _, c := range cfg.Channels {
		for _, secret := range []*config.Secret{&c.Webhook.Secret, &c.Webhook.Answers.Secret, &c.Slack.BotToken, &c.Slack.AppToken} {
			all = append(all, secret.Reveal())
			*secret = config.Secret{}
		}
		all = append(all, c)
	}
	return all
}
