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
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// EC-TASK-005: a request waits for hours if necessary, and the call runs at the moment of its
// approval.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.setWorkflow("ops", approval.Workflow{Timeout: 5 * time.Hour})
		held := o.hold(t, call("ann", "/a"))
		w := o.wait(t.Context(), mine(held), o.upstream.send)
		pass(4 * time.Hour)
		other := branch(t, o.store, nil)
		other.approve(t, held.ID)
		decided := time.Now()
		<-w.done
		if late := time.Since(decided); late > 0 {
			t.Errorf("woken %s after the decision", late)
		}
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)
		if other.count(approval.OwnerAbsent) != 0 {
			t.Error("reported as absent although the owner waited")
		}
	})
}

// A wait ends as soon as the task ends, whatever ends it.
func TestWaitEnds(t *testing.T) {
	tests := map[string]struct {
		end   func(*testing.T, *fixture, task.Task)
		state task.State
	}{
		"rejected": {func(t *testing.T, o *fixture, x task.Task) { o.decide(t.Context(), x.ID, alice, approval.Reject, "") }, task.Rejected},
		"cancelled": {func(t *testing.T, o *fixture, x task.Task) {
			o.Cancel(t.Context(), mine(x), approval.Withdrawal{By: "ann"})
		}, task.Cancelled},
		"drift": {func(t *testing.T, o *fixture, x task.Task) {
			o.rule(policy.Verdict{Action: policy.Deny})
			o.approve(t, x.ID)
		}, task.Failed},
		// EC-TASK-012, without housekeeping.
		"expired": {func(*testing.T, *fixture, task.Task) { time.Sleep(15*time.Minute + time.Second) }, task.Expired},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				held := o.hold(t, call("ann", "/a"))
				w := o.wait(t.Context(), mine(held), o.upstream.send)
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
				if runs := o.upstream.entries(); len(runs) != 0 {
					t.Errorf("ran %v", runs)
				}
				again, err := o.Wait(t.Context(), mine(held), o.upstream.send)
				if err != nil || again.State != tt.state {
					t.Errorf("waiting again = %s, %v", again.State, err)
				}
			})
		})
	}
}

// CORE-003 5.4: if the client has disconnected before the approval, the call does not run,
// which is counted once. If the client comes back, the call runs.
func TestAbsentOwnerRunsNothing(t *testing.T) {
	for name, comesBack := range map[string]bool{"for good": false, "and back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				stop := o.runHousekeeping(t)
				defer stop()
				held := o.hold(t, call("ann", "/a"))
				ctx, disconnect := context.WithCancel(t.Context())
				w := o.wait(ctx, mine(held), o.upstream.send)
				pass(time.Minute)
				disconnect()
				<-w.done
				mustBe(t, w.err, task.ErrNotReady)
				mustBe(t, w.err, context.Canceled)
				pass(time.Second)
				branch(t, o.store, func(c *approval.Config) { c.Observe = o.config.Observe }).approve(t, held.ID) // on another replica
				pass(time.Minute)
				mustState(t, o.now(t, held.ID), task.Approved)
				if n := o.count(approval.OwnerAbsent); n != 1 || len(o.upstream.entries()) != 0 {
					t.Fatalf("absence reported %d times, ran %v; want one report and no run", n, o.upstream.entries())
				}
				if comesBack {
					got, attached, err := o.Hold(t.Context(), call("ann", "/a"))
					if err != nil || !attached {
						t.Fatal(attached, err)
					}
					if got, err = o.Wait(t.Context(), mine(got), o.upstream.send); err != nil {
						t.Fatal(err)
					}
					mustState(t, got, task.Completed)
					return
				}
				pass(time.Hour)
				after := o.now(t, held.ID)
				mustState(t, after, task.Expired)
				if after.Failure.Stage != lifecycle.StageUncollected {
					t.Errorf("stage = %s", after.Failure.Stage)
				}
				if n := o.count(approval.OwnerAbsent); n != 1 {
					t.Errorf("absence reported %d times; want once", n)
				}
			})
		})
	}
}

// If a client has polled and then disappeared, its owner is reported as absent when the approved
// task expires.
func TestAbsentPollerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		stop := o.runHousekeeping(t)
		defer stop()
		held := o.hold(t, call("ann", "/a"))
		o.Contact(t.Context(), mine(held), nil) // the replica with its credentials died
		o.approve(t, held.ID)
		if o.count(approval.OwnerAbsent) != 0 {
			t.Error("reported as absent although the owner may come back")
		}
		pass(time.Hour)
		if o.count(approval.OwnerAbsent) != 1 || o.now(t, held.ID).State != task.Expired {
			t.Errorf("absence reported %d times, %s", o.count(approval.OwnerAbsent), o.now(t, held.ID).State)
		}
	})
}

// When a wait ends at its deadline, the client is asked to come back. So it counts as present
// for a while.
func TestWaitingOwnerStaysPresentAfterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Second)
		defer stop()
		w := o.wait(ctx, mine(held), o.upstream.send)
		<-w.done
		mustBe(t, w.err, task.ErrNotReady)
		mustBe(t, w.err, context.DeadlineExceeded)
		mustState(t, w.task, task.InputRequired)
		pass(5 * time.Second)
		o.approve(t, held.ID)
		synctest.Wait()
		if o.count(approval.OwnerAbsent) != 0 || len(o.upstream.entries()) != 0 {
			t.Errorf("absence reported %d times, ran %v; want neither", o.count(approval.OwnerAbsent), o.upstream.entries())
		}
	})
}

// A decision starts the call of an owner that polled within the last two poll intervals, on any
// replica.
func TestRecentPollerStartsCall(t *testing.T) {
	tests := map[string]struct {
		after        time.Duration
		otherReplica bool
		runs         bool
	}{
		"recent":                              {40 * time.Second, false, true},
		"recent, on another replica":          {40 * time.Second, true, true},
		"too old":                             {61 * time.Second, false, false},
		"too old, on another replica":         {61 * time.Second, true, false},
		"at the limit":                        {60 * time.Second, false, true},
		"at the decision, on another replica": {0, true, true},
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
				if _, err := o.Contact(t.Context(), mine(held), o.upstream.send); err != nil {
					t.Fatal(err)
				}
				pass(tt.after)
				decider := o
				if tt.otherReplica {
					decider = branch(t, o.store, func(c *approval.Config) { c.Observe = o.config.Observe })
				}
				decider.approve(t, held.ID)
				pass(time.Second)
				if ran := len(o.upstream.entries()) == 1; ran != tt.runs {
					t.Errorf("ran: %t; want %t", ran, tt.runs)
				}
				if n := o.count(approval.OwnerAbsent); (n == 1) == tt.runs {
					t.Errorf("absence reported %d times", n)
				}
			})
		})
	}
}

// Contact returns the poll interval. A client that polls more often does not cause a write each
// time.
func TestPollsRarelyWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		c := call("ann", "/a")
		c.TTL = time.Hour
		held := o.hold(t, c)
		before := o.now(t, held.ID).Version
		for range 60 {
			got, err := o.Contact(t.Context(), mine(held), o.upstream.send)
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

// An owner that waits stays present in the store, with at most one write every four seconds
// whatever the poll interval is. It is absent as soon as it leaves.
func TestWaitsRarelyWrite(t *testing.T) {
	for interval, most := range map[time.Duration]int64{30 * time.Second: 20, 2 * time.Second: 76} {
		synctest.Test(t, func(t *testing.T) {
			o := open(t, func(c *approval.Config) { c.Polling = task.Polling{Max: interval} })
			c := call("ann", "/a")
			c.TTL = time.Hour
			held := o.hold(t, c)
			before := o.now(t, held.ID).Version
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); o.Wait(ctx, mine(held), o.upstream.send) }()
			for range 5 * 60 {
				pass(time.Second)
				if now := o.now(t, held.ID); now.Presence(time.Now()) != gatetask.OwnerWaits {
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
			if now := o.now(t, held.ID); now.Presence(time.Now()) != gatetask.OwnerGone {
				t.Errorf("presence %s after the wait", now.Presence(time.Now()))
			}
			o.Contact(t.Context(), mine(held), o.upstream.send)
			if now := o.now(t, held.ID); now.Presence(time.Now()) != gatetask.OwnerPolls {
				t.Errorf("presence %s after the poll", now.Presence(time.Now()))
			}
		})
	}
}

// A client that disconnects before its wait has begun is absent, unless another client waits.
func TestClientLeavesBeforeWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		held := o.hold(t, call("ann", "/a"))
		gone, leave := context.WithCancel(t.Context())
		leave()
		waits := func() {
			if _, err := o.Wait(gone, mine(held), o.upstream.send); !errors.Is(err, task.ErrNotReady) {
				t.Errorf("waiting: %v; want ErrNotReady", err)
			}
			pass(time.Second)
		}
		waits()
		if now := o.now(t, held.ID).Presence(time.Now()); now != gatetask.OwnerGone {
			t.Errorf("presence %s; want gone", now)
		}
		go o.Wait(t.Context(), mine(held), o.upstream.send)
		pass(time.Second)
		waits()
		if now := o.now(t, held.ID).Presence(time.Now()); now != gatetask.OwnerWaits {
			t.Errorf("presence %s; want waiting", now)
		}
	})
}

// Contact with an ended or running task only reads it.
func TestContactWithEndedTaskOnlyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		o.Contact(t.Context(), mine(held), o.upstream.slow(10*time.Second))
		pass(time.Second)
		for _, want := range []task.State{task.Executing, task.Completed} {
			before := o.now(t, held.ID)
			got, err := o.Contact(t.Context(), mine(held), o.upstream.send)
			if err != nil {
				t.Fatal(err)
			}
			mustState(t, got, want)
			if diff := cmp.Diff(before, o.now(t, held.ID)); diff != "" {
				t.Error(diff)
			}
			pass(10 * time.Second)
		}
		if n := len(o.upstream.entries()); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
}

// Two requests that wait for the same task share one run and its result.
func TestWaitersShareOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		other := branch(t, o.store, nil)
		other.upstream = o.upstream
		held := o.hold(t, call("ann", "/a"))
		var waiters []*waiter
		for range 5 {
			waiters = append(waiters, o.wait(t.Context(), mine(held), o.upstream.send), other.wait(t.Context(), mine(held), o.upstream.send))
		}
		synctest.Wait()
		o.approve(t, held.ID)
		for _, w := range waiters {
			<-w.done
			if w.err != nil || w.task.State != task.Completed {
				t.Errorf("Wait = %s, %v", w.task.State, w.err)
			}
		}
		if n := len(o.upstream.entries()); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
}

// A caller whose deadline has passed still gets the state of the task. If the task is approved,
// this contact starts it.
func TestWaitPastDeadline(t *testing.T) {
	o := open(t, nil)
	held := o.hold(t, call("ann", "/a"))
	look := func() task.Task {
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		got, err := o.Wait(ctx, mine(held), o.upstream.send)
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
		t.Errorf("state %s after the approval; want a started task", got.State)
	}
}

// A caller that disconnects before the wait begins gets the same answer as one that disconnects
// later.
func TestWaitAfterDisconnect(t *testing.T) {
	o := open(t, nil)
	held := o.hold(t, call("ann", "/a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.Wait(ctx, mine(held), nil)
	mustBe(t, err, task.ErrNotReady)
	mustBe(t, err, context.Canceled)
}

// A client may wait for its task at another replica before the first one notices that the
// connection is gone. The task is withdrawn only when its client waits nowhere.
func TestWithdrawOnlyIfAwaitedNowhere(t *testing.T) {
	for name, behind := range map[string]time.Duration{"clocks agree": 0, "the clock of the other replica is behind": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var clock wall
				clock.set(-behind)
				first := open(t, nil)
				other := branch(t, first.store, func(c *approval.Config) { c.Now = clock.now })
				held := first.hold(t, call("ann", "/a"))
				closed := func(o *fixture, leave func(), w *waiter) {
					leave()
					<-w.done
					o.Withdraw(t.Context(), mine(held), approval.Withdrawal{By: held.Owner, Reason: "the client closed its request"})
					pass(time.Minute)
				}
				here, leaveHere := context.WithCancel(t.Context())
				there, leaveThere := context.WithCancel(t.Context())
				atFirst := first.wait(here, mine(held), first.upstream.slow(0))
				pass(time.Second)
				atOther := other.wait(there, mine(held), other.upstream.slow(0))
				pass(time.Second)
				closed(first, leaveHere, atFirst)
				mustState(t, first.now(t, held.ID), task.InputRequired)
				closed(other, leaveThere, atOther)
				mustState(t, first.now(t, held.ID), task.Cancelled)
			})
		})
	}
}
