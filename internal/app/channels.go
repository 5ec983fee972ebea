package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/discord"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/email"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/pagerduty"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slack"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/teams"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/telegram"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// ChannelKinds returns all kinds of channels, in the order of the documentation.
func ChannelKinds() []config.ChannelKind {
	return []config.ChannelKind{webhook.Kind(), slack.Kind(), email.Kind(), push.Kind(), discord.Kind(), telegram.Kind(), teams.Kind(), pagerduty.Kind()}
}

// channels notifies approvers about held calls.
type channels struct {
	base *base

	approvals *approvals
	page      func(task.ID) string // returns the URL of a held call's approval page
	url       func() string        // of the operators' listener
	recall    func(ctx context.Context, login string) (operator.Operator, error)
	current   atomic.Pointer[channelSet] // never nil
	replaced  chan struct{}              // receives when current was replaced
}

// A channelSet has the configured channels and the outbox that sends on them.
type channelSet struct {
	channels map[string]channel.Channel // by name
	outbox   *channel.Outbox
}

// open opens the channels of cfg.
func (cs *channels) open(cfg config.Config) (*channelSet, error) {
	made := &channelSet{channels: map[string]channel.Channel{}}
	var open []channel.Channel
	var daily []string
	for _, c := range cfg.Channels {
		cs.base.metrics.AddChannel(c.Name)
		settings, ok := c.Settings.(channel.Settings)
		if !ok {
			return nil, fmt.Errorf("channels.%s: the kind %s cannot be opened", c.Name, c.Kind)
		}
		one, err := settings.Open(cs.gate(c.Name), open)
		if err != nil {
			return nil, err
		}
		open = append(open, one)
		made.channels[c.Name] = one
		if c.Summary != "" {
			daily = append(daily, c.Name)
		}
	}
	made.outbox = channel.New(channel.Config{
		Store: cs.approvals.store.Store, Cases: cs.approvals.service.Viewer(), Channels: made.channels, Workflow: cs.workflow, Page: cs.page,
		Name: string(task.NewID(time.Now())), Metrics: cs.base.metrics, Now: time.Now, Log: cs.base.log,
		Daily: daily, Summarize: cs.summarize,
	})
	return made, nil
}

// maxNotices is the number of lines of a summary about observed calls.
const maxNotices = 10

// summarize returns a summary of the calls of a time.
func (cs *channels) summarize(ctx context.Context, since, until time.Time) (channel.Report, error) {
	s, err := cs.approvals.summarize(ctx, since, until, 1)
	const form = "2 January 15:04"
	return channel.Report{Title: "Calls from " + since.Format(form) + " to " + until.Format(form+" UTC"), Lines: s.Lines(maxNotices)}, err
}

// gate returns the part of the gate that the named channel may use.
func (cs *channels) gate(name string) channel.Gate {
	return channel.Gate{
		Channel: name, Records: cs.approvals.store.Store, Now: time.Now, Log: cs.base.log,
		Decide: cs.approvals.service.Decide, Explain: api.Message, FindOperator: cs.recall,
		Shown: func(ctx context.Context, id task.ID) (string, error) {
			a, err := cs.approvals.service.Viewer().Show(ctx, id)
			return a.ShownDigest, err
		},
		DecisionsURL: func() string { return cs.url() + "/api/channels/" + name + "/decisions" },
		MayDecide: func(ctx context.Context, id task.ID, who operator.Operator) (bool, error) {
			t, err := cs.approvals.store.Get(ctx, task.AnyOwner().Ref(id))
			if errors.Is(err, task.ErrNotFound) {
				return false, nil
			}
			objection := cs.approvals.service.Objection(api.Approver(who))(t)
			return err == nil && (objection == nil || errors.Is(objection, lifecycle.ErrAlreadyDecided)), err
		},
	}
}

// receiver returns the named channel if it receives requests at the gate, or nil.
func (cs *channels) receiver(name string) channel.Receiver {
	r, _ := cs.current.Load().channels[name].(channel.Receiver)
	return r
}

// pusher returns the push channel to browsers, or nil.
func (cs *channels) pusher() *push.Push {
	for _, one := range cs.current.Load().channels {
		if p, ok := one.(*push.Push); ok {
			return p
		}
	}
	return nil
}

// run sends on the current channels until ctx ends.
func (cs *channels) run(ctx context.Context) {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		var outbox sync.WaitGroup
		o := cs.current.Load().outbox
		outbox.Go(func() { o.Run(running) })
		select {
		case <-ctx.Done():
		case <-cs.replaced:
		}
		stop()
		outbox.Wait()
		cs.forgetChannels(o)
	}
}

// forgetChannels removes the metrics of those channels of o that are no longer configured.
// Call it when o has ended.
func (cs *channels) forgetChannels(o *channel.Outbox) {
	configured := cs.current.Load().outbox.Names()
	for _, name := range o.Names() {
		if !slices.Contains(configured, name) {
			cs.base.metrics.RemoveChannel(name)
		}
	}
}

// replace replaces the channels while the gate runs.
func (cs *channels) replace(set *channelSet) {
	cs.current.Store(set)
	select {
	case cs.replaced <- struct{}{}:
	default: // run has not handled the previous change yet
	}
}

// workflow returns the workflow for notifications about t, of which an outline is enough.
// Gates with other configurations may share the store. Each notifies only about its own
// calls, so that only the approvers of a call are notified.
func (cs *channels) workflow(t task.Task) policy.Workflow {
	w, ok := cs.approvals.workflows.find(t.Workflow)
	if !ok || !cs.approvals.notifiesAbout(t) {
		return policy.Workflow{}
	}
	return w
}

// statuses returns the status of each channel.
func (cs *channels) statuses() []channel.Status { return cs.current.Load().outbox.Statuses() }
