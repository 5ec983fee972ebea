package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// followPoll is how long a follower relies on being woken, and followRetry how
// long it waits for a store that fails.
const (
	followPoll  = 30 * time.Second
	followRetry = 5 * time.Second
)

// A Following reports the steps of an owner's tasks, on whichever replica they
// happen. Every change of state is reported once and in order, also when
// several happened since the last look: the trail of a task has them all, so
// whoever is slow has nothing queued for it and misses nothing.
//
// A Following is for one goroutine.
type Following struct {
	desk    *Desk
	owner   string
	all     bool              // whether all of the owner's tasks are followed
	named   []task.ID         // or else those that have not ended
	known   map[task.ID]*mark // what has been reported
	looked  time.Time         // the last look
	changes *task.Changes
}

// A mark is how much of a task has been reported.
type mark struct {
	steps int       // changes of state
	at    time.Time // the last change of anything that the owner can see
	made  time.Time // when the task was made
	due   time.Time // zero if it has ended
}

// Follow begins to follow the tasks of an owner that have the given ids.
// [Following.Next] first reports how each stands; those that are not the owner's
// do not exist. It does not count as contact. The caller must call
// [Following.Close].
func (d *Desk) Follow(ctx context.Context, owner string, ids []task.ID) (*Following, error) {
	return d.follow(ctx, &Following{desk: d, owner: owner, named: ids})
}

// FollowAll is [Desk.Follow] for all tasks that the owner has and gets. Only
// what happens from now on is reported.
func (d *Desk) FollowAll(ctx context.Context, owner string) (*Following, error) {
	return d.follow(ctx, &Following{desk: d, owner: owner, all: true})
}

func (d *Desk) follow(ctx context.Context, f *Following) (*Following, error) {
	f.known = make(map[task.ID]*mark, len(f.named))
	f.changes = task.WatchChanges(ctx, d.cfg.Store, followPoll, f.watched()...)
	var err error
	if f.all {
		ownstack.Do(func() { err = f.begin(ctx) })
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// After says that the owner knows the first steps of a named task already, so
// that Next reports the later ones instead of how the task stands.
func (f *Following) After(id task.ID, steps int) {
	f.known[id] = &mark{steps: max(steps, 0), at: time.Unix(1<<40, 0)} // what else has changed cannot be known
}

// Close ends following.
func (f *Following) Close() { f.changes.Close() }

// watched names the tasks that are watched.
func (f *Following) watched() []task.Ref {
	scope := task.OwnedBy(f.owner)
	if f.all {
		return []task.Ref{scope.Ref("")}
	}
	refs := make([]task.Ref, len(f.named))
	for i, id := range f.named {
		refs[i] = scope.Ref(id)
	}
	return refs
}

// skew is by how much the clocks of replicas may differ.
const skew = 10 * time.Second

// begin takes what has happened as reported.
func (f *Following) begin(ctx context.Context) error {
	f.looked = f.desk.cfg.Now()
	mark := func(t task.Task) { f.known[t.ID] = markOf(t) }
	if err := f.recent(ctx, mark); err != nil {
		return err
	}
	return f.each(ctx, task.Pending(), func(t task.Task) bool { mark(t); return true })
}

// recent calls do with the tasks that were made since the last look, as far as
// the clocks of replicas agree.
func (f *Following) recent(ctx context.Context, do func(task.Task)) error {
	since := f.looked.Add(-skew)
	return f.each(ctx, nil, func(t task.Task) bool {
		if t.CreatedAt.Before(since) {
			return false
		}
		do(t)
		return true
	})
}

func markOf(t task.Task) *mark {
	m := &mark{steps: len(t.Transitions), at: t.UpdatedAt, made: t.CreatedAt}
	if !t.State.Terminal() {
		m.due = t.Due()
	}
	return m
}

// Open returns the named tasks that have not ended, as far as was reported.
func (f *Following) Open() []task.ID { return f.named }

// ended reports whether nothing more can happen to the tasks that were named.
func (f *Following) ended() bool { return !f.all && len(f.named) == 0 }

// Next returns what has happened to the tasks: each task as it was after each
// step. It waits for that, but returns nothing once patience is over, or as
// soon as there is nothing left to follow. It fails when ctx ends or the desk
// is closed; a store that fails is asked again.
func (f *Following) Next(ctx context.Context, patience time.Duration) ([]task.Task, error) {
	over := f.desk.cfg.Now().Add(patience)
	for {
		wait := patience
		if !f.ended() {
			var news []task.Task
			var err error
			ownstack.Do(func() { news, err = f.look(ctx) })
			if len(news) > 0 || err == nil && f.ended() {
				return news, nil
			}
			if wait, err = f.retry(ctx, err); err != nil {
				return nil, err
			}
		}
		left := over.Sub(f.desk.cfg.Now())
		if left <= 0 {
			return nil, nil
		}
		if err := f.await(ctx, min(wait, left)); err != nil {
			return nil, err
		}
	}
}

// retry returns how long to wait after a look that may have failed, or why
// there is no use in another.
func (f *Following) retry(ctx context.Context, err error) (time.Duration, error) {
	if err == nil {
		return f.lookAgain(), nil
	}
	if ctx.Err() != nil || errors.Is(err, task.ErrClosed) {
		return 0, err
	}
	f.desk.cfg.Log.WarnContext(ctx, "following tasks is interrupted", "error", err)
	return followRetry, nil
}

// await waits for a reason to look.
func (f *Following) await(ctx context.Context, most time.Duration) error {
	f.changes.PollIn(most)
	reason, err := f.changes.Next(ctx, nil, f.desk.work.closing)
	if reason == task.Ended {
		err = closedError("", task.ActionWatch)
	}
	return err
}

// lookAgain returns how long to wait for the next look if nobody wakes the
// follower: until the deadline of a task, which that look expires, and at most
// followPoll.
func (f *Following) lookAgain() time.Duration {
	wait, now := followPoll, f.desk.cfg.Now()
	for _, m := range f.known {
		due := m.due.Sub(now) + time.Microsecond
		switch {
		case m.due.IsZero():
		case due > 0:
			wait = min(wait, due)
		default:
			wait = min(wait, troubleBeat) // its run is under way here, and is about to be stored
		}
	}
	return wait
}

// look returns what has happened since the last look.
func (f *Following) look(ctx context.Context) ([]task.Task, error) {
	if f.all {
		return f.lookAtAll(ctx)
	}
	return f.lookAtNamed(ctx)
}

func (f *Following) lookAtNamed(ctx context.Context) ([]task.Task, error) {
	var news []task.Task
	var failed error
	f.named = slices.DeleteFunc(slices.Clone(f.named), func(id task.ID) bool {
		if failed != nil {
			return false
		}
		t, err := f.desk.tasks.get(ctx, task.OwnedBy(f.owner).Ref(id))
		switch {
		case err == nil:
			news = append(news, f.newSteps(t)...)
			return t.State.Terminal()
		case errors.Is(err, task.ErrNotFound), errors.Is(err, task.ErrOwnerMismatch):
			return true
		default:
			failed = err
			return false
		}
	})
	return news, failed
}

// lookAtAll looks at the tasks that were pending, and at those that are new,
// which may have ended already.
func (f *Following) lookAtAll(ctx context.Context) ([]task.Task, error) {
	now := f.desk.cfg.Now()
	var found []*task.Task
	seen := make(map[task.ID]bool)
	err := f.recent(ctx, func(t task.Task) {
		seen[t.ID] = true
		found = append(found, &t)
	})
	for id, m := range f.known {
		if err != nil || seen[id] || m.due.IsZero() {
			continue
		}
		t, getErr := f.desk.tasks.get(ctx, task.OwnedBy(f.owner).Ref(id))
		if errors.Is(getErr, task.ErrNotFound) {
			delete(f.known, id)
			continue
		}
		if err = getErr; err == nil {
			found = append(found, &t)
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *task.Task) int { return task.Compare(b.Position(), a.Position()) })
	var news []task.Task
	for _, t := range found {
		if _, known := f.known[t.ID]; !known {
			f.known[t.ID] = &mark{} // it is new, so all of its steps are
		}
		news = append(news, f.newSteps(*t)...)
	}
	f.forget(now)
	return news, nil
}

// forget lets go of tasks that have ended and will not be found again.
func (f *Following) forget(now time.Time) {
	f.looked = now
	for id, m := range f.known {
		if m.due.IsZero() && m.made.Before(now.Add(-skew)) {
			delete(f.known, id)
		}
	}
}

// each calls do with the tasks of the owner in the given states, newest first,
// until it returns false.
func (f *Following) each(ctx context.Context, states []task.State, do func(task.Task) bool) error {
	q := task.Query{Scope: task.OwnedBy(f.owner), States: states, Limit: sweepBatch}
	for t, err := range task.Each(ctx, f.desk.cfg.Store, q) {
		if err == nil {
			t, err = f.desk.tasks.settled(ctx, t)
		}
		if err != nil {
			return err
		}
		if !do(t) {
			return nil
		}
	}
	return nil
}

// newSteps returns the steps of t that have not been reported, and takes them as
// reported.
func (f *Following) newSteps(t task.Task) []task.Task {
	m, known := f.known[t.ID]
	f.known[t.ID] = markOf(t)
	if !known {
		m = &mark{}
	}
	if known && len(t.Transitions) <= m.steps && !t.UpdatedAt.After(m.at) {
		return nil
	}
	var steps []task.Task
	for n := m.steps + 1; known && n < len(t.Transitions); n++ {
		steps = append(steps, f.desk.withInterval(asOf(t, n)))
	}
	return append(steps, f.desk.withInterval(t))
}

// asOf returns t as it was after its nth change of state, which is not the last.
func asOf(t task.Task, n int) task.Task {
	last := t.Transitions[n-1]
	t.State, t.UpdatedAt, t.Transitions = last.To, last.At, t.Transitions[:n:n]
	t.Failure, t.Result = nil, nil
	later := func(d task.Decision) bool { return d.At.After(last.At) }
	if a := t.Approval; a != nil {
		before := *a
		before.Approvals = slices.DeleteFunc(slices.Clone(a.Approvals), later)
		if a.Rejection != nil && later(*a.Rejection) {
			before.Rejection = nil
		}
		t.Approval = &before
	}
	if t.Execution != nil {
		before := *t.Execution
		before.InputRequests, before.Upstream, before.Message = nil, "", ""
		t.Execution = &before
	}
	return t
}
