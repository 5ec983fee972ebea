package app

import (
	"context"
	"errors"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/email"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slack"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An asker is what asks people on channels.
type asker struct {
	outbox *channel.Outbox // nil if there are no channels
	pusher *push.Push      // nil if no channel is one
}

// newAsker returns what asks people on the channels of cfg. [App.use] puts it in force.
func (a *App) newAsker(cfg config.Config) (asker, error) {
	if len(cfg.Channels) == 0 || a.desk == nil {
		return asker{}, nil
	}
	var made asker
	all := map[string]channel.Channel{}
	for _, c := range cfg.Channels {
		a.metrics.CanSend(c.Name)
		one, err := a.newChannel(c)
		if err != nil {
			return asker{}, err
		}
		if p, ok := one.(*push.Push); ok {
			made.pusher = p
		}
		all[c.Name] = one
	}
	made.outbox = channel.New(channel.Config{
		Store: a.keep.GateStore, Cases: a.desk.Cases(), Channels: all, Plan: a.plan, Page: a.page,
		Name: string(task.NewID(time.Now())), Metrics: a.metrics, Now: time.Now, Log: a.log,
	})
	return made, nil
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
	if c.Email.Server != "" {
		return a.newMailer(c.Email)
	}
	if c.Push.Contact != "" {
		return a.newPush(c.Push), nil
	}
	key, err := webhook.ParseKey(c.Webhook.Secret.Reveal())
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Config{
		URL: c.Webhook.URL, Key: key, Private: c.Webhook.AllowPrivate, Timeout: c.Webhook.Timeout, Now: time.Now,
	}), nil
}

// pushTimeout is how long a push service may take.
const pushTimeout = 10 * time.Second

// newPush returns the channel that c describes. Browsers subscribe to it in the inbox.
func (a *App) newPush(c config.Push) channel.Channel {
	return push.New(push.Config{
		Records: a.keep.GateStore, Client: webhook.NewClient(webhook.Reach{Timeout: pushTimeout, Private: c.AllowPrivate}), Contact: c.Contact,
		Recall: func(ctx context.Context, login string) (operator.Operator, error) {
			return a.auth.Load().Recall(ctx, login)
		},
		MayDecide: func(ctx context.Context, id task.ID, who operator.Operator) (bool, error) {
			t, err := a.keep.Get(ctx, task.AnyOwner().Ref(id))
			if errors.Is(err, task.ErrNotFound) {
				return false, nil
			}
			objection := a.desk.Objection(api.Approver(who))(t)
			return err == nil && (objection == nil || errors.Is(objection, task.ErrAlreadyDecided)), err
		},
		Now: time.Now, Log: a.log,
	})
}

// newMailer returns the channel that c describes.
func (a *App) newMailer(c config.Email) (channel.Channel, error) {
	secure, err := clientTLS(config.TLS{CAFile: c.CAFile})
	if err != nil {
		return nil, err
	}
	from, err := mail.ParseAddress(c.From)
	if err != nil {
		return nil, err
	}
	m := email.Config{
		Server: c.Server, Security: c.Security, TLS: secure, Username: c.Username, Password: c.Password.Reveal(), From: *from,
		Arguments: c.Arguments, Timeout: c.Timeout, Now: time.Now, Log: a.log,
	}
	for _, text := range c.To {
		to, err := mail.ParseAddress(text)
		if err != nil {
			return nil, err
		}
		m.To = append(m.To, *to)
	}
	return email.New(m), nil
}

// runDesk does the housekeeping of held calls, and asks people, until ctx ends.
func (a *App) runDesk(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { a.ask(ctx) })
	return a.desk.Run(ctx)
}

// ask asks people until ctx ends, on the channels that are configured at the time.
func (a *App) ask(ctx context.Context) {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		var outbox sync.WaitGroup
		o := a.outbox.Load()
		if o != nil {
			outbox.Go(func() { o.Run(running) })
		}
		select {
		case <-ctx.Done():
		case <-a.asking:
		}
		stop()
		outbox.Wait()
		a.forgetChannels(o)
	}
}

// forgetChannels removes what the metrics say of those channels of o that are not
// configured any more. It is called when o has ended, and says nothing more of them.
func (a *App) forgetChannels(o *channel.Outbox) {
	configured := a.outbox.Load().Names()
	for _, name := range o.Names() {
		if !slices.Contains(configured, name) {
			a.metrics.ChannelGone(name)
		}
	}
}

// use makes by what asks people, the next time that asking begins.
func (a *App) use(by asker) {
	a.pusher.Store(by.pusher)
	a.outbox.Store(by.outbox)
}

// askOn replaces the channels while the gate runs.
func (a *App) askOn(by asker) {
	a.use(by)
	select {
	case a.asking <- struct{}{}:
	default: // it will be seen together with the change before
	}
}

// plan returns how people are asked about t, of which an outline is enough. Gates with
// other configurations may use the same store: each asks about the calls that it holds,
// so that nobody is asked who has nothing to do with a call.
func (a *App) plan(t task.Task) channel.Plan {
	w, ok := a.configured(t.Workflow)
	if !ok || !a.asksAbout(t) {
		return channel.Plan{}
	}
	p := channel.Plan{Channels: w.Channels, Remind: w.Remind}
	if others, ok := a.configured(w.Escalate.Workflow); ok {
		p.Escalate = channel.Escalation{After: w.Escalate.After, Workflow: others.Name, Channels: others.Channels}
	}
	if zone, err := time.LoadLocation(w.QuietHours.Timezone); err == nil { // it was checked
		p.Quiet = channel.Quiet{From: w.QuietHours.From, To: w.QuietHours.To, Zone: zone}
	}
	return p
}

// asksAbout reports whether this gate is the one to ask people about t.
func (a *App) asksAbout(t task.Task) bool {
	if a.owner != "" {
		return t.Owner == a.owner
	}
	mine := slices.ContainsFunc(a.asks, func(u *upstream.Upstream) bool { return u.Name() == t.Call.Upstream })
	return mine && a.desk.Holds(t)
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
	o := a.outbox.Load()
	if o == nil {
		return nil
	}
	return o.Statuses()
}

// channelSettings returns what cfg says of channels, in a form that can be compared.
func channelSettings(cfg config.Config) (all []any) {
	for _, c := range cfg.Channels {
		for _, secret := range []*config.Secret{&c.Webhook.Secret, &c.Webhook.Answers.Secret, &c.Slack.BotToken, &c.Slack.AppToken, &c.Email.Password} {
			all = append(all, secret.Reveal())
			*secret = config.Secret{}
		}
		all = append(all, c)
	}
	return all
}
