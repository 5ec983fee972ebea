package memstore_test

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStore covers STOR-01, and the requirements on stores of F-003, F-005, F-007 and F-009 of
// GOV-001.
func TestStore(t *testing.T) {
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return open(t, memstore.Options{}) })
}

func open(t testing.TB, o memstore.Options) *memstore.Store {
	t.Helper()
	s := memstore.New(o)
	t.Cleanup(func() { s.Close() })
	return s
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const ttl = time.Hour

// build returns a task that was created some microseconds after the epoch.
func build(t interface{ Fatal(...any) }, id task.ID, owner string, after int) task.Task {
	made, err := task.New(task.Draft{
		ID: id, Owner: owner, Workflow: "ops", TTL: ttl, PollInterval: 2 * time.Second,
		Verdict: gatetask.Verdict{Reason: "rule 3", Snapshot: "s1"},
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: `{"path":"/tmp/x"}`,
			Message: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/tmp/x"}}}`,
		},
	}, epoch.Add(time.Duration(after)*time.Microsecond))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func mustBe(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

func TestTasksAreLimited(t *testing.T) {
	s := open(t, memstore.Options{MaxTasks: 2})
	for i, id := range []task.ID{"tg_1", "tg_2"} {
		if err := s.Create(t.Context(), build(t, id, "ann", i), task.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	cancel := lifecycle.Cancel{By: "ann"}
	if _, err := lifecycle.Advance(t.Context(), s, task.AnyOwner().Ref("tg_1"), cancel, epoch); err != nil {
		t.Fatal(err)
	}
	more, limits := build(t, "tg_3", "ann", 3), task.Limits{PerOwner: 2, Total: 2}
	mustBe(t, s.Create(t.Context(), more, limits), task.ErrCapacityExceeded)
	mustBe(t, s.Create(t.Context(), more, limits), task.ErrCapacityExceeded) // and it does not count as pending
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
	}
	if err := s.Create(t.Context(), more, limits); err != nil {
		t.Error(err)
	}
}

func TestBytesAreLimited(t *testing.T) {
	ended, err := lifecycle.Apply(build(t, "tg_1", "ann", 1), lifecycle.Submit{By: "gate", Deadline: epoch.Add(ttl)}, epoch)
	if err == nil {
		ended, err = lifecycle.Apply(ended, lifecycle.Reject{By: "bob"}, epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
	second := build(t, "tg_2", "ann", 2)
	s := open(t, memstore.Options{MaxBytes: ended.Weight() + second.Weight() + 10})
	create := func(x task.Task) error { return s.Create(t.Context(), x, task.Limits{}) }
	write := func(id task.ID, n int, data string) error {
		return s.WriteChunk(t.Context(), task.AnyOwner().Ref(id), n, []byte(data))
	}
	mustBe(t, create(ended), nil)
	mustBe(t, create(second), nil)
	mustBe(t, write("tg_1", 0, "12345678"), nil)
	mustBe(t, write("tg_2", 0, "123"), task.ErrCapacityExceeded)
	mustBe(t, write("tg_1", 0, "1234567"), nil) // one chunk replaces another
	mustBe(t, write("tg_2", 0, "123"), nil)
	mustBe(t, write("tg_2", 1, "1"), task.ErrCapacityExceeded)
	third := build(t, "tg_3", "ann", 3)
	mustBe(t, create(third), task.ErrCapacityExceeded)
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
	}
	mustBe(t, write("tg_2", 1, "1234567"), nil)
	mustBe(t, create(third), nil) // as large as the swept one
	mustBe(t, write("tg_2", 2, "1"), task.ErrCapacityExceeded)
}

// An answer that is stored inline is never refused, but it counts towards the limit.
func TestInlineAnswersAreNeverRefused(t *testing.T) {
	x := build(t, "tg_1", "ann", 1)
	s := open(t, memstore.Options{MaxBytes: x.Weight() + 10})
	mustBe(t, s.Create(t.Context(), x, task.Limits{}), nil)
	ref := task.AnyOwner().Ref(x.ID)
	mustBe(t, s.WriteChunk(t.Context(), ref, 0, []byte("12345")), nil)
	answer := task.Result{Kind: task.ResultOK, Inline: []byte(`{"content":[]}`), Size: 14}
	for _, e := range []lifecycle.Event{
		lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(ttl)}, lifecycle.Complete{By: "gate", Result: answer},
	} {
		if _, err := lifecycle.Advance(t.Context(), s, ref, e, epoch); err != nil {
			t.Fatal(err)
		}
	}
	mustBe(t, s.WriteChunk(t.Context(), ref, 1, []byte("1")), task.ErrCapacityExceeded)
	mustBe(t, s.WriteChunk(t.Context(), ref, 0, []byte("1")), nil) // a smaller chunk is always accepted
}

// TestLimitHoldsForConcurrentCreations lets ten thousand creations by many owners compete for a limit of a
// thousand tasks.
func TestLimitHoldsForConcurrentCreations(t *testing.T) {
	const creations, owners, workers = 10_000, 150, 32
	limits := task.Limits{PerOwner: 10, Total: 1000}
	s := open(t, memstore.Options{})
	var next, created, limited, full atomic.Int64
	done := make(chan struct{})
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := next.Add(1); i <= creations; i = next.Add(1) {
				made := build(t, task.NewID(epoch), fmt.Sprint("owner", i%owners), int(i))
				switch err := s.Create(t.Context(), made, limits); {
				case err == nil:
					created.Add(1)
				case errors.Is(err, task.ErrRateLimited):
					limited.Add(1)
				case errors.Is(err, task.ErrCapacityExceeded):
					full.Add(1)
				default:
					t.Error(err)
				}
			}
		}()
	}
	for range workers {
		<-done
	}
	if created.Load() != int64(limits.Total) || created.Load()+limited.Load()+full.Load() != creations {
		t.Errorf("%d created, %d limited, %d refused", created.Load(), limited.Load(), full.Load())
	}
	for i := range owners {
		page, err := s.List(t.Context(), task.Query{Scope: task.OwnedBy(fmt.Sprint("owner", i)), Limit: 100})
		if err != nil || len(page.Tasks) > limits.PerOwner {
			t.Errorf("owner %d has %d tasks, %v", i, len(page.Tasks), err)
		}
	}
}

// TestSweepKeepsNewTasks deletes tasks while others with the same IDs are created, and checks that
// no new task is lost.
func TestSweepKeepsNewTasks(t *testing.T) {
	const tasks = 200
	for range 20 {
		s := open(t, memstore.Options{})
		for i := range tasks {
			ended, err := lifecycle.Apply(build(t, task.ID(fmt.Sprint("tg_", i)), "ann", i), lifecycle.Cancel{By: "ann"}, epoch)
			if err == nil {
				err = s.Create(t.Context(), ended, task.Limits{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		created := make(chan error)
		go func() {
			defer close(created)
			for i := tasks - 1; i >= 0; i-- {
				fresh := build(t, task.ID(fmt.Sprint("tg_", i)), "bob", i)
				err := s.Create(t.Context(), fresh, task.Limits{})
				for errors.Is(err, task.ErrExists) {
					runtime.Gosched()
					err = s.Create(t.Context(), fresh, task.Limits{})
				}
				created <- err
			}
		}()
		if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), tasks); n != tasks || err != nil {
			t.Fatalf("Sweep = %d, %v; want %d tasks", n, err, tasks)
		}
		for err := range created {
			mustBe(t, err, nil)
		}
		for i := range tasks {
			_, err := s.Get(t.Context(), task.OwnedBy("bob").Ref(task.ID(fmt.Sprint("tg_", i))))
			mustBe(t, err, nil)
		}
	}
}

// TestSweepFreesMemory checks that owners without tasks use no memory.
func TestSweepFreesMemory(t *testing.T) {
	const owners = 20_000
	s := open(t, memstore.Options{})
	before := heap()
	for round := range 3 {
		for i := range owners {
			owner := fmt.Sprint("owner", round, "-", i)
			ended, err := lifecycle.Apply(build(t, task.NewID(epoch), owner, i), lifecycle.Cancel{By: owner}, epoch)
			if err == nil {
				err = s.Create(t.Context(), ended, task.Limits{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), owners); n != owners || err != nil {
			t.Fatalf("Sweep = %d, %v; want %d tasks", n, err, owners)
		}
	}
	// Maps keep their buckets, so the limit allows for them, but not for three rounds of tasks.
	if left := (heap() - before) / owners; left > 150 {
		t.Errorf("%d bytes per task remain", left)
	}
	runtime.KeepAlive(s)
}

// TestStoreMatchesModel compares the store with a plain slice under random use, to cover every way of
// filling, splitting and emptying its lists.
func TestStoreMatchesModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := memstore.New(memstore.Options{})
		defer s.Close()
		m := model{t: r, store: s}
		spread := rapid.IntRange(1, 5000).Draw(r, "spread")
		for range rapid.IntRange(1, 6).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"create", "create", "end", "sweep"}).Draw(r, "step") {
			case "create":
				m.create(rapid.IntRange(1, 300).Draw(r, "count"), spread)
			case "end":
				m.end(rapid.IntRange(1, 20).Draw(r, "every"))
			case "sweep":
				m.sweep(rapid.IntRange(1, 500).Draw(r, "limit"))
			}
			m.check()
		}
	})
}

type model struct {
	t     *rapid.T
	store *memstore.Store
	tasks []task.Task
	made  int
}

// create adds tasks at scattered times, many of them equal.
func (m *model) create(count, spread int) {
	for range count {
		m.made++
		made := build(m.t, task.ID(fmt.Sprint("tg_", m.made)), fmt.Sprint("owner", m.made%2), m.made*7919%spread)
		if err := m.store.Create(m.t.Context(), made, task.Limits{}); err != nil {
			m.t.Fatal(err)
		}
		m.tasks = append(m.tasks, made)
	}
}

// end cancels every pending task whose index is a multiple of every.
func (m *model) end(every int) {
	for i, x := range m.tasks {
		if i%every != 0 || x.State.Terminal() {
			continue
		}
		after, err := lifecycle.Advance(m.t.Context(), m.store, task.AnyOwner().Ref(x.ID), lifecycle.Cancel{By: "x"}, epoch)
		if err != nil {
			m.t.Fatal(err)
		}
		m.tasks[i] = after
	}
}

// sweep deletes the oldest ended tasks.
func (m *model) sweep(limit int) {
	n, err := m.store.Sweep(m.t.Context(), epoch.Add(2*ttl), limit)
	ended := 0
	m.tasks = slices.DeleteFunc(m.tasks, func(x task.Task) bool {
		if x.State.Terminal() {
			ended++
		}
		_, gone := m.store.Get(m.t.Context(), task.AnyOwner().Ref(x.ID))
		return errors.Is(gone, task.ErrNotFound)
	})
	if err != nil || n != min(limit, ended) {
		m.t.Fatalf("swept %d of %d with limit %d, %v", n, ended, limit, err)
	}
}

func (m *model) check() {
	for _, q := range []task.Query{
		{Scope: task.AnyOwner(), Limit: 100},
		{Scope: task.OwnedBy("owner1"), Limit: 7},
		{Scope: task.AnyOwner(), States: task.Pending(), Limit: 100},
		{Scope: task.OwnedBy("owner0"), States: []task.State{task.Cancelled}, Limit: 100},
		{Scope: task.OwnedBy("owner0"), Digest: build(m.t, "tg_", "x", 0).Digest, Limit: 3},
	} {
		var want, got []task.ID
		for _, x := range m.tasks {
			if q.Matches(&x) {
				want = append(want, x.ID)
			}
		}
		at := make(map[task.ID]task.Position)
		for _, x := range m.tasks {
			at[x.ID] = x.Position()
		}
		slices.SortFunc(want, func(a, b task.ID) int { return task.Compare(at[a], at[b]) })
		for {
			page, err := m.store.List(m.t.Context(), q)
			if err != nil {
				m.t.Fatal(err)
			}
			for _, x := range page.Tasks {
				got = append(got, x.ID)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			m.t.Fatalf("list (-want +got):\n%s", diff)
		}
	}

	var want []time.Time
	for _, x := range m.tasks {
		if !x.State.Terminal() {
			want = append(want, x.Due())
		}
	}
	slices.SortFunc(want, time.Time.Compare)
	overdue, err := m.store.Overdue(m.t.Context(), epoch.Add(2*ttl), 50)
	var got []time.Time
	for _, x := range overdue {
		got = append(got, x.Due())
	}
	if diff := gocmp.Diff(want[:min(50, len(want))], got); err != nil || cmp.Or(len(want), len(got)) != 0 && diff != "" {
		m.t.Fatalf("overdue: %v (-want +got):\n%s", err, diff)
	}
}

// TestMemoryPerTask checks that each pending task uses less than 1 KiB without its request,
// whether all tasks belong to one owner or each to another.
func TestMemoryPerTask(t *testing.T) {
	const tasks, budget = 10_000, 1024
	for name, owner := range map[string]func(int) string{
		"one owner":   func(int) string { return "ann" },
		"many owners": func(i int) string { return fmt.Sprint("owner", i) },
	} {
		t.Run(name, func(t *testing.T) {
			if got := memoryPerTask(t, tasks, owner); got > budget {
				t.Errorf("%d bytes per task; want at most %d", got, budget)
			}
		})
	}
}

func memoryPerTask(t testing.TB, tasks int, owner func(int) string) int {
	t.Helper()
	before := heap()
	s := open(t, memstore.Options{MaxTasks: tasks})
	for i := range tasks {
		made, err := lifecycle.Apply(build(t, task.NewID(epoch), owner(i), i), lifecycle.Submit{By: "gate", Deadline: epoch.Add(ttl)}, epoch)
		if err == nil {
			err = s.Create(t.Context(), made, task.Limits{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	after := heap()
	runtime.KeepAlive(s)
	return (after - before) / tasks
}

// heap returns the bytes in use after a garbage collection.
func heap() int {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
