// Package sqltest has the common parts of the tests of the SQL stores: tasks, databases of
// earlier versions, plans of statements, and benchmarks.
package sqltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// Epoch is the time at which tests begin.
var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TTL is the time to live of the tasks in tests.
const TTL = time.Hour

// Add builds the i-th of many different tasks and stores it.
func Add(t testing.TB, s gatestore.Store, i int) task.Task {
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

// MustBe ends the test unless the error matches target.
func MustBe(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

// MustHave checks that the store has exactly the created task.
func MustHave(t testing.TB, s gatestore.Store, want task.Task) {
	t.Helper()
	got, err := s.Get(t.Context(), task.AnyOwner().Ref(want.ID))
	Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// MustNotHave checks that the store does not have the task.
func MustNotHave(t testing.TB, s gatestore.Store, id task.ID) {
	t.Helper()
	_, err := s.Get(t.Context(), task.AnyOwner().Ref(id))
	MustBe(t, err, task.ErrNotFound)
}

// Draft returns the i-th of many different calls by a hundred owners.
func Draft(i int) task.Draft {
	return task.Draft{
		ID: task.NewID(Epoch.Add(time.Duration(i) * time.Microsecond)), Owner: fmt.Sprint("owner", i%100), Workflow: "ops", TTL: TTL, PollInterval: time.Second,
		Verdict: gatetask.Verdict{Reason: "rule 3", Snapshot: "s1"},
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: fmt.Sprintf(`{"path":"/tmp/%d"}`, i),
			Message: fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/tmp/%d"}}}`, i),
		},
	}
}

// MustWake waits until a watch notifies of a change.
func MustWake(t testing.TB, changed <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	select {
	case _, ok := <-changed:
		if !ok {
			t.Fatal("the watch ended")
		}
	case <-ctx.Done():
		t.Fatal("not notified of a change")
	}
}

// A Writable is a store with a Probe method.
type Writable interface {
	gatestore.Store
	Probe(ctx context.Context) error
}

// Writes makes every kind of change and returns the errors by the names of the methods.
func Writes(ctx context.Context, t *testing.T, s Writable, known task.Task) map[string]error {
	t.Helper()
	after, err := lifecycle.Apply(known, lifecycle.Cancel{By: "ann"}, Epoch)
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
	errs["PutRecord"] = s.PutRecord(ctx, gatestore.Record{Name: "x", Version: 1, Value: []byte("x")})
	_, errs["Sweep"] = s.Sweep(ctx, Epoch.Add(-TTL), 10) // although there is no task to delete
	return errs
}
