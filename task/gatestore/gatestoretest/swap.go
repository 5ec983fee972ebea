package gatestoretest

import (
	"errors"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func swapCases() []testCase {
	return []testCase{
		{"Swap needs the previous version", swapVersion},
		{"Swap conflict contains the current task", swapConflict},
		{"Swap keeps every field", swapRoundTrip},
		{"one of many concurrent swaps succeeds", swapRace},
		{"concurrent changes are all kept", swapAll},
		{"one of many concurrent decisions is final", swapDecisions},
	}
}

func swapVersion(t reporter, s gatestore.Store) {
	first := build(t, draft("tg_a", "ann"), epoch)
	second := apply(t, first, epoch.Add(time.Second), lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)})
	third := apply(t, second, epoch.Add(2*time.Second), lifecycle.Approve{By: "bob"})
	mustBe(t, s.Swap(t.Context(), second), task.ErrNotFound)

	must(t, s.Create(t.Context(), first, task.Limits{}))
	mustBe(t, s.Swap(t.Context(), first), task.ErrConcurrentModification)
	mustBe(t, s.Swap(t.Context(), third), task.ErrConcurrentModification)
	mustEqual(t, "after refused swaps", get(t, s, "tg_a"), first)

	must(t, s.Swap(t.Context(), second))
	mustEqual(t, "after a swap", get(t, s, "tg_a"), second)
	mustBe(t, s.Swap(t.Context(), second), task.ErrConcurrentModification)
	must(t, s.Swap(t.Context(), third))
	mustEqual(t, "after another", get(t, s, "tg_a"), third)
}

func swapConflict(t reporter, s gatestore.Store) {
	first := add(t, s, "tg_a", "ann", epoch)
	stale := apply(t, first, epoch, lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)})
	advance(t, s, "tg_a", epoch, lifecycle.Cancel{By: "ann"})

	err := s.Swap(t.Context(), stale)
	var e *task.Error
	if !errors.As(err, &e) || e.Kind != task.ErrConcurrentModification || e.Actual != task.Cancelled || e.ID != "tg_a" {
		t.Fatalf("err = %#v; want a conflict with the cancelled task", err)
	}
}

func swapRoundTrip(t reporter, s gatestore.Store) {
	want := full(t, "tg_a", "ann")
	bare := build(t, draft("tg_a", "ann"), epoch)
	bare.Version = want.Version - 1
	must(t, s.Create(t.Context(), bare, task.Limits{}))
	must(t, s.Swap(t.Context(), want))
	mustEqual(t, "a full task", get(t, s, "tg_a"), want)

	bare.Version = want.Version + 1
	must(t, s.Swap(t.Context(), bare))
	mustEqual(t, "an emptied task", get(t, s, "tg_a"), bare)
}

func swapRace(t reporter, s gatestore.Store) {
	first := add(t, s, "tg_a", "ann", epoch)
	next := make([]task.Task, 50)
	for i := range next {
		next[i] = apply(t, first, epoch, lifecycle.Cancel{By: fmt.Sprint("canceller ", i)})
	}
	errs := together(len(next), func(i int) error { return s.Swap(t.Context(), next[i]) })
	if n := succeeded(t, errs, task.ErrConcurrentModification); n != 1 {
		t.Fatalf("%d of %d swaps succeeded; want 1", n, len(errs))
	}
	for i, err := range errs {
		if err == nil {
			mustEqual(t, "the winner", get(t, s, "tg_a"), next[i])
		}
	}
}

func swapAll(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	const writers = 20
	must(t, errors.Join(collide(t, s, "tg_a", writers, func(i int) lifecycle.Event {
		return lifecycle.SetVariables{Side: task.ServerSide, Values: task.Variables{fmt.Sprint("server.v", i): []byte("1")}}
	})...))
	if got := get(t, s, "tg_a"); len(got.Variables) != writers || got.Version != writers+1 {
		t.Fatalf("%d variables in version %d; want %d in %d", len(got.Variables), got.Version, writers, writers+1)
	}
}

func swapDecisions(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	advance(t, s, "tg_a", epoch, lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)})
	errs := collide(t, s, "tg_a", 20, func(i int) lifecycle.Event {
		if i%2 == 1 {
			return lifecycle.Reject{By: fmt.Sprint("approver ", i)}
		}
		return lifecycle.Approve{By: fmt.Sprint("approver ", i)}
	})
	won := succeeded(t, errs, task.ErrConcurrentModification)
	if got := get(t, s, "tg_a"); won != 1 || len(got.Transitions) != 2 {
		t.Fatalf("%d decisions were final, %d transitions; want 1 and 2", won, len(got.Transitions))
	}
}
