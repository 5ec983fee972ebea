package task_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// TestWaitPollsWithoutNotifications checks that Wait polls a store that does not notify.
func TestWaitPollsWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		store(t, s, task.InputRequired)
		woke := make(chan task.Task)
		go func() {
			got, err := storekit.Wait(t.Context(), silentStore{s}, ref, ended)
			if err != nil {
				t.Error(err)
			}
			woke <- got
		}()
		synctest.Wait()
		advance(t, s, lifecycle.Reject{By: "bob"}, epoch)
		began := time.Now()
		if got := <-woke; got.State != task.Rejected || time.Since(began) > 5*time.Second {
			t.Errorf("%s after %v", got.State, time.Since(began))
		}
	})
}

// silentStore is a store that never notifies.
type silentStore struct{ *memstore.Store }

func (silentStore) Watch(context.Context, task.Ref) (<-chan struct{}, error) { return nil, nil }

func TestWaitEnds(t *testing.T) {
	t.Run("with the store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(memstore.Options{})
			store(t, s, task.InputRequired)
			failed := make(chan error)
			go func() {
				_, err := storekit.Wait(t.Context(), s, ref, ended)
				failed <- err
			}()
			synctest.Wait()
			s.Close()
			mustBe(t, <-failed, task.ErrClosed)
		})
	})
	t.Run("with the task", func(t *testing.T) {
		s := newStore(t)
		_, err := storekit.Wait(t.Context(), s, ref, ended)
		mustBe(t, err, task.ErrNotFound)
		store(t, s, task.InputRequired)
		_, err = storekit.Wait(t.Context(), s, task.OwnedBy("bob").Ref("tg_1"), ended)
		mustBe(t, err, task.ErrOwnerMismatch)
	})
	t.Run("with a context that has ended", func(t *testing.T) {
		s := newStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := storekit.Wait(ctx, s, ref, ended)
		mustBe(t, err, context.Canceled)
	})
}

// troubled is a store that cannot be watched for a while.
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

// TestFailedWatchIsTriedAgain checks that a watch that failed is tried again every second, while the
// watcher polls at its interval.
func TestFailedWatchIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &troubled{Store: memstore.New(memstore.Options{})}
		defer s.Close()
		store(t, s.Store, task.InputRequired)
		c := storekit.WatchChanges(t.Context(), s, 1500*time.Millisecond, ref)
		defer c.Close()
		next := func(want storekit.Reason, after time.Duration, wake, end <-chan struct{}) {
			t.Helper()
			began := time.Now()
			if got, err := c.Next(t.Context(), wake, end); got != want || err != nil || time.Since(began) != after {
				t.Errorf("Next = %v, %v after %v; want %v after %v", got, err, time.Since(began), want, after)
			}
		}
		next(storekit.Polled, 1500*time.Millisecond, nil, nil)
		s.well = true
		next(storekit.Changed, time.Second, nil, nil)
		next(storekit.Polled, 500*time.Millisecond, nil, nil)
		c.PollIn(time.Minute)
		next(storekit.Polled, time.Minute, nil, nil)
		advance(t, s.Store, lifecycle.Reject{By: "bob"}, epoch)
		next(storekit.Changed, 0, nil, nil)
		closed := make(chan struct{})
		close(closed)
		next(storekit.Woken, 0, closed, nil)
		next(storekit.Ended, 0, nil, closed)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Next(ended, nil, nil); err == nil {
			t.Error("Next outlives its context")
		}
	})
}

// TestWatchOfSeveralTasks checks that a watch of several tasks notifies of changes of each of
// them, and of no other task.
func TestWatchOfSeveralTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		store(t, s, task.InputRequired)
		c := storekit.WatchChanges(t.Context(), s, time.Hour, task.OwnedBy("ann").Ref("tg_0"), ref)
		defer c.Close()
		advance(t, s, lifecycle.Reject{By: "bob"}, epoch)
		if got, err := c.Next(t.Context(), nil, nil); got != storekit.Changed || err != nil {
			t.Errorf("Next = %v, %v after a change", got, err)
		}
		other := storekit.WatchChanges(t.Context(), s, time.Hour, task.OwnedBy("ann").Ref("tg_0"), task.OwnedBy("ann").Ref("tg_2"))
		defer other.Close()
		advance(t, s, lifecycle.Deliver{}, epoch)
		if got, err := other.Next(t.Context(), nil, nil); got != storekit.Polled || err != nil {
			t.Errorf("Next = %v, %v after a change of another task", got, err)
		}
	})
}
