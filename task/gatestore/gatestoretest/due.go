package gatestoretest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func dueCases() []testCase {
	return []testCase{
		{"Overdue finds overdue tasks, most overdue first", overdue},
		{"Overdue follows deadlines and leases", overdueFollows},
		{"concurrent replicas settle each overdue task once", settleRace},
		{"Sweep deletes old tasks that have ended", sweep},
		{"Sweep keeps its limit", sweepLimit},
		{"concurrent sweeps count each task once", sweepRace},
		{"a swept ID can be used again", sweepReuse},
		{"a replica works when its clock is behind", clockBehind},
	}
}

// due returns the IDs of the overdue tasks at a time.
func due(t reporter, s gatestore.Store, at time.Time) []task.ID {
	t.Helper()
	found, err := s.Overdue(t.Context(), at, 100)
	must(t, err)
	var ids []task.ID
	for _, f := range found {
		ids = append(ids, f.ID)
	}
	return ids
}

func overdue(t reporter, s gatestore.Store) {
	for i, seconds := range []int{4, 1, 3, 0, 2} {
		d := draft(task.ID(fmt.Sprint("tg_", seconds)), []string{"ann", "bob"}[i%2])
		d.TTL = time.Minute + time.Duration(seconds)*time.Microsecond
		must(t, s.Create(t.Context(), build(t, d, epoch), task.Limits{}))
	}
	must(t, s.Create(t.Context(), full(t, "tg_ended", "ann"), task.Limits{}))

	end := epoch.Add(time.Minute)
	mustEqual(t, "at the end of the first", len(due(t, s, end)), 0)
	mustEqual(t, "a microsecond later", due(t, s, end.Add(time.Microsecond)), []task.ID{"tg_0"})
	mustEqual(t, "much later", due(t, s, end.Add(24*time.Hour)), []task.ID{"tg_0", "tg_1", "tg_2", "tg_3", "tg_4"})
	found, err := s.Overdue(t.Context(), end.Add(24*time.Hour), 2)
	must(t, err)
	mustEqual(t, "the first two", len(found), 2)
	mustEqual(t, "the first", found[0], get(t, s, "tg_0"))
}

func overdueFollows(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	for _, step := range []struct {
		event lifecycle.Event
		due   time.Duration
	}{
		{lifecycle.ExtendTTL{TTL: 2 * ttl, Max: 2 * ttl}, 2 * ttl},
		{lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)}, time.Minute},
		{lifecycle.Approve{By: "bob"}, 2 * ttl},
		{lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Second)}, time.Second},
		{lifecycle.RenewLease{By: "gate", Until: epoch.Add(2 * time.Second)}, 2 * time.Second},
		{lifecycle.Progress{By: "gate", UpstreamTask: "u1", Release: true}, 2 * ttl},
		{lifecycle.Resume{By: "gate", LeaseUntil: epoch.Add(time.Second)}, 2 * ttl},
	} {
		advance(t, s, "tg_a", epoch, step.event)
		mustEqual(t, "when due", len(due(t, s, epoch.Add(step.due))), 0)
		mustEqual(t, "overdue", due(t, s, epoch.Add(step.due+time.Microsecond)), []task.ID{"tg_a"})
	}
	advance(t, s, "tg_a", epoch, lifecycle.Cancel{By: "ann"})
	mustEqual(t, "ended", len(due(t, s, epoch.Add(24*time.Hour))), 0)
}

func settleRace(t reporter, s gatestore.Store) {
	const tasks = 30
	for i := range tasks {
		add(t, s, task.ID(fmt.Sprint("tg_", i)), fmt.Sprint("owner", i%3), epoch)
	}
	var settled atomic.Int64
	must(t, errors.Join(together(8, func(i int) error {
		for {
			ended, err := lifecycle.Updater{Store: s}.SettleOverdue(t.Context(), fmt.Sprint("gate-", i), epoch.Add(2*ttl))
			if n := settled.Add(int64(len(ended))); err != nil || len(ended) == 0 || n > tasks {
				return err
			}
		}
	})...))
	if n := settled.Load(); n != tasks {
		t.Fatalf("%d tasks settled; want %d", n, tasks)
	}
	mustEqual(t, "expired tasks", len(list(t, s, task.Query{Scope: task.AnyOwner(), States: []task.State{task.Expired}})), tasks)
}

func sweep(t reporter, s gatestore.Store) {
	pending := add(t, s, "tg_pending", "ann", epoch)
	must(t, s.Create(t.Context(), full(t, "tg_ended", "ann"), task.Limits{}))
	later := draft("tg_later", "ann")
	later.TTL = 2 * ttl
	must(t, s.Create(t.Context(), apply(t, build(t, later, epoch), epoch, lifecycle.Cancel{By: "ann"}), task.Limits{}))

	for _, step := range []struct {
		before time.Time
		want   int
	}{
		{epoch, 0},
		{epoch.Add(ttl), 0},
		{epoch.Add(ttl + time.Microsecond), 1},
		{epoch.Add(ttl + time.Microsecond), 0},
		{epoch.Add(2*ttl + time.Microsecond), 1},
		{epoch.Add(100 * ttl), 0},
	} {
		if n, err := s.Sweep(t.Context(), step.before, 10); n != step.want || err != nil {
			t.Fatalf("Sweep before %v = %d, %v; want %d", step.before.Sub(epoch), n, err, step.want)
		}
	}
	for _, id := range []task.ID{"tg_ended", "tg_later"} {
		_, err := s.Get(t.Context(), anyone(id))
		mustBe(t, err, task.ErrNotFound)
		mustBe(t, s.Swap(t.Context(), full(t, id, "ann")), task.ErrNotFound)
	}
	mustEqual(t, "the pending task", get(t, s, "tg_pending"), pending)
	mustEqual(t, "the list", list(t, s, task.Query{Scope: task.OwnedBy("ann")}), []task.ID{"tg_pending"})
	mustEqual(t, "the list of all", list(t, s, task.Query{Scope: task.AnyOwner()}), []task.ID{"tg_pending"})
}

// addEnded adds tasks that may be swept after their TTL.
func addEnded(t reporter, s gatestore.Store, n int) {
	t.Helper()
	for i := range n {
		must(t, s.Create(t.Context(), full(t, task.ID(fmt.Sprint("tg_", i)), fmt.Sprint("owner", i%3)), task.Limits{}))
	}
}

func sweepLimit(t reporter, s gatestore.Store) {
	addEnded(t, s, 10)
	for _, want := range []int{4, 4, 2, 0} {
		if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 4); n != want || err != nil {
			t.Fatalf("Sweep = %d, %v; want %d", n, err, want)
		}
	}
}

func sweepRace(t reporter, s gatestore.Store) {
	const tasks = 60
	addEnded(t, s, tasks)
	var swept atomic.Int64
	must(t, errors.Join(together(8, func(int) error {
		for range tasks {
			n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 3)
			swept.Add(int64(n))
			if err != nil {
				return err
			}
		}
		return nil
	})...))
	if n := swept.Load(); n != tasks {
		t.Fatalf("%d tasks were counted; want %d", n, tasks)
	}
	mustEqual(t, "tasks left", len(list(t, s, task.Query{Scope: task.AnyOwner()})), 0)
}

func sweepReuse(t reporter, s gatestore.Store) {
	addEnded(t, s, 1)
	must(t, s.WriteChunk(t.Context(), anyone("tg_0"), 0, []byte("old")))
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
	}
	fresh := add(t, s, "tg_0", "eve", epoch.Add(3*ttl))
	mustEqual(t, "the new task", get(t, s, "tg_0"), fresh)
	_, err := s.ReadChunk(t.Context(), anyone("tg_0"), 0)
	mustBe(t, err, task.ErrChunkMissing)
}

// clockBehind lets a replica create and approve a task. Another replica, whose clock is an hour
// behind, runs it. In a second case the clock of the same replica is set back.
func clockBehind(t reporter, s gatestore.Store) {
	ahead := epoch.Add(time.Hour)
	const lease = 30 * time.Second
	add(t, s, "tg_a", "ann", ahead)
	advance(t, s, "tg_a", epoch, lifecycle.Submit{By: "gate", Deadline: epoch.Add(ttl / 2)})
	mustEqual(t, "the approval deadline", get(t, s, "tg_a").Approval.Deadline, ahead.Add(ttl/2))
	advance(t, s, "tg_a", ahead.Add(time.Minute), lifecycle.Approve{By: "bob"})
	advance(t, s, "tg_a", epoch, lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(lease)})
	until := ahead.Add(time.Minute + lease)
	mustEqual(t, "the lease", get(t, s, "tg_a").Execution.LeaseUntil, until)
	mustEqual(t, "overdue by the slow clock", len(due(t, s, epoch.Add(2*lease))), 0)
	mustEqual(t, "overdue by the other clock, when the lease ends", len(due(t, s, until)), 0)
	_, err := lifecycle.Advance(t.Context(), s, anyone("tg_a"), lifecycle.Lapse{By: "other"}, epoch.Add(2*lease))
	mustBe(t, err, task.ErrNotReady)
	advance(t, s, "tg_a", epoch.Add(lease), lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}}, lifecycle.Deliver{})

	last := ahead
	for _, x := range get(t, s, "tg_a").Transitions {
		if x.At.Before(last) {
			t.Fatalf("%s to %s at %v, before the previous transition at %v", x.From, x.To, x.At, last)
		}
		last = x.At
	}
}
