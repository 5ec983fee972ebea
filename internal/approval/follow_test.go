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
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A follower follows tasks until its test ends.
type follower struct {
	*approval.Follower

	t *testing.T
}

func (o *fixture) follow(t *testing.T, owner string, ids ...task.ID) follower {
	t.Helper()
	f, err := o.Follow(t.Context(), owner, ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return follower{f, t}
}

func (o *fixture) followAll(t *testing.T, owner string) follower {
	t.Helper()
	f, err := o.FollowAll(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return follower{f, t}
}

// expects fails the test unless the follower reports exactly these states within a second.
func (f follower) expects(want ...task.State) {
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
		f.t.Fatalf("states (-want +got):\n%s", diff)
	}
}

// F-012: every step is reported once and in order, on any replica, even if several steps
// happened between two checks.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		other := branch(t, o.store, nil)
		held := o.hold(t, call("ann", "/a"))
		o.hold(t, call("bea", "/b"))
		f := o.follow(t, "ann", held.ID)
		all := other.followAll(t, "ann")
		stranger := o.follow(t, "bea", held.ID)

		f.expects(task.InputRequired)
		all.expects() // nothing has happened since
		stranger.expects()
		other.approve(t, held.ID)
		f.expects(task.Approved)
		w := o.wait(t.Context(), mine(held), o.upstream.slow(time.Minute))
		f.expects(task.Executing)
		<-w.done
		f.expects(task.Completed)
		f.expects()
		all.expects(task.Approved, task.Executing, task.Completed)
		all.expects()
		if open := f.Unfinished(); len(open) != 0 {
			t.Errorf("Open = %v; the task has ended", open)
		}

		next := other.hold(t, call("ann", "/new"))
		other.Cancel(t.Context(), mine(next), approval.Withdrawal{By: "ann"})
		all.expects(task.InputRequired, task.Cancelled)
	})
}

// A report of an earlier step has the state after that step.
func TestFollowReportsEarlierStates(t *testing.T) {
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
			t.Errorf("first report = %+v; want the task before the decision", first)
		}
		if last.State != task.Rejected || last.Approval.Rejection == nil || last.Failure == nil {
			t.Errorf("last report = %+v; want the rejected task", last)
		}
	})
}

// A client that reconnects gets the steps that it missed, and no others.
func TestFollowSkipsKnownSteps(t *testing.T) {
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
			f.SkipSteps(held.ID, steps)
			f.expects(want...)
		}
	})
}

// An expired task is reported at its deadline, without housekeeping.
func TestFollowExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		f, all := o.follow(t, "ann", held.ID), o.followAll(t, "ann")
		f.expects(task.InputRequired)
		for _, one := range []follower{f, all} {
			news, err := one.Next(t.Context(), time.Hour)
			if err != nil || len(news) != 1 || news[0].State != task.Expired {
				t.Fatalf("Next = %v, %v; want the expired task", news, err)
			}
			if late := time.Since(news[0].Approval.Deadline); late > time.Second {
				t.Errorf("reported %s after the deadline", late)
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
		f.expects(task.InputRequired, task.InputRequired)
		o.approve(t, b.ID)
		f.expects(task.Approved)
		o.Cancel(t.Context(), mine(a), approval.Withdrawal{By: "ann"})
		f.expects(task.Cancelled)
		if diff := cmp.Diff([]task.ID{b.ID}, f.Unfinished()); diff != "" {
			t.Errorf("open (-want +got):\n%s", diff)
		}
	})
}

// A countingStore counts its reads, and fails on request.
type countingStore struct {
	gatestore.Store

	reads  atomic.Int64
	broken atomic.Bool
}

var errBroken = errors.New("broken")

func (s *countingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.reads.Add(1)
	if s.broken.Load() {
		return task.Task{}, errBroken
	}
	return s.Store.Get(ctx, ref)
}

func (s *countingStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	s.reads.Add(1)
	return s.Store.List(ctx, q)
}

// NF-001.3: a running task that is not followed causes no reads, and a follower reads only
// occasionally.
func TestFollowersRarelyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		store := &countingStore{Store: o.store}
		service := branch(t, store, func(c *approval.Config) { c.Lease = 5 * time.Hour; c.Execution = time.Hour })
		service.rule(policy.Verdict{Action: policy.Forward})
		free := call("ann", "/a")
		free.Verdict, free.TTL = policy.Verdict{Action: policy.Forward}, time.Hour
		held := service.hold(t, free)
		service.Contact(t.Context(), mine(held), o.upstream.slow(30*time.Minute))
		mustState(t, o.now(t, held.ID), task.Executing)
		f := service.follow(t, "ann", held.ID)
		f.expects(task.Executing)

		store.reads.Store(0)
		news, err := f.Next(t.Context(), 10*time.Minute)
		if err != nil || len(news) != 0 {
			t.Fatalf("Next = %v, %v; want no steps", news, err)
		}
		if n := store.reads.Load(); n > 25 {
			t.Errorf("%d reads in ten minutes", n)
		}
		f.Close()
		store.reads.Store(0)
		time.Sleep(10 * time.Minute)
		if n := store.reads.Load(); n != 0 {
			t.Errorf("%d reads without a follower", n)
		}
		pass(10 * time.Minute) // the run ends
	})
}

// Following survives a store that fails for a moment.
func TestFollowStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		store := &countingStore{Store: o.store}
		service := branch(t, store, nil)
		held := service.hold(t, call("ann", "/a"))
		f := service.follow(t, "ann", held.ID)
		store.broken.Store(true)
		f.expects()
		store.broken.Store(false)
		f.expects(task.InputRequired)
	})
}

// Closing the service, or ending the context, ends following.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		f := o.follow(t, "ann", held.ID)
		f.expects(task.InputRequired)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := f.Next(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("Next = %v; want the error of the context", err)
		}
		time.AfterFunc(time.Second, func() { o.Close(context.Background()) })
		for {
			news, err := f.Next(t.Context(), time.Hour)
			if err != nil {
				mustBe(t, err, task.ErrClosed)
				return
			}
			if len(news) != 1 || news[0].State != task.Failed {
				t.Fatalf("Next = %v; want the end of the task when the service closes", news)
			}
		}
	})
}
