package gatestoretest

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func lifeCases() []testCase {
	return []testCase{
		{"every method ends with its context", cancelled},
		{"every method of a closed store fails", closed},
	}
}

// every calls each method of s once and returns the errors by the names of the methods.
func every(ctx context.Context, t reporter, s gatestore.Store) map[string]error {
	t.Helper()
	errs := make(map[string]error)
	errs["Create"] = s.Create(ctx, build(t, draft("tg_b", "ann"), epoch), task.Limits{})
	_, errs["Get"] = s.Get(ctx, anyone("tg_a"))
	errs["Swap"] = s.Swap(ctx, apply(t, build(t, draft("tg_a", "ann"), epoch), epoch, lifecycle.Cancel{By: "ann"}))
	_, errs["List"] = s.List(ctx, task.Query{Scope: task.AnyOwner()})
	_, errs["Overdue"] = s.Overdue(ctx, epoch, 10)
	_, errs["Sweep"] = s.Sweep(ctx, epoch.Add(2*ttl), 10)
	errs["WriteChunk"] = s.WriteChunk(ctx, anyone("tg_a"), 0, []byte("x"))
	_, errs["ReadChunk"] = s.ReadChunk(ctx, anyone("tg_a"), 0)
	_, errs["Watch"] = s.Watch(ctx, anyone("tg_a"))
	errs["Append"] = s.Append(ctx, note("tg_a", "noted"))
	_, errs["Entries"] = s.Entries(ctx, auditlog.Query{})
	_, errs["Ends"] = s.Ends(ctx)
	_, errs["Trim"] = s.Trim(ctx, epoch.Add(2*ttl), 10)
	return errs
}

func cancelled(t reporter, s gatestore.Store) {
	want := add(t, s, "tg_a", "ann", epoch)
	must(t, s.Create(t.Context(), full(t, "tg_ended", "ann"), task.Limits{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for method, err := range every(ctx, t, s) {
		if err == nil {
			t.Fatalf("%s ignored the end of its context", method)
		}
		mustBe(t, err, context.Canceled)
	}
	mustEqual(t, "the task", get(t, s, "tg_a"), want)
	get(t, s, "tg_ended")
	_, err := s.Get(t.Context(), anyone("tg_b"))
	mustBe(t, err, task.ErrNotFound)
	_, err = s.ReadChunk(t.Context(), anyone("tg_a"), 0)
	mustBe(t, err, task.ErrChunkMissing)
	if ends, err := s.Ends(t.Context()); err != nil || ends != (auditlog.Ends{}) {
		t.Fatalf("Ends = %v, %v; want nothing", ends, err)
	}
}

func closed(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	changed := watch(t, s, anyone("tg_a"))
	must(t, s.Close())
	must(t, s.Close())
	mustClose(t, changed)
	for method, err := range every(t.Context(), t, s) {
		if err == nil {
			t.Fatalf("%s works on a closed store", method)
		}
		mustBe(t, err, task.ErrClosed)
	}
}
