package channel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

const (
	pageSize       = 100
	gatherTime     = 200 * time.Millisecond // changes within this time are handled in one round
	pollInterval   = 30 * time.Second       // the longest time between two rounds
	sendTimeout    = 20 * time.Second       // for one message
	claimTime      = 40 * time.Second       // the validity of a claim
	releaseTimeout = time.Second            // for giving up a claim
	keepSent       = 24 * time.Hour         // how long a finished delivery stays in the store
	keepOpen       = 7 * 24 * time.Hour     // how long an unfinished delivery stays after the end of its task
	giveUpAfter    = 24 * time.Hour         // how long the final message is retried

	firstPause = time.Second
	maxPause   = 5 * time.Minute
	maxError   = 300 // characters of a stored error
)

// A Store has the tasks, and the deliveries as records.
type Store interface {
	task.Store
	gatestore.Records
	task.Watcher
}

// A Config configures an [Outbox]. All fields but Daily and Summarize are required.
type Config struct {
	Store    Store
	Cases    *review.Viewer
	Channels map[string]Channel              // by name
	Workflow func(task.Task) policy.Workflow // the present workflow of a task; zero for tasks of other gates
	Page     func(task.ID) string            // the URL of a call in the inbox
	Name     string                          // of this replica; unique among replicas
	Metrics  Metrics

	Daily     []string // the channels that get a daily summary
	Summarize func(ctx context.Context, since, until time.Time) (Report, error)

	Now func() time.Time
	Log *slog.Logger
}

// Metrics count messages.
type Metrics interface {
	ChannelSent(channel string, err error)
	ChannelWaiting(channel string, messages int)
	ChannelReceives(channel string, err error)
}

// An Outbox sends questions and their outcomes to channels.
type Outbox struct {
	cfg Config

	mu     sync.Mutex
	status map[string]Status
}

// New returns an outbox.
func New(c Config) *Outbox { return &Outbox{cfg: c, status: map[string]Status{}} }

// Names returns the names of the channels.
func (o *Outbox) Names() []string { return slices.Sorted(maps.Keys(o.cfg.Channels)) }

// A Status tells whether a channel works.
type Status struct {
	Channel        string    `json:"channel"`
	Waiting        int       `json:"waiting"`                 // messages that failed and will be retried
	Since          time.Time `json:"since,omitzero"`          // the first failure since the last success
	Error          string    `json:"error,omitzero"`          // the last failure
	DecisionsError string    `json:"decisionsError,omitzero"` // why decisions made on the channel do not arrive
}

// Statuses returns the statuses of the channels, sorted by name.
func (o *Outbox) Statuses() []Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Status, 0, len(o.status))
	for _, name := range slices.Sorted(maps.Keys(o.status)) {
		all = append(all, o.status[name])
	}
	return all
}

// Run sends messages until ctx ends. All replicas may run an outbox. Each channel has a
// goroutine, so that a slow channel does not delay the others.
func (o *Outbox) Run(ctx context.Context) {
	var running sync.WaitGroup
	for name, c := range o.cfg.Channels {
		running.Go(func() {
			(&sender{cfg: o.cfg, report: o.setStatus, name: name, channel: c, addressDigest: addressDigest(c.Address()), firstRound: true}).run(ctx)
			if w, ok := c.(Closer); ok {
				w.Close()
			}
		})
		if r, ok := c.(Reporter); ok && slices.Contains(o.cfg.Daily, name) {
			running.Go(func() { (&reporting{cfg: o.cfg, name: name, to: r}).run(ctx) })
		}
		if r, ok := c.(Runner); ok {
			running.Go(func() { r.Run(ctx, func(err error) { o.setReceiving(name, err) }) })
		}
	}
	running.Wait()
}

// setReceiving records whether decisions made on a channel arrive.
func (o *Outbox) setReceiving(name string, err error) {
	o.cfg.Metrics.ChannelReceives(name, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.status[name]
	s.Channel, s.DecisionsError = name, ""
	if err != nil {
		s.DecisionsError = safetext.Text(err.Error(), maxError)
	}
	o.status[name] = s
}

// setStatus records whether messages can be sent to a channel.
func (o *Outbox) setStatus(s Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.DecisionsError = o.status[s.Channel].DecisionsError
	o.status[s.Channel] = s
}

// A sender sends the messages of one channel.
type sender struct {
	cfg           Config
	name          string
	channel       Channel
	addressDigest string    // see addressDigest
	firstRound    bool      // earlier failures are retried at once
	pausedUntil   time.Time // when the channel may be used again, see RetryError
	nextDue       time.Time // when the next question or reminder is due

	report  func(Status)       // called after every round
	failing map[task.ID]string // errors of the last round that the channel did not cause
}

func (s *sender) run(ctx context.Context) {
	changes := storekit.WatchChanges(ctx, s.cfg.Store, pollInterval, task.AnyOwner().Ref(""))
	defer changes.Close()
	for {
		next, err := s.round(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, task.ErrUnavailable) {
			s.cfg.Log.ErrorContext(ctx, "channel round failed", "channel", s.name, "err", err)
		}
		changes.PollIn(min(pollInterval, max(gatherTime, next)))
		if _, err := changes.Next(ctx, nil, nil); err != nil {
			return
		}
		pause.For(ctx, gatherTime)
	}
}

// round sends all messages that are due, and returns the time until the next round.
func (s *sender) round(ctx context.Context) (time.Duration, error) {
	due, err := s.due(ctx)
	if err != nil {
		return pollInterval, err
	}
	next := earlier(s.cfg.Now().Add(pollInterval), s.nextDue)
	status := Status{Channel: s.name}
	failing := map[task.ID]string{}
	for _, d := range due {
		if err := s.deliver(ctx, &d); err != nil {
			if ctx.Err() != nil {
				return pollInterval, err
			}
			failing[d.id] = err.Error()
			s.logNew(ctx, d.id, err)
		}
		if d.Attempts > 0 {
			status.add(d)
			next = earlier(next, d.Next)
		}
		if d.Claim != "" && !d.Until.IsZero() {
			next = earlier(next, d.Until) // the claiming replica may have died
		}
	}
	s.firstRound, s.failing = false, failing
	s.cfg.Metrics.ChannelWaiting(s.name, status.Waiting)
	s.report(status)
	return next.Sub(s.cfg.Now()), nil
}

// logNew logs an error that the channel did not cause, once. An unavailable store is logged
// by its wrapper.
func (s *sender) logNew(ctx context.Context, id task.ID, err error) {
	if errors.Is(err, task.ErrUnavailable) || s.failing[id] == err.Error() {
		return
	}
	s.cfg.Log.ErrorContext(ctx, "channel message not prepared", "channel", s.name, "task", id, "err", err)
}

func (s *Status) add(d storedDelivery) {
	s.Waiting++
	if s.Since.IsZero() || d.Since.Before(s.Since) {
		s.Since = d.Since
	}
	s.Error = d.Error
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// due returns the questions that were sent and may have changed, and those that were not
// sent yet.
//
// Gates whose channels have the same address share deliveries: any of them may send the
// outcome. If the address of the channel has changed, or differs from that of another
// replica, pending questions are also asked at this address, once.
func (s *sender) due(ctx context.Context) ([]storedDelivery, error) {
	due, elsewhere, err := s.openDeliveries(ctx)
	if err != nil {
		return nil, err
	}
	sent := map[task.ID]*storedDelivery{}
	for i := range due {
		sent[due[i].id] = &due[i]
	}
	s.nextDue = s.cfg.Now().Add(pollInterval)
	var fresh []storedDelivery
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: pageSize, Outlines: true}
	for t, err := range storekit.Each(ctx, s.cfg.Store, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue // logged where tasks are listed
		}
		if err != nil {
			return nil, err
		}
		if known := sent[t.ID]; known != nil {
			known.stage, known.deadline = stages[t.State], t.ExpiresAt
			s.noteReminders(known, t)
		} else if d, ok := s.newDelivery(t); ok {
			if elsewhere[t.ID] {
				d.record = otherAddressRecord(d.record, s.addressDigest)
			}
			fresh = append(fresh, d)
		}
	}
	return append(due, fresh...), nil
}

// newDelivery returns the first delivery about a task, if its question is due on the
// channel.
func (s *sender) newDelivery(t task.Task) (storedDelivery, bool) {
	at, ok := askTime(s.cfg.Workflow(t), t, s.name)
	if !ok {
		return storedDelivery{}, false
	}
	if s.cfg.Now().Before(at) {
		s.nextDue = earlier(s.nextDue, at)
		return storedDelivery{}, false
	}
	d := storedDelivery{id: t.ID, record: recordName(s.name, t.ID), stage: Pending, deadline: t.ExpiresAt}
	s.noteReminders(&d, t)
	return d, true
}

// noteReminders counts the reminders of a pending question that are due.
func (s *sender) noteReminders(d *storedDelivery, t task.Task) {
	if t.State != task.InputRequired {
		return
	}
	now, workflow := s.cfg.Now(), s.cfg.Workflow(t)
	d.escalated = escalatedTo(workflow, t, now)
	for i, n := range remindersOf(workflow, t, s.name) {
		if now.Before(n.due) {
			s.nextDue = earlier(s.nextDue, n.due)
			return
		}
		d.remindersDue = i + 1
		d.newlyEscalated = d.newlyEscalated || n.escalation && d.remindersDue > d.Reminded
	}
}

// deliver sends the next message about a question, unless another replica is sending it or
// it is too early.
func (s *sender) deliver(ctx context.Context, d *storedDelivery) error {
	if d.upToDate() || s.tooEarly(d) {
		return nil
	}
	q, err := s.question(ctx, d)
	if err != nil {
		return err
	}
	switch {
	case d.neverAsked() && q.Stage != Pending:
		// The call was decided before the question could be sent.
		return s.skip(ctx, d)
	case q.Stage == d.Sent && !d.needsReminder():
		return nil
	case q.Stage == d.Sent:
		q.Reminder, q.NewlyEscalated = d.remindersDue, d.newlyEscalated
	}
	d.mayHaveArrived = d.Claim != ""
	q.Again = d.mayHaveArrived || d.Attempts > 0
	if err := s.claim(ctx, d); errors.Is(err, task.ErrConcurrentModification) {
		return nil // another replica sends it
	} else if err != nil {
		return err
	}
	return s.send(ctx, d, q)
}

// claim reserves the message for this replica.
func (s *sender) claim(ctx context.Context, d *storedDelivery) error {
	d.Via = s.addressDigest
	d.Claim, d.Until = s.cfg.Name, s.cfg.Now().Add(claimTime)
	return s.save(ctx, d)
}

// tooEarly reports whether another replica may be sending, or the next attempt is not due.
func (s *sender) tooEarly(d *storedDelivery) bool {
	now := s.cfg.Now()
	others := d.Claim != "" && d.Claim != s.cfg.Name && now.Before(d.Until)
	return others || now.Before(d.Next) && !s.firstRound || now.Before(s.pausedUntil)
}

// send sends a message and stores the result.
func (s *sender) send(ctx context.Context, d *storedDelivery, q Question) error {
	limited, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var err error
	switch {
	case d.Sent == "" && q.Stage == Pending:
		d.Ref, err = s.channel.Ask(limited, q)
	case q.Reminder > 0:
		err = s.channel.Remind(limited, d.Ref, q)
	default:
		err = s.channel.Update(limited, d.Ref, q)
	}
	d.Until = time.Time{}
	if !d.mayHaveArrived && !mayHaveArrived(err) {
		d.Claim = ""
	}
	stopping := err != nil && ctx.Err() != nil
	if stopping {
		return s.saveResult(ctx, d)
	}
	s.cfg.Metrics.ChannelSent(s.name, err)
	if err != nil {
		s.recordFailure(ctx, d, q, err)
	} else {
		d.delivery = delivery{Sent: q.Stage, Ref: d.Ref, Via: d.Via, Reminded: d.remindersDue}
	}
	return s.saveResult(ctx, d)
}

// mayHaveArrived reports whether a message may have arrived although sending it returned an
// error.
func mayHaveArrived(err error) bool {
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		return false
	}
	_, notSent := errors.AsType[*NotSentError](err)
	//mutate:swap "notSent" "notSent && err == nil" TestOutcomeSentIfQuestionMayHaveArrived a message that may have arrived is forgotten
	return !notSent
}

// saveResult stores the delivery, also while the gate stops, so that another replica or the
// next process need not wait until the claim ends, and does not repeat the message. If it is
// unknown whether the message arrived, the delivery still names the claiming replica.
func (s *sender) saveResult(ctx context.Context, d *storedDelivery) error {
	if err := s.save(ctx, d); err == nil || ctx.Err() == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return s.save(ctx, d)
}

// recordFailure records a failure and the time of the next attempt.
func (s *sender) recordFailure(ctx context.Context, d *storedDelivery, q Question, err error) {
	now := s.cfg.Now()
	if d.Attempts == 0 {
		d.Since = now
	}
	d.Attempts++
	d.Error = safetext.Text(err.Error(), maxError)
	d.Next = now.Add(min(maxPause, firstPause<<min(d.Attempts-1, 10)))
	if retry, ok := errors.AsType[*RetryError](err); ok && retry.After > 0 {
		s.pausedUntil = now.Add(min(retry.After, maxPause))
		d.Next = s.pausedUntil
	}
	s.cfg.Log.WarnContext(ctx, "channel message not sent", "channel", s.name, "task", d.id, "stage", q.Stage,
		"attempts", d.Attempts, "next", d.Next, "err", d.Error)
	if q.Stage.Final() && now.Sub(d.Since) > giveUpAfter {
		s.cfg.Log.ErrorContext(ctx, "channel message abandoned", "channel", s.name, "task", d.id, "stage", q.Stage)
		d.delivery = delivery{Sent: q.Stage, Ref: d.Ref, Via: d.Via, Reminded: d.remindersDue}
	}
}

// skip ends the delivery of a question that was never sent, unless another replica has
// begun to send it.
func (s *sender) skip(ctx context.Context, d *storedDelivery) error {
	d.delivery = delivery{Sent: stageSkipped, Via: d.Via}
	if d.version == 0 {
		return nil
	}
	err := s.save(ctx, d)
	if errors.Is(err, task.ErrConcurrentModification) {
		return nil
	}
	return err
}

// question returns the question in its present state.
func (s *sender) question(ctx context.Context, d *storedDelivery) (Question, error) {
	a, changed, err := s.cfg.Cases.ShowWithChange(ctx, d.id)
	if errors.Is(err, task.ErrNotFound) {
		return s.deletedQuestion(ctx, d.id)
	}
	if err != nil {
		return Question{}, err
	}
	return Question{Stage: stages[a.State], Approval: a, Changed: changed, Page: s.cfg.Page(d.id), At: s.cfg.Now(), Escalated: d.escalated}, nil
}

// deletedQuestion returns the question of a deleted task, from the journal.
func (s *sender) deletedQuestion(ctx context.Context, id task.ID) (Question, error) {
	q := Question{Stage: Expired, Approval: review.Approval{ID: id, State: task.Expired}, Page: s.cfg.Page(id), At: s.cfg.Now()}
	history, err := s.cfg.Cases.History(ctx, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return q, err
	}
	for _, e := range history {
		if e.To != "" {
			q.Approval.State, q.At = e.To, e.At
			q.Stage = stages[e.To]
		}
	}
	return q, nil
}

// A delivery is the stored state of a question on one channel.
type delivery struct {
	Sent     Stage     `json:"sent,omitzero"` // the stage of the last message, or stageSkipped
	Ref      string    `json:"ref,omitzero"`
	Via      string    `json:"via,omitzero"`      // the digest of the channel's address
	Reminded int       `json:"nudged,omitzero"`   // the number of reminders sent or skipped
	Attempts int       `json:"attempts,omitzero"` // failures since the last success
	Since    time.Time `json:"since,omitzero"`    // the time of the first of these failures
	Next     time.Time `json:"next,omitzero"`     // the earliest time of the next attempt
	Error    string    `json:"error,omitzero"`    // of the last failure
	Claim    string    `json:"claim,omitzero"`    // the replica that is sending, or whose message may have arrived
	Until    time.Time `json:"until,omitzero"`    // the end of the claim
}

// stageSkipped is the stage of a question that was decided before it could be sent.
const stageSkipped Stage = "unasked"

// A storedDelivery is a delivery and its record.
type storedDelivery struct {
	delivery

	id             task.ID
	record         string
	version        int64     // 0 if the delivery is not stored
	stage          Stage     // the present stage of the question, if it has not ended
	deadline       time.Time // when the task ends, if that is known
	remindersDue   int       // the number of reminders due while the question is pending
	mayHaveArrived bool      // an earlier attempt may have arrived

	escalated      string // see [Question.Escalated]
	newlyEscalated bool   // a due reminder that was not sent reports the escalation
}

// needsReminder reports whether a reminder of a pending question is due.
func (d *storedDelivery) needsReminder() bool {
	return d.Sent == Pending && d.remindersDue > d.Reminded
}

// neverAsked reports whether the question was certainly not sent.
func (d *storedDelivery) neverAsked() bool { return d.Sent == "" && d.Claim == "" }

// upToDate reports whether there is nothing to send about the question.
func (d *storedDelivery) upToDate() bool {
	return d.stage == d.Sent && d.Sent != "" && !d.needsReminder()
}

// addressDigest returns a digest of a channel's address, which may contain a secret.
func addressDigest(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

func recordName(channel string, id task.ID) string { return "channel/" + channel + "/" + string(id) }

// otherAddressRecord returns the name of the record for a further address at which a
// question is asked. The record for the first address has the name without a digest.
func otherAddressRecord(name, via string) string { return name + "/" + via }

// read reads a delivery from the record that the store has of it.
func (d *storedDelivery) read(r gatestore.Record) error {
	d.record, d.version = r.Name, r.Version
	return json.Unmarshal(r.Value, &d.delivery)
}

// save stores a delivery. The error is [task.ErrConcurrentModification] if another replica
// has changed it.
func (s *sender) save(ctx context.Context, d *storedDelivery) error {
	value, err := json.Marshal(&d.delivery)
	if err != nil {
		return err
	}
	r := gatestore.Record{Name: d.record, Version: d.version + 1, Value: value}
	now := s.cfg.Now()
	switch {
	case d.Sent.Final():
		r.Expires = now.Add(keepSent)
	case d.deadline.After(now):
		r.Expires = d.deadline.Add(keepOpen)
	default:
		r.Expires = now.Add(keepOpen)
	}
	if err := s.cfg.Store.PutRecord(ctx, r); err != nil {
		return err
	}
	d.version++
	return nil
}

// openDeliveries returns the deliveries at the channel's address whose question may still
// change, and the questions that were asked at another address.
func (s *sender) openDeliveries(ctx context.Context) (found []storedDelivery, elsewhere map[task.ID]bool, err error) {
	elsewhere = map[task.ID]bool{}
	q := gatestore.RecordQuery{Prefix: recordName(s.name, ""), Limit: pageSize}
	for r, err := range gatestore.EachRecord(ctx, s.cfg.Store, q) {
		if err != nil {
			return nil, nil, err
		}
		id, _, _ := strings.Cut(r.Name[len(q.Prefix):], "/") // the digest of the address may follow
		d := storedDelivery{id: task.ID(id)}
		if err := d.read(r); err != nil {
			s.cfg.Log.ErrorContext(ctx, "unreadable delivery", "record", r.Name, "err", err)
			continue
		}
		switch {
		case d.Sent.Final():
		case d.Via != "" && d.Via != s.addressDigest:
			elsewhere[d.id] = true
		default:
			found = append(found, d)
		}
	}
	return found, elsewhere, nil
}

// endOfQuiet returns the end of the quiet hours that contain t, or t outside of quiet hours.
func endOfQuiet(q policy.QuietHours, t time.Time) time.Time {
	if q.From == q.To {
		return t
	}
	zone, err := time.LoadLocation(q.Timezone)
	if err != nil {
		return t // unreachable: checked with the configuration
	}
	local := t.In(zone)
	year, month, day := local.Date()
	clock := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
	at := func(day int) time.Time {
		return time.Date(year, month, day, 0, int(q.To/time.Minute), 0, 0, zone)
	}
	switch {
	case q.From < q.To && clock >= q.From && clock < q.To, q.From > q.To && clock < q.To:
		return at(day)
	case q.From > q.To && clock >= q.From:
		return at(day + 1)
	default:
		return t
	}
}

// A reminder repeats a question, or reports its escalation.
type reminder struct {
	due        time.Time
	escalation bool // from then on, the approvers of another workflow may decide as well
}

// share returns when a share of the time is over that people have to decide t.
func deadlineShare(t task.Task, part float64) time.Time {
	return t.CreatedAt.Add(time.Duration(part * float64(t.Approval.Deadline.Sub(t.CreatedAt))))
}

// remindersOf returns the reminders of t on a channel in their order. A reminder in quiet
// hours moves to their end, or is dropped if that is after the deadline. An escalation does
// not move on a channel of the workflow to which t is escalated, because there it is the
// first message.
func remindersOf(w policy.Workflow, t task.Task, channel string) (all []reminder) {
	if t.Approval == nil {
		return nil
	}
	add := func(at time.Time, escalation bool) {
		if at.Before(t.Approval.Deadline) {
			all = append(all, reminder{at, escalation})
		}
	}
	for _, part := range w.Remind {
		add(endOfQuiet(w.QuietHours, deadlineShare(t, part)), false)
	}
	if w.Escalate.After > 0 {
		at := deadlineShare(t, w.Escalate.After)
		if !slices.Contains(w.Escalate.Channels, channel) {
			at = endOfQuiet(w.QuietHours, at)
		}
		add(at, true)
	}
	slices.SortStableFunc(all, func(a, b reminder) int { return cmp.Compare(a.due.UnixNano(), b.due.UnixNano()) })
	return all
}

// askTime returns when the question about t is due on a channel; never if ok is false.
func askTime(w policy.Workflow, t task.Task, channel string) (at time.Time, ok bool) {
	if t.State != task.InputRequired || t.Approval == nil {
		return time.Time{}, false
	}
	if slices.Contains(w.Channels, channel) {
		return t.CreatedAt, true
	}
	if w.Escalate.After > 0 && slices.Contains(w.Escalate.Channels, channel) {
		return deadlineShare(t, w.Escalate.After), true
	}
	return time.Time{}, false
}

// escalatedTo returns the workflow to which t was escalated by now, or "".
func escalatedTo(w policy.Workflow, t task.Task, now time.Time) string {
	if w.Escalate.After > 0 && !now.Before(deadlineShare(t, w.Escalate.After)) {
		return w.Escalate.Workflow
	}
	return ""
}
