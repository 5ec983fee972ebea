package mcptask_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A slowStore needs a second for each change, and counts changes.
type slowStore struct {
	task.Store

	swaps atomic.Int32
}

func (s *slowStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	time.Sleep(time.Second)
	s.swaps.Add(1)
	return s.Store.Swap(ctx, t, notes...)
}

// slowly returns a bench with a slow store.
func slowly(t *testing.T) (bench, *slowStore) {
	t.Helper()
	b := alive(t)
	s := &slowStore{Store: b.Store}
	b.Store = s
	return b, s
}

// Messages of a tool that is faster than the store are stored together, and never hold up the
// tool. A variable is stored when Set returns, and so are all messages before it.
func TestFastProgressIsStoredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store := slowly(t)
		began := time.Now()
		var stored task.Task
		made := b.launch(func(ctx context.Context) ([]byte, error) {
			run, _ := mcptask.From(ctx)
			for i := range 100 {
				if err := run.Status(ctx, fmt.Sprint("page ", i)); err != nil {
					return nil, err
				}
			}
			if waited := time.Since(began); waited > 0 {
				t.Errorf("the tool waited %v for its messages", waited)
			}
			err := run.Set(ctx, "server.pages", 100)
			var failed error
			stored, failed = run.Task(ctx)
			return []byte(`{"content":[]}`), errors.Join(err, failed, run.Status(ctx, "done"), run.Status(ctx, "really"))
		})
		b.until(made.ID, task.Completed)
		if stored.Execution.Message != "page 99" || string(stored.Variables["server.pages"]) != "100" {
			t.Errorf("after Set: %q, %s", stored.Execution.Message, stored.Variables)
		}
		if n := store.swaps.Load(); n != 2 { // the last message with the variable, and the end
			t.Errorf("%d changes were stored", n)
		}
		b.drained()
	})
}

// A message that no other change takes along is stored soon, also if others came while it waited.
func TestProgressIsStoredSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		made := b.launch(func(ctx context.Context) ([]byte, error) {
			run, _ := mcptask.From(ctx)
			for i := range 100 {
				if err := run.Status(ctx, fmt.Sprint("page ", i)); err != nil {
					return nil, err
				}
				time.Sleep(10 * time.Millisecond)
			}
			return forever(ctx)
		})
		time.Sleep(500 * time.Millisecond)
		if got := b.now(made.ID).Execution.Message; !strings.HasPrefix(got, "page 4") {
			t.Errorf("after half a second: %s", got)
		}
		time.Sleep(time.Second)
		if got := b.now(made.ID); got.Execution.Message != "page 99" || got.Version > 15 {
			t.Errorf("at the end: %s, version %d", got.Execution.Message, got.Version)
		}
		b.drained()
	})
}

// One refused change of several leaves the others alone.
func TestRefusedChangeIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := slowly(t)
		errs := make(map[string]error)
		made := b.launch(func(ctx context.Context) ([]byte, error) {
			run, _ := mcptask.From(ctx)
			go func() { _ = run.Set(ctx, "server.first", 1) }() // the changes below wait for this one
			time.Sleep(time.Millisecond)
			names := []string{"server.a", "client.b", "server.c"}
			told := make([]chan error, len(names))
			for i, name := range names {
				told[i] = make(chan error, 1)
				go func() { told[i] <- run.Set(ctx, name, 1) }()
			}
			for i, name := range names {
				errs[name] = <-told[i]
			}
			return []byte(`{"content":[]}`), nil
		})
		got := b.until(made.ID, task.Completed)
		if len(got.Variables) != 3 || errs["server.a"] != nil || !errors.Is(errs["client.b"], task.ErrVariableOwnership) || errs["server.c"] != nil {
			t.Errorf("%s, %v", got.Variables, errs)
		}
		b.drained()
	})
}

// A tool that has returned changes its task no more.
func TestChangesEndWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		var late *mcptask.Run
		made := b.launch(func(ctx context.Context) ([]byte, error) {
			late, _ = mcptask.From(ctx)
			return []byte(`{"content":[]}`), nil
		})
		before := b.until(made.ID, task.Completed)
		if err := late.Set(t.Context(), "server.late", 1); err == nil {
			t.Error("a variable was set after the end")
		}
		_ = late.Status(t.Context(), "late")
		if after := b.now(made.ID); after.Version != before.Version {
			t.Errorf("version %d became %d", before.Version, after.Version)
		}
		b.drained()
	})
}
