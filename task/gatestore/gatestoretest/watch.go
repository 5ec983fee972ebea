package gatestoretest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func watchCases() []testCase {
	return []testCase{
		{"Watch notifies of creation, change and deletion", watchTask},
		{"Watch notifies of all tasks of a scope", watchScope},
		{"Watch notifies within a tenth of a second", watchSoon},
		{"Watch notifies of the last change", watchLast},
		{"Watch wakes all watchers", watchMany},
		{"a watch without a reader blocks no writer", watchUnread},
		{"a watch ends with its context", watchEnds},
	}
}

// patience is the longest time that a case waits for an event.
const patience = time.Minute

func watch(t reporter, s gatestore.Store, ref task.Ref) <-chan struct{} {
	t.Helper()
	changed, err := s.Watch(t.Context(), ref)
	must(t, err)
	return changed
}

// woken reports whether changed receives a value within a time.
func woken(ctx context.Context, changed <-chan struct{}, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case _, open := <-changed:
		return open
	case <-ctx.Done():
		return false
	}
}

func mustWake(t reporter, changed <-chan struct{}, what string) {
	t.Helper()
	if !woken(t.Context(), changed, patience) {
		t.Fatalf("not notified of %s", what)
	}
}

func watchTask(t reporter, s gatestore.Store) {
	for _, scope := range []task.Scope{task.AnyOwner(), task.OwnedBy("ann")} {
		id := task.NewID(epoch)
		changed := watch(t, s, scope.Ref(id))
		add(t, s, id, "ann", epoch)
		mustWake(t, changed, "a creation")
		advance(t, s, id, epoch, lifecycle.Contact{})
		mustWake(t, changed, "a contact")
		advance(t, s, id, epoch, lifecycle.Cancel{By: "ann"})
		mustWake(t, changed, "a cancellation")
		if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
			t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
		}
		mustWake(t, changed, "a deletion")
	}
}

func watchScope(t reporter, s gatestore.Store) {
	everything, anns := watch(t, s, anyone("")), watch(t, s, task.OwnedBy("ann").Ref(""))
	add(t, s, "tg_a", "ann", epoch)
	mustWake(t, everything, "a creation")
	mustWake(t, anns, "the own creation")
	add(t, s, "tg_b", "bob", epoch)
	mustWake(t, everything, "another creation")
	advance(t, s, "tg_a", epoch, lifecycle.Cancel{By: "ann"})
	mustWake(t, everything, "a cancellation")
	mustWake(t, anns, "the own cancellation")
}

func watchSoon(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	changed := watch(t, s, anyone("tg_a"))
	// A busy machine may stall for a while. Still, a good store notifies in time in most of
	// many attempts. A store that polls, or waits for more changes, never does.
	const attempts, rounds = 30, 9
	soon := 0
	for range attempts {
		soon = 0
		for range rounds {
			advance(t, s, "tg_a", epoch, lifecycle.Contact{})
			if woken(t.Context(), changed, 100*time.Millisecond) {
				soon++
				continue
			}
			mustWake(t, changed, "a contact")
		}
		if soon > rounds/2 {
			return
		}
	}
	t.Fatalf("notified within 100 ms only %d times out of %d in the last attempt", soon, rounds)
}

func watchLast(t reporter, s gatestore.Store) {
	const writers, each = 4, 10
	const last = 1 + writers*each
	add(t, s, "tg_a", "ann", epoch)
	changed := watch(t, s, task.OwnedBy("ann").Ref("tg_a"))
	written := make(chan []error, 1)
	go func() {
		written <- together(writers, func(int) error {
			for range each {
				if _, err := lifecycle.Advance(t.Context(), s, anyone("tg_a"), lifecycle.Contact{}, epoch); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	for seen := get(t, s, "tg_a"); seen.Version < last; seen = get(t, s, "tg_a") {
		if !woken(t.Context(), changed, patience) {
			t.Fatalf("not notified of a change after version %d", seen.Version)
		}
	}
	must(t, errors.Join(<-written...))
}

func watchMany(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	watches := make([]<-chan struct{}, 100)
	for i := range watches {
		watches[i] = watch(t, s, []task.Ref{anyone("tg_a"), task.OwnedBy("ann").Ref("tg_a"), anyone("")}[i%3])
	}
	advance(t, s, "tg_a", epoch, lifecycle.Cancel{By: "ann"})
	must(t, errors.Join(together(len(watches), func(i int) error {
		if woken(t.Context(), watches[i], patience) {
			return nil
		}
		return fmt.Errorf("watch %d was not notified", i)
	})...))
}

func watchUnread(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	changed := watch(t, s, anyone("tg_a"))
	for range 100 {
		advance(t, s, "tg_a", epoch, lifecycle.Contact{})
	}
	mustWake(t, changed, "a hundred contacts")
}

func watchEnds(t reporter, s gatestore.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ending, err := s.Watch(ctx, anyone("tg_a"))
	must(t, err)
	staying := watch(t, s, anyone("tg_a"))
	cancel()
	mustClose(t, ending)

	add(t, s, "tg_a", "ann", epoch)
	mustWake(t, staying, "a creation")
	_, err = s.Watch(ctx, anyone("tg_a"))
	mustBe(t, err, context.Canceled)
}

// mustClose waits until changed is closed.
func mustClose(t reporter, changed <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		select {
		case _, open := <-changed:
			if !open {
				return
			}
		case <-ctx.Done():
			t.Fatalf("a watch did not end")
			return
		}
	}
}
