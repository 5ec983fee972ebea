package gatestoretest

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// atOnce is the number of transitions that happen at the same time.
const atOnce = 1000

// BenchmarkAtOnce measures a thousand concurrent transitions of pending tasks. Each transition
// reads the task, applies the rules, and swaps. The benchmark reports transitions per second.
// GOV-001 9.2, "1,000 concurrent transitions".
func BenchmarkAtOnce(b *testing.B, s gatestore.Store) {
	b.Helper()
	b.StopTimer()
	made := 0
	for range b.N {
		ids := waiting(b, s, made)
		made += len(ids)
		b.StartTimer()
		approveAll(b, s, ids)
		b.StopTimer()
	}
	b.ReportMetric(float64(made)/b.Elapsed().Seconds(), "transitions/s")
}

// approveAll approves all tasks at the same time.
func approveAll(b *testing.B, s gatestore.Store, ids []task.ID) {
	b.Helper()
	var begin, done sync.WaitGroup
	begin.Add(1)
	for _, id := range ids {
		done.Go(func() {
			begin.Wait()
			if _, err := lifecycle.Advance(b.Context(), s, task.AnyOwner().Ref(id), lifecycle.Approve{By: "bob"}, epoch); err != nil {
				b.Error(err)
			}
		})
	}
	begin.Done()
	done.Wait()
}

// waiting stores pending tasks. Their numbers start at first.
func waiting(b *testing.B, s gatestore.Store, first int) []task.ID {
	b.Helper()
	ids := make([]task.ID, atOnce)
	var done sync.WaitGroup
	for i := range ids {
		done.Go(func() {
			t, err := task.New(task.Draft{
				ID: task.NewID(epoch), Owner: fmt.Sprint("owner", i%100), Workflow: "ops", TTL: time.Hour, PollInterval: time.Second,
				Call: task.Call{
					Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: fmt.Sprintf(`{"n":%d}`, first+i), Message: "{}",
				},
			}, epoch)
			if err == nil {
				t, err = lifecycle.Apply(t, lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)}, epoch)
			}
			if err == nil {
				err = s.Create(b.Context(), t, task.Limits{})
			}
			if err != nil {
				b.Error(err)
			}
			ids[i] = t.ID
		})
	}
	done.Wait()
	return ids
}

// resultSize is the size of the answer in BenchmarkResult.
const resultSize = 64 << 20

// BenchmarkResult measures how fast a large answer is stored and read.
func BenchmarkResult(b *testing.B, s gatestore.Store) {
	b.Helper()
	b.SetBytes(resultSize)
	b.ReportAllocs()
	for i := range b.N {
		b.StopTimer()
		ref := task.AnyOwner().Ref(task.ID(fmt.Sprint("tg_result ", i)))
		running(b, s, ref)
		b.StartTimer()
		kept, err := storekit.WriteResult(b.Context(), s, ref, io.LimitReader(zeros{}, resultSize))
		if err != nil {
			b.Fatal(err)
		}
		kept.Kind = task.ResultOK
		done, err := lifecycle.CompleteWithResult(b.Context(), s, ref, lifecycle.Complete{By: "gate", Result: kept}, epoch)
		if err == nil {
			err = storekit.ReadResult(b.Context(), s, done, io.Discard)
		}
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := s.Sweep(b.Context(), epoch.Add(1000*time.Hour), 100); err != nil {
			b.Fatal(err)
		}
	}
}

// running stores a task that "gate" runs.
func running(b *testing.B, s gatestore.Store, ref task.Ref) {
	b.Helper()
	t, err := task.New(task.Draft{
		ID: ref.ID, Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "files", Method: "tools/call", Name: "read", Message: "{}"},
	}, epoch)
	for _, e := range []lifecycle.Event{lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)}} {
		if err == nil {
			t, err = lifecycle.Apply(t, e, epoch)
		}
	}
	if err == nil {
		err = s.Create(b.Context(), t, task.Limits{})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
