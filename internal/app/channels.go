package app

import (
	"context"
	"errors"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/thoughtgate/thoughtgate-go/task"
)

// channels ask people elsewhere about held calls.
type channels struct {
	*base

	approvals *approvals
	page      func(task.ID) string // returns where people decide about a held call
	recall    func(ctx context.Context, login string) (operator.Operator, error)
	outbox    atomic.Pointer[channel.Outbox] // nil if there are no channels
	pusher    atomic.Pointer[push.Push]      // nil if no channel is one
	replaced  chan struct{}                  // receives when there is another outbox
}

// An asker is what asks people on channels.
type asker struct {
	outbox *channel.Outbox // nil if there are no channels
	pusher *push.Push      // nil if no channel is one
}

// newAsker returns what asks people on the channels of cfg. [channels.use] puts it in force.
func (cs *channels) newAsker(cfg config.Config) (asker, error) {
	if len(cfg.Channels) == 0 || cs.approvals.desk == nil {
		return asker{}, nil
	}
	var made asker
	all, apps := map[string]channel.Channel{}, &slack.Apps{}
	for _, settings := range cfg.Channels {
		cs.metrics.CanSend(settings.Name)
		one, err := cs.newChannel(settings, apps)
		if err != nil {
			return asker{}, err
		}
		if p, ok := one.(*push.Push); ok {
			made.pusher = p
		}
		all[settings.Name] = one
	}
	made.outbox = channel.New(channel.Config{
		Store: cs.approvals.keep.GateStore, Cases: cs.approvals.desk.Cases(), Channels: all, Plan: cs.plan, Page: cs.page,
		Name: string(task.NewID(time.Now())), Metrics: cs.metrics, Now: time.Now, Log: cs.log,
	})
	return made, nil
}

// newChannel returns the channel that c describes. Those of Slack are made by apps.
func (cs *channels) newChannel(c config.Channel, apps *slack.Apps) (channel.Channel, error) {
	if token := c.Slack.BotToken.Reveal(); token != "" {
		chat := slack.Config{
			BotToken: token, AppToken: c.Slack.AppToken.Reveal(), Channel: c.Slack.Channel, People: c.Slack.People, Groups: c.Slack.Groups,
			Decide: cs.approvals.desk.Decide, Explain: api.Message, Now: time.Now, Log: cs.log,
		}
		if u := c.Slack.URL; u != nil {
			chat.URL = strings.TrimSuffix(u.String(), "/") + "/"
		}
		return apps.Channel(chat), nil
	}
	if c.Email.Server != "" {
		return cs.newMailer(c.Email)
	}
	if c.Push.Contact != "" {
		return cs.newPush(c.Push), nil
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
func (cs *channels) newPush(c config.Push) channel.Channel {
	return push.New(push.Config{
		Records: cs.approvals.keep.GateStore, Client: webhook.NewClient(webhook.Reach{Timeout: pushTimeout, Private: c.AllowPrivate}), Contact: c.Contact,
		Recall: cs.recall,
		MayDecide: func(ctx context.Context, id task.ID, who operator.Operator) (bool, error) {
			t, err := cs.approvals.keep.Get(ctx, task.AnyOwner().Ref(id))
			if errors.Is(err, task.ErrNotFound) {
				return false, nil
			}
			objection := cs.approvals.desk.Objection(api.Approver(who))(t)
			return err == nil && (objection == nil || errors.Is(objection, task.ErrAlreadyDecided)), err
		},
		Now: time.Now, Log: cs.log,
	})
}

// newMailer returns the channel that c describes.
func (cs *channels) newMailer(c config.Email) (channel.Channel, error) {
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
		Arguments: c.Arguments, Timeout: c.Timeout, Now: time.Now, Log: cs.log,
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

// run asks people until ctx ends, on the channels that are configured at the time.
func (cs *channels) run(ctx context.Context) {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		var outbox sync.WaitGroup
		o := cs.outbox.Load()
		if o != nil {
			outbox.Go(func() { o.Run(running) })
		}
		select {
		case <-ctx.Done():
		case <-cs.replaced:
		}
		stop()
		outbox.Wait()
		cs.forgetChannels(o)
	}
}

// forgetChannels removes what the metrics say of those channels of o that are not
// configured any more. It is called when o has ended, and says nothing more of them.
func (cs *channels) forgetChannels(o *channel.Outbox) {
	configured := cs.outbox.Load().Names()
	for _, name := range o.Names() {
		if !slices.Contains(configured, name) {
			cs.metrics.ChannelGone(name)
		}
	}
}

// use makes by what asks people, the next time that asking begins.
func (cs *channels) use(by asker) {
	cs.pusher.Store(by.pusher)
	cs.outbox.Store(by.outbox)
}

// replace replaces the channels while the gate runs.
func (cs *channels) replace(by asker) {
	cs.use(by)
	select {
	case cs.replaced <- struct{}{}:
	default: // it will be seen together with the change before
	}
}

// plan returns how people are asked about t, of which an outline is enough. Gates with
// other configurations may use the same store: each asks about the calls that it holds,
// so that nobody is asked who has nothing to do with a call.
func (cs *channels) plan(t task.Task) channel.Plan {
	w, ok := cs.approvals.workflows.named(t.Workflow)
	if !ok || !cs.approvals.asksAbout(t) {
		return channel.Plan{}
	}
	p := channel.Plan{Channels: w.Channels, Remind: w.Remind}
	if others, ok := cs.approvals.workflows.named(w.Escalate.Workflow); ok {
		p.Escalate = channel.Escalation{After: w.Escalate.After, Workflow: others.Name, Channels: others.Channels}
	}
	if zone, err := time.LoadLocation(w.QuietHours.Timezone); err == nil { // it was checked
		p.Quiet = channel.Quiet{From: w.QuietHours.From, To: w.QuietHours.To, Zone: zone}
	}
	return p
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

// statuses returns the status of each channel.
func (cs *channels) statuses() []channel.Status {
	o := cs.outbox.Load()
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
