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
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/steadystore"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func memory(context.Context) (task.GateStore, error) { return memstore.New(memstore.Options{}), nil }

// TestStore: a store that is well behaves as if nothing stood before it.
func TestStore(t *testing.T) {
	storetest.RunGate(t, func(t *testing.T) task.GateStore { return open(t, steadystore.Options{Open: memory}) })
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

// everything calls each method of a store once and returns what each says.
func everything(t *testing.T, s task.GateStore) map[string]error {
	t.Helper()
	ctx, ref := t.Context(), task.AnyOwner().Ref("tg_1")
	_, get := s.Get(ctx, ref)
	_, list := s.List(ctx, task.Query{Scope: task.AnyOwner()})
	_, overdue := s.Overdue(ctx, time.Time{}, 1)
	_, sweep := s.Sweep(ctx, time.Time{}, 1)
	_, read := s.ReadChunk(ctx, ref, 0)
	_, watch := s.Watch(ctx, ref)
	_, entries := s.Entries(ctx, task.JournalQuery{})
	_, ends := s.Ends(ctx)
	_, trim := s.Trim(ctx, time.Time{}, 1)
	_, getRecord := s.GetRecord(ctx, "x")
	_, listRecords := s.ListRecords(ctx, task.RecordQuery{})
	_, sweepRecords := s.SweepRecords(ctx, time.Time{}, 1)
	return map[string]error{
		"Create": s.Create(ctx, build(t, "tg_2"), task.Limits{}), "Swap": s.Swap(ctx, build(t, "tg_1")), "Sweep": sweep,
		"WriteChunk": s.WriteChunk(ctx, ref, 0, []byte("x")),
		"Get":        get, "List": list, "Overdue": overdue, "ReadChunk": read, "Watch": watch,
		"Append": s.Append(ctx, task.Note{At: time.Unix(1, 0), Step: "x"}), "Entries": entries, "Ends": ends, "Trim": trim,
		"PutRecord": s.PutRecord(ctx, task.Record{Name: "x", Version: 1, Value: []byte("x")}), "DeleteRecord": s.DeleteRecord(ctx, "x"),
		"GetRecord": getRecord, "ListRecords": listRecords, "SweepRecords": sweepRecords,
	}
}

var errDown = errors.New("connection refused")

// TestDownAtStart: a store that cannot be opened is opened later, and until
// then every method says the same.
func TestDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		tries := 0
		var told []error
		s := open(t, steadystore.Options{
			Changed: func(err error) { told = append(told, err) },
			Open: func(ctx context.Context) (task.GateStore, error) {
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
				t.Errorf("%s: %v; want unavailable, because of what happened", name, err)
			}
		}
		mustBe(t, s.Trouble(), errDown)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		mustBe(t, s.Create(ended, build(t, "tg_1"), task.Limits{}), context.Canceled)

		up.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		must(t, s.Create(t.Context(), build(t, "tg_1"), task.Limits{}))
		must(t, s.Trouble())
		if !slices.Equal(told, []error{errDown, nil}) {
			t.Errorf("told of %v; want trouble, and its end", told)
		}
	})
}

// TestHopeless: what waiting does not mend is told at once.
func TestHopeless(t *testing.T) {
	errSetup := errors.New("no such database")
	_, err := steadystore.Open(t.Context(), steadystore.Options{
		Open:     func(context.Context) (task.GateStore, error) { return nil, errSetup },
		Hopeless: func(err error) bool { return errors.Is(err, errSetup) },
	})
	mustBe(t, err, errSetup)
}

// TestCloseBeforeOpen: a store that was never opened can be closed.
func TestCloseBeforeOpen(t *testing.T) {
	s, err := steadystore.Open(t.Context(), steadystore.Options{
		Open: func(context.Context) (task.GateStore, error) { return nil, errDown },
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

// A patient is a store with faults that come and go.
type patient struct {
	task.GateStore
	reads, writes atomic.Pointer[error]
	hangs         atomic.Bool
	slow          atomic.Bool // only what is read of a task
	asked         atomic.Int64
}

func newPatient() *patient { return &patient{GateStore: memstore.New(memstore.Options{})} }

func (p *patient) ill(ctx context.Context, fault *atomic.Pointer[error]) error {
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

func (p *patient) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	if err := p.ill(ctx, &p.writes); err != nil {
		return err
	}
	return p.GateStore.Create(ctx, t, l, notes...)
}

func (p *patient) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if p.slow.Load() {
		<-ctx.Done()
		return task.Task{}, ctx.Err()
	}
	if err := p.ill(ctx, &p.reads); err != nil {
		return task.Task{}, err
	}
	return p.GateStore.Get(ctx, ref)
}

// Ends has to write before it reads, as in stores that chain the journal later.
func (p *patient) Ends(ctx context.Context) (task.Ends, error) {
	if err := p.ill(ctx, &p.writes); err != nil {
		return task.Ends{}, err
	}
	return p.GateStore.Ends(ctx)
}

// probe says the same as the next calls would.
func (p *patient) probe(ctx context.Context, _ task.GateStore, _ error) error {
	return errors.Join(p.ill(ctx, &p.reads), p.ill(ctx, &p.writes))
}

func (p *patient) options() steadystore.Options {
	return steadystore.Options{Open: func(context.Context) (task.GateStore, error) { return p, nil }, Probe: p.probe}
}

// TestTrouble: what cannot be written is refused at once until it can, and
// what can be read is read all the while.
func TestTrouble(t *testing.T) {
	full := error(&task.Error{Kind: task.KindCapacityExceeded, Err: errors.New("no space left")})
	for name, fault := range map[string]error{"an error": errors.New("disk I/O error"), "no room": full, "closed by somebody": task.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPatient()
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
					t.Errorf("a store in trouble was asked %d times", n)
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

// TestFull: a store that is full, and did not answer when its trouble began, refuses
// only what takes more room.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient()
		s := open(t, p.options())
		p.hangs.Store(true)
		_, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		full := error(&task.Error{Kind: task.KindCapacityExceeded, Err: errors.New("no space left")})
		p.writes.Store(&full)
		p.hangs.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		mustBe(t, s.Trouble(), task.ErrCapacityExceeded)
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

// TestNoRoomForTheJournal: a journal that cannot be read, because there is no
// room to put it in order, keeps nobody from reading tasks.
func TestNoRoomForTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient()
		s := open(t, p.options())
		must(t, s.Create(t.Context(), build(t, "tg_1"), task.Limits{}))
		full := error(&task.Error{Kind: task.KindCapacityExceeded, Err: errors.New("no space left")})
		p.writes.Store(&full)
		_, err := s.Ends(t.Context())
		mustBe(t, err, task.ErrUnavailable)
		_, err = s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
		must(t, err)
		mustBe(t, s.Create(t.Context(), build(t, "tg_2"), task.Limits{}), task.ErrUnavailable)
	})
}

// TestSlowStoreHoldsUpNobody: nobody waits for long for a store that does not answer, and only
// one waits at all.
func TestSlowStoreHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient()
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

// TestSlowAside: a read for an operator that takes too long is no trouble of a
// store that answers others, but has it looked into: one that answers nobody is
// in trouble.
func TestSlowAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient()
		s := open(t, p.options())
		p.slow.Store(true)
		_, err := s.Get(task.SlowRead(t.Context()), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		synctest.Wait()
		must(t, s.Trouble())
		must(t, s.Create(t.Context(), build(t, "tg_2"), task.Limits{}))

		p.slow.Store(false)
		p.hangs.Store(true)
		_, err = s.Get(task.SlowRead(t.Context()), task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, task.ErrUnavailable)
		time.Sleep(time.Minute)
		if s.Trouble() == nil {
			t.Error("a store that answers nobody is not in trouble")
		}
		p.hangs.Store(false)
		time.Sleep(time.Minute)
		must(t, s.Trouble())
	})
}

// TestNoTrouble: what is about one task or one caller is no trouble of the store.
func TestNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient()
		s := open(t, p.options())
		for _, fault := range []error{
			&task.Error{Kind: task.KindUnreadable, Err: errors.New("no such key")},
			&task.Error{Kind: task.KindInvalid}, &task.Error{Kind: task.KindCapacityExceeded, Limit: 1},
		} {
			p.reads.Store(&fault)
			_, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
			mustBe(t, err, fault)
			must(t, s.Trouble())
		}
		p.hangs.Store(true)
		hurry, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Get(hurry, task.AnyOwner().Ref("tg_1"))
		mustBe(t, err, context.DeadlineExceeded)
		must(t, s.Trouble())
	})
}

// TestReopen: a store that is damaged is opened again until it is not.
func TestReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		damage := errors.New("malformed")
		p := newPatient()
		o := p.options()
		o.Reopen = func(err error) bool { return errors.Is(err, damage) }
		opened := 0
		o.Open = func(context.Context) (task.GateStore, error) {
			if opened++; opened > 1 {
				p = newPatient()
			}
			return p, nil
		}
		o.Probe = func(context.Context, task.GateStore, error) error { return nil }
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

// A brittleStore fails when it is told to.
type brittleStore struct {
	task.GateStore

	down *atomic.Bool
}

func (b brittleStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if b.down.Load() {
		return task.Task{}, errDown
	}
	return b.GateStore.Get(ctx, ref)
}

// TestTroubleComesBack: what is told last is so, also when trouble comes back
// while its end is being told.
func TestTroubleComesBack(t *testing.T) {
	var down atomic.Bool
	told, goOn := make(chan error, 10), make(chan struct{})
	s := open(t, steadystore.Options{
		FirstWait: time.Millisecond,
		Open: func(ctx context.Context) (task.GateStore, error) {
			inner, err := memory(ctx)
			return brittleStore{inner, &down}, err
		},
		Probe: func(context.Context, task.GateStore, error) error {
			if down.Load() {
				return errDown
			}
			return nil
		},
		Changed: func(err error) {
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
	<-goOn // the end of it is about to be told
	down.Store(true)
	again := make(chan struct{})
	go func() {
		defer close(again)
		get()
	}()
	select {
	case <-again: // it did not wait to be told of
	case <-time.After(50 * time.Millisecond):
	}
	goOn <- struct{}{}
	<-again
	for i, want := range []error{errDown, nil, errDown} {
		if got := <-told; !errors.Is(got, want) {
			t.Errorf("told %d: %v; want %v", i, got, want)
		}
	}
	down.Store(false)
	<-goOn
	goOn <- struct{}{}
}
