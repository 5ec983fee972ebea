package approval_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// EC-TASK-005: a request waits, for hours if it must, and the call runs the
// moment it is approved.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.setWorkflow("ops", approval.Workflow{Timeout: 5 * time.Hour})
		held := o.hold(t, call("ann", "/a"))
		w := o.wait(t.Context(), mine(held), o.ledger.send)
		pass(4 * time.Hour)
		elsewhere := branch(t, o.store, nil)
		elsewhere.approve(t, held.ID)
		decided := time.Now()
		<-w.done
		if late := time.Since(decided); late > 0 {
			t.Errorf("woken %s after the decision", late)
		}
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)
		if elsewhere.count(approval.Abandoned) != 0 {
			t.Error("told as abandoned although its owner waited")
		}
	})
}

func TestWaitEnds(t *testing.T) {
	tests := map[string]struct {
		end   func(*testing.T, *office, task.Task)
		state task.State
	}{
		"rejected": {func(t *testing.T, o *office, x task.Task) { o.decide(t.Context(), x.ID, alice, approval.Reject, "") }, task.Rejected},
		"cancelled": {func(t *testing.T, o *office, x task.Task) {
			o.Cancel(t.Context(), mine(x), approval.Withdrawal{By: "ann"})
		}, task.Cancelled},
		"drift": {func(t *testing.T, o *office, x task.Task) {
			o.rule(policy.Verdict{Action: policy.Deny})
			o.approve(t, x.ID)
		}, task.Failed},
		// EC-TASK-012, without any housekeeping.
		"expired": {func(*testing.T, *office, task.Task) { time.Sleep(15*time.Minute + time.Second) }, task.Expired},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				held := o.hold(t, call("ann", "/a"))
				w := o.wait(t.Context(), mine(held), o.ledger.send)
				synctest.Wait()
				tt.end(t, o, held)
				ended := time.Now()
				<-w.done
				if late := time.Since(ended); late > 0 {
					t.Errorf("woken %s after the end", late)
				}
				if w.err != nil {
					t.Fatal(w.err)
				}
				mustState(t, w.task, tt.state)
				if runs := o.ledger.entries(); len(runs) != 0 {
					t.Errorf("ran %v", runs)
				}
				again, err := o.Wait(t.Context(), mine(held), o.ledger.send)
				if err != nil || again.State != tt.state {
					t.Errorf("waiting again = %s, %v", again.State, err)
				}
			})
		})
	}
}

// CORE-003 5.4: a client that is gone before the approval comes gets nothing
// run, which is counted once; one that comes back has it run.
func TestWaiterGone(t *testing.T) {
	for name, comesBack := range map[string]bool{"for good": false, "and back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				stop := o.runHousekeeping(t)
				defer stop()
				held := o.hold(t, call("ann", "/a"))
				ctx, disconnect := context.WithCancel(t.Context())
				w := o.wait(ctx, mine(held), o.ledger.send)
				pass(time.Minute)
				disconnect()
				<-w.done
				mustBe(t, w.err, task.ErrNotReady)
				mustBe(t, w.err, context.Canceled)
				pass(time.Second)
				branch(t, o.store, func(c *approval.Config) { c.Observe = o.config.Observe }).approve(t, held.ID) // elsewhere
				pass(time.Minute)
				mustState(t, o.now(t, held.ID), task.Approved)
				if n := o.count(approval.Abandoned); n != 1 || len(o.ledger.entries()) != 0 {
					t.Fatalf("abandoned %d times, ran %v; want once and not run", n, o.ledger.entries())
				}
				if comesBack {
					got, attached, err := o.Hold(t.Context(), call("ann", "/a"))
					if err != nil || !attached {
						t.Fatal(attached, err)
					}
					if got, err = o.Wait(t.Context(), mine(got), o.ledger.send); err != nil {
						t.Fatal(err)
					}
					mustState(t, got, task.Completed)
					return
				}
				pass(time.Hour)
				after := o.now(t, held.ID)
				mustState(t, after, task.Expired)
				if after.Failure.Stage != task.StageUncollected {
					t.Errorf("stage = %s", after.Failure.Stage)
				}
				if n := o.count(approval.Abandoned); n != 1 {
					t.Errorf("abandoned %d times; want once", n)
				}
			})
		})
	}
}

// A client that polls and vanishes before its presence is used counts as
// abandoned when nobody has come for the call.
func TestPollerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		stop := o.runHousekeeping(t)
		defer stop()
		held := o.hold(t, call("ann", "/a"))
		o.Contact(t.Context(), mine(held), nil) // the replica with its credentials died
		o.approve(t, held.ID)
		if o.count(approval.Abandoned) != 0 {
			t.Error("told as abandoned although its owner may come back")
		}
		pass(time.Hour)
		if o.count(approval.Abandoned) != 1 || o.now(t, held.ID).State != task.Expired {
			t.Errorf("abandoned %d times, %s", o.count(approval.Abandoned), o.now(t, held.ID).State)
		}
	})
}

// When a wait ends at its deadline the client is told to come back, so it
// counts as there for a while.
func TestWaitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Second)
		defer stop()
		w := o.wait(ctx, mine(held), o.ledger.send)
		<-w.done
		mustBe(t, w.err, task.ErrNotReady)
		mustBe(t, w.err, context.DeadlineExceeded)
		mustState(t, w.task, task.InputRequired)
		pass(5 * time.Second)
		o.approve(t, held.ID)
		synctest.Wait()
		if o.count(approval.Abandoned) != 0 || len(o.ledger.entries()) != 0 {
			t.Errorf("abandoned %d, ran %v; want neither", o.count(approval.Abandoned), o.ledger.entries())
		}
	})
}

// A decision starts the call of an owner that asked within the last two poll
// intervals, on whichever replica it asked.
func TestRecentContact(t *testing.T) {
	tests := map[string]struct {
		after     time.Duration
		elsewhere bool
		runs      bool
	}{
		"a moment ago":             {40 * time.Second, false, true},
		"a moment ago, elsewhere":  {40 * time.Second, true, true},
		"too long ago":             {61 * time.Second, false, false},
		"too long ago, elsewhere":  {61 * time.Second, true, false},
		"at the very last moment":  {60 * time.Second, false, true},
		"just as it was contacted": {0, true, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				stop := o.runHousekeeping(t)
				defer stop()
				c := call("ann", "/a")
				c.TTL = time.Hour
				held := o.hold(t, c)
				if _, err := o.Contact(t.Context(), mine(held), o.ledger.send); err != nil {
					t.Fatal(err)
				}
				pass(tt.after)
				decider := o
				if tt.elsewhere {
					decider = branch(t, o.store, func(c *approval.Config) { c.Observe = o.config.Observe })
				}
				decider.approve(t, held.ID)
				pass(time.Second)
				if ran := len(o.ledger.entries()) == 1; ran != tt.runs {
					t.Errorf("ran: %t; want %t", ran, tt.runs)
				}
				if n := o.count(approval.Abandoned); (n == 1) == tt.runs {
					t.Errorf("abandoned %d times", n)
				}
			})
		})
	}
}

// Contact tells how often to ask, and a poller that asks more often than it was
// told does not make the store write each time.
func TestContactIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		c := call("ann", "/a")
		c.TTL = time.Hour
		held := o.hold(t, c)
		before := o.now(t, held.ID).Version
		for range 60 {
			got, err := o.Contact(t.Context(), mine(held), o.ledger.send)
			if err != nil || got.PollInterval != 30*time.Second {
				t.Fatal(got.PollInterval, err)
			}
			pass(time.Second)
		}
		after := o.now(t, held.ID)
		if writes := after.Version - before; writes > 8 || !after.InContact(time.Now()) {
			t.Errorf("%d writes, in contact %t", writes, after.InContact(time.Now()))
		}
	})
}

// An owner that waits stays present in the store, for no more than a write every
// four seconds however often pollers are told to ask, and is gone at once when it
// leaves.
func TestWaitIsCheap(t *testing.T) {
	for interval, most := range map[time.Duration]int64{30 * time.Second: 20, 2 * time.Second: 76} {
		synctest.Test(t, func(t *testing.T) {
			o := open(t, func(c *approval.Config) { c.Polling = task.Polling{Max: interval} })
			c := call("ann", "/a")
			c.TTL = time.Hour
			held := o.hold(t, c)
			before := o.now(t, held.ID).Version
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); o.Wait(ctx, mine(held), o.ledger.send) }()
			for range 5 * 60 {
				pass(time.Second)
				if now := o.now(t, held.ID); now.Presence(time.Now()) != task.OwnerWaits {
					t.Fatalf("%s after %v", now.Presence(time.Now()), time.Since(held.CreatedAt))
				}
			}
			writes := o.now(t, held.ID).Version - before
			if writes > most {
				t.Errorf("%d writes in 5 minutes; want at most %d", writes, most)
			}
			leave()
			<-done
			pass(time.Second)
			if now := o.now(t, held.ID); now.Presence(time.Now()) != task.OwnerGone {
				t.Errorf("%s after it left", now.Presence(time.Now()))
			}
			o.Contact(t.Context(), mine(held), o.ledger.send)
			if now := o.now(t, held.ID); now.Presence(time.Now()) != task.OwnerPolls {
				t.Errorf("%s after it asked", now.Presence(time.Now()))
			}
		})
	}
}

// A client that goes before its wait has begun is gone, unless another one waits.
func TestGoneBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		gone, leave := context.WithCancel(t.Context())
		leave()
		waits := func() {
			if _, err := o.Wait(gone, mine(held), o.ledger.send); !errors.Is(err, task.ErrNotReady) {
				t.Errorf("waiting: %v; want ErrNotReady", err)
			}
			pass(time.Second)
		}
		waits()
		if now := o.now(t, held.ID).Presence(time.Now()); now != task.OwnerGone {
			t.Errorf("the owner is %s; want it gone", now)
		}
		go o.Wait(t.Context(), mine(held), o.ledger.send)
		pass(time.Second)
		waits()
		if now := o.now(t, held.ID).Presence(time.Now()); now != task.OwnerWaits {
			t.Errorf("the owner is %s; want it waiting", now)
		}
	})
}

// Contact with a task that has ended, or runs, only looks.
func TestContactAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		o.Contact(t.Context(), mine(held), o.ledger.slow(10*time.Second))
		pass(time.Second)
		for _, want := range []task.State{task.Executing, task.Completed} {
			before := o.now(t, held.ID)
			got, err := o.Contact(t.Context(), mine(held), o.ledger.send)
			if err != nil {
				t.Fatal(err)
			}
			mustState(t, got, want)
			if diff := cmp.Diff(before, o.now(t, held.ID)); diff != "" {
				t.Error(diff)
			}
			pass(10 * time.Second)
		}
		if n := len(o.ledger.entries()); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
}

// Two requests that wait for the same task share one execution and its result.
func TestWaitersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		other := branch(t, o.store, nil)
		other.ledger = o.ledger
		held := o.hold(t, call("ann", "/a"))
		var waiters []*waiter
		for range 5 {
			waiters = append(waiters, o.wait(t.Context(), mine(held), o.ledger.send), other.wait(t.Context(), mine(held), o.ledger.send))
		}
		synctest.Wait()
		o.approve(t, held.ID)
		for _, w := range waiters {
			<-w.done
			if w.err != nil || w.task.State != task.Completed {
				t.Errorf("Wait = %s, %v", w.task.State, w.err)
			}
		}
		if n := len(o.ledger.entries()); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
}

// A caller whose deadline has passed still gets the state of the task. If the task
// is approved, that contact starts it.
func TestWaitWithoutTime(t *testing.T) {
	o := open(t, nil)
	held := o.hold(t, call("ann", "/a"))
	look := func() task.Task {
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		got, err := o.Wait(ctx, mine(held), o.ledger.send)
		mustBe(t, err, task.ErrNotReady)
		return got
	}
	if got := look(); got.ID != held.ID || got.State != task.InputRequired {
		t.Errorf("got %s %s; want the pending task", got.ID, got.State)
	}
	if _, err := o.decide(t.Context(), held.ID, alice, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	got := look()
	defer o.Close(context.WithoutCancel(t.Context()))
	if got.State != task.Executing {
		t.Errorf("after the approval it is %s; want it started", got.State)
	}
}

// A caller that leaves before the wait begins gets the same answer as one that
// leaves later.
func TestWaitOfOneWhoLeft(t *testing.T) {
	o := open(t, nil)
	held := o.hold(t, call("ann", "/a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.Wait(ctx, mine(held), nil)
	mustBe(t, err, task.ErrNotReady)
	mustBe(t, err, context.Canceled)
}
