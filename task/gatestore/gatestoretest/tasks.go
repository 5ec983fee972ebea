package gatestoretest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// RunTasks checks a store that only keeps tasks.
func RunTasks(t *testing.T, open func(t *testing.T) task.Store) {
	t.Helper()
	for _, c := range slices.Concat(createCases(), readCases(), swapCases(), listCases(), dueCases()) {
		t.Run(c.name, func(t *testing.T) { c.run(t, onlyTasks{Store: open(t)}) })
	}
}

// onlyTasks hides the optional parts of a store, except chunks, which belong to tasks.
type onlyTasks struct {
	task.Store
	others
}

// WriteChunk implements [task.Blobs].
func (o onlyTasks) WriteChunk(ctx context.Context, ref task.Ref, _ int, _ []byte) error {
	_, err := o.Get(ctx, ref)
	return err
}

// ReadChunk implements [task.Blobs].
func (o onlyTasks) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	if _, err := o.Get(ctx, ref); err != nil {
		return nil, err
	}
	return nil, ref.ChunkMissing(n)
}

type others interface {
	task.Watcher
	auditlog.Journal
	gatestore.Records
	gatestore.Reclaimer
}

// RunReopen checks that stored data is still there after the store is opened again. Open
// returns a new handle on the same store each time. The store is empty at first. RunReopen
// closes each handle before it opens the next. It checks all parts of a [gatestore.Store] that
// the store implements.
func RunReopen(t *testing.T, open func() task.Store) {
	t.Helper()
	reopen(t, open)
}

func reopen(t reporter, open func() task.Store) {
	t.Helper()
	first := open()
	wants := kept(t, first)
	closeStore(t, first)

	second := open()
	for _, want := range wants {
		got, err := second.Get(t.Context(), anyone(want.ID))
		must(t, err)
		mustEqual(t, "the task "+string(want.ID)+" in the store that was opened again", got, want)
	}
	_, err := second.Get(t.Context(), anyone("tg_swept"))
	mustBe(t, err, task.ErrNotFound)
	page, err := second.List(t.Context(), task.Query{Scope: task.OwnedBy("ann")})
	must(t, err)
	mustEqual(t, "the number of tasks in the list", len(page.Tasks), len(wants))
	pending, err := second.Overdue(t.Context(), epoch.Add(100*ttl), 10)
	must(t, err)
	mustEqual(t, "the number of tasks that are pending", len(pending), 2)
	mustBe(t, second.Create(t.Context(), build(t, draft("tg_more", "ann"), epoch), task.Limits{PerOwner: 2}), task.ErrRateLimited)
	stillThere(t, second)
	must(t, second.Swap(t.Context(), apply(t, wants[1], epoch.Add(time.Minute), lifecycle.Cancel{By: "ann"})))
	closeStore(t, second)

	third := open()
	got, err := third.Get(t.Context(), anyone(wants[1].ID))
	must(t, err)
	mustEqual(t, "the state of a task that was cancelled after that", got.State, task.Cancelled)
	closeStore(t, third)
}

// kept adds data of each kind to the store, and returns the tasks.
func kept(t reporter, s task.Store) []task.Task {
	t.Helper()
	whole, changed, plain := full(t, "tg_full", "ann"), build(t, draft("tg_changed", "ann"), epoch), build(t, draft("tg_plain", "ann"), epoch)
	for _, made := range []task.Task{whole, changed, plain} {
		must(t, s.Create(t.Context(), made, task.Limits{}))
	}
	changed = apply(t, changed, epoch.Add(time.Second), lifecycle.Submit{By: "gate", Deadline: epoch.Add(ttl)})
	must(t, s.Swap(t.Context(), changed))
	gone := draft("tg_swept", "ann")
	gone.TTL = time.Minute
	must(t, s.Create(t.Context(), apply(t, build(t, gone, epoch), epoch, lifecycle.Cancel{By: "ann"}), task.Limits{}))
	n, err := s.Sweep(t.Context(), epoch.Add(2*time.Minute), 10)
	must(t, err)
	mustEqual(t, "the number of tasks that were swept", n, 1)
	if b, ok := s.(task.Blobs); ok {
		must(t, b.WriteChunk(t.Context(), anyone("tg_full"), 0, []byte("a chunk")))
	}
	if j, ok := s.(auditlog.Journal); ok {
		must(t, j.Append(t.Context(), note("tg_full", "noted")))
	}
	if r, ok := s.(gatestore.Records); ok {
		must(t, r.PutRecord(t.Context(), gatestore.Record{Name: "kept/1", Version: 1, Value: []byte("a value")}))
	}
	return []task.Task{whole, changed, plain}
}

// stillThere checks the data that kept has added besides tasks.
func stillThere(t reporter, s task.Store) {
	t.Helper()
	if b, ok := s.(task.Blobs); ok {
		chunk, err := b.ReadChunk(t.Context(), anyone("tg_full"), 0)
		must(t, err)
		mustEqual(t, "the chunk", string(chunk), "a chunk")
	}
	if j, ok := s.(auditlog.Journal); ok {
		entries, err := j.Entries(t.Context(), auditlog.Query{})
		must(t, err)
		mustEqual(t, "the steps in the journal", steps(entries), []string{"tg_full noted"})
	}
	if r, ok := s.(gatestore.Records); ok {
		record, err := r.GetRecord(t.Context(), "kept/1")
		must(t, err)
		mustEqual(t, "the record", string(record.Value), "a value")
	}
}

// closeStore closes a store.
func closeStore(t reporter, s task.Store) {
	t.Helper()
	must(t, s.Close())
}
