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

func reclaimCases() []testCase {
	return []testCase{
		{"Reclaim deletes tasks that no client needs", reclaim},
		{"Reclaim deletes the earliest due first, of one account or of all", reclaimOrder},
		{"Reclaim makes room for other owners of the group", reclaimGroup},
		{"concurrent reclaims count each task once", reclaimRace},
	}
}

func reclaim(t reporter, s gatestore.Store) {
	later := epoch.Add(time.Second)
	ran := []lifecycle.Event{
		lifecycle.Admit{By: "gate"},
		lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)},
		lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}},
	}
	asked := lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)}
	for id, events := range map[task.ID][]lifecycle.Event{
		"tg_pending":   {asked},
		"tg_approved":  {lifecycle.Admit{By: "gate"}},
		"tg_done":      ran,
		"tg_told":      append(ran[:3:3], lifecycle.Deliver{}),
		"tg_rejected":  {asked, lifecycle.Reject{By: "eve"}},
		"tg_withdrawn": {asked, lifecycle.Cancel{By: "ann"}},
		"tg_owing": {
			lifecycle.Admit{By: "gate"},
			lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)},
			lifecycle.Progress{By: "gate", UpstreamTask: "u1", Release: true},
			lifecycle.Cancel{By: "ann"},
			lifecycle.Deliver{},
		},
	} {
		must(t, s.Create(t.Context(), build(t, draft(id, "ann"), epoch), task.Limits{}))
		advance(t, s, id, later, events...)
	}
	expired := apply(t, build(t, draft("tg_expired", "ann"), epoch), epoch.Add(2*ttl), lifecycle.Expire{By: "gate"})
	must(t, s.Create(t.Context(), expired, task.Limits{}))
	must(t, s.WriteChunk(t.Context(), anyone("tg_told"), 0, []byte("old")))

	reclaimed(t, s, "owner:bob", 0)
	reclaimed(t, s, "owner:ann", 3)
	for _, id := range []task.ID{"tg_told", "tg_withdrawn", "tg_expired"} {
		_, err := s.Get(t.Context(), anyone(id))
		mustBe(t, err, task.ErrNotFound)
	}
	for _, id := range []task.ID{"tg_pending", "tg_approved", "tg_done", "tg_rejected", "tg_owing"} {
		get(t, s, id)
	}
	add(t, s, "tg_told", "eve", epoch)
	_, err := s.ReadChunk(t.Context(), anyone("tg_told"), 0)
	mustBe(t, err, task.ErrChunkMissing)

	// Deleted tasks no longer count towards the bytes of the account.
	one := build(t, draft("tg_more", "zoe"), epoch)
	limits := task.Limits{AccountBytes: accountBytes(t, s, one, 1)}
	must(t, s.Create(t.Context(), one, limits))
	again := build(t, draft("tg_next", "zoe"), epoch)
	advance(t, s, "tg_more", epoch, lifecycle.Cancel{By: "zoe"})
	mustBe(t, s.Create(t.Context(), again, limits), task.ErrOwnerFull)
	reclaimed(t, s, "owner:zoe", 1)
	must(t, s.Create(t.Context(), again, limits))
}

func reclaimGroup(t reporter, s gatestore.Store) {
	one, other := inGroup(t, "tg_1", "ann", "g"), inGroup(t, "tg_2", "bob", "g")
	limits := task.Limits{AccountBytes: accountBytes(t, s, one, 1)}
	must(t, s.Create(t.Context(), one, limits))
	advance(t, s, "tg_1", epoch, lifecycle.Cancel{By: "ann"})
	mustBe(t, s.Create(t.Context(), other, limits), task.ErrOwnerFull)
	reclaimed(t, s, "owner:ann", 0)
	reclaimed(t, s, "group:h", 0)
	reclaimed(t, s, "group:g", 1)
	must(t, s.Create(t.Context(), other, limits))
}

// reclaimed fails the test unless Reclaim deletes so many tasks of the account.
func reclaimed(t reporter, s gatestore.Store, account string, want int) {
	t.Helper()
	if n, err := s.Reclaim(t.Context(), account, 10); n != want || err != nil {
		t.Fatalf("Reclaim of %s = %d, %v; want %d tasks", account, n, err, want)
	}
}

func reclaimOrder(t reporter, s gatestore.Store) {
	for i, minutes := range []int{5, 2, 4, 1, 3} {
		d := draft(task.ID(fmt.Sprint("tg_", minutes)), []string{"ann", "bob"}[i%2])
		d.TTL = time.Duration(minutes) * time.Minute
		must(t, s.Create(t.Context(), apply(t, build(t, d, epoch), epoch, lifecycle.Cancel{By: "ann"}), task.Limits{}))
	}
	for _, step := range []struct {
		account string
		scope   task.Scope
		left    []task.ID
	}{
		{"owner:ann", task.OwnedBy("ann"), []task.ID{"tg_1", "tg_2"}},
		{"", task.AnyOwner(), nil},
	} {
		if _, err := s.Reclaim(t.Context(), step.account, 0); err != nil {
			t.Fatalf("Reclaim of none: %v", err)
		}
		var first []task.ID
		for len(list(t, s, task.Query{Scope: step.scope})) > 0 {
			before := list(t, s, task.Query{Scope: task.AnyOwner()})
			if n, err := s.Reclaim(t.Context(), step.account, 1); n != 1 || err != nil {
				t.Fatalf("Reclaim = %d, %v; want 1 task", n, err)
			}
			first = append(first, gone(before, list(t, s, task.Query{Scope: task.AnyOwner()}))...)
		}
		for i := range first[1:] {
			if first[i] > first[i+1] {
				t.Fatalf("deleted in the order %v; want the earliest due first", first)
			}
		}
		mustEqual(t, "the remaining tasks", list(t, s, task.Query{Scope: task.AnyOwner()}), step.left)
	}
}

// gone returns the elements of before that are not in after.
func gone(before, after []task.ID) (gone []task.ID) {
	there := make(map[task.ID]bool)
	for _, id := range after {
		there[id] = true
	}
	for _, id := range before {
		if !there[id] {
			gone = append(gone, id)
		}
	}
	return gone
}

func reclaimRace(t reporter, s gatestore.Store) {
	const tasks = 60
	addEnded(t, s, tasks)
	var deleted atomic.Int64
	must(t, errors.Join(together(8, func(int) error {
		for range tasks {
			n, err := s.Reclaim(t.Context(), "", 3)
			deleted.Add(int64(n))
			if err != nil {
				return err
			}
		}
		return nil
	})...))
	if n := deleted.Load(); n != tasks {
		t.Fatalf("%d tasks were counted; want %d", n, tasks)
	}
	mustEqual(t, "tasks left", len(list(t, s, task.Query{Scope: task.AnyOwner()})), 0)
}
