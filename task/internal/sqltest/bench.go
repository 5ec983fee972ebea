package sqltest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
)

const (
	many    = 100_000 // tasks that exist during other measurements
	writers = 64
)

// A Backend opens an empty store of one kind.
type Backend func(b *testing.B) gatestore.Store

// Measure runs the benchmarks of a store.
func Measure(b *testing.B, open Backend) {
	for notes := range 3 {
		b.Run(fmt.Sprintf("create with %d notes", notes), func(b *testing.B) { benchmarkCreate(b, open, notes, 0) })
	}
	for _, groups := range []int{1, 100} {
		b.Run(fmt.Sprintf("create in %d groups", groups), func(b *testing.B) { benchmarkCreate(b, open, 1, groups) })
	}
	b.Run("at once", func(b *testing.B) { gatestoretest.BenchmarkAtOnce(b, open(b)) })
	b.Run("result", func(b *testing.B) { gatestoretest.BenchmarkResult(b, open(b)) })
	b.Run("beside many tasks", func(b *testing.B) {
		s := open(b)
		ids := fill(b, s)
		b.Run("get", func(b *testing.B) { benchmarkGet(b, s, ids) })
		b.Run("swap", func(b *testing.B) { benchmarkSwap(b, s, ids) })
		b.Run("list", func(b *testing.B) { benchmarkList(b, s, ids) })
	})
}

// together lets concurrent writers call f with 0 to n-1, each number once.
func together(b *testing.B, n int, f func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var done sync.WaitGroup
	for range writers {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
}

func fill(b *testing.B, s gatestore.Store) []task.ID {
	b.Helper()
	ids := make([]task.ID, many)
	together(b, many, func(i int) error {
		made, err := task.New(Draft(i), Epoch.Add(time.Duration(i)*time.Microsecond))
		ids[i] = made.ID
		if err != nil {
			return err
		}
		return s.Create(b.Context(), made, task.Limits{})
	})
	return ids
}

// benchmarkCreate builds tasks from requests and stores them with their notes. The limits are
// always checked. With groups, the owners are unidentified and belong to that many groups. The
// budget of SQLite is 10,000 tasks per second.
func benchmarkCreate(b *testing.B, open Backend, notes, groups int) {
	s := open(b)
	limits := task.Limits{PerOwner: 10 * many, PerGroup: 10 * many, Grouped: 10 * many, Total: 10 * many, Unique: true}
	b.ReportAllocs()
	b.ResetTimer()
	together(b, b.N, func(i int) error {
		d := Draft(i)
		if groups > 0 {
			d.Group = fmt.Sprint("group ", i%groups)
		}
		made, err := task.New(d, Epoch.Add(time.Duration(i)*time.Microsecond))
		if err != nil {
			return err
		}
		return s.Create(b.Context(), made, limits, heldNotes(made, notes)...)
	})
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

func benchmarkGet(b *testing.B, s gatestore.Store, ids []task.ID) {
	b.ReportAllocs()
	together(b, b.N, func(i int) error {
		_, err := s.Get(b.Context(), task.AnyOwner().Ref(ids[i*7919%many]))
		return err
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
}

func benchmarkSwap(b *testing.B, s gatestore.Store, ids []task.ID) {
	var current [writers * 4]task.Task
	var locks [writers * 4]sync.Mutex
	for i := range current {
		var err error
		if current[i], err = s.Get(b.Context(), task.AnyOwner().Ref(ids[i])); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	together(b, b.N, func(i int) error {
		i %= len(current)
		locks[i].Lock()
		defer locks[i].Unlock()
		current[i].Version++
		return s.Swap(b.Context(), current[i])
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "swaps/s")
}

// BenchmarkWake measures the time between a change by one replica and the notification of a
// watcher on another. The budget is 100 ms.
func BenchmarkWake(b *testing.B, s, other gatestore.Store) {
	made := Build(b, 0)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	changed, err := other.Watch(ctx, task.AnyOwner().Ref(made.ID))
	Must(b, err)
	Must(b, s.Create(b.Context(), made, task.Limits{}))
	<-changed // otherwise each change would be taken for the next
	var total time.Duration
	for b.Loop() {
		made.Version++
		Must(b, s.Swap(b.Context(), made))
		began := time.Now()
		<-changed
		total += time.Since(began)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs-after-swap")
}

// benchmarkList reads pages of 20 from the middle of many tasks.
func benchmarkList(b *testing.B, s gatestore.Store, ids []task.ID) {
	middle, err := s.Get(b.Context(), task.AnyOwner().Ref(ids[many/2]))
	if err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]task.Query{
		"owner":    {Scope: task.OwnedBy("owner7")},
		"everyone": {Scope: task.AnyOwner()},
		"inbox":    {Scope: task.AnyOwner(), States: []task.State{task.Working}},
	} {
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
