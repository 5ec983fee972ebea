package approval_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

const rounds = 200

// together runs all functions at the same time and returns how many succeeded.
func together(all ...func() error) int {
	var wins atomic.Int64
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for _, do := range all {
		wg.Go(func() {
			<-ready
			if do() == nil {
				wins.Add(1)
			}
		})
	}
	close(ready)
	wg.Wait()
	return int(wins.Load())
}

// EC-TASK-013, F-007: decisions, cancellations and expiry race on two replicas. One of them
// wins, and the call runs only if an approval wins.
func TestDecisionRaces(t *testing.T) {
	type contender func(o *fixture, x task.Task) error
	decide := func(who approval.Approver, what approval.Decision) contender {
		return func(o *fixture, x task.Task) error {
			_, err := o.decide(context.Background(), x.ID, who, what, "")
			return err
		}
	}
	cancel := func(o *fixture, x task.Task) error {
		_, err := o.Cancel(context.Background(), mine(x), approval.Withdrawal{By: "ann"})
		return err
	}
	expire := func(o *fixture, x task.Task) error {
		_, err := lifecycle.Advance(context.Background(), o.store, mine(x), lifecycle.Expire{By: "sweep"}, x.Approval.Deadline.Add(time.Second))
		return err
	}
	races := map[string][2]contender{
		"approve, reject":  {decide(alice, approval.Approve), decide(bob, approval.Reject)},
		"approve, approve": {decide(alice, approval.Approve), decide(bob, approval.Approve)},
		"reject, reject":   {decide(alice, approval.Reject), decide(bob, approval.Reject)},
		"reject, cancel":   {decide(alice, approval.Reject), cancel},
		"reject, expire":   {decide(alice, approval.Reject), expire},
	}
	for name, pair := range races {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			other := branch(t, o.store, nil)
			for round := range rounds {
				held := o.hold(t, call("ann", fmt.Sprint(round)))
				wins := together(func() error { return pair[0](o, held) }, func() error { return pair[1](other, held) })
				if wins != 1 {
					t.Fatalf("round %d: %d winners", round, wins)
				}
				after := o.now(t, held.ID)
				if decided := len(after.Transitions); decided != 2 {
					t.Fatalf("round %d: transitions %+v", round, after.Transitions)
				}
				if !after.State.Terminal() {
					o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"})
				}
			}
		})
	}
}

// If a cancellation or the expiry races an approval, the call runs once or not at all, and the
// task says which.
func TestApproveRaces(t *testing.T) {
	for name, tt := range map[string]struct {
		end   lifecycle.Event
		after time.Duration
	}{"cancel": {lifecycle.Cancel{By: "ann"}, 0}, "expire": {lifecycle.Expire{By: "sweep"}, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			outcomes := make(map[string]task.Task)
			for round := range rounds {
				held := o.hold(t, call("ann", fmt.Sprint(round)))
				w := o.wait(t.Context(), mine(held), o.upstream.send)
				together(
					func() error {
						_, err := o.decide(t.Context(), held.ID, alice, approval.Approve, "")
						return err
					},
					func() error {
						o.views.Show(t.Context(), held.ID) // so that viewing does not delay the start
						_, err := lifecycle.Advance(t.Context(), o.store, mine(held), tt.end, time.Now().Add(tt.after))
						return err
					},
				)
				<-w.done
				if w.err != nil || !w.task.State.Terminal() {
					t.Fatalf("round %d: Wait = %s, %v", round, w.task.State, w.err)
				}
				outcomes[held.Call.Message] = w.task
			}
			if err := o.Close(t.Context()); err != nil { // waits for runs that have no waiting client
				t.Fatal(err)
			}
			ran := make(map[string]int)
			for _, sent := range o.upstream.entries() {
				ran[sent]++
			}
			for sent, x := range outcomes {
				switch n := ran[sent]; {
				case x.State == task.Completed && n == 1:
				case x.State != task.Completed && (n == 0 || n == 1 && x.Failure.Ran == task.RanUnknown):
				default:
					t.Errorf("ran %d times, but the task is %s: %+v", n, x.State, x.Failure)
				}
			}
		})
	}
}

// Contacts on two replicas race to run a call; it runs once.
func TestContactRaces(t *testing.T) {
	o := open(t, nil)
	other := branch(t, o.store, nil)
	for round := range rounds {
		held := o.hold(t, call("ann", fmt.Sprint(round)))
		o.approve(t, held.ID)
		contact := func(service *fixture) func() error {
			return func() error {
				_, err := service.Contact(t.Context(), mine(held), o.upstream.send)
				return err
			}
		}
		wait := func() error {
			_, err := o.Wait(t.Context(), mine(held), o.upstream.send)
			return err
		}
		if wins := together(contact(o), contact(other), contact(o), contact(other), wait); wins != 5 {
			t.Fatalf("round %d: %d of 5 contacts succeeded", round, wins)
		}
		if n := len(o.upstream.entries()); n != round+1 {
			t.Fatalf("round %d: ran %d times", round, n-round)
		}
	}
	for _, service := range []*fixture{o, other} {
		if err := service.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A decision and the contact that it needs may come at the same time. Either the decision finds
// the contact, or the contact finds the decision.
func TestDecisionRacesContact(t *testing.T) {
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			o := open(t, nil)
			held := o.hold(t, call("ann", fmt.Sprint(round)))
			together(
				func() error {
					_, err := o.decide(t.Context(), held.ID, alice, approval.Approve, "")
					return err
				},
				func() error {
					_, err := o.Contact(t.Context(), mine(held), o.upstream.send)
					return err
				},
			)
			synctest.Wait()
			mustState(t, o.now(t, held.ID), task.Completed)
			if n := len(o.upstream.entries()); n != 1 {
				t.Fatalf("ran %d times", n)
			}
		})
	}
}

// Approvals at the same time reach a quorum once.
func TestQuorumRaces(t *testing.T) {
	o := open(t, nil)
	for round := range rounds {
		c := call("ann", fmt.Sprint(round))
		c.Verdict.Workflow = "two"
		held := o.hold(t, c)
		vote := func(who approval.Approver) func() error {
			return func() error {
				_, err := o.decide(t.Context(), held.ID, who, approval.Approve, "")
				return err
			}
		}
		together(vote(alice), vote(bob), vote(carol), vote(alice))
		after := o.now(t, held.ID)
		mustState(t, after, task.Approved)
		if n := len(after.Approval.Approvals); n != 2 || after.Approval.Approvals[0].By == after.Approval.Approvals[1].By {
			t.Fatalf("round %d: approved by %+v", round, after.Approval.Approvals)
		}
		o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"})
	}
}

// 10,000 pending tasks with 1,000 waiters: each decision wakes its own waiter.
func TestManyPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		stop := o.runHousekeeping(t)
		defer stop()
		const pending, waiting = 10_000, 1_000
		ids := make([]task.Task, pending)
		for i := range ids {
			ids[i] = o.hold(t, call(fmt.Sprint("owner", i%100), fmt.Sprint(i)))
		}
		waiters := make([]*waiter, waiting)
		for i := range waiters {
			waiters[i] = o.wait(t.Context(), mine(ids[i]), o.upstream.send)
		}
		pass(6 * time.Second)
		for i := range waiting {
			what := approval.Approve
			if i%2 == 1 {
				what = approval.Reject
			}
			if _, err := o.decide(t.Context(), ids[i].ID, alice, what, ""); err != nil {
				t.Fatal(err)
			}
		}
		for i, w := range waiters {
			<-w.done
			want := task.Completed
			if i%2 == 1 {
				want = task.Rejected
			}
			if w.err != nil || w.task.State != want {
				t.Fatalf("waiter %d: %s, %v; want %s", i, w.task.State, w.err, want)
			}
		}
		if n := len(o.upstream.entries()); n != waiting/2 {
			t.Errorf("ran %d times; want %d", n, waiting/2)
		}
	})
}

// If policy changes to deny while another replica claims the call, a run that has begun does
// not end. Otherwise a running call would be reported as not run.
func TestRefusalRacesClaim(t *testing.T) {
	o := open(t, nil)
	x := o.hold(t, call("ann", "/a"))
	o.approve(t, x.ID)
	o.mu.Lock()
	o.policy = func(policy.Call) policy.Verdict {
		claim := lifecycle.Claim{By: "another replica", LeaseUntil: time.Now().Add(time.Minute)}
		if _, err := lifecycle.Advance(t.Context(), o.store, mine(x), claim, time.Now()); err != nil {
			t.Error(err)
		}
		return policy.Verdict{Action: policy.Deny}
	}
	o.mu.Unlock()
	got, err := o.Contact(t.Context(), mine(x), o.upstream.send)
	if err != nil {
		t.Fatal(err)
	}
	mustState(t, got, task.Executing)
	if ran := o.upstream.entries(); len(ran) > 0 || o.count(approval.NotRun) > 0 {
		t.Errorf("ran %q here, %d times reported as not run", ran, o.count(approval.NotRun))
	}
}
