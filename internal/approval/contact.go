package approval

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Visits are the contacts of owners with their tasks: owners that ask how a task
// stands, and owners that wait for it.
type visits struct {
	*core

	contacts  *contacts
	canceller *canceller
	tasks     *tasks
	runner    *runner
	spools    *spools
}

// Contact notes that the owner is there and asks how the task stands, and
// returns that. If the task is approved and [StartOnContact] is set, it is
// started with send; it runs on when the owner goes. While it is pending, send
// is remembered for two poll intervals and used if the decision comes by then.
// If the upstream has made a task of the call, it is asked with send how that
// stands; a [*SendError] says that it could not be asked, which changes nothing
// for the task. A nil send starts and asks nothing.
func (vs *visits) Contact(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	return vs.contact(ctx, ref, send, vs.recordAsking)
}

// Attend is [Desk.Contact] for an owner that waits on a stream. Call it now and
// then, and [Desk.Leave] when the stream ends.
func (vs *visits) Attend(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	if vs.settings().Start == StartOnResult {
		return vs.Contact(ctx, ref, send) // an open stream does not let the call begin
	}
	return vs.contact(ctx, ref, send, vs.recordWaiting)
}

// Collect is [Desk.Contact] for an owner that asks for the outcome and does not wait for
// it. It starts an approved task also if [StartOnResult] is set.
func (vs *visits) Collect(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	t, err := vs.Contact(ctx, ref, send)
	if err != nil || t.State != task.Approved || send == nil || vs.settings().Start != StartOnResult {
		return t, err
	}
	t, err = vs.runner.launch(ctx, ref, send)
	return vs.withInterval(t), err
}

// contact is Contact, with what notes that the owner is there.
func (vs *visits) contact(ctx context.Context, ref task.Ref, send Sender, note contactRecorder) (task.Task, error) {
	t, err := vs.tasks.get(ctx, ref)
	if err == nil && !unstarted(t) {
		if send != nil {
			vs.canceller.cancelSoon(ctx, t, send)
		}
		if t, err = vs.runner.polled(ctx, t, send); err == nil {
			t, err = vs.runner.concluded(ctx, t)
		}
		return vs.withInterval(t), err
	}
	if err != nil {
		return vs.withInterval(t), err
	}
	if send != nil && vs.settings().Start == StartOnContact {
		// Before the task is looked at again: either the decision finds the
		// sender, or we find the decision.
		vs.contacts.remember(t, send)
	}
	if t, err = note(ctx, ref, t); err != nil {
		return vs.withInterval(t), err
	}
	if t.State == task.Approved && send != nil && vs.settings().Start == StartOnContact {
		t, err = vs.runner.launch(ctx, ref, send)
	}
	return vs.withInterval(t), err
}

// unstarted reports whether t still waits to be run.
func unstarted(t task.Task) bool { return !t.State.Terminal() && t.State != task.Executing }

// A contactRecorder records that the owner of t is present, unless that was recorded
// a moment ago, and returns t as it is then.
type contactRecorder func(ctx context.Context, ref task.Ref, t task.Task) (task.Task, error)

// recordAsking is the recorder for an owner that asks.
func (vs *visits) recordAsking(ctx context.Context, ref task.Ref, t task.Task) (task.Task, error) {
	now := vs.cfg.Now()
	interval := vs.settings().Polling.Interval(t.Remaining(now))
	if t.PollInterval >= interval && now.Sub(t.ContactAt) < interval/4 {
		return vs.cfg.Store.Get(ctx, ref)
	}
	return vs.record(ctx, ref, task.Contact{PollInterval: interval}, now)
}

// recordWaiting is the recorder for an owner that waits. It makes no more than a write
// every few seconds, however soon the time of t ends.
func (vs *visits) recordWaiting(ctx context.Context, ref task.Ref, t task.Task) (task.Task, error) {
	now := vs.cfg.Now()
	interval := max(vs.settings().Polling.Interval(t.Remaining(now)), maxSilence)
	if t.PollInterval == interval && t.WaitsUntil.Sub(now) > interval*3/2 {
		return vs.cfg.Store.Get(ctx, ref)
	}
	return vs.record(ctx, ref, task.Contact{PollInterval: interval, WaitsUntil: now.Add(2 * interval)}, now)
}

// record applies c to a task, and returns the task as it is then. A task that has
// ended stays as it is.
func (vs *visits) record(ctx context.Context, ref task.Ref, c task.Contact, now time.Time) (task.Task, error) {
	t, err := task.Advance(ctx, vs.cfg.Store, ref, c, now)
	if errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired) {
		return vs.tasks.get(ctx, ref)
	}
	return t, err
}

// Wait is for an owner that waits in a request of its own. It returns the task
// once it has ended, or asks the client something: see its InputRequests.
// If a large answer begins to arrive here, it returns the task as it will be
// when that is whole; see [Desk.Open].
// It starts the task with send as soon as it is approved, unless something else
// does; nil starts nothing. While the upstream has a task of its own, Wait asks
// it now and then how that stands, and fetches the outcome.
//
// If ctx ends before, Wait returns the task as it was last seen and
// [task.ErrNotReady], which wraps the context's error. A context that is
// cancelled, rather than past its deadline, means that the client has gone. If
// the desk is closed before, the error is [task.ErrClosed]. A store that is in
// trouble for a while is waited for.
func (vs *visits) Wait(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	t, err := vs.await(ctx, ref, send)
	if err != nil && ctx.Err() != nil {
		err = vs.notReady(ref.ID, t, ctx.Err())
	}
	return vs.withInterval(t), err
}

// await is Wait, with whatever error ended it.
func (vs *visits) await(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	v := visit{ref: ref, send: send, begun: vs.spools.begun(), changes: task.WatchChanges(ctx, vs.cfg.Store, maxSilence, ref)}
	defer v.changes.Close()
	next, err := vs.arrive(ctx, &v)
	defer vs.depart(ctx, &v)
	for err == nil || errors.Is(err, task.ErrUnavailable) {
		soon := troubleBeat // the store is in trouble; the task still exists, and its owner waits on
		if err == nil {
			if v.last = vs.spools.asAnswered(next); waitedFor(v.last) {
				break
			}
			soon = vs.lookAgain(v.last)
		}
		v.changes.PollIn(soon)
		next, err = vs.next(ctx, &v)
	}
	return v.last, err
}

// arrive begins a visit: it looks at the task and notes the contact.
func (vs *visits) arrive(ctx context.Context, v *visit) (task.Task, error) {
	// A caller whose deadline has passed still counts as present.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx = context.WithoutCancel(ctx)
	}
	t, err := vs.tasks.get(ctx, v.ref)
	if err == nil {
		v.last = t
	}
	if err != nil && !errors.Is(err, task.ErrUnavailable) || v.last.State.Terminal() {
		return t, err // an upstream that asked something may no longer do so: it is asked
	}
	vs.contacts.join(v.ref.ID)
	v.joined = true
	if err != nil {
		return t, err
	}
	return vs.look(ctx, v, vs.polling(v))
}

// depart ends a visit. A client may have gone before its visit began.
func (vs *visits) depart(ctx context.Context, v *visit) {
	switch {
	case v.joined:
		vs.leave(ctx, v.ref, v.last)
	case errors.Is(ctx.Err(), context.Canceled):
		vs.Gone(ctx, v.ref)
	}
}

// waitedFor reports whether the owner of t has something to do now.
func waitedFor(t task.Task) bool {
	return t.State.Terminal() || t.Asks() && t.Execution.InputRequests != nil
}

// A visit is an owner that waits.
type visit struct {
	ref     task.Ref
	send    Sender
	last    task.Task // as it was last seen; zero if it has not been seen yet
	changes *task.Changes
	begun   <-chan struct{} // closed when an answer begins to be kept
	tried   bool            // the outcome was to be fetched since then
	joined  bool            // the desk counts this owner as one that waits
}

// next looks at the task that v waits for when there is a reason to.
func (vs *visits) next(ctx context.Context, v *visit) (task.Task, error) {
	reason, err := v.changes.Next(ctx, v.begun, vs.work.closing)
	if err != nil {
		return task.Task{}, err
	}
	switch reason {
	case task.Ended:
		return task.Task{}, closedError(v.ref.ID, task.ActionWatch)
	case task.Polled:
		v.tried = false
		return vs.look(ctx, v, vs.polling(v))
	case task.Woken:
		v.begun = vs.spools.begun()
	case task.Changed:
	}
	return vs.look(ctx, v, vs.tasks.get)
}

// look returns what at says of the task that v waits for, and starts it, or
// fetches its outcome, if it can.
func (vs *visits) look(ctx context.Context, v *visit, at func(context.Context, task.Ref) (task.Task, error)) (task.Task, error) {
	t, err := at(ctx, v.ref)
	switch {
	case err != nil || v.send == nil:
		return t, err
	case t.State == task.Approved:
		return vs.runner.launch(ctx, v.ref, v.send)
	case !nested(t) || v.tried:
		return t, nil
	case t.Execution.Upstream.Ended():
		v.tried = true
		return vs.runner.fetch(ctx, t, v.send)
	case t.Asks() && t.Execution.InputRequests == nil:
		v.tried = true
		return vs.runner.attend(ctx, t, v.send)
	default:
		return t, nil
	}
}

// polling is beat for an owner that waits in v. An upstream that cannot be asked
// now may be later.
func (vs *visits) polling(v *visit) func(context.Context, task.Ref) (task.Task, error) {
	return func(ctx context.Context, ref task.Ref) (task.Task, error) {
		t, err := vs.beat(ctx, ref)
		if err != nil {
			return t, err
		}
		after, err := vs.runner.polled(ctx, t, v.send)
		if _, unasked := errors.AsType[*SendError](err); unasked {
			return t, nil
		}
		return after, err
	}
}

// troubleBeat is how long to wait before a store in trouble is asked again.
const troubleBeat = time.Second

// maxSilence is how long a waiter relies on being woken.
const maxSilence = 5 * time.Second

// lookAgain returns when a waiter looks for itself: when the time of t is over,
// and often enough to stay in contact.
func (vs *visits) lookAgain(t task.Task) time.Duration {
	due := t.Due().Sub(vs.cfg.Now()) + time.Microsecond
	if due <= 0 {
		due = troubleBeat // its run is under way here, and is about to be stored
	}
	return max(time.Millisecond, min(maxSilence, vs.withInterval(t).PollInterval, due))
}

// beat looks at a task that is waited for, and shows that its owner is there.
func (vs *visits) beat(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := vs.tasks.get(ctx, ref)
	if err != nil || !unstarted(t) {
		return t, err
	}
	return vs.recordWaiting(ctx, ref, t)
}

// noPolls is the poll interval of an owner that is not expected to ask.
const noPolls = time.Microsecond

// leave ends a wait. The last one to leave notes that nobody waits here any more,
// for whichever replica the decision comes to; and if its client has gone, that
// nobody is expected to ask.
func (vs *visits) leave(ctx context.Context, ref task.Ref, t task.Task) {
	if !vs.contacts.leave(ref.ID) || ctx.Err() == nil || t.ID == "" || !unstarted(t) {
		return
	}
	var polls time.Duration // as before
	if errors.Is(ctx.Err(), context.Canceled) {
		polls = vs.pollsWithoutClient(ref.ID)
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), maxSilence)
	defer stop()
	if err := vs.noteLeft(ctx, ref, polls); err != nil {
		vs.cfg.Log.WarnContext(About(ctx, t), "departure not noted", "error", err)
	}
}

// noteLeft records that nobody waits for a task here any more, and the owner's poll
// interval from now on; 0 keeps the last one.
func (vs *visits) noteLeft(ctx context.Context, ref task.Ref, polls time.Duration) error {
	now := vs.cfg.Now()
	_, err := vs.record(ctx, ref, task.Contact{PollInterval: polls, WaitsUntil: now}, now)
	return err
}

// pollsWithoutClient returns the poll interval of an owner whose client has gone: it is
// not expected to ask, unless it asked by other means a moment ago.
func (vs *visits) pollsWithoutClient(id task.ID) time.Duration {
	if vs.contacts.recentSender(id) != nil {
		return 0
	}
	return noPolls
}

// Gone notes that the client of a task has gone before it could wait for it, unless
// another one waits. The context may have ended.
func (vs *visits) Gone(ctx context.Context, ref task.Ref) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), maxSilence)
	defer stop()
	t, err := vs.tasks.get(ctx, ref)
	if err == nil && unstarted(t) && !vs.contacts.awaited(ref.ID) {
		err = vs.noteLeft(ctx, ref, vs.pollsWithoutClient(ref.ID))
	}
	if err != nil && !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrOwnerMismatch) {
		vs.cfg.Log.WarnContext(ctx, "departure not noted", "task_id", ref.ID, "error", err)
	}
}

// Leave notes that the owner of a task no longer waits on a stream; see
// [Desk.Attend].
func (vs *visits) Leave(ctx context.Context, ref task.Ref) error {
	t, err := vs.tasks.get(ctx, ref)
	if err != nil || !unstarted(t) || vs.contacts.awaited(ref.ID) {
		return err
	}
	return vs.noteLeft(ctx, ref, 0)
}
