package approval_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A follower is told of tasks, as long as its test lasts.
type follower struct {
	*approval.Following

	t *testing.T
}

func (o *office) follow(t *testing.T, owner string, ids ...task.ID) follower {
	t.Helper()
	f, err := o.Follow(t.Context(), owner, ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return follower{f, t}
}

func (o *office) followAll(t *testing.T, owner string) follower {
	t.Helper()
	f, err := o.FollowAll(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return follower{f, t}
}

// hears fails the test unless the follower is told of these states next, within
// a second of which there is nothing else.
func (f follower) hears(want ...task.State) {
	f.t.Helper()
	var got []task.State
	for {
		news, err := f.Next(f.t.Context(), time.Second)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(news) == 0 {
			break
		}
		for _, n := range news {
			got = append(got, n.State)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Fatalf("told (-want +got):\n%s", diff)
	}
}

// F-012: every step is told once and in order, whichever replica it happened
// at, also if several happened since the last look.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		other := branch(t, o.store, nil)
		held := o.hold(t, call("ann", "/a"))
		o.hold(t, call("bea", "/b"))
		f := o.follow(t, "ann", held.ID)
		all := other.followAll(t, "ann")
		stranger := o.follow(t, "bea", held.ID)

		f.hears(task.InputRequired)
		all.hears() // nothing has happened since
		stranger.hears()
		other.approve(t, held.ID)
		f.hears(task.Approved)
		w := o.wait(t.Context(), mine(held), o.ledger.slow(time.Minute))
		f.hears(task.Executing)
		<-w.done
		f.hears(task.Completed)
		f.hears()
		all.hears(task.Approved, task.Executing, task.Completed)
		all.hears()
		if open := f.Open(); len(open) != 0 {
			t.Errorf("Open = %v; the task has ended", open)
		}

		next := other.hold(t, call("ann", "/new"))
		other.Cancel(t.Context(), mine(next), approval.Withdrawal{By: "ann"})
		all.hears(task.InputRequired, task.Cancelled)
	})
}

// A report of an earlier step has the state of that time.
func TestFollowTellsThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		all := o.followAll(t, "ann")
		held := o.hold(t, call("ann", "/a"))
		time.Sleep(time.Second)
		o.decide(t.Context(), held.ID, alice, approval.Reject, "no")
		news, err := all.Next(t.Context(), time.Second)
		if err != nil || len(news) != 2 {
			t.Fatalf("Next = %d tasks, %v; want 2", len(news), err)
		}
		first, last := news[0], news[1]
		if first.State != task.InputRequired || first.Failure != nil || first.Approval.Rejection != nil || !first.UpdatedAt.Equal(held.UpdatedAt) || len(first.Transitions) != 1 {
			t.Errorf("first told = %+v; want the task as it was before the decision", first)
		}
		if last.State != task.Rejected || last.Approval.Rejection == nil || last.Failure == nil {
			t.Errorf("last told = %+v; want the rejected task", last)
		}
	})
}

// A client that comes again is told what it missed, and nothing else.
func TestFollowAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		o.approve(t, held.ID)
		o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"})
		for steps, want := range map[int][]task.State{
			-1: {task.InputRequired, task.Approved, task.Cancelled},
			0:  {task.InputRequired, task.Approved, task.Cancelled},
			1:  {task.Approved, task.Cancelled},
			2:  {task.Cancelled},
			3:  nil,
			99: nil,
		} {
			f := o.follow(t, "ann", held.ID)
			f.After(held.ID, steps)
			f.hears(want...)
		}
	})
}

// A task whose time is over is told as such at that time, without anybody
// running housekeeping.
func TestFollowExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		f, all := o.follow(t, "ann", held.ID), o.followAll(t, "ann")
		f.hears(task.InputRequired)
		for _, one := range []follower{f, all} {
			news, err := one.Next(t.Context(), time.Hour)
			if err != nil || len(news) != 1 || news[0].State != task.Expired {
				t.Fatalf("Next = %v, %v; want the expired task", news, err)
			}
			if late := time.Since(news[0].Approval.Deadline); late > time.Second {
				t.Errorf("told %s after its deadline", late)
			}
		}
	})
}

// Several named tasks are followed together.
func TestFollowSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		a, b := o.hold(t, call("ann", "/a")), o.hold(t, call("ann", "/b"))
		f := o.follow(t, "ann", a.ID, "tg_unknown", b.ID)
		f.hears(task.InputRequired, task.InputRequired)
		o.approve(t, b.ID)
		f.hears(task.Approved)
		o.Cancel(t.Context(), mine(a), approval.Withdrawal{By: "ann"})
		f.hears(task.Cancelled)
		if diff := cmp.Diff([]task.ID{b.ID}, f.Open()); diff != "" {
			t.Errorf("open (-want +got):\n%s", diff)
		}
	})
}

// A countingStore counts what is asked of it, and fails while it is told to.
type countingStore struct {
	task.GateStore

	reads  atomic.Int64
	broken atomic.Bool
}

var errBroken = errors.New("broken")

func (s *countingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.reads.Add(1)
	if s.broken.Load() {
		return task.Task{}, errBroken
	}
	return s.GateStore.Get(ctx, ref)
}

func (s *countingStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	s.reads.Add(1)
	return s.GateStore.List(ctx, q)
}

// NF-001.3: an executing task costs nothing while nobody listens, and a
// listener only a look now and then.
func TestFollowIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		store := &countingStore{GateStore: o.store}
		desk := branch(t, store, func(c *approval.Config) { c.Lease = 5 * time.Hour; c.Execution = time.Hour })
		desk.rule(policy.Verdict{Action: policy.Forward})
		free := call("ann", "/a")
		free.Verdict, free.TTL = policy.Verdict{Action: policy.Forward}, time.Hour
		held := desk.hold(t, free)
		desk.Contact(t.Context(), mine(held), o.ledger.slow(30*time.Minute))
		mustState(t, o.now(t, held.ID), task.Executing)
		f := desk.follow(t, "ann", held.ID)
		f.hears(task.Executing)

		store.reads.Store(0)
		news, err := f.Next(t.Context(), 10*time.Minute)
		if err != nil || len(news) != 0 {
			t.Fatalf("Next = %v, %v; nothing has happened", news, err)
		}
		if n := store.reads.Load(); n > 25 {
			t.Errorf("%d reads in ten minutes", n)
		}
		f.Close()
		store.reads.Store(0)
		time.Sleep(10 * time.Minute)
		if n := store.reads.Load(); n != 0 {
			t.Errorf("%d reads while nobody listened", n)
		}
		pass(10 * time.Minute) // the run ends
	})
}

// A store that fails for a moment ends nothing.
func TestFollowStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		store := &countingStore{GateStore: o.store}
		desk := branch(t, store, nil)
		held := desk.hold(t, call("ann", "/a"))
		f := desk.follow(t, "ann", held.ID)
		store.broken.Store(true)
		f.hears()
		store.broken.Store(false)
		f.hears(task.InputRequired)
	})
}

// A desk that is closed, and a context that ends, end following.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		f := o.follow(t, "ann", held.ID)
		f.hears(task.InputRequired)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := f.Next(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("Next = %v; want that its context has ended", err)
		}
		time.AfterFunc(time.Second, func() { o.Close(context.Background()) })
		for {
			news, err := f.Next(t.Context(), time.Hour)
			if err != nil {
				mustBe(t, err, task.ErrClosed)
				return
			}
			if len(news) != 1 || news[0].State != task.Failed {
				t.Fatalf("Next = %v; want the end of the task with that of the desk", news)
			}
		}
	})
}
