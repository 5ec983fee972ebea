package approval_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// BenchmarkPath holds, decides, runs and delivers calls.
func BenchmarkPath(b *testing.B) {
	o := open(b, nil)
	o.upstream = nil
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		held := o.hold(b, call("ann", fmt.Sprint(n)))
		o.approve(b, held.ID)
		if _, err := o.Wait(b.Context(), mine(held), plain(callInstantly)); err != nil {
			b.Fatal(err)
		}
		if _, _, err := o.result(b, mine(held)); err != nil {
			b.Fatal(err)
		}
	}
	if err := o.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLazyPoll polls a call that runs as an upstream task; the upstream answers at once.
// The time is what the gate adds to each poll: GOV-004 NF-001.1 allows 10 ms.
func BenchmarkLazyPoll(b *testing.B) {
	o, r := open(b, nil), newRemote()
	held := o.hold(b, call("ann", "/a"))
	o.approve(b, held.ID)
	if _, err := o.Contact(b.Context(), mine(held), r); err != nil {
		b.Fatal(err)
	}
	for o.now(b, held.ID).Execution.UpstreamTask == "" {
		runtime.Gosched()
	}
	before, asked := r.count("poll"), 0
	b.ReportAllocs()
	for b.Loop() {
		asked++
		if _, err := o.Contact(b.Context(), mine(held), r); err != nil {
			b.Fatal(err)
		}
	}
	if polls := r.count("poll") - before; polls != asked {
		b.Errorf("%d requests to the upstream for %d polls", polls, asked)
	}
}

func callInstantly(context.Context, []byte) (approval.Outcome, error) {
	return answer(`{"content":[]}`), nil
}

// BenchmarkWakeUp measures the time from a decision until the call of its waiting client is
// sent, while 1,000 other clients wait.
func BenchmarkWakeUp(b *testing.B) { benchmarkWakeUp(b, 1000) }

// BenchmarkGrowth holds, decides and runs a call while 1 to 10,000 clients wait for other
// calls.
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("held call/%d", n), func(b *testing.B) { benchmarkWakeUp(b, n) })
	}
}

func benchmarkWakeUp(b *testing.B, waiting int) {
	store := &watchedStore{Store: open(b, nil).store, watched: make(chan struct{}, 1)}
	o := branch(b, store, nil)
	ctx, stop := context.WithCancel(b.Context())
	var others sync.WaitGroup
	for i := range waiting {
		held := o.hold(b, call(fmt.Sprint("other", i%100), fmt.Sprint(i)))
		others.Go(func() { o.Wait(ctx, mine(held), plain(callInstantly)) })
		<-store.watched
	}
	var total time.Duration
	n := 0
	for ; b.Loop(); n++ {
		held := o.hold(b, call("ann", fmt.Sprint(n)))
		sent := make(chan time.Time, 1)
		w := o.wait(b.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) {
			sent <- time.Now()
			return answer(`{}`), nil
		}))
		<-store.watched // the waiter reads the task once more, and then blocks
		runtime.Gosched()
		decided := time.Now()
		o.approve(b, held.ID)
		total += (<-sent).Sub(decided)
		<-w.done
	}
	b.ReportMetric(float64(total.Microseconds())/float64(n), "µs/wake-up")
	stop()
	others.Wait()
}

// A watchedStore signals when a request starts to wait for a task.
type watchedStore struct {
	gatestore.Store

	watched chan struct{}
}

func (s *watchedStore) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	changed, err := s.Store.Watch(ctx, ref)
	select {
	case s.watched <- struct{}{}:
	default: // a run watches its own task
	}
	return changed, err
}

// BenchmarkMemory reports the memory that a held task and a waiting request use.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		store := &watchedStore{Store: open(b, nil).store, watched: make(chan struct{}, 1)}
		o := branch(b, store, nil)
		const pending, waiting = 10_000, 1_000
		before := inUse()
		held := make([]task.Ref, pending)
		for i := range held {
			held[i] = mine(o.hold(b, call(fmt.Sprint("owner", i%100), fmt.Sprint(i))))
		}
		o.mu.Lock()
		o.steps = nil
		o.mu.Unlock()
		tasks := inUse()
		ctx, stop := context.WithCancel(b.Context())
		var all sync.WaitGroup
		for _, ref := range held[:waiting] {
			all.Go(func() { o.Wait(ctx, ref, plain(callInstantly)) })
			<-store.watched
		}
		waiters := inUse()
		stop()
		all.Wait()
		b.ReportMetric(float64(tasks-before)/pending, "B/task")
		b.ReportMetric(float64(waiters-tasks)/waiting, "B/waiter")
	}
}

// inUse returns how many bytes of heap and stacks are in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
