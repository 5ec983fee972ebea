package channel

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	pageSize       = 100
	gatherTime     = 200 * time.Millisecond // how long changes may gather before they are looked at
	lookInterval   = 30 * time.Second       // how often the outbox looks if nothing changes
	sendTimeout    = 20 * time.Second       // how long one message may take
	claimTime      = 40 * time.Second       // how long no other replica sends a message that one is sending
	releaseTimeout = time.Second            // how long giving up a claim may take
	keepSent       = 24 * time.Hour         // how long the store keeps that the last message was sent
	keepOpen       = 7 * 24 * time.Hour     // how long it keeps a message after the end of its task that no gate finishes
	giveUpAfter    = 24 * time.Hour         // how long the last message is tried after the call has ended

	firstPause = time.Second
	maxPause   = 5 * time.Minute
	maxError   = 300 // characters of an error that are kept
)

// A Store is what an [Outbox] reads and writes.
type Store interface {
	task.Store
	task.Records
	task.Watcher
}

// A Config is what an [Outbox] is made of. All fields must be given.
type Config struct {
	Store    Store
	Cases    *casefile.Viewer
	Channels map[string]Channel   // by name
	Plan     func(task.Task) Plan // of the outline of a task, as configured now; zero if another gate is to ask
	Page     func(task.ID) string // where people look at a call
	Name     string               // of this replica; must not be another's
	Metrics  Metrics
	Now      func() time.Time
	Log      *slog.Logger
}

// Metrics count messages.
type Metrics interface {
	ChannelSent(channel string, err error)
	ChannelWaiting(channel string, messages int)
	ChannelListens(channel string, err error)
}

// An Outbox sends questions, and how they end, to channels.
type Outbox struct {
	cfg Config

	mu     sync.Mutex
	status map[string]Status
}

// New returns an outbox.
func New(c Config) *Outbox { return &Outbox{cfg: c, status: map[string]Status{}} }

// Names returns the names of the channels. Without an outbox there are none.
func (o *Outbox) Names() []string {
	if o == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(o.cfg.Channels))
}

// A Status says whether a channel works.
type Status struct {
	Channel        string    `json:"channel"`
	Waiting        int       `json:"waiting"`                 // messages that could not be sent yet
	Since          time.Time `json:"since,omitzero"`          // the first failure since the last success
	Error          string    `json:"error,omitzero"`          // the last failure
	DecisionsError string    `json:"decisionsError,omitzero"` // why decisions made on the channel do not arrive, if they do not
}

// Statuses returns the status of each channel, by name.
func (o *Outbox) Statuses() []Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Status, 0, len(o.status))
	for _, name := range slices.Sorted(maps.Keys(o.status)) {
		all = append(all, o.status[name])
	}
	return all
}

// Run sends messages until ctx ends. Every replica may do so at the same time. A
// channel that is slow or down holds up no other.
func (o *Outbox) Run(ctx context.Context) {
	var lanes sync.WaitGroup
	for name, c := range o.cfg.Channels {
		lanes.Go(func() {
			(&lane{Outbox: o, name: name, channel: c, via: digestOf(c.Address()), eager: true}).run(ctx)
			if w, ok := c.(Waiter); ok {
				w.Wait()
			}
		})
		if r, ok := c.(Runner); ok {
			lanes.Go(func() { r.Run(ctx, func(err error) { o.listens(name, err) }) })
		}
	}
	lanes.Wait()
}

// listens notes whether answers on a channel arrive.
func (o *Outbox) listens(name string, err error) {
	o.cfg.Metrics.ChannelListens(name, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.status[name]
	s.Channel, s.DecisionsError = name, ""
	if err != nil {
		s.DecisionsError = plain.Text(err.Error(), maxError)
	}
	o.status[name] = s
}

// A lane is the part of an outbox that serves one channel.
type lane struct {
	*Outbox

	name    string
	channel Channel
	via     string    // the digest of its address
	eager   bool      // nothing was tried yet: what failed before need not wait
	paused  time.Time // the channel asked to be left alone until then
	next    time.Time // when the next question or nudge is due

	failing map[task.ID]string // the errors of the last round that were no channel's, by question
}

func (l *lane) run(ctx context.Context) {
	changes := task.WatchChanges(ctx, l.cfg.Store, lookInterval, task.AnyOwner().Ref(""))
	defer changes.Close()
	for {
		next, err := l.round(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, task.ErrUnavailable) {
			l.cfg.Log.ErrorContext(ctx, "channel", "channel", l.name, "error", err)
		}
		changes.PollIn(min(lookInterval, max(gatherTime, next)))
		if _, err := changes.Next(ctx, nil, nil); err != nil {
			return
		}
		pause.For(ctx, gatherTime)
	}
}

// round sends everything that can be sent now, and returns in how long there may
// be more to do.
func (l *lane) round(ctx context.Context) (time.Duration, error) {
	due, err := l.due(ctx)
	if err != nil {
		return lookInterval, err
	}
	next := earlier(l.cfg.Now().Add(lookInterval), l.next)
	status := Status{Channel: l.name}
	failing := map[task.ID]string{}
	for _, one := range due {
		if err := l.deliver(ctx, &one); err != nil {
			if ctx.Err() != nil {
				return lookInterval, err
			}
			failing[one.id] = err.Error()
			l.note(ctx, one.id, err)
		}
		if one.Attempts > 0 {
			status.add(one)
			next = earlier(next, one.Next)
		}
		if one.Claim != "" && !one.Until.IsZero() {
			next = earlier(next, one.Until) // in case that its replica has died
		}
	}
	l.eager, l.failing = false, failing
	l.cfg.Metrics.ChannelWaiting(l.name, status.Waiting)
	l.mu.Lock()
	status.DecisionsError = l.status[l.name].DecisionsError
	l.status[l.name] = status
	l.mu.Unlock()
	return next.Sub(l.cfg.Now()), nil
}

// note logs what keeps a message from being sent, if it is no failure of the channel and
// is new. A store that is away is logged elsewhere.
func (l *lane) note(ctx context.Context, id task.ID, err error) {
	if errors.Is(err, task.ErrUnavailable) || l.failing[id] == err.Error() {
		return
	}
	l.cfg.Log.ErrorContext(ctx, "channel", "channel", l.name, "task", id, "error", err)
}

func (s *Status) add(one storedDelivery) {
	s.Waiting++
	if s.Since.IsZero() || one.Since.Before(s.Since) {
		s.Since = one.Since
	}
	s.Error = one.Error
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// due returns the questions that the channel was sent before and that may have
// changed, and those that it was not sent yet.
//
// A question that another gate sent is that gate's, unless the channel leads to the
// same place: then any gate may say how it ends. If the channel of this gate leads to
// another place than before, or than that of other replicas, its pending questions are
// asked there once as well.
func (l *lane) due(ctx context.Context) ([]storedDelivery, error) {
	due, elsewhere, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	sent := map[task.ID]*storedDelivery{}
	for i := range due {
		sent[due[i].id] = &due[i]
	}
	l.next = l.cfg.Now().Add(lookInterval)
	var fresh []storedDelivery
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: pageSize, Outlines: true}
	for t, err := range task.Each(ctx, l.cfg.Store, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue // lists log it
		}
		if err != nil {
			return nil, err
		}
		if known := sent[t.ID]; known != nil {
			known.stage, known.ends = stages[t.State], t.ExpiresAt
			l.nudge(known, t)
		} else if one, ok := l.fresh(t); ok {
			if elsewhere[t.ID] {
				one.record = recordAt(one.record, l.via)
			}
			fresh = append(fresh, one)
		}
	}
	return append(due, fresh...), nil
}

// fresh returns the delivery about a task that is to be asked about on the channel.
func (l *lane) fresh(t task.Task) (storedDelivery, bool) {
	at, ok := l.cfg.Plan(t).asks(t, l.name)
	if !ok {
		return storedDelivery{}, false
	}
	if l.cfg.Now().Before(at) {
		l.next = earlier(l.next, at)
		return storedDelivery{}, false
	}
	one := storedDelivery{id: t.ID, record: recordName(l.name, t.ID), stage: Pending, ends: t.ExpiresAt}
	l.nudge(&one, t)
	return one, true
}

// nudge notes which nudges about a pending question are due.
func (l *lane) nudge(one *storedDelivery, t task.Task) {
	if t.State != task.InputRequired {
		return
	}
	now, plan := l.cfg.Now(), l.cfg.Plan(t)
	one.escalated = plan.escalated(t, now)
	for i, n := range plan.nudges(t, l.name) {
		if now.Before(n.at) {
			l.next = earlier(l.next, n.at)
			return
		}
		one.due = i + 1
		one.newlyEscalated = one.newlyEscalated || n.escalation && one.due > one.Nudged
	}
}

// deliver sends what the channel does not know of a question yet, unless another
// replica does so or it is too early.
func (l *lane) deliver(ctx context.Context, one *storedDelivery) error {
	if one.known() || l.tooEarly(one) {
		return nil
	}
	q, err := l.question(ctx, one)
	if err != nil {
		return err
	}
	switch {
	case one.neverAsked() && q.Stage != Pending:
		// It was decided before the channel could ask: there is nothing to say.
		return l.forget(ctx, one)
	case q.Stage == one.Sent && !one.reminds():
		return nil
	case q.Stage == one.Sent:
		q.Reminder, q.NewlyEscalated = one.due, one.newlyEscalated
	}
	one.unsure = one.Claim != ""
	q.Again = one.unsure || one.Attempts > 0
	if err := l.claim(ctx, one); errors.Is(err, task.ErrConcurrentModification) {
		return nil // another replica sends it
	} else if err != nil {
		return err
	}
	return l.send(ctx, one, q)
}

// claim keeps other replicas from sending what this one sends.
func (l *lane) claim(ctx context.Context, one *storedDelivery) error {
	one.Via = l.via
	one.Claim, one.Until = l.cfg.Name, l.cfg.Now().Add(claimTime)
	return l.put(ctx, one)
}

// tooEarly reports whether another replica may be sending, or a failure was not
// long enough ago.
func (l *lane) tooEarly(one *storedDelivery) bool {
	now := l.cfg.Now()
	others := one.Claim != "" && one.Claim != l.cfg.Name && now.Before(one.Until)
	return others || now.Before(one.Next) && !l.eager || now.Before(l.paused)
}

// send sends a message and records how that went.
func (l *lane) send(ctx context.Context, one *storedDelivery, q Question) error {
	limited, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var err error
	switch {
	case one.Sent == "" && q.Stage == Pending:
		one.Ref, err = l.channel.Ask(limited, q)
	case q.Reminder > 0:
		err = l.channel.Remind(limited, one.Ref, q)
	default:
		err = l.channel.Update(limited, one.Ref, q)
	}
	one.Until = time.Time{}
	if !one.unsure && !mayHaveArrived(err) {
		one.Claim = ""
	}
	stopping := err != nil && ctx.Err() != nil
	if stopping {
		return l.release(ctx, one)
	}
	l.cfg.Metrics.ChannelSent(l.name, err)
	if err != nil {
		l.failed(ctx, one, q, err)
	} else {
		one.delivery = delivery{Sent: q.Stage, Ref: one.Ref, Via: one.Via, Nudged: one.due}
	}
	return l.put(ctx, one)
}

// mayHaveArrived reports whether a message may have been sent although there was an error.
func mayHaveArrived(err error) bool {
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		return false
	}
	_, unsent := errors.AsType[*UnsentError](err)
	return !unsent
}

// release stores the end of a claim because the gate is being stopped, so that another
// replica, or the next process, need not wait for it. If the message may have been sent,
// the claim stays as a sign of that.
func (l *lane) release(ctx context.Context, one *storedDelivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return l.put(ctx, one)
}

// failed records a failure, and when to try again.
func (l *lane) failed(ctx context.Context, one *storedDelivery, q Question, err error) {
	now := l.cfg.Now()
	if one.Attempts == 0 {
		one.Since = now
	}
	one.Attempts++
	one.Error = plain.Text(err.Error(), maxError)
	one.Next = now.Add(min(maxPause, firstPause<<min(one.Attempts-1, 10)))
	if retry, ok := errors.AsType[*RetryError](err); ok && retry.After > 0 {
		l.paused = now.Add(min(retry.After, maxPause))
		one.Next = l.paused
	}
	l.cfg.Log.WarnContext(ctx, "channel message not sent", "channel", l.name, "task", one.id, "stage", q.Stage,
		"attempts", one.Attempts, "next", one.Next, "error", one.Error)
	if q.Stage.Final() && now.Sub(one.Since) > giveUpAfter {
		l.cfg.Log.ErrorContext(ctx, "channel message given up", "channel", l.name, "task", one.id, "stage", q.Stage)
		one.delivery = delivery{Sent: q.Stage, Ref: one.Ref, Via: one.Via, Nudged: one.due}
	}
}

// forget settles a question about which there is nothing to say, unless another replica
// has begun to ask it.
func (l *lane) forget(ctx context.Context, one *storedDelivery) error {
	one.delivery = delivery{Sent: unasked, Via: one.Via}
	if one.version == 0 {
		return nil
	}
	err := l.put(ctx, one)
	if errors.Is(err, task.ErrConcurrentModification) {
		return nil
	}
	return err
}

// question returns the question as it stands.
func (l *lane) question(ctx context.Context, one *storedDelivery) (Question, error) {
	a, changed, err := l.cfg.Cases.ShowToAsk(ctx, one.id)
	if errors.Is(err, task.ErrNotFound) {
		return l.ended(ctx, one.id)
	}
	if err != nil {
		return Question{}, err
	}
	return Question{Stage: stages[a.State], Approval: a, Changed: changed, Page: l.cfg.Page(one.id), At: l.cfg.Now(), Escalated: one.escalated}, nil
}

// ended returns the question of a task that was deleted, as the journal has it.
func (l *lane) ended(ctx context.Context, id task.ID) (Question, error) {
	q := Question{Stage: Expired, Approval: casefile.Approval{ID: id, State: task.Expired}, Page: l.cfg.Page(id), At: l.cfg.Now()}
	story, err := l.cfg.Cases.Story(ctx, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return q, err
	}
	for _, e := range story {
		if e.To != "" {
			q.Approval.State, q.At = e.To, e.At
			q.Stage = stages[e.To]
		}
	}
	return q, nil
}
