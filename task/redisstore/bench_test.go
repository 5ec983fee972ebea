package redisstore_test

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
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
)

const (
	many    = 100_000 // tasks that exist during other measurements
	writers = 64
)

// BenchmarkRedis measures a server that flushes every write to disk, and a server that flushes
// once a second.
func BenchmarkRedis(b *testing.B) {
	for _, fsync := range []string{"always", "everysec"} {
		b.Run(fsync, func(b *testing.B) {
			server := own(b, "--appendfsync", fsync)
			if server == nil {
				return
			}
			for notes := range 3 {
				b.Run(fmt.Sprintf("create with %d notes", notes), func(b *testing.B) { benchmarkCreate(b, open(b, inOwnKeys(server)), notes) })
			}
			o := inOwnKeys(server)
			s := open(b, o)
			b.Run("wake", func(b *testing.B) { benchmarkWake(b, s, open(b, o)) })
			b.Run("at once", func(b *testing.B) { gatestoretest.BenchmarkAtOnce(b, open(b, inOwnKeys(server))) })
			b.Run("result", func(b *testing.B) { gatestoretest.BenchmarkResult(b, open(b, inOwnKeys(server))) })
			b.Run("of many", func(b *testing.B) {
				ids := fill(b, s)
				b.Run("get", func(b *testing.B) { benchmarkGet(b, s, ids) })
				b.Run("swap", func(b *testing.B) { benchmarkSwap(b, s, ids) })
				b.Run("list", func(b *testing.B) { benchmarkList(b, s, ids) })
			})
		})
	}
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
		made := build(b, i)
		ids[i] = made.ID
		return s.Create(b.Context(), made, task.Limits{})
	})
	return ids
}

// benchmarkCreate builds tasks from requests and stores them with their notes. The limits are
// always checked.
func benchmarkCreate(b *testing.B, s gatestore.Store, notes int) {
	limits := task.Limits{PerOwner: 10 * many, Total: 10 * many, Unique: true}
	b.ReportAllocs()
	b.ResetTimer()
	together(b, b.N, func(i int) error {
		made := build(b, i)
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

// benchmarkWake measures the time between a change by one replica and the notification of a
// watcher on another.
func benchmarkWake(b *testing.B, s, other *redisstore.Store) {
	made := build(b, 0)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	changed, err := other.Watch(ctx, anyone(made.ID))
	must(b, err)
	must(b, s.Create(b.Context(), made, task.Limits{}))
	<-changed // otherwise each change would be taken for the next
	var total time.Duration
	for b.Loop() {
		made.Version++
		must(b, s.Swap(b.Context(), made))
		began := time.Now()
		<-changed
		total += time.Since(began)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs-after-swap")
}

func benchmarkGet(b *testing.B, s gatestore.Store, ids []task.ID) {
	b.ReportAllocs()
	together(b, b.N, func(i int) error {
		_, err := s.Get(b.Context(), anyone(ids[i*7919%many]))
		return err
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
}

func benchmarkSwap(b *testing.B, s gatestore.Store, ids []task.ID) {
	var current [writers * 4]task.Task
	var locks [writers * 4]sync.Mutex
	for i := range current {
		var err error
		current[i], err = s.Get(b.Context(), anyone(ids[i]))
		must(b, err)
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

// benchmarkList reads pages of 20 from the middle of many tasks.
func benchmarkList(b *testing.B, s gatestore.Store, ids []task.ID) {
	middle, err := s.Get(b.Context(), anyone(ids[many/2]))
	must(b, err)
	for name, q := range map[string]task.Query{
		"owner":    {Scope: task.OwnedBy("owner7")},
		"everyone": {Scope: task.AnyOwner()},
		"inbox":    {Scope: task.AnyOwner(), States: []task.State{task.Working}},
		"call":     {Scope: task.OwnedBy(middle.Owner), Digest: middle.Digest, Limit: 1},
	} {
		want := 1
		if q.Limit == 0 {
			q.Cursor, want = q.CursorAfter(middle.Position()), q.PageSize()
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				page, err := s.List(b.Context(), q)
				if err != nil || len(page.Tasks) != want {
					b.Fatal(len(page.Tasks), err)
				}
			}
		})
	}
}
