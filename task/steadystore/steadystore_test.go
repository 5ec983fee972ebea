package steadystore_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/steadystore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func memory(context.Context) (gatestore.Store, error) { return memstore.New(memstore.Options{}), nil }

// TestStore checks that the wrapper keeps the contract of stores while the inner store works.
func TestStore(t *testing.T) {
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return open(t, steadystore.Options{Open: memory}) })
}

func open(t *testing.T, o steadystore.Options) *steadystore.Store {
	t.Helper()
	s, err := steadystore.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v; want %v", err, want)
	}
}

func build(t *testing.T, id task.ID) task.Task {
	t.Helper()
	made, err := task.New(task.Draft{
		ID: id, Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "u", Method: "tools/call", Name: "x", Message: `{}`},
	}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	must(t, err)
	return made
}

// everything calls each method of a store once and returns the errors by the names of the
// methods.
func everything(t *testing.T, s gatestore.Store) map[string]error {
	t.Helper()
	ctx, ref := t.Context(), task.AnyOwner().Ref("tg_1")
	_, get := s.Get(ctx, ref)
	_, list := s.List(ctx, task.Query{Scope: task.AnyOwner()})
	_, overdue := s.Overdue(ctx, time.Time{}, 1)
	_, sweep := s.Sweep(ctx, time.Time{}, 1)
	_, read := s.ReadChunk(ctx, ref, 0)
	_, watch := s.Watch(ctx, ref)
	_, entries := s.Entries(ctx, auditlog.Query{})
	_, ends := s.Ends(ctx)
	_, trim := s.Trim(ctx, time.Time{}, 1)
	_, getRecord := s.GetRecord(ctx, "x")
	_, listRecords := s.ListRecords(ctx, gatestore.RecordQuery{})
	_, sweepRecords := s.SweepRecords(ctx, time.Time{}, 1)
	_, sizeRecords := s.SizeRecords(ctx, "")
	return map[string]error{
		"Create": s.Create(ctx, build(t, "tg_2"), task.Limits{}), "Swap": s.Swap(ctx, build(t, "tg_1")), "Sweep": sweep,
		"WriteChunk": s.WriteChunk(ctx, ref, 0, []byte("x")),
		"Get":        get, "List": list, "Overdue": overdue, "ReadChunk": read, "Watch": watch,
		"Append": s.Append(ctx, task.Note{At: time.Unix(1, 0), Step: "x"}), "Entries": entries, "Ends": ends, "Trim": trim,
		"PutRecord": s.PutRecord(ctx, gatestore.Record{Name: "x", Version: 1, Value: []byte("x")}), "DeleteRecord": s.DeleteRecord(ctx, "x"),
		"GetRecord": getRecord, "ListRecords": listRecords, "SweepRecords": sweepRecords, "SizeRecords": sizeRecords,
	}
}

var errDown = errors.New("connection refused")

// TestStoreIsOpenedLater checks that a store that cannot be opened is opened later. Until then every
// method returns the same error.
func TestStoreIsOpenedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		tries := 0
		var told []error
		s := open(t, steadystore.Options{
			OnChange: func(err error) { told = append(told, err) },
			Open: func(ctx context.Context) (gatestore.Store, error) {
				if tries++; !up.Load() {
					return nil, errDown
				}
				return memory(ctx)
			},
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if tries < 500 || tries > 2000 {
			t.Errorf("%d attempts in an hour; want about one every five seconds", tries)
		}
		for name, err := range everything(t, s) {
			if !errors.Is(err, task.ErrUnavailable) || !errors.Is(err, errDown) {
				t.Errorf("%s: %v; want unavailable, with the cause", name, err)
			}
		}
		mustBe(t, s.Outage(), errDown)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		mustBe(t, s.Create(ended, build(t, "tg_1"), task.Limits{}), context.Canceled)

		up.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		must(t, s.Create(t.Context(), build(t, "tg_1"), task.Limits{}))
		must(t, s.Outage())
		if !slices.Equal(told, []error{errDown, nil}) {
			t.Errorf("OnChange was called with %v; want the cause of an outage, and nil", told)
		}
	})
}

// TestPermanentErrorIsReturnedAtOnce checks that Open returns permanent errors without a retry.
func TestPermanentErrorIsReturnedAtOnce(t *testing.T) {
	errSetup := errors.New("no such database")
	_, err := steadystore.Open(t.Context(), steadystore.Options{
		Open:      func(context.Context) (gatestore.Store, error) { return nil, errSetup },
		Permanent: func(err error) bool { return errors.Is(err, errSetup) },
	})
	mustBe(t, err, errSetup)
}

// TestCloseBeforeOpen checks that a store can be closed that was never opened.
func TestCloseBeforeOpen(t *testing.T) {
	s, err := steadystore.Open(t.Context(), steadystore.Options{
		Open: func(context.Context) (gatestore.Store, error) { return nil, errDown },
	})
	must(t, err)
	must(t, s.Close())
	must(t, s.Close())
	for name, err := range everything(t, s) {
		if !errors.Is(err, task.ErrClosed) {
			t.Errorf("%s: %v; want closed", name, err)
		}
	}
}

// A failingStore is a store with temporary faults.
type failingStore struct {
	gatestore.Store
	reads, writes atomic.Pointer[error]
	hangs         atomic.Bool
	slow          atomic.Bool // only delays Get
	asked         atomic.Int64
}

func newFailingStore() *failingStore { return &failingStore{Store: memstore.New(memstore.Options{})} }

func (p *failingStore) ill(ctx context.Context, fault *atomic.Pointer[error]) error {
	p.asked.Add(1)
	if p.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := fault.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *failingStore) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	if err := p.ill(ctx, &p.writes); err != nil {
		return err
	}
	return p.Store.Create(ctx, t, l, notes...)
}

func (p *failingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if p.slow.Load() {
		<-ctx.Done()
		return task.Task{}, ctx.Err()
	}
	if err := p.ill(ctx, &p.reads); err != nil {
		return task.Task{}, err
	}
	return p.Store.Get(ctx, ref)
}

// Ends writes before it reads, like stores that chain the journal later.
func (p *failingStore) Ends(ctx context.Context) (auditlog.Ends, error) {
	if err := p.ill(ctx, &p.writes); err != nil {
		return auditlog.Ends{}, err
	}
	return p.Store.Ends(ctx)
}

// probe returns the same error as the next calls would.
func (p *failingStore) probe(ctx context.Context, _ gatestore.Store, _ error) error {
	return errors.Join(p.ill(ctx, &p.reads), p.ill(ctx, &p.writes))
}

func (p *failingStore) options() steadystore.Options {
	return steadystore.Options{Open: func(context.Context) (gatestore.Store, error) { return p, nil }, Probe: p.probe}
}

// TestErrorBeginsOutage checks that after a failed change, changes fail at once until the store
// works again, while reads still work.
func TestErrorBeginsOutage(t *testing.T) {
	full := error(&task.Error{Kind: task.ErrCapacityExceeded, Err: errors.New("no space left")})
	for name, fault := range map[string]error{"an error": errors.New("disk I/O error"), "full": full, "closed": task.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFailingStore()
				s := open(t, p.options())
				must(t, s.Create(t.Context(), build(t, "tg_1"), task.Limits{}))
				p.writes.Store(&fault)
				for range 10 {
					err := s.Create(t.Context(), build(t, "tg_2"), task.Limits{})
					mustBe(t, err, task.ErrUnavailable)
					mustBe(t, err, fault)
				}
				synctest.Wait()
				if n := p.asked.Load(); n > 5 {
					t.Errorf("the store was called %d times during an outage", n)
				}
				_, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
				must(t, err)

				p.writes.Store(nil)
				time.Sleep(time.Second)
				must(t, s.Create(t.Context(), build(t, "tg_2"), task.Limits{}))
			})
		})
	}
}

// TestFullStoreRefusesOnlyGrowth checks that a full store, which did not answer when its outage began, only refuses
// calls that need more storage.
func TestFullStoreRefusesOnlyGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailingStore()
		s := open(t, p.options())
		p.hangs.Store(true)
		_, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		full := error(&task.Error{Kind: task.ErrCapacityExceeded, Err: errors.New("no space left")})
		p.writes.Store(&full)
		p.hangs.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		mustBe(t, s.Outage(), task.ErrCapacityExceeded)
		var refused []string
		for name, err := range everything(t, s) {
			if errors.Is(err, task.ErrUnavailable) {
				refused = append(refused, name)
			}
		}
		slices.Sort(refused)
		if want := []string{"Append", "Create", "Ends", "PutRecord"}; !slices.Equal(refused, want) {
			t.Errorf("refused %q; want %q", refused, want)
		}
	})
}

// TestFullStoreStillReadsTasks checks that tasks can be read from a full store, although its
// journal cannot.
func TestFullStoreStillReadsTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailingStore()
		s := open(t, p.options())
		must(t, s.Create(t.Context(), build(t, "tg_1"), task.Limits{}))
		full := error(&task.Error{Kind: task.ErrCapacityExceeded, Err: errors.New("no space left")})
		p.writes.Store(&full)
		_, err := s.Ends(t.Context())
		mustBe(t, err, task.ErrUnavailable)
		_, err = s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		must(t, err)
		mustBe(t, s.Create(t.Context(), build(t, "tg_2"), task.Limits{}), task.ErrUnavailable)
	})
}

// TestSlowStoreDoesNotBlockOthers checks that only one call waits for a store that does not
// answer, up to the time limit.
func TestSlowStoreDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailingStore()
		o := p.options()
		o.Timeout = 3 * time.Second
		s := open(t, o)
		p.hangs.Store(true)
		start := time.Now()
		_, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		for name, err := range everything(t, s) {
			if !errors.Is(err, task.ErrUnavailable) {
				t.Errorf("%s: %v; want unavailable", name, err)
			}
		}
		if waited := time.Since(start); waited != o.Timeout {
			t.Errorf("waited %v; want %v", waited, o.Timeout)
		}
		p.hangs.Store(false)
		time.Sleep(30 * time.Second)
		_, err = s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrNotFound)
	})
}

// TestSlowReadIsProbed checks that a slow read of many tasks does not start an outage if the store
// answers a probe. If the store does not answer the probe, an outage begins.
func TestSlowReadIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailingStore()
		s := open(t, p.options())
		p.slow.Store(true)
		_, err := s.Get(storekit.SlowRead(t.Context()), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		synctest.Wait()
		must(t, s.Outage())
		must(t, s.Create(t.Context(), build(t, "tg_2"), task.Limits{}))

		p.slow.Store(false)
		p.hangs.Store(true)
		_, err = s.Get(storekit.SlowRead(t.Context()), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		time.Sleep(time.Minute)
		if s.Outage() == nil {
			t.Error("the store does not answer, but no outage began")
		}
		p.hangs.Store(false)
		time.Sleep(time.Minute)
		must(t, s.Outage())
	})
}

// TestErrorsAboutTasksBeginNoOutage checks that errors about a task or a caller do not start an
// outage.
func TestErrorsAboutTasksBeginNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailingStore()
		s := open(t, p.options())
		for _, fault := range []error{
			&task.Error{Kind: task.ErrUnreadable, Err: errors.New("no such key")},
			&task.Error{Kind: task.ErrInvalid}, &task.Error{Kind: task.ErrCapacityExceeded, Limit: 1},
		} {
			p.reads.Store(&fault)
			_, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
			mustBe(t, err, fault)
			must(t, s.Outage())
		}
		p.hangs.Store(true)
		hurry, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Get(hurry, task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, context.DeadlineExceeded)
		must(t, s.Outage())
	})
}

// TestDamagedStoreIsReopened checks that a damaged store is opened again until it works.
func TestDamagedStoreIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		damage := errors.New("malformed")
		p := newFailingStore()
		o := p.options()
		o.Reopen = func(err error) bool { return errors.Is(err, damage) }
		opened := 0
		o.Open = func(context.Context) (gatestore.Store, error) {
			if opened++; opened > 1 {
				p = newFailingStore()
			}
			return p, nil
		}
		o.Probe = func(context.Context, gatestore.Store, error) error { return nil }
		s := open(t, o)
		changed, err := s.Watch(t.Context(), task.AnyOwner().Ref(""))
		must(t, err)
		p.reads.Store(&damage)
		_, err = s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, open := <-changed; open || opened != 2 {
			t.Errorf("opened %d times, watch open: %t; want it opened again and the watch ended", opened, open)
		}
		_, err = s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrNotFound)
	})
}

// A brittleStore fails while its fault is set.
type brittleStore struct {
	gatestore.Store

	down *atomic.Bool
}

func (b brittleStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if b.down.Load() {
		return task.Task{}, errDown
	}
	return b.Store.Get(ctx, ref)
}

// TestOutagesAreReportedInOrder checks that the last call of OnChange has the current state, even if an
// outage begins while the end of the previous one is being reported.
func TestOutagesAreReportedInOrder(t *testing.T) {
	var down atomic.Bool
	told, goOn := make(chan error, 10), make(chan struct{})
	s := open(t, steadystore.Options{
		MinWait: time.Millisecond,
		Open: func(ctx context.Context) (gatestore.Store, error) {
			inner, err := memory(ctx)
			return brittleStore{inner, &down}, err
		},
		Probe: func(context.Context, gatestore.Store, error) error {
			if down.Load() {
				return errDown
			}
			return nil
		},
		OnChange: func(err error) {
			if err == nil {
				goOn <- struct{}{}
				<-goOn
			}
			told <- err
		},
	})
	get := func() { _, _ = s.Get(t.Context(), task.AnyOwner().Ref("tg_1")) }
	down.Store(true)
	get()
	down.Store(false)
	<-goOn // the end of the outage is about to be reported
	down.Store(true)
	again := make(chan struct{})
	go func() {
		defer close(again)
		get()
	}()
	select {
	case <-again: // it did not wait for OnChange
	case <-time.After(50 * time.Millisecond):
	}
	goOn <- struct{}{}
	<-again
	for i, want := range []error{errDown, nil, errDown} {
		if got := <-told; !errors.Is(got, want) {
			t.Errorf("call %d of OnChange: %v; want %v", i, got, want)
		}
	}
	down.Store(false)
	<-goOn
	goOn <- struct{}{}
}
