package approval

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Get returns the current task. It does not count as contact.
func (s *Service) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := s.tasks.get(ctx, ref)
	return s.env.withInterval(t), err
}

// List returns a page of an owner's tasks, newest first.
func (s *Service) List(ctx context.Context, owner, cursor string, limit int) (task.Page, error) {
	page, err := s.env.store.List(ctx, task.Query{Scope: task.OwnedBy(owner), Cursor: cursor, Limit: limit})
	for i, t := range page.Tasks {
		page.Tasks[i] = s.env.withInterval(t)
	}
	return page, err
}

// Unstarted returns the owner's tasks that have neither started nor ended.
func (s *Service) Unstarted(ctx context.Context, owner string) iter.Seq2[task.Task, error] {
	return storekit.Each(ctx, s.env.store, task.Query{
		Scope: task.OwnedBy(owner), States: []task.State{task.Working, task.InputRequired, task.Approved}, Heads: true,
	})
}

// FindByRequest returns the pending task that a client of the owner created with the given request
// id, or a zero task.
func (s *Service) FindByRequest(ctx context.Context, owner, peer string, request []byte) (task.Task, error) {
	if len(request) == 0 || len(request) > maxRequestID {
		return task.Task{}, nil
	}
	q := task.Query{Scope: task.OwnedBy(owner), States: task.Pending(), Limit: sweepBatch, Outlines: true}
	for t, err := range storekit.Each(ctx, s.env.store, q) {
		if err != nil {
			return task.Task{}, err
		}
		if f := review.ReadFacts(t); f.Peer == peer && f.Request == string(request) {
			return t, nil
		}
	}
	return task.Task{}, nil
}

// RecordClientLeft records in the journal that the client of a task no longer waits, and why. The
// task stays pending.
func (s *Service) RecordClientLeft(ctx context.Context, ref task.Ref, reason string) error {
	now := s.env.now()
	updater := s.env.updater
	updater.Notes = func(_, after task.Task, _ lifecycle.Event) []task.Note {
		n := note(after, ClientLeft, now)
		n.Actor, n.Reason = n.Requester, safetext.Text(reason, review.MaxReason)
		return []task.Note{n}
	}
	_, err := updater.Advance(ctx, ref, lifecycle.Contact{PollInterval: noPollsExpected, WaitsUntil: now}, now)
	return err
}

// UpstreamTasks returns the ids of the owner's tasks by the ids of their upstream tasks.
func (s *Service) UpstreamTasks(ctx context.Context, owner string) (map[string]task.ID, error) {
	ids := make(map[string]task.ID)
	q := task.Query{Scope: task.OwnedBy(owner), Limit: sweepBatch, Outlines: true}
	for t, err := range storekit.Each(ctx, s.env.store, q) {
		if err != nil {
			return nil, err
		}
		if upstream := upstreamTask(t); upstream != "" {
			ids[upstream] = t.ID
		}
	}
	return ids, nil
}

// Cancel withdraws a task for its owner. A running call is interrupted; whether it ran is then
// unknown. Cancel also cancels the call at the upstream, in the background, with the sender of w
// if it has one.
func (s *Service) Cancel(ctx context.Context, ref task.Ref, w Withdrawal) (task.Task, error) {
	cancel := lifecycle.Cancel{By: w.By, Reason: safetext.Text(w.Reason, review.MaxReason)}
	t, err := s.env.updater.Advance(ctx, ref, cancel, s.env.now())
	if errors.Is(err, task.ErrAlreadyTerminal) {
		s.canceller.cancelSoon(ctx, t, w.Send) // the cancellation may not have been sent yet
	}
	if err != nil {
		return s.env.withInterval(t), err
	}
	s.env.observe(ctx, Event{Step: Cancelled, Task: t})
	s.canceller.cancelSoon(ctx, t, w.Send)
	s.contacts.forget(t.ID)
	return s.env.withInterval(t), nil
}

// A Withdrawal says who withdraws a task, why, and how to reach its upstream.
type Withdrawal struct {
	By, Reason string
	Send       Sender // with the credentials of the requester; may be nil
}

// SetVariables sets client variables of a task.
func (s *Service) SetVariables(ctx context.Context, ref task.Ref, values task.Variables) (task.Task, error) {
	set := lifecycle.SetVariables{Side: task.ClientSide, Values: values, Limits: s.env.settings().Variables}
	t, err := lifecycle.Advance(ctx, s.env.store, ref, set, s.env.now())
	return s.env.withInterval(t), err
}

// Open returns a reader of the result of an ended task. Read it before calling Delivered. The
// reader is empty if there is no result. If the result is still arriving, the reader waits for the
// rest, and fails if that does not arrive.
func (s *Service) Open(ctx context.Context, t task.Task) io.Reader {
	switch {
	case t.State.Terminal() && t.Result == nil:
		return strings.NewReader("")
	case isArriving(t):
		return s.runner.openArriving(ctx, t)
	}
	return storekit.OpenResult(ctx, s.env.store, t)
}

// Delivered records that the result of t, as this service returned it, reached its owner.
func (s *Service) Delivered(ctx context.Context, t task.Task) error {
	advance := s.env.updater.AdvanceFrom
	if !t.State.Terminal() || t.Abridged() || isArriving(t) { // t differs from the stored task
		advance = func(ctx context.Context, t task.Task, e lifecycle.Event, now time.Time) (task.Task, error) {
			return s.env.updater.Advance(ctx, task.OwnedBy(t.Owner).Ref(t.ID), e, now)
		}
	}
	t, err := advance(ctx, t, lifecycle.Deliver{}, s.env.now())
	if errors.Is(err, lifecycle.ErrAlreadyDelivered) {
		return nil
	}
	if err == nil {
		s.env.observe(ctx, Event{Step: Delivered, Task: t})
	}
	return err
}

// Extend extends the lifetime of a task to ttl after its creation, or to the maximum. Approvers
// get no more time than their workflow gives. If the task has ended or already lives that long,
// Extend returns it unchanged.
func (s *Service) Extend(ctx context.Context, ref task.Ref, ttl time.Duration) (task.Task, error) {
	t, err := s.tasks.get(ctx, ref)
	if err != nil || t.State.Terminal() {
		return s.env.withInterval(t), err
	}
	most := s.env.ttlRules().Longest()
	if ttl > most {
		s.env.ttlLimited(LogContext(ctx, t), ttl, most)
	}
	after, err := s.env.updater.AdvanceFrom(ctx, t, lifecycle.ExtendTTL{By: t.Owner, TTL: ttl, Max: most}, s.env.now())
	switch {
	case errors.Is(err, task.ErrInvalidTTL), errors.Is(err, task.ErrAlreadyTerminal):
		err = nil // after is the current task
	case errors.Is(err, task.ErrExpired):
		after, err = s.tasks.get(ctx, ref)
	}
	return s.env.withInterval(after), err
}

// extendAttached extends the task that a call is attached to, if the call asks for a longer
// lifetime. [holder.prepare] has logged a lifetime over the maximum.
func (s *Service) extendAttached(ctx context.Context, t task.Task, asked time.Duration) (task.Task, error) {
	if asked <= t.TTL() {
		return t, nil
	}
	return s.Extend(ctx, task.OwnedBy(t.Owner).Ref(t.ID), min(asked, s.env.ttlRules().Longest()))
}

// RecordRequests records that several identical requests wait for t, for its approvers, and
// returns the updated task. If the store fails, it returns t unchanged.
func (s *Service) RecordRequests(ctx context.Context, t task.Task, requests int) task.Task {
	if requests <= review.Requests(t) || t.State.Terminal() {
		return t
	}
	after, err := s.env.updater.Advance(ctx, task.OwnedBy(t.Owner).Ref(t.ID), lifecycle.SetVariables{
		Side: task.ServerSide, Values: task.Variables{review.VariableRequests: []byte(strconv.Itoa(requests))}, Limits: s.env.settings().Variables,
	}, s.env.now())
	if err != nil {
		s.env.log.WarnContext(LogContext(ctx, t), "requests that share a call were not counted", "err", err)
		return t
	}
	return s.env.withInterval(after)
}

// Tasks reads held calls. A task whose deadline has passed ends when it is read.
type tasks struct {
	env       *env
	contacts  *contacts
	canceller *canceller
}

// get returns the current task.
func (ts *tasks) get(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := ts.env.store.Get(ctx, ref)
	if err != nil {
		return t, err
	}
	return ts.settled(ctx, t)
}

// settled ends t if its deadline has passed.
func (ts *tasks) settled(ctx context.Context, t task.Task) (task.Task, error) {
	after, ended, err := ts.env.updater.Settle(ctx, t, ts.env.name, ts.env.now())
	if ended {
		ts.overdue(ctx, after)
	}
	return after, err
}

// overdue reports a task that ended because its deadline passed.
func (ts *tasks) overdue(ctx context.Context, t task.Task) {
	ts.canceller.cancelSoon(ctx, t, nil)
	ts.contacts.forget(t.ID)
	age := t.UpdatedAt.Sub(t.CreatedAt)
	from, to := lastMove(t)
	//mutate:swap "WarnContext" "DebugContext" TestExpiryIsLogged expiries are not logged
	ts.env.log.WarnContext(LogContext(ctx, t), "task overdue",
		//mutate:swap "age." "0*age." TestExpiryIsLogged an expiry is logged without its age
		"from", from, "to", to, "age_seconds", age.Seconds(), "upstream_task_id", upstreamTask(t))
	ts.env.observe(ctx, Event{Step: Overdue, Task: t})
	ts.uncollected(ctx, t)
}

// uncollected reports a task that did not run because its owner did not return, unless that was
// reported at the approval.
func (ts *tasks) uncollected(ctx context.Context, t task.Task) {
	if t.Failure != nil && t.Failure.Stage == lifecycle.StageUncollected && t.InContact(t.Approval.DecidedAt()) {
		ts.abandon(ctx, t)
	}
}

func (ts *tasks) abandon(ctx context.Context, t task.Task) {
	ts.env.log.WarnContext(LogContext(ctx, t), "approved call not run: its owner is not present", "state", t.State)
	ts.env.observe(ctx, Event{Step: OwnerAbsent, Task: t})
}

// upstreamTask returns the id of the upstream task of t, or "".
func upstreamTask(t task.Task) string {
	if t.Execution == nil {
		return ""
	}
	return t.Execution.UpstreamTask
}
