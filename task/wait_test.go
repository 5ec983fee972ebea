package task_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// TestWaitWithoutWakeUp checks that Wait looks for itself when it is not told.
func TestWaitWithoutWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		store(t, s, task.InputRequired)
		woke := make(chan task.Task)
		go func() {
			got, err := task.Wait(t.Context(), deaf{s}, ref, ended)
			if err != nil {
				t.Error(err)
			}
			woke <- got
		}()
		synctest.Wait()
		advance(t, s, task.Reject{By: "bob"}, epoch)
		began := time.Now()
		if got := <-woke; got.State != task.Rejected || time.Since(began) > 5*time.Second {
			t.Errorf("%s after %v", got.State, time.Since(began))
		}
	})
}

// deaf is a store whose changes nobody hears of.
type deaf struct{ *memstore.Store }

func (deaf) Watch(context.Context, task.Ref) (<-chan struct{}, error) { return nil, nil }

func TestWaitEnds(t *testing.T) {
	t.Run("with the store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(memstore.Options{})
			store(t, s, task.InputRequired)
			failed := make(chan error)
			go func() {
				_, err := task.Wait(t.Context(), s, ref, ended)
				failed <- err
			}()
			synctest.Wait()
			s.Close()
			mustBe(t, <-failed, task.ErrClosed)
		})
	})
	t.Run("with the task", func(t *testing.T) {
		s := newStore(t)
		_, err := task.Wait(t.Context(), s, ref, ended)
		mustBe(t, err, task.ErrNotFound)
		store(t, s, task.InputRequired)
		_, err = task.Wait(t.Context(), s, task.OwnedBy("bob").Ref("tg_1"), ended)
		mustBe(t, err, task.ErrOwnerMismatch)
	})
	t.Run("with a context that has ended", func(t *testing.T) {
		s := newStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := task.Wait(ctx, s, ref, ended)
		mustBe(t, err, context.Canceled)
	})
}

// troubled is a store that cannot tell of changes until it is well.
type troubled struct {
	*memstore.Store

	well bool
}

func (s *troubled) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	if !s.well {
		return nil, task.ErrUnavailable
	}
	return s.Store.Watch(ctx, ref)
}

// TestChangesGoOn checks that a store which could not be watched at first is
// asked again every second, and that a watcher polls at its own times meanwhile.
func TestChangesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &troubled{Store: memstore.New(memstore.Options{})}
		defer s.Close()
		store(t, s.Store, task.InputRequired)
		c := task.WatchChanges(t.Context(), s, 1500*time.Millisecond, ref)
		defer c.Close()
		next := func(want task.Reason, after time.Duration, wake, end <-chan struct{}) {
			t.Helper()
			began := time.Now()
			if got, err := c.Next(t.Context(), wake, end); got != want || err != nil || time.Since(began) != after {
				t.Errorf("Next = %v, %v after %v; want %v after %v", got, err, time.Since(began), want, after)
			}
		}
		next(task.Polled, 1500*time.Millisecond, nil, nil)
		s.well = true
		next(task.Changed, time.Second, nil, nil)
		next(task.Polled, 500*time.Millisecond, nil, nil)
		c.PollIn(time.Minute)
		next(task.Polled, time.Minute, nil, nil)
		advance(t, s.Store, task.Reject{By: "bob"}, epoch)
		next(task.Changed, 0, nil, nil)
		closed := make(chan struct{})
		close(closed)
		next(task.Woken, 0, closed, nil)
		next(task.Ended, 0, nil, closed)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Next(ended, nil, nil); err == nil {
			t.Error("Next outlives its context")
		}
	})
}

// TestChangesOfSeveral checks that a change of any of several tasks is noticed,
// and no change of another task.
func TestChangesOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		store(t, s, task.InputRequired)
		c := task.WatchChanges(t.Context(), s, time.Hour, task.OwnedBy("ann").Ref("tg_0"), ref)
		defer c.Close()
		advance(t, s, task.Reject{By: "bob"}, epoch)
		if got, err := c.Next(t.Context(), nil, nil); got != task.Changed || err != nil {
			t.Errorf("Next = %v, %v after a change", got, err)
		}
		other := task.WatchChanges(t.Context(), s, time.Hour, task.OwnedBy("ann").Ref("tg_0"), task.OwnedBy("ann").Ref("tg_2"))
		defer other.Close()
		advance(t, s, task.Deliver{}, epoch)
		if got, err := other.Next(t.Context(), nil, nil); got != task.Polled || err != nil {
			t.Errorf("Next = %v, %v after a change of another task", got, err)
		}
	})
}
