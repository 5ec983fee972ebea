package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// followPoll is the longest time that a follower relies on notifications of the store. followRetry
// is the pause after a store error.
const (
	followPoll  = 30 * time.Second
	followRetry = 5 * time.Second
)

// A Follower reports the steps of an owner's tasks, on whichever replica they happen. It reports
// every change of state once and in order. It reads missed changes from the task's transitions, so
// nothing is queued for a slow reader.
//
// A Follower is for one goroutine.
type Follower struct {
	service   *Service
	owner     string
	all       bool                  // follow all tasks of the owner
	named     []task.ID             // or else the followed tasks that have not ended
	reported  map[task.ID]*progress // what was reported
	checkedAt time.Time             // when news was called last
	changes   *storekit.Changes
}

// A progress is how much of a task was reported.
type progress struct {
	steps int       // number of state changes
	at    time.Time // the last change that the owner can see
	made  time.Time // when the task was created
	due   time.Time // the deadline; zero if the task has ended
}

// Follow follows the tasks of an owner with the given ids. [Follower.Next] first reports their
// current states; tasks of other owners are ignored. Following does not count as contact. The
// caller must call [Follower.Close].
func (s *Service) Follow(ctx context.Context, owner string, ids []task.ID) (*Follower, error) {
	return s.follow(ctx, &Follower{service: s, owner: owner, named: ids})
}

// FollowAll is [Service.Follow] for all present and future tasks of the owner. It reports only
// what happens from now on.
func (s *Service) FollowAll(ctx context.Context, owner string) (*Follower, error) {
	return s.follow(ctx, &Follower{service: s, owner: owner, all: true})
}

func (s *Service) follow(ctx context.Context, f *Follower) (*Follower, error) {
	f.reported = make(map[task.ID]*progress, len(f.named))
	f.changes = storekit.WatchChanges(ctx, s.env.store, followPoll, f.watched()...)
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

// SkipSteps says that the owner knows the first steps of a task, so that Next reports the later
// ones instead of the current state.
func (f *Follower) SkipSteps(id task.ID, steps int) {
	f.reported[id] = &progress{steps: max(steps, 0), at: time.Unix(1<<40, 0)} // other changes are treated as known
}

// Close ends following.
func (f *Follower) Close() { f.changes.Close() }

// watched returns the watched tasks.
func (f *Follower) watched() []task.Ref {
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

// skew is the largest expected difference between the clocks of replicas.
const skew = 10 * time.Second

// begin marks everything so far as reported.
func (f *Follower) begin(ctx context.Context) error {
	f.checkedAt = f.service.env.now()
	mark := func(t task.Task) { f.reported[t.ID] = progressOf(t) }
	if err := f.recent(ctx, mark); err != nil {
		return err
	}
	return f.each(ctx, task.Pending(), func(t task.Task) bool { mark(t); return true })
}

// recent calls do with the tasks created since the last check, allowing for clock skew.
func (f *Follower) recent(ctx context.Context, do func(task.Task)) error {
	since := f.checkedAt.Add(-skew)
	return f.each(ctx, nil, func(t task.Task) bool {
		if t.CreatedAt.Before(since) {
			return false
		}
		do(t)
		return true
	})
}

func progressOf(t task.Task) *progress {
	m := &progress{steps: len(t.Transitions), at: t.UpdatedAt, made: t.CreatedAt}
	if !t.State.Terminal() {
		m.due = t.Due()
	}
	return m
}

// Unfinished returns the followed tasks that have not ended, as far as was reported.
func (f *Follower) Unfinished() []task.ID { return f.named }

// ended reports whether all followed tasks have ended.
func (f *Follower) ended() bool { return !f.all && len(f.named) == 0 }

// Next waits for changes of the tasks and returns each task as it was after each step. It returns
// nothing when patience is over or when all followed tasks have ended. It fails when ctx ends or
// the service closes; after a store error it retries.
func (f *Follower) Next(ctx context.Context, patience time.Duration) ([]task.Task, error) {
	over := f.service.env.now().Add(patience)
	for {
		wait := patience
		if !f.ended() {
			var news []task.Task
			var err error
			ownstack.Do(func() { news, err = f.news(ctx) })
			if len(news) > 0 || err == nil && f.ended() {
				return news, nil
			}
			if wait, err = f.retry(ctx, err); err != nil {
				return nil, err
			}
		}
		left := over.Sub(f.service.env.now())
		if left <= 0 {
			return nil, nil
		}
		if err := f.await(ctx, min(wait, left)); err != nil {
			return nil, err
		}
	}
}

// retry returns how long to wait before the next check, or the error that ends Next.
func (f *Follower) retry(ctx context.Context, err error) (time.Duration, error) {
	if err == nil {
		return f.nextCheck(), nil
	}
	if ctx.Err() != nil || errors.Is(err, task.ErrClosed) {
		return 0, err
	}
	f.service.env.log.WarnContext(ctx, "following tasks is interrupted", "err", err)
	return followRetry, nil
}

// await waits for a change, a poll or the end of the service.
func (f *Follower) await(ctx context.Context, most time.Duration) error {
	f.changes.PollIn(most)
	reason, err := f.changes.Next(ctx, nil, f.service.background.closing)
	if reason == storekit.Ended {
		err = closedError("", action.Watch)
	}
	return err
}

// nextCheck returns how long to wait without a notification: until the next deadline of a task,
// and at most followPoll.
func (f *Follower) nextCheck() time.Duration {
	wait, now := followPoll, f.service.env.now()
	for _, m := range f.reported {
		due := m.due.Sub(now) + time.Microsecond
		switch {
		case m.due.IsZero():
		case due > 0:
			wait = min(wait, due)
		default:
			wait = min(wait, storeRetry) // its run is active in this process; the end is about to be stored
		}
	}
	return wait
}

// news returns what has happened since the last call.
func (f *Follower) news(ctx context.Context) ([]task.Task, error) {
	if f.all {
		return f.allNews(ctx)
	}
	return f.namedNews(ctx)
}

func (f *Follower) namedNews(ctx context.Context) ([]task.Task, error) {
	var news []task.Task
	var failed error
	f.named = slices.DeleteFunc(slices.Clone(f.named), func(id task.ID) bool {
		if failed != nil {
			return false
		}
		t, err := f.service.tasks.get(ctx, task.OwnedBy(f.owner).Ref(id))
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

// allNews checks the pending tasks, and new ones, which may have ended already.
func (f *Follower) allNews(ctx context.Context) ([]task.Task, error) {
	now := f.service.env.now()
	var found []*task.Task
	seen := make(map[task.ID]bool)
	err := f.recent(ctx, func(t task.Task) {
		seen[t.ID] = true
		found = append(found, &t)
	})
	for id, m := range f.reported {
		if err != nil || seen[id] || m.due.IsZero() {
			continue
		}
		t, getErr := f.service.tasks.get(ctx, task.OwnedBy(f.owner).Ref(id))
		if errors.Is(getErr, task.ErrNotFound) {
			delete(f.reported, id)
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
		if _, known := f.reported[t.ID]; !known {
			f.reported[t.ID] = &progress{} // a new task: report all steps
		}
		news = append(news, f.newSteps(*t)...)
	}
	f.forget(now)
	return news, nil
}

// forget removes ended tasks that will not be listed again.
func (f *Follower) forget(now time.Time) {
	f.checkedAt = now
	for id, m := range f.reported {
		if m.due.IsZero() && m.made.Before(now.Add(-skew)) {
			delete(f.reported, id)
		}
	}
}

// each calls do with the owner's tasks in the given states, newest first, until it returns false.
func (f *Follower) each(ctx context.Context, states []task.State, do func(task.Task) bool) error {
	q := task.Query{Scope: task.OwnedBy(f.owner), States: states, Limit: sweepBatch}
	for t, err := range storekit.Each(ctx, f.service.env.store, q) {
		if err == nil {
			t, err = f.service.tasks.settled(ctx, t)
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

// newSteps returns the unreported steps of t and marks them as reported.
func (f *Follower) newSteps(t task.Task) []task.Task {
	m, known := f.reported[t.ID]
	f.reported[t.ID] = progressOf(t)
	if !known {
		m = &progress{}
	}
	if known && len(t.Transitions) <= m.steps && !t.UpdatedAt.After(m.at) {
		return nil
	}
	var steps []task.Task
	for n := m.steps + 1; known && n < len(t.Transitions); n++ {
		steps = append(steps, f.service.env.withInterval(asOf(t, n)))
	}
	return append(steps, f.service.env.withInterval(t))
}

// asOf returns t as it was after its nth change of state, which is not the last.
func asOf(t task.Task, n int) task.Task {
	last := t.Transitions[n-1]
	t.State, t.UpdatedAt, t.Transitions = last.To, last.At, t.Transitions[:n:n]
	t.Failure, t.Result = nil, nil
	later := func(d gatetask.Decision) bool { return d.At.After(last.At) }
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
