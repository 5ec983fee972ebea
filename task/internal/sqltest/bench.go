package sqltest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

const (
	many    = 100_000 // tasks that are there while something else is measured
	writers = 64
)

// A Backend opens an empty store of one kind.
type Backend func(b *testing.B) task.GateStore

// Measure runs the benchmarks of a store.
func Measure(b *testing.B, open Backend) {
	for notes := range 3 {
		b.Run(fmt.Sprintf("create with %d notes", notes), func(b *testing.B) { benchmarkCreate(b, open, notes, 0) })
	}
	for _, rooms := range []int{1, 100} {
		b.Run(fmt.Sprintf("create in %d rooms", rooms), func(b *testing.B) { benchmarkCreate(b, open, 1, rooms) })
	}
	b.Run("at once", func(b *testing.B) { storetest.BenchmarkAtOnce(b, open(b)) })
	b.Run("result", func(b *testing.B) { storetest.BenchmarkResult(b, open(b)) })
	b.Run("of many", func(b *testing.B) {
		s := open(b)
		ids := fill(b, s)
		b.Run("get", func(b *testing.B) { benchmarkGet(b, s, ids) })
		b.Run("swap", func(b *testing.B) { benchmarkSwap(b, s, ids) })
		b.Run("list", func(b *testing.B) { benchmarkList(b, s, ids) })
	})
}

// together has writers call f with 0 to n-1, each number once.
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

func fill(b *testing.B, s task.GateStore) []task.ID {
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

// benchmarkCreate makes tasks from requests and stores them, within limits
// that are always checked, with what is told of them. With rooms, nobody has
// identified the owners. The budget of SQLite is 10,000 a second.
func benchmarkCreate(b *testing.B, open Backend, notes, rooms int) {
	s := open(b)
	limits := task.Limits{PerOwner: 10 * many, PerRoom: 10 * many, Rooms: 10 * many, Total: 10 * many, Unique: true}
	b.ReportAllocs()
	b.ResetTimer()
	together(b, b.N, func(i int) error {
		d := Draft(i)
		if rooms > 0 {
			d.Room = fmt.Sprint("room ", i%rooms)
		}
		made, err := task.New(d, Epoch.Add(time.Duration(i)*time.Microsecond))
		if err != nil {
			return err
		}
		return s.Create(b.Context(), made, limits, told(made, notes)...)
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// told returns n notes, like those that a gate writes when it holds a call.
func told(t task.Task, n int) []task.Note {
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

func benchmarkGet(b *testing.B, s task.GateStore, ids []task.ID) {
	b.ReportAllocs()
	together(b, b.N, func(i int) error {
		_, err := s.Get(b.Context(), task.AnyOwner().Ref(ids[i*7919%many]))
		return err
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
}

func benchmarkSwap(b *testing.B, s task.GateStore, ids []task.ID) {
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

// BenchmarkWake measures how long after a change by one replica a waiter on
// another is woken. The budget is 100 ms.
func BenchmarkWake(b *testing.B, s, other task.GateStore) {
	made := Build(b, 0)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	changed, err := other.Watch(ctx, task.AnyOwner().Ref(made.ID))
	Must(b, err)
	Must(b, s.Create(b.Context(), made, task.Limits{}))
	<-changed // or each change would be taken for the next
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
func benchmarkList(b *testing.B, s task.GateStore, ids []task.ID) {
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
