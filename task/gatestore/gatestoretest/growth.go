package gatestoretest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// BenchmarkGrowth measures the cost of operations in a store with 1 to 100,000 pending tasks of
// a hundred owners.
func BenchmarkGrowth(b *testing.B, s gatestore.Store) {
	b.Helper()
	g := &growing{store: s}
	for _, size := range []int{1, 10, 100, 1000, 10_000, 100_000} {
		g.fill(b, size)
		for _, op := range []struct {
			name string
			do   func(b *testing.B)
		}{{"create", g.create}, {"get", g.get}, {"list", g.list}, {"sweep", g.sweep}} {
			b.Run(fmt.Sprintf("%s/%d", op.name, size), op.do)
		}
	}
}

// A growing store has a growing number of pending tasks.
type growing struct {
	store gatestore.Store
	ids   []task.ID // of the pending tasks
	made  int       // all tasks created so far
}

// next builds one more task. It applies change before it stores the task.
func (g *growing) next(b *testing.B, n int, events ...lifecycle.Event) task.Task {
	b.Helper()
	at := epoch.Add(time.Duration(n) * time.Microsecond)
	t, err := task.New(task.Draft{
		ID: task.NewID(at), Owner: fmt.Sprint("owner", n%100), Workflow: "ops", TTL: 1000 * time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: fmt.Sprintf(`{"n":%d}`, n), Message: "{}"},
	}, at)
	for _, e := range events {
		if err == nil {
			t, err = lifecycle.Apply(t, e, at)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// fill lets many writers create tasks until the store has the given number.
func (g *growing) fill(b *testing.B, size int) {
	b.Helper()
	first := len(g.ids)
	g.ids = append(g.ids, make([]task.ID, size-first)...)
	var done sync.WaitGroup
	const writers = 64
	for w := range writers {
		done.Go(func() {
			for i := first + w; i < size; i += writers {
				t := g.next(b, g.made+i)
				if err := g.store.Create(b.Context(), t, task.Limits{}); err != nil {
					b.Error(err)
					return
				}
				g.ids[i] = t.ID
			}
		})
	}
	done.Wait()
	g.made += size
}

// create adds ended tasks. The limits are always checked.
func (g *growing) create(b *testing.B) {
	limits := task.Limits{PerOwner: 1 << 30, Total: 1 << 30, Unique: true}
	for b.Loop() {
		g.made++
		if err := g.store.Create(b.Context(), g.next(b, g.made, lifecycle.Cancel{By: "ann"}), limits); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if _, err := g.store.Sweep(b.Context(), epoch.Add(10_000*time.Hour), 1<<30); err != nil {
		b.Fatal(err)
	}
}

func (g *growing) get(b *testing.B) {
	i := 0
	for b.Loop() {
		i++
		if _, err := g.store.Get(b.Context(), task.AnyOwner().Ref(g.ids[i*7919%len(g.ids)])); err != nil {
			b.Fatal(err)
		}
	}
}

// list reads a page of 20, like an inbox.
func (g *growing) list(b *testing.B) {
	for b.Loop() {
		if _, err := g.store.List(b.Context(), task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: 20}); err != nil {
			b.Fatal(err)
		}
	}
}

// sweep finds and deletes one ended task.
func (g *growing) sweep(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		g.made++
		if err := g.store.Create(b.Context(), g.next(b, g.made, lifecycle.Cancel{By: "ann"}), task.Limits{}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if n, err := g.store.Sweep(b.Context(), epoch.Add(10_000*time.Hour), 100); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
}
