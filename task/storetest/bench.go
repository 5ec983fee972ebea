package storetest

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// atOnce is how many transitions happen at the same time.
const atOnce = 1000

// BenchmarkAtOnce measures a thousand transitions at the same time, each of another
// task that waits for a decision: read, rules, swap. It reports how many a second
// the store makes. GOV-001 9.2, "1,000 concurrent transitions".
func BenchmarkAtOnce(b *testing.B, s task.GateStore) {
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
func approveAll(b *testing.B, s task.GateStore, ids []task.ID) {
	b.Helper()
	var begin, done sync.WaitGroup
	begin.Add(1)
	for _, id := range ids {
		done.Go(func() {
			begin.Wait()
			if _, err := task.Advance(b.Context(), s, task.AnyOwner().Ref(id), task.Approve{By: "bob"}, epoch); err != nil {
				b.Error(err)
			}
		})
	}
	begin.Done()
	done.Wait()
}

// waiting stores tasks that wait for a decision. The first has the given number.
func waiting(b *testing.B, s task.GateStore, first int) []task.ID {
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
				t, err = t.Apply(task.Submit{By: "gate", Deadline: epoch.Add(time.Minute)}, epoch)
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

// resultSize is the size of the answer that BenchmarkResult keeps.
const resultSize = 64 << 20

// BenchmarkResult measures how fast a large answer is kept and read again.
func BenchmarkResult(b *testing.B, s task.GateStore) {
	b.Helper()
	b.SetBytes(resultSize)
	b.ReportAllocs()
	for i := range b.N {
		b.StopTimer()
		ref := task.AnyOwner().Ref(task.ID(fmt.Sprint("tg_result ", i)))
		running(b, s, ref)
		b.StartTimer()
		kept, err := task.WriteResult(b.Context(), s, ref, io.LimitReader(zeros{}, resultSize))
		if err != nil {
			b.Fatal(err)
		}
		kept.Kind = task.ResultOK
		done, err := task.CompleteWithResult(b.Context(), s, ref, task.Complete{By: "gate", Result: kept}, epoch)
		if err == nil {
			err = task.ReadResult(b.Context(), s, done, io.Discard)
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
func running(b *testing.B, s task.GateStore, ref task.Ref) {
	b.Helper()
	t, err := task.New(task.Draft{
		ID: ref.ID, Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "files", Method: "tools/call", Name: "read", Message: "{}"},
	}, epoch)
	for _, e := range []task.Event{task.Admit{By: "gate"}, task.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)}} {
		if err == nil {
			t, err = t.Apply(e, epoch)
		}
	}
	if err == nil {
		err = s.Create(b.Context(), t, task.Limits{})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
