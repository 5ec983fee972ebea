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
)

// A stoppable is an upstream that can be told to stop, or that refuses to listen
// as long as failing is set.
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

// cancelAndDie cancels a task as a gate does that dies right after.
func cancelAndDie(t *testing.T, o *office, held task.Task) {
	t.Helper()
	updater := task.Updater{Store: o.store}
	if _, err := updater.Advance(t.Context(), mine(held), task.Cancel{By: "ann"}, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// GOV-004 F-007: a cancellation that was acknowledged reaches the upstream though
// the gate died before it could tell it, by whichever replica comes next, once.
func TestOwedCancellation(t *testing.T) {
	for name, run := range map[string]func(*testing.T, *office, task.Task){
		"task of the upstream": func(t *testing.T, o *office, held task.Task) {
			note := task.Progress{By: "dead", UpstreamTask: "u1", Release: true}
			if _, err := task.Advance(t.Context(), o.store, mine(held), note, time.Now()); err != nil {
				t.Fatal(err)
			}
		},
		"running call": func(*testing.T, *office, task.Task) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &stoppable{remote: newRemote()}
				o := open(t, nil)
				held := o.hold(t, call("ann", "/a"))
				o.approve(t, held.ID)
				claim := task.Claim{By: "dead", LeaseUntil: time.Now().Add(30 * time.Second)}
				if _, err := task.Advance(t.Context(), o.store, mine(held), claim, time.Now()); err != nil {
					t.Fatal(err)
				}
				run(t, o, held)
				cancelAndDie(t, o, held)
				if !o.now(t, held.ID).Owes() {
					t.Fatal("nothing is owed")
				}
				with := func(c *approval.Config) { c.Send = func(task.Task) approval.Sender { return r } }
				for range 3 {
					defer branch(t, o.store, with).runHousekeeping(t)()
				}
				pass(5 * time.Minute)
				if r.tries() != 1 {
					t.Errorf("the upstream was told %d times", r.tries())
				}
				if got := o.now(t, held.ID); got.Owes() || got.Execution.Cancellation.Outcome != task.CancellationSent {
					t.Errorf("the store says %+v", got.Execution.Cancellation)
				}
				entries, err := o.store.Entries(t.Context(), task.JournalQuery{Task: held.ID, Limit: 100})
				if n := len(entries); err != nil || entries[n-1].Step != string(approval.Stopped) || entries[n-1].Outcome != "told" {
					t.Errorf("the journal ends with %+v, %v", entries, err)
				}
			})
		})
	}
}

// An upstream that cannot be told is tried again, ever more seldom, and not for
// ever. That it was never told is on record.
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
		if got := o.now(t, held.ID).Execution.Cancellation; got.Outcome != task.CancellationGivenUp {
			t.Errorf("the store says %+v", got)
		}
	})
}

// An upstream that wants the owner's credentials is told when the owner asks
// again, at whichever replica, though the gate's own tries have failed.
func TestOwedCancellationWithOwnersCredentials(t *testing.T) {
	for name, ask := range map[string]func(*office, context.Context, task.Ref, approval.Sender) error{
		"asks": func(o *office, ctx context.Context, ref task.Ref, send approval.Sender) error {
			_, err := o.Contact(ctx, ref, send)
			return err
		},
		"cancels again": func(o *office, ctx context.Context, ref task.Ref, send approval.Sender) error {
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
				if !o.now(t, held.ID).Owes() {
					t.Fatal("nothing is owed any more")
				}
				owner := &stoppable{remote: newRemote()}
				if err := ask(other, t.Context(), mine(held), owner); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if owner.tries() != 1 || o.now(t, held.ID).Owes() {
					t.Errorf("told %d times; still owed: %t", owner.tries(), o.now(t, held.ID).Owes())
				}
			})
		})
	}
}

// A call that was answered although it was cancelled owes the upstream nothing.
func TestCancelledCallThatWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		send := plain(func(context.Context, []byte) (approval.Outcome, error) {
			time.Sleep(time.Second) // and does not notice that it is interrupted
			return answer(`{"content":[]}`), nil
		})
		if _, err := o.Contact(t.Context(), mine(held), send); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if got := o.now(t, held.ID); got.State != task.Cancelled || got.Execution.Cancellation.Outcome != task.CancellationMoot {
			t.Errorf("%s, %+v", got.State, got.Execution.Cancellation)
		}
	})
}
