package approval_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A troubledStore is unavailable for a while.
type troubledStore struct {
	gatestore.Store

	down atomic.Bool
}

func (s *troubledStore) trouble() error {
	if s.down.Load() {
		return &task.Error{Kind: task.ErrUnavailable}
	}
	return nil
}

func (s *troubledStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if err := s.trouble(); err != nil {
		return task.Task{}, err
	}
	return s.Store.Get(ctx, ref)
}

func (s *troubledStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := s.trouble(); err != nil {
		return err
	}
	return s.Store.Swap(ctx, t, notes...)
}

func (s *troubledStore) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	if err := s.trouble(); err != nil {
		return nil, err
	}
	return s.Store.Watch(ctx, ref)
}

// A service whose store cannot send notifications at first receives them as soon as it can.
func TestRunStartsBeforeStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := open(t, nil)
		store := &troubledStore{Store: other.store}
		o := branch(t, store, func(c *approval.Config) { c.Sweep = time.Hour })
		store.down.Store(true)
		defer o.runHousekeeping(t)()
		pass(time.Minute)
		store.down.Store(false)
		pass(2 * time.Second)
		held := o.hold(t, call("ann", "/a"))
		if _, err := o.Contact(t.Context(), mine(held), o.upstream.slow(0)); err != nil {
			t.Fatal(err)
		}
		other.approve(t, held.ID)
		pass(time.Second)
		mustState(t, other.now(t, held.ID), task.Completed)
	})
}

// A client that waits while the store fails keeps waiting, and gets the result when the store
// recovers.
func TestWaitSurvivesStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := open(t, nil)
		store := &troubledStore{Store: other.store}
		o := branch(t, store, nil)
		held := o.hold(t, call("ann", "/a"))
		w := o.wait(t.Context(), mine(held), o.upstream.slow(0))
		pass(time.Second)
		store.down.Store(true)
		other.approve(t, held.ID)
		pass(time.Minute)
		select {
		case <-w.done:
			t.Fatalf("the wait ended: %v", w.err)
		default:
		}
		store.down.Store(false)
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)

		// A wait ends at its deadline, even without the store.
		held = o.hold(t, call("ann", "/b"))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		w = o.wait(ctx, mine(held), nil)
		pass(time.Second)
		store.down.Store(true)
		<-w.done
		mustBe(t, w.err, task.ErrNotReady)
		mustState(t, w.task, task.InputRequired)
		store.down.Store(false)
	})
}

// A wait that begins while the store is unavailable lasts until the store recovers. The HTTP
// response has begun by then, so refusing it has no advantage.
func TestWaitBeginsDuringStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := open(t, nil)
		store := &troubledStore{Store: other.store}
		o := branch(t, store, nil)
		held := o.hold(t, call("ann", "/a"))
		store.down.Store(true)
		w := o.wait(t.Context(), mine(held), o.upstream.slow(0))
		pass(time.Minute)
		select {
		case <-w.done:
			t.Fatalf("the wait ended: %v", w.err)
		default:
		}
		store.down.Store(false)
		pass(10 * time.Second)
		other.approve(t, held.ID)
		decided := time.Now()
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)
		if late := time.Since(decided); late > 0 {
			t.Errorf("woken %s after the decision; want a notification of the store", late)
		}

		// A wait ends at its deadline, even if it never read the task.
		held = o.hold(t, call("ann", "/b"))
		store.down.Store(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		w = o.wait(ctx, mine(held), nil)
		<-w.done
		mustBe(t, w.err, task.ErrNotReady)
		store.down.Store(false)
	})
}

// A cramped store has no space for the ends of tasks.
type crampedStore struct {
	gatestore.Store

	full atomic.Bool
}

func (s *crampedStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if s.full.Load() && t.State.Terminal() {
		return &task.Error{Kind: task.ErrUnavailable, Err: task.ErrCapacityExceeded}
	}
	return s.Store.Swap(ctx, t, notes...)
}

// Housekeeping deletes old tasks although others cannot end, so that there is space for their
// ends.
func TestSweepFreesSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := open(t, nil)
		store := &crampedStore{Store: other.store}
		o := branch(t, store, nil)
		over := o.hold(t, call("ann", "/over"))
		if _, err := o.Cancel(t.Context(), mine(over), approval.Withdrawal{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Hour)
		store.full.Store(true)
		stuck := o.hold(t, call("ann", "/stuck"))
		pass(16 * time.Minute)
		defer o.runHousekeeping(t)()
		pass(time.Second)
		if _, err := o.store.Get(t.Context(), task.AnyOwner().Ref(over.ID)); err == nil {
			t.Error("an expired task was not deleted")
		}
		store.full.Store(false)
		pass(time.Minute)
		mustState(t, o.now(t, stuck.ID), task.Expired)
	})
}

// Housekeeping deletes all expired records, however many there are.
func TestSweepRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		for i := range 250 {
			r := gatestore.Record{Name: fmt.Sprint("session/", i), Version: 1, Value: []byte("x"), Expires: time.Now().Add(time.Minute)}
			if err := o.store.PutRecord(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Hour)
		defer o.runHousekeeping(t)()
		pass(time.Millisecond)
		left, err := o.store.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "session/", Limit: 1000})
		if len(left) > 0 || err != nil {
			t.Errorf("%d records are left: %v", len(left), err)
		}
	})
}
