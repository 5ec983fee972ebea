package mcptask_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A refusingStore refuses some calls for a limited time.
type refusingStore struct {
	task.Store // without optional interfaces, so it cannot store large results

	down  atomic.Bool                // refuses to read and to change tasks
	gets  atomic.Bool                // refuses to read tasks
	swaps atomic.Pointer[task.State] // refuses changes to this state
}

func (s *refusingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if s.gets.Load() || s.down.Load() {
		return task.Task{}, &task.Error{Kind: task.ErrUnavailable}
	}
	return s.Store.Get(ctx, ref)
}

func (s *refusingStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if to := s.swaps.Load(); to != nil && *to == t.State || s.down.Load() {
		return &task.Error{Kind: task.ErrUnavailable}
	}
	return s.Store.Swap(ctx, t, notes...)
}

// refusing returns a bench with a store that can refuse calls, and one with the same store that
// never refuses.
func refusing(t *testing.T) (b bench, s *refusingStore, other bench) {
	b = alive(t)
	other = b.restarted()
	s = &refusingStore{Store: b.Store}
	b.Store = s
	return b, s, other
}

// tidy runs housekeeping in a process for some seconds.
func (b bench) tidy(seconds int) {
	b.t.Helper()
	for range seconds {
		time.Sleep(time.Second)
		if err := b.Tidy(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// now returns the current version of a task.
func (b bench) now(id task.ID) task.Task {
	b.t.Helper()
	t, err := b.Store.Get(b.t.Context(), task.AnyOwner().Ref(id))
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

func quick(context.Context) ([]byte, error) { return []byte(`{"content":[]}`), nil }

// A run keeps its answer until the store accepts it. Meanwhile other processes do not take over
// the task.
func TestAnswerWaitsForStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, other := refusing(t)
		store.swaps.Store(new(task.Completed))
		made := b.launch(quick)
		other.tidy(60)
		store.swaps.Store(nil)
		time.Sleep(2 * time.Second)
		if got := b.now(made.ID); got.State != task.Completed {
			t.Errorf("the task is %s: %+v", got.State, got.Failure)
		}
		b.drained()
	})
}

// A run does not wait for its store when its process is ending, or when the TTL of its task has
// passed.
func TestAnswerDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, _ := refusing(t)
		store.swaps.Store(new(task.Completed))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		began := time.Now()
		if _, err := b.Run(ctx, b.start(), quick); !storekit.MaybeChanged(err) || time.Since(began) != time.Minute {
			t.Errorf("an interrupted run ended after %v: %v", time.Since(began), err)
		}
		ref := b.start()
		done, err := b.Run(t.Context(), ref, func(context.Context) ([]byte, error) {
			store.gets.Store(true)
			return quick(ctx)
		})
		if took := time.Since(began); !storekit.MaybeChanged(err) || took < time.Hour || took > time.Hour+time.Minute+2*time.Second {
			t.Errorf("a run ended after %v, %s: %v", took, done.State, err)
		}
	})
}

// A process whose task was taken over by another process does not end the other's run.
func TestSupersededRunEndsNothing(t *testing.T) {
	large := []byte(`{"content":"` + strings.Repeat("x", task.ChunkSize) + `"}`)
	for name, end := range map[string]struct {
		result []byte
		err    error
	}{
		"result":                       {result: []byte(`{}`)},
		"result larger than the store": {result: large},
		"interrupted by a stop":        {err: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, store, other := refusing(t)
				goOn := make(chan struct{})
				store.swaps.Store(new(task.Executing))
				made, err := b.Launch(t.Context(), sum("sum"), func(context.Context) ([]byte, error) {
					<-goOn
					return end.result, end.err
				})
				if err != nil {
					t.Fatal(err)
				}
				other.Rerun = func(task.Task) mcptask.Work { return forever }
				other.tidy(15)
				store.swaps.Store(nil)
				time.AfterFunc(time.Minute, func() { close(goOn) }) // after all runs were interrupted
				b.drained()
				if got := other.now(made.ID); got.State != task.Executing || got.Execution.Executor == made.Execution.Executor {
					t.Errorf("the task is %s, run by %+v", got.State, got.Execution)
				}
				other.Rerun = nil
				other.drained()
			})
		})
	}
}

// Work ends with its task, even if the store was unavailable for a moment.
func TestWorkEndsAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, other := refusing(t)
		made := b.launch(forever)
		store.gets.Store(true)
		time.Sleep(6 * time.Second)
		store.gets.Store(false)
		if _, err := lifecycle.Advance(t.Context(), other.Store, task.AnyOwner().Ref(made.ID), lifecycle.Cancel{By: "alice"}, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		b.drained()
		if time.Since(began) > 0 {
			t.Error("the work did not end with its task")
		}
	})
}
