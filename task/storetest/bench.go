package storetest

import (
	"fmt"
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
func BenchmarkAtOnce(b *testing.B, s task.Store) {
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
func approveAll(b *testing.B, s task.Store, ids []task.ID) {
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
func waiting(b *testing.B, s task.Store, first int) []task.ID {
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
