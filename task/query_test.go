package task_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestCompare(t *testing.T) {
	at := func(microseconds int, id task.ID) task.Position {
		return task.Position{CreatedAt: epoch.Add(time.Duration(microseconds) * time.Microsecond), ID: id}
	}
	want := []task.Position{at(2, "z"), at(1, "A"), at(1, "a"), at(1, "\u00e9"), at(0, ""), at(0, "0")}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, task.Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestCursor(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := task.Query{Scope: task.OwnedBy(rapid.String().Draw(r, "owner")), States: rapid.SliceOf(rapid.SampledFrom(task.States())).Draw(r, "states")}
		want := task.Position{
			CreatedAt: time.UnixMicro(rapid.Int64().Draw(r, "micro")).UTC(), ID: task.ID(rapid.String().Draw(r, "id")),
		}
		q.Cursor = q.CursorAfter(want)
		q.States = rapid.Permutation(q.States).Draw(r, "order")
		got, err := q.Position()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			r.Fatalf("%v (-want +got):\n%s", err, diff)
		}

		b := []byte(q.Cursor)
		b[rapid.IntRange(0, len(b)-1).Draw(r, "at")] = rapid.SampledFrom([]byte("ABCxyz019-_=")).Draw(r, "letter")
		if string(b) == q.Cursor {
			return
		}
		q.Cursor = string(b)
		if _, err := q.Position(); !errors.Is(err, task.ErrInvalidCursor) {
			r.Fatalf("a changed cursor: err = %v; want %v", err, task.ErrInvalidCursor)
		}
	})
}

func TestScope(t *testing.T) {
	for _, tt := range []struct {
		scope task.Scope
		owner string
		want  bool
	}{
		{task.OwnedBy("ann"), "ann", true},
		{task.OwnedBy("ann"), "bob", false},
		{task.OwnedBy("ann"), "", false},
		{task.AnyOwner(), "ann", true},
		{task.OwnedBy(""), "", false},
		{task.Scope{}, "", false},
		{task.Scope{}, "ann", false},
	} {
		if got := tt.scope.Admits(tt.owner); got != tt.want {
			t.Errorf("%+v admits %q: %v; want %v", tt.scope, tt.owner, got, tt.want)
		}
	}
}
