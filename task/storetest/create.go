package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

func createCases() []testCase {
	return []testCase{
		{"Create keeps every field", createRoundTrip},
		{"Create keeps a big task", createBig},
		{"Create twice", createTwice},
		{"Create within the owner's limit", createPerOwner},
		{"Create within the limit of all", createTotal},
		{"Create counts only what is pending", createCountsPending},
		{"Create refuses the same call when asked to", createUnique},
		{"concurrent creations use up a limit exactly", createRace},
		{"owners that are not identified share a room", createRooms},
		{"concurrent creations use up a room exactly", createRoomsRace},
		{"concurrent creations and ends never exceed a limit", createChurn},
		{"concurrent creations of the same call make one task", createUniqueRace},
	}
}

func createRoundTrip(t reporter, s task.GateStore) {
	fresh := build(t, draft("tg_new", "ann"), epoch)
	must(t, s.Create(t.Context(), fresh, task.Limits{}))
	mustEqual(t, "a new task", get(t, s, fresh.ID), fresh)

	for _, want := range []task.Task{full(t, "tg_full", "ann"), rejected(t, "tg_rejected", "ann")} {
		must(t, s.Create(t.Context(), want, task.Limits{}))
		mustEqual(t, "a full task", get(t, s, want.ID), want)
	}
}

func createBig(t reporter, s task.GateStore) {
	d := draft("tg_big", "ann")
	d.Call.Arguments = `{"data":"` + strings.Repeat("0123456789abcdef", 32<<10) + `"}`
	d.Call.Message = `{"params":` + d.Call.Arguments + `}`
	want := build(t, d, epoch)
	for i := range 50 {
		name := fmt.Sprintf("client.v%d", i)
		want = apply(t, want, epoch, task.SetVariables{
			Side: task.ClientSide, Values: task.Variables{name: []byte(`"` + strings.Repeat("x", 1000) + `"`)},
		})
	}
	must(t, s.Create(t.Context(), want, task.Limits{}))
	mustEqual(t, "a big task", get(t, s, want.ID), want)
}

func createTwice(t reporter, s task.GateStore) {
	first := add(t, s, "tg_a", "ann", epoch)
	for _, owner := range []string{"ann", "bob"} {
		other := build(t, draft("tg_a", owner), epoch.Add(time.Second))
		mustBe(t, s.Create(t.Context(), other, task.Limits{PerOwner: 1, Total: 1}), task.ErrExists)
	}
	mustEqual(t, "the first task", get(t, s, "tg_a"), first)
}

func createPerOwner(t reporter, s task.GateStore) {
	limits := task.Limits{PerOwner: 2, RetryAfter: time.Minute}
	for i, owner := range []string{"ann", "ann", "Ann", "bob"} {
		made := build(t, draft(task.ID(fmt.Sprint("tg_", i)), owner), epoch)
		must(t, s.Create(t.Context(), made, limits))
	}
	err := s.Create(t.Context(), build(t, draft("tg_more", "ann"), epoch), limits)
	mustBe(t, err, task.ErrRateLimited)
	var e *task.Error
	if !errors.As(err, &e) || e.RetryAfter != time.Minute || e.Limit != 2 {
		t.Fatalf("err = %#v; want the limit and when to try again", err)
	}
	_, err = s.Get(t.Context(), anyone("tg_more"))
	mustBe(t, err, task.ErrNotFound)
}

func createTotal(t reporter, s task.GateStore) {
	limits := task.Limits{PerOwner: 2, Total: 3}
	for i, owner := range []string{"ann", "bob", "eve"} {
		must(t, s.Create(t.Context(), build(t, draft(task.ID(fmt.Sprint("tg_", i)), owner), epoch), limits))
	}
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_more", "zoe"), epoch), limits), task.ErrCapacityExceeded)
}

func createCountsPending(t reporter, s task.GateStore) {
	limits := task.Limits{PerOwner: 1, Total: 2}
	must(t, s.Create(t.Context(), full(t, "tg_ended", "ann"), limits))
	must(t, s.Create(t.Context(), build(t, draft("tg_1", "ann"), epoch), limits))
	must(t, s.Create(t.Context(), build(t, draft("tg_2", "bob"), epoch), limits))

	more := build(t, draft("tg_3", "ann"), epoch)
	advance(t, s, "tg_1", epoch, task.Submit{By: "gate", Deadline: epoch.Add(ttl)}, task.Approve{By: "bob"})
	mustBe(t, s.Create(t.Context(), more, limits), task.ErrRateLimited)
	advance(t, s, "tg_2", epoch, task.Cancel{By: "bob"})
	mustBe(t, s.Create(t.Context(), more, limits), task.ErrRateLimited)
	advance(t, s, "tg_1", epoch, task.Claim{By: "gate", LeaseUntil: epoch.Add(ttl)},
		task.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}})
	must(t, s.Create(t.Context(), more, limits))

	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 3 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 3 tasks", n, err)
	}
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_4", "ann"), epoch), limits), task.ErrRateLimited)
	must(t, s.Create(t.Context(), build(t, draft("tg_5", "bob"), epoch), limits))
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_6", "eve"), epoch), limits), task.ErrCapacityExceeded)
}

// inRoom returns a task whose owner nobody has identified.
func inRoom(t reporter, id task.ID, owner, room string) task.Task {
	d := draft(id, owner)
	d.Room = room
	return build(t, d, epoch)
}

// createRooms checks that owners in one room share it, that all rooms leave some
// of the total to owners without one, and that ended tasks count no more.
func createRooms(t reporter, s task.GateStore) {
	limits := task.Limits{PerOwner: 2, PerRoom: 3, Rooms: 5, Total: 7, RetryAfter: time.Minute}
	for i := range 3 {
		must(t, s.Create(t.Context(), inRoom(t, task.ID(fmt.Sprint("tg_a", i)), fmt.Sprint("made up ", i), "a"), limits))
	}
	err := s.Create(t.Context(), inRoom(t, "tg_a3", "made up 3", "a"), limits)
	mustBe(t, err, task.ErrRateLimited)
	var e *task.Error
	if !errors.As(err, &e) || e.RetryAfter != time.Minute || e.Limit != 3 || e.Size != 3 {
		t.Fatalf("err = %#v; want the limit of the room and when to try again", err)
	}
	for i := range 2 {
		must(t, s.Create(t.Context(), inRoom(t, task.ID(fmt.Sprint("tg_b", i)), fmt.Sprint("other ", i), "b"), limits))
	}
	mustBe(t, s.Create(t.Context(), inRoom(t, "tg_b2", "other 2", "b"), limits), task.ErrCapacityExceeded)
	must(t, s.Create(t.Context(), build(t, draft("tg_1", "ann"), epoch), limits))
	must(t, s.Create(t.Context(), build(t, draft("tg_2", "ann"), epoch), limits))
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_3", "bob"), epoch), limits), task.ErrCapacityExceeded)

	advance(t, s, "tg_a0", epoch, task.Submit{By: "gate", Deadline: epoch.Add(ttl)})
	mustBe(t, s.Create(t.Context(), inRoom(t, "tg_a4", "made up 4", "a"), limits), task.ErrRateLimited)
	advance(t, s, "tg_a0", epoch, task.Cancel{By: "made up 0"})
	must(t, s.Create(t.Context(), inRoom(t, "tg_a5", "made up 5", "a"), limits))
	got, err := s.Get(t.Context(), anyone("tg_a5"))
	must(t, err)
	if got.Room != "a" {
		t.Fatalf("the task has the room %q; want a", got.Room)
	}
}

// createRoomsRace checks that the limits of rooms hold for tasks that are created
// at the same time, and that those leave owners without a room what is theirs.
func createRoomsRace(t reporter, s task.GateStore) {
	limits := task.Limits{PerOwner: 5, PerRoom: 20, Rooms: 50, Total: 60}
	made := make([]task.Task, 160)
	for i := range made {
		made[i] = inRoom(t, task.NewID(epoch), fmt.Sprint("made up ", i), fmt.Sprint("room ", i%4))
		if i%16 == 0 {
			made[i] = build(t, draft(task.NewID(epoch), fmt.Sprint("identified ", i)), epoch)
		}
	}
	errs := together(len(made), func(i int) error { return s.Create(t.Context(), made[i], limits) })
	byRoom := make(map[string]int)
	for i, err := range errs {
		switch {
		case err == nil:
			byRoom[made[i].Room]++
		case made[i].Room == "":
			t.Fatalf("an owner without a room: %v", err)
		case !errors.Is(err, task.ErrRateLimited):
			mustBe(t, err, task.ErrCapacityExceeded)
		}
	}
	all := 0
	for room, n := range byRoom {
		if all += n; room != "" && n > limits.PerRoom {
			t.Fatalf("%s has %d tasks; the limit is %d", room, n, limits.PerRoom)
		}
	}
	if all != limits.Total {
		t.Fatalf("%d tasks created; the limit is %d", all, limits.Total)
	}
}

func createUnique(t reporter, s task.GateStore) {
	unique := task.Limits{Unique: true, PerOwner: 1}
	must(t, s.Create(t.Context(), build(t, draft("tg_1", "ann"), epoch), unique))

	err := s.Create(t.Context(), build(t, draft("tg_2", "ann"), epoch), unique)
	mustBe(t, err, task.ErrDuplicate)
	var e *task.Error
	if !errors.As(err, &e) || e.ID != "tg_1" {
		t.Fatalf("err = %#v; want the task that is pending", err)
	}

	must(t, s.Create(t.Context(), build(t, draft("tg_3", "bob"), epoch), unique)) // somebody else's
	other := draft("tg_4", "ann")
	other.Call.Arguments = `{"path":1}`
	must(t, s.Create(t.Context(), build(t, other, epoch), task.Limits{Unique: true})) // another call
	must(t, s.Create(t.Context(), build(t, draft("tg_5", "ann"), epoch), task.Limits{}))

	advance(t, s, "tg_1", epoch, task.Cancel{By: "ann"})
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_6", "ann"), epoch), unique), task.ErrDuplicate)
	advance(t, s, "tg_5", epoch, task.Cancel{By: "ann"})
	must(t, s.Create(t.Context(), build(t, draft("tg_6", "ann"), epoch), task.Limits{Unique: true}))
}

func createRace(t reporter, s task.GateStore) {
	limits := task.Limits{PerOwner: 5, Total: 12}
	const owners, each = 4, 20
	made := make([]task.Task, owners*each)
	for i := range made {
		made[i] = build(t, draft(task.NewID(epoch), fmt.Sprint("owner", i%owners)), epoch)
	}
	errs := together(len(made), func(i int) error {
		err := s.Create(t.Context(), made[i], limits)
		if errors.Is(err, task.ErrRateLimited) {
			err = task.ErrCapacityExceeded
		}
		return err
	})
	if n := succeeded(t, errs, task.ErrCapacityExceeded); n != limits.Total {
		t.Fatalf("%d tasks created; the limit is %d", n, limits.Total)
	}
	for i := range owners {
		page, err := s.List(t.Context(), task.Query{Scope: task.OwnedBy(fmt.Sprint("owner", i))})
		must(t, err)
		if len(page.Tasks) > limits.PerOwner {
			t.Fatalf("one owner has %d tasks; the limit is %d", len(page.Tasks), limits.PerOwner)
		}
	}
}

func createChurn(t reporter, s task.GateStore) {
	const limit, workers, rounds = 3, 8, 5
	var pending atomic.Int64 // tasks that are certainly pending, and maybe more are
	work := func(int) error {
		var mine []task.ID
		for range limit + 1 {
			id := task.NewID(epoch)
			switch err := s.Create(t.Context(), build(t, draft(id, "ann"), epoch), task.Limits{PerOwner: limit}); {
			case err == nil:
				mine = append(mine, id)
			case !errors.Is(err, task.ErrRateLimited):
				return err
			}
		}
		if n := pending.Add(int64(len(mine))); n > limit {
			return fmt.Errorf("%d tasks are pending; the limit is %d", n, limit)
		}
		for _, id := range mine {
			pending.Add(-1)
			if _, err := task.Advance(t.Context(), s, anyone(id), task.Cancel{By: "ann"}, epoch); err != nil {
				return err
			}
		}
		return nil
	}
	for range rounds {
		must(t, errors.Join(together(workers, work)...))
	}
}

func createUniqueRace(t reporter, s task.GateStore) {
	made := make([]task.Task, 30)
	for i := range made {
		made[i] = build(t, draft(task.NewID(epoch), "ann"), epoch)
	}
	errs := together(len(made), func(i int) error { return s.Create(t.Context(), made[i], task.Limits{Unique: true}) })
	if n := succeeded(t, errs, task.ErrDuplicate); n != 1 {
		t.Fatalf("%d tasks created for the same call; want 1", n)
	}
}
