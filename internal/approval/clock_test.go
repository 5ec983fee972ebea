package approval_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A wall is a clock that can be set.
type wall struct{ by atomic.Int64 }

func (w *wall) set(by time.Duration) { w.by.Add(int64(by)) }

// now returns a time without a monotonic reading, like a time from another process.
func (w *wall) now() time.Time { return time.Now().Round(0).Add(time.Duration(w.by.Load())) }

// ordered fails the test if the transitions of a task are not in chronological order.
func ordered(t *testing.T, of task.Task) {
	t.Helper()
	last := of.CreatedAt
	for _, x := range of.Transitions {
		if x.At.Before(last) {
			t.Errorf("%s to %s at %v, before %v", x.From, x.To, x.At, last)
		}
		last = x.At
	}
}

// An approved call runs although the clock was set back by an hour after the decision, whether
// the same gate runs it or one that starts later.
func TestCallRunsAfterClockSetBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var clock wall
			with := func(c *approval.Config) { c.Now = clock.now }
			o := open(t, with)
			held := o.hold(t, call("ann", "/a"))
			o.approve(t, held.ID)
			clock.set(-time.Hour)
			if restart {
				o = branch(t, o.store, with)
			}
			w := o.wait(t.Context(), mine(held), o.upstream.slow(2*time.Minute/3))
			<-w.done
			if w.err != nil {
				t.Fatal(w.err)
			}
			mustState(t, w.task, task.Completed)
			ordered(t, w.task)
			if n := len(o.upstream.entries()); n != 1 {
				t.Errorf("the call ran %d times", n)
			}
		})
	}
}

// A replica whose clock is an hour behind keeps its lease while it runs a call for minutes. The
// other replicas see that it is alive.
func TestReplicaWithClockBehindKeepsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var behind wall
		behind.set(-time.Hour)
		right := open(t, nil)
		slow := branch(t, right.store, func(c *approval.Config) {
			c.Now, c.Execution = behind.now, 10*time.Minute
		})
		defer right.runHousekeeping(t)()
		held := right.hold(t, call("ann", "/a"))
		right.approve(t, held.ID)
		w := slow.wait(t.Context(), mine(held), slow.upstream.slow(5*time.Minute))
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)
		ordered(t, w.task)
	})
}

// When the clock is set forward, a gate does not consider its own run dead.
func TestClockSetForwardKeepsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wall
		o := open(t, func(c *approval.Config) { c.Now = clock.now })
		defer o.runHousekeeping(t)()
		held := o.hold(t, call("ann", "/a"))
		o.approve(t, held.ID)
		w := o.wait(t.Context(), mine(held), o.upstream.slow(40*time.Second))
		pass(11 * time.Second)
		clock.set(2 * time.Minute)
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)
	})
}

// A deadline holds although the clock was set back meanwhile. Approvers get at most twice the
// time.
func TestDeadlineHoldsAfterClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		by := new(wall)
		o = branch(t, o.store, func(c *approval.Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(by.by.Load())) } // with a monotonic reading
		})
		defer o.runHousekeeping(t)()
		held := o.hold(t, call("ann", "/a"))
		pass(time.Second)
		by.set(-24 * time.Hour)
		pass(31 * time.Minute) // the workflow gives 15
		mustState(t, o.now(t, held.ID), task.Expired)
	})
}
