// Package sqltest holds what the tests of the stores in SQL databases have in
// common: tasks to try them with, databases of earlier versions, plans of statements,
// and benchmarks.
package sqltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Epoch is when tests begin.
var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TTL is how long the tasks of tests live.
const TTL = time.Hour

// Add makes the i-th of many different tasks and has the store keep it.
func Add(t testing.TB, s task.GateStore, i int) task.Task {
	t.Helper()
	made := Build(t, i)
	Must(t, s.Create(t.Context(), made, task.Limits{}))
	return made
}

// Build returns the i-th of many different tasks.
func Build(t testing.TB, i int) task.Task {
	t.Helper()
	made, err := task.New(Draft(i), Epoch.Add(time.Duration(i)*time.Microsecond))
	Must(t, err)
	return made
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// MustBe ends the test unless the error is the one that is wanted.
func MustBe(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

// MustHave checks that the store has exactly what was created.
func MustHave(t testing.TB, s task.GateStore, want task.Task) {
	t.Helper()
	got, err := s.Get(t.Context(), task.AnyOwner().Ref(want.ID))
	Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// MustNotHave checks that the store has no such task.
func MustNotHave(t testing.TB, s task.GateStore, id task.ID) {
	t.Helper()
	_, err := s.Get(t.Context(), task.AnyOwner().Ref(id))
	MustBe(t, err, task.ErrNotFound)
}

// Draft returns the i-th of many different calls by a hundred owners.
func Draft(i int) task.Draft {
	return task.Draft{
		ID: task.NewID(Epoch.Add(time.Duration(i) * time.Microsecond)), Owner: fmt.Sprint("owner", i%100), Workflow: "ops", TTL: TTL, PollInterval: time.Second,
		Verdict: task.Verdict{Reason: "rule 3", Snapshot: "s1"},
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: fmt.Sprintf(`{"path":"/tmp/%d"}`, i),
			Message: fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/tmp/%d"}}}`, i),
		},
	}
}

// MustWake waits until a watch tells of a change.
func MustWake(t testing.TB, changed <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	select {
	case _, ok := <-changed:
		if !ok {
			t.Fatal("the watch has ended")
		}
	case <-ctx.Done():
		t.Fatal("not told of a change")
	}
}

// A Writable is a store that can be probed.
type Writable interface {
	task.GateStore
	Probe(ctx context.Context) error
}

// Writes makes every kind of change there is and returns the errors by what was
// tried.
func Writes(ctx context.Context, t *testing.T, s Writable, known task.Task) map[string]error {
	t.Helper()
	after, err := known.Apply(task.Cancel{By: "ann"}, Epoch)
	Must(t, err)
	ref := task.AnyOwner().Ref(known.ID)
	note := task.Note{At: Epoch, Step: "tried"}
	errs := map[string]error{
		"Create":     s.Create(ctx, Build(t, 77), task.Limits{Total: 1000}, note),
		"Swap":       s.Swap(ctx, after, note),
		"WriteChunk": s.WriteChunk(ctx, ref, 0, []byte("x")),
		"Append":     s.Append(ctx, note),
		"Probe":      s.Probe(ctx),
	}
	errs["PutRecord"] = s.PutRecord(ctx, task.Record{Name: "x", Version: 1, Value: []byte("x")})
	_, errs["Sweep"] = s.Sweep(ctx, Epoch.Add(-TTL), 10) // though there is nothing to delete
	return errs
}
