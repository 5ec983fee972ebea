package gatestoretest_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSuiteAcceptsGoodStore shows that a store without faults passes every case.
func TestSuiteAcceptsGoodStore(t *testing.T) {
	for _, c := range gatestoretest.Cases() {
		if failure := outcome(t, c, func(*faulty) {}); failure != "" {
			t.Errorf("%s: %s", c.Name(), failure)
		}
	}
}

// TestSuiteDetectsEveryFault adds one fault at a time to a good store and checks that a case fails.
func TestSuiteDetectsEveryFault(t *testing.T) {
	for name, fault := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range gatestoretest.Cases() {
				if failure := outcome(t, c, fault); failure != "" {
					t.Logf("detected by %q: %s", c.Name(), failure)
					return
				}
			}
			t.Error("no case failed")
		})
	}
}

// TestEveryCaseCanFail checks that each case fails for at least one fault.
func TestEveryCaseCanFail(t *testing.T) {
	for _, c := range gatestoretest.Cases() {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			for _, fault := range faults() {
				if outcome(t, c, fault) != "" {
					return
				}
			}
			t.Error("no fault makes this case fail")
		})
	}
}

// outcome runs a case against a store with a fault and returns the failure. It runs in a
// synctest bubble, so that waiting takes no time.
func outcome(t *testing.T, c gatestoretest.Case, fault func(*faulty)) string {
	t.Helper()
	var failure string
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		good := memstore.New(memstore.Options{})
		defer good.Close()
		s := sound(good)
		fault(s)

		r := recorder{ctx: ctx}
		var done sync.WaitGroup
		done.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					r.failure = fmt.Sprint("panic: ", p)
				}
			}()
			c.Run(&r, s)
		})
		done.Wait()
		failure = r.failure
	})
	return failure
}

// A recorder is a reporter that records the first failure and ends the case.
type recorder struct {
	ctx     context.Context // in place of the context of testing.T
	failure string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Fatalf(format string, args ...any) {
	r.failure, _, _ = strings.Cut(fmt.Sprintf(format, args...), "\n")
	runtime.Goexit()
}

// A faulty store calls its function fields. They call a good store until a fault replaces one.
type faulty struct {
	gatestore.Records

	good    *memstore.Store
	mu      sync.Mutex // for faults with state
	offsets map[string]int
	watches int
	create  func(context.Context, task.Task, task.Limits, ...task.Note) error
	get     func(context.Context, task.Ref) (task.Task, error)
	swap    func(context.Context, task.Task, ...task.Note) error
	list    func(context.Context, task.Query) (task.Page, error)
	overdue func(context.Context, time.Time, int) ([]task.Task, error)
	sweep   func(context.Context, time.Time, int) (int, error)
	reclaim func(context.Context, string, int) (int, error)
	write   func(context.Context, task.Ref, int, []byte) error
	read    func(context.Context, task.Ref, int) ([]byte, error)
	watch   func(context.Context, task.Ref) (<-chan struct{}, error)
	append  func(context.Context, ...task.Note) error
	entries func(context.Context, auditlog.Query) ([]auditlog.Entry, error)
	ends    func(context.Context) (auditlog.Ends, error)
	trim    func(context.Context, time.Time, int) (int, error)
	close   func() error
}

func sound(good *memstore.Store) *faulty {
	return &faulty{
		Records: good, good: good,
		create: good.Create, get: good.Get, swap: good.Swap, list: good.List, overdue: good.Overdue, sweep: good.Sweep, reclaim: good.Reclaim,
		write: good.WriteChunk, read: good.ReadChunk, watch: good.Watch,
		append: good.Append, entries: good.Entries, ends: good.Ends, trim: good.Trim, close: good.Close,
	}
}

func (f *faulty) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	return f.create(ctx, t, l, notes...)
}

func (f *faulty) Get(ctx context.Context, r task.Ref) (task.Task, error) { return f.get(ctx, r) }

func (f *faulty) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	return f.swap(ctx, t, notes...)
}

func (f *faulty) List(ctx context.Context, q task.Query) (task.Page, error) { return f.list(ctx, q) }

func (f *faulty) Sweep(ctx context.Context, b time.Time, n int) (int, error) {
	return f.sweep(ctx, b, n)
}

func (f *faulty) Reclaim(ctx context.Context, account string, n int) (int, error) {
	return f.reclaim(ctx, account, n)
}

func (f *faulty) Watch(ctx context.Context, r task.Ref) (<-chan struct{}, error) {
	return f.watch(ctx, r)
}

func (f *faulty) Overdue(ctx context.Context, at time.Time, n int) ([]task.Task, error) {
	return f.overdue(ctx, at, n)
}

func (f *faulty) WriteChunk(ctx context.Context, r task.Ref, n int, data []byte) error {
	return f.write(ctx, r, n, data)
}

func (f *faulty) ReadChunk(ctx context.Context, r task.Ref, n int) ([]byte, error) {
	return f.read(ctx, r, n)
}

func (f *faulty) Append(ctx context.Context, notes ...task.Note) error {
	return f.append(ctx, notes...)
}

func (f *faulty) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	return f.entries(ctx, q)
}

func (f *faulty) Ends(ctx context.Context) (auditlog.Ends, error) { return f.ends(ctx) }

func (f *faulty) Trim(ctx context.Context, before time.Time, n int) (int, error) {
	return f.trim(ctx, before, n)
}

func (f *faulty) Close() error { return f.close() }

// faults returns functions that break a store, by the names of the faults.
func faults() map[string]func(*faulty) {
	all := make(map[string]func(*faulty))
	for _, some := range []map[string]func(*faulty){taskFaults, listFaults, blobFaults, watchFaults, journalFaults, recordFaults} {
		maps.Copy(all, some)
	}
	return all
}
