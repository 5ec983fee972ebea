package approval_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A stoppable is an upstream that accepts cancellations, unless failing is set.
type stoppable struct {
	*remote

	mu      sync.Mutex
	failing error
	told    []time.Time
}

func (s *stoppable) Cancel(ctx context.Context, t task.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, time.Now())
	if s.failing != nil {
		return s.failing
	}
	return s.remote.Cancel(ctx, t)
}

func (s *stoppable) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.told)
}

// cancelAndDie cancels a task on a gate that dies right afterwards.
func cancelAndDie(t *testing.T, o *fixture, held task.Task) {
	t.Helper()
	updater := lifecycle.Updater{Store: o.store}
	if _, err := updater.Advance(t.Context(), mine(held), lifecycle.Cancel{By: "ann"}, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// GOV-004 F-007: an acknowledged cancellation reaches the upstream once, from any replica,
// although the gate died before it could send it.
func TestOwedCancellation(t *testing.T) {
	for name, run := range map[string]func(*testing.T, *fixture, task.Task){
		"task of the upstream": func(t *testing.T, o *fixture, held task.Task) {
			note := lifecycle.Progress{By: "dead", UpstreamTask: "u1", Release: true}
			if _, err := lifecycle.Advance(t.Context(), o.store, mine(held), note, time.Now()); err != nil {
				t.Fatal(err)
			}
		},
		"running call": func(*testing.T, *fixture, task.Task) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &stoppable{remote: newRemote()}
				o := open(t, nil)
				held := o.hold(t, call("ann", "/a"))
				o.approve(t, held.ID)
				claim := lifecycle.Claim{By: "dead", LeaseUntil: time.Now().Add(30 * time.Second)}
				if _, err := lifecycle.Advance(t.Context(), o.store, mine(held), claim, time.Now()); err != nil {
					t.Fatal(err)
				}
				run(t, o, held)
				cancelAndDie(t, o, held)
				if !o.now(t, held.ID).OwesCancellation() {
					t.Fatal("no cancellation is owed")
				}
				with := func(c *approval.Config) { c.Send = func(task.Task) approval.Sender { return r } }
				for range 3 {
					defer branch(t, o.store, with).runHousekeeping(t)()
				}
				pass(5 * time.Minute)
				if r.tries() != 1 {
					t.Errorf("%d cancellations sent", r.tries())
				}
				if got := o.now(t, held.ID); got.OwesCancellation() || got.Execution.Cancellation.Outcome != gatetask.CancellationSent {
					t.Errorf("stored cancellation %+v", got.Execution.Cancellation)
				}
				entries, err := o.store.Entries(t.Context(), auditlog.Query{Task: held.ID, Limit: 100})
				if n := len(entries); err != nil || entries[n-1].Step != string(approval.Stopped) || entries[n-1].Outcome != "told" {
					t.Errorf("the journal ends with %+v, %v", entries, err)
				}
			})
		})
	}
}

// A cancellation that cannot be sent is tried again at growing intervals, and then given up.
// The journal records that it was not sent.
func TestOwedCancellationIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &stoppable{remote: newRemote(), failing: errors.New("down")}
		o, held := nested(t, r.remote, func(c *approval.Config) {
			c.Send = func(task.Task) approval.Sender { return r }
		})
		defer o.runHousekeeping(t)()
		if _, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann", Send: r}); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Minute)
		if n := r.tries(); n < 3 || n > 5 {
			t.Errorf("%d tries in three minutes", n)
		}
		pass(62 * time.Minute)
		if n := r.tries(); n > 10 {
			t.Errorf("%d tries", n)
		}
		if got := o.now(t, held.ID).Execution.Cancellation; got.Outcome != gatetask.CancellationGivenUp {
			t.Errorf("stored cancellation %+v", got)
		}
	})
}

// If the upstream requires the owner's credentials, the cancellation is sent when the owner
// asks again, on any replica, although attempts with the gate's credentials failed.
func TestOwedCancellationWithOwnersCredentials(t *testing.T) {
	for name, ask := range map[string]func(*fixture, context.Context, task.Ref, approval.Sender) error{
		"asks": func(o *fixture, ctx context.Context, ref task.Ref, send approval.Sender) error {
			_, err := o.Contact(ctx, ref, send)
			return err
		},
		"cancels again": func(o *fixture, ctx context.Context, ref task.Ref, send approval.Sender) error {
			_, err := o.Cancel(ctx, ref, approval.Withdrawal{By: "ann", Send: send})
			if errors.Is(err, task.ErrAlreadyTerminal) {
				return nil
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stranger := &stoppable{remote: newRemote(), failing: errors.New("401")}
				o, held := nested(t, stranger.remote, nil)
				cancelAndDie(t, o, held)
				other := branch(t, o.store, func(c *approval.Config) {
					c.Send = func(task.Task) approval.Sender { return stranger }
				})
				defer other.runHousekeeping(t)()
				pass(10 * time.Minute)
				if !o.now(t, held.ID).OwesCancellation() {
					t.Fatal("no cancellation is owed after the failed attempts")
				}
				owner := &stoppable{remote: newRemote()}
				if err := ask(other, t.Context(), mine(held), owner); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if owner.tries() != 1 || o.now(t, held.ID).OwesCancellation() {
					t.Errorf("%d cancellations sent; still owed: %t", owner.tries(), o.now(t, held.ID).OwesCancellation())
				}
			})
		})
	}
}

// A canceled call that was answered anyway owes no cancellation.
func TestAnsweredCallOwesNoCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		send := plain(func(context.Context, []byte) (approval.Outcome, error) {
			time.Sleep(time.Second) // ignores the interruption
			return answer(`{"content":[]}`), nil
		})
		if _, err := o.Contact(t.Context(), mine(held), send); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if got := o.now(t, held.ID); got.State != task.Cancelled || got.Execution.Cancellation.Outcome != gatetask.CancellationMoot {
			t.Errorf("%s, %+v", got.State, got.Execution.Cancellation)
		}
	})
}
