package memstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// many is the number of tasks that exist during other measurements.
const many = 100_000

// filled returns a store with tasks of a hundred owners, and their IDs. The events have
// happened to each task.
func filled(b *testing.B, tasks int, events ...func(now time.Time) lifecycle.Event) (*memstore.Store, []task.ID) {
	b.Helper()
	s := memstore.New(memstore.Options{})
	b.Cleanup(func() { s.Close() })
	ids := make([]task.ID, tasks)
	for i := range ids {
		ids[i] = task.NewID(epoch)
		made := build(b, ids[i], fmt.Sprint("owner", i%100), i)
		made.Call.Arguments = fmt.Sprintf(`{"path":"/tmp/%d"}`, i)
		made.Digest, _ = made.Call.Digest()
		for _, event := range events {
			var err error
			if made, err = lifecycle.Apply(made, event(made.CreatedAt), made.CreatedAt); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Create(b.Context(), made, task.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
	return s, ids
}

// BenchmarkCreate builds a task from a request and stores it. The limits are always checked.
// The budget is 20 µs, and 50,000 tasks per second.
func BenchmarkCreate(b *testing.B) {
	for notes := range 3 {
		b.Run(fmt.Sprintf("with %d notes", notes), func(b *testing.B) { benchmarkCreate(b, notes) })
	}
}

func benchmarkCreate(b *testing.B, notes int) {
	limits := task.Limits{PerOwner: many, Total: many, Unique: true}
	owners := make([]string, 100)
	for i := range owners {
		owners[i] = fmt.Sprint("owner", i)
	}
	s, n := open(b, memstore.Options{}), 0
	b.ReportAllocs()
	for b.Loop() {
		if n++; n%many == 0 {
			b.StopTimer()
			s = open(b, memstore.Options{})
			b.StartTimer()
		}
		d := task.Draft{
			ID: task.NewID(epoch), Owner: owners[n%100], TTL: ttl, PollInterval: time.Second,
			Call: task.Call{
				Upstream: "files", Method: "tools/call", Name: "delete_file",
				Arguments: fmt.Sprintf(`{"path":"/tmp/x","recursive":true,"n":%d}`, n), Message: `{}`,
			},
		}
		made, err := task.New(d, epoch.Add(time.Duration(n)*time.Microsecond))
		if err == nil {
			err = s.Create(b.Context(), made, limits, heldNotes(made, notes)...)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// heldNotes returns n notes, like those that a gate writes when it holds a call.
func heldNotes(t task.Task, n int) []task.Note {
	notes := make([]task.Note, n)
	for i := range notes {
		notes[i] = task.Note{
			At: t.CreatedAt, Task: t.ID, Step: "held", Actor: "gate " + string(t.ID), Requester: t.Owner,
			Upstream: t.Call.Upstream, Method: t.Call.Method, Tool: t.Call.Name, ArgumentDigest: t.Digest,
			PolicySnapshot: "7142330de1e5", Verdict: `rules[1] "delete_*" needs approval by workflow ops`, Workflow: t.Workflow,
			From: task.Working, To: task.InputRequired,
		}
	}
	return notes
}

// BenchmarkGet reads one of many tasks. The budget is 2 µs.
func BenchmarkGet(b *testing.B) {
	s, ids := filled(b, many)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		if _, err := s.Get(b.Context(), task.AnyOwner().Ref(ids[n*7919%many])); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGetParallel reads tasks on all cores.
func BenchmarkGetParallel(b *testing.B) {
	s, ids := filled(b, many)
	var n atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := s.Get(b.Context(), task.AnyOwner().Ref(ids[n.Add(1)*7919%many])); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkSwap writes a changed task back.
func BenchmarkSwap(b *testing.B) {
	s, ids := filled(b, many)
	current := make([]task.Task, 1000)
	for i := range current {
		current[i], _ = s.Get(b.Context(), task.AnyOwner().Ref(ids[i]))
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		t := &current[n%len(current)]
		t.Version++
		if err := s.Swap(b.Context(), *t); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTransition takes tasks through each transition of their life, in a store with the
// number of tasks of the requirements. Each transition reads the task, applies the rules, and
// swaps. The budget is 5 µs. GOV-001 NFR-002, like BenchmarkCreate, BenchmarkGet and
// BenchmarkMemory.
func BenchmarkTransition(b *testing.B) {
	const pending = 10_000
	life := []func(now time.Time) lifecycle.Event{
		func(now time.Time) lifecycle.Event {
			return lifecycle.Submit{By: "gate", Deadline: now.Add(time.Minute)}
		},
		func(time.Time) lifecycle.Event { return lifecycle.Approve{By: "bob"} },
		func(now time.Time) lifecycle.Event {
			return lifecycle.Claim{By: "gate-1", LeaseUntil: now.Add(time.Minute)}
		},
		func(time.Time) lifecycle.Event {
			return lifecycle.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}}
		},
	}
	for i, event := range life {
		b.Run(string(event(epoch).Action()), func(b *testing.B) {
			s, ids := filled(b, pending, life[:i]...)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if n == pending {
					b.StopTimer()
					n = 0
					s, ids = filled(b, pending, life[:i]...)
					b.StartTimer()
				}
				now := epoch.Add(time.Duration(n) * time.Microsecond)
				if _, err := lifecycle.Advance(b.Context(), s, task.AnyOwner().Ref(ids[n]), event(now), now); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}

// BenchmarkAtOnce measures a thousand concurrent transitions.
func BenchmarkAtOnce(b *testing.B) {
	s := memstore.New(memstore.Options{})
	b.Cleanup(func() { _ = s.Close() })
	gatestoretest.BenchmarkAtOnce(b, s)
}

// BenchmarkList reads a page of 20 out of many tasks.
func BenchmarkList(b *testing.B) {
	s, ids := filled(b, many)
	for name, q := range map[string]task.Query{
		"owner":    {Scope: task.OwnedBy("owner7")},
		"everyone": {Scope: task.AnyOwner()},
		"inbox":    {Scope: task.AnyOwner(), States: []task.State{task.Working}},
	} {
		middle, err := s.Get(b.Context(), task.AnyOwner().Ref(ids[many/2]))
		if err != nil {
			b.Fatal(err)
		}
		q.Cursor = q.CursorAfter(middle.Position())
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				page, err := s.List(b.Context(), q)
				if err != nil || len(page.Tasks) != 20 {
					b.Fatal(len(page.Tasks), err)
				}
			}
		})
	}
}

// BenchmarkSame searches for an identical call among many other ended calls of its owner.
func BenchmarkSame(b *testing.B) {
	s := open(b, memstore.Options{MaxTasks: many})
	for i := range many {
		ended, err := lifecycle.Apply(build(b, task.NewID(epoch), "ann", i), lifecycle.Cancel{By: "ann"}, epoch)
		if err == nil {
			err = s.Create(b.Context(), ended, task.Limits{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		page, err := s.List(b.Context(), task.Query{Scope: task.OwnedBy("ann"), Digest: task.Digest{1}, Limit: 1})
		if err != nil || len(page.Tasks) > 0 {
			b.Fatal(len(page.Tasks), err)
		}
	}
}

// BenchmarkMemory reports the memory for a pending task, without its request. The budget is 1
// KiB.
func BenchmarkMemory(b *testing.B) {
	const tasks = 10_000
	for name, owners := range map[string]int{"one owner": 1, "hundred owners": 100, "owner each": tasks} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				per := memoryPerTask(b, tasks, func(i int) string { return fmt.Sprint("owner", i%owners) })
				b.ReportMetric(float64(per), "B/task")
			}
		})
	}
}

// BenchmarkNotify wakes one watcher among ten thousand.
func BenchmarkNotify(b *testing.B) {
	var notifier storekit.Notifier
	defer notifier.Close()
	for i := range 10_000 {
		if _, err := notifier.Watch(b.Context(), task.OwnedBy("ann").Ref(task.ID(fmt.Sprint("tg_", i)))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		notifier.Notify("tg_5000", "ann")
	}
}

func BenchmarkGrowth(b *testing.B) {
	gatestoretest.BenchmarkGrowth(b, open(b, memstore.Options{MaxTasks: 2 * many, MaxBytes: 1 << 40}))
}
