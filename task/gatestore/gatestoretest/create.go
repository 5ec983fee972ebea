package gatestoretest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func createCases() []testCase {
	return []testCase{
		{"Create keeps every field", createRoundTrip},
		{"Create keeps a big task", createBig},
		{"Create refuses an ID that exists", createTwice},
		{"Create keeps the owner's limit", createPerOwner},
		{"Create keeps the total limit", createTotal},
		{"Create counts only pending tasks", createCountsPending},
		{"Create keeps the limit of an owner's bytes", createAccountBytes},
		{"concurrent creations use up the owner's bytes exactly", createAccountBytesRace},
		{"Create with Unique refuses a second task for the same call", createUnique},
		{"concurrent creations use up a limit exactly", createRace},
		{"unidentified owners share the limit of their group", createGroups},
		{"owners of one group share its bytes", createGroupBytes},
		{"concurrent creations use up the bytes of a group exactly", createGroupBytesRace},
		{"concurrent creations use up a group's limit exactly", createGroupsRace},
		{"concurrent creations and ends never exceed a limit", createChurn},
		{"concurrent creations with Unique make one task", createUniqueRace},
	}
}

func createRoundTrip(t reporter, s gatestore.Store) {
	fresh := build(t, draft("tg_new", "ann"), epoch)
	must(t, s.Create(t.Context(), fresh, task.Limits{}))
	mustEqual(t, "a new task", get(t, s, fresh.ID), fresh)

	for _, want := range []task.Task{full(t, "tg_full", "ann"), rejected(t, "tg_rejected", "ann")} {
		must(t, s.Create(t.Context(), want, task.Limits{}))
		mustEqual(t, "a full task", get(t, s, want.ID), want)
	}
}

func createBig(t reporter, s gatestore.Store) {
	d := draft("tg_big", "ann")
	d.Call.Arguments = `{"data":"` + strings.Repeat("0123456789abcdef", 32<<10) + `"}`
	d.Call.Message = `{"params":` + d.Call.Arguments + `}`
	want := build(t, d, epoch)
	for i := range 50 {
		name := fmt.Sprintf("client.v%d", i)
		want = apply(t, want, epoch, lifecycle.SetVariables{
			Side: task.ClientSide, Values: task.Variables{name: []byte(`"` + strings.Repeat("x", 1000) + `"`)},
		})
	}
	must(t, s.Create(t.Context(), want, task.Limits{}))
	mustEqual(t, "a big task", get(t, s, want.ID), want)
}

func createTwice(t reporter, s gatestore.Store) {
	first := add(t, s, "tg_a", "ann", epoch)
	for _, owner := range []string{"ann", "bob"} {
		other := build(t, draft("tg_a", owner), epoch.Add(time.Second))
		mustBe(t, s.Create(t.Context(), other, task.Limits{PerOwner: 1, Total: 1}), task.ErrExists)
	}
	mustEqual(t, "the first task", get(t, s, "tg_a"), first)
}

func createPerOwner(t reporter, s gatestore.Store) {
	limits := task.Limits{PerOwner: 2, RetryAfter: time.Minute}
	for i, owner := range []string{"ann", "ann", "Ann", "bob"} {
		made := build(t, draft(task.ID(fmt.Sprint("tg_", i)), owner), epoch)
		must(t, s.Create(t.Context(), made, limits))
	}
	err := s.Create(t.Context(), build(t, draft("tg_more", "ann"), epoch), limits)
	mustBe(t, err, task.ErrRateLimited)
	var e *task.Error
	if !errors.As(err, &e) || e.RetryAfter != time.Minute || e.Limit != 2 {
		t.Fatalf("err = %#v; want the limit and the time to retry", err)
	}
	_, err = s.Get(t.Context(), anyone("tg_more"))
	mustBe(t, err, task.ErrNotFound)
}

func createTotal(t reporter, s gatestore.Store) {
	limits := task.Limits{PerOwner: 2, Total: 3}
	for i, owner := range []string{"ann", "bob", "eve"} {
		must(t, s.Create(t.Context(), build(t, draft(task.ID(fmt.Sprint("tg_", i)), owner), epoch), limits))
	}
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_more", "zoe"), epoch), limits), task.ErrCapacityExceeded)
}

func createCountsPending(t reporter, s gatestore.Store) {
	limits := task.Limits{PerOwner: 1, Total: 2}
	must(t, s.Create(t.Context(), full(t, "tg_ended", "ann"), limits))
	must(t, s.Create(t.Context(), build(t, draft("tg_1", "ann"), epoch), limits))
	must(t, s.Create(t.Context(), build(t, draft("tg_2", "bob"), epoch), limits))

	more := build(t, draft("tg_3", "ann"), epoch)
	advance(t, s, "tg_1", epoch, lifecycle.Submit{By: "gate", Deadline: epoch.Add(ttl)}, lifecycle.Approve{By: "bob"})
	mustBe(t, s.Create(t.Context(), more, limits), task.ErrRateLimited)
	advance(t, s, "tg_2", epoch, lifecycle.Cancel{By: "bob"})
	mustBe(t, s.Create(t.Context(), more, limits), task.ErrRateLimited)
	advance(t, s, "tg_1", epoch, lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(ttl)},
		lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}})
	must(t, s.Create(t.Context(), more, limits))

	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 3 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 3 tasks", n, err)
	}
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_4", "ann"), epoch), limits), task.ErrRateLimited)
	must(t, s.Create(t.Context(), build(t, draft("tg_5", "bob"), epoch), limits))
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_6", "eve"), epoch), limits), task.ErrCapacityExceeded)
}

// inGroup returns a task of an unidentified owner.
func inGroup(t reporter, id task.ID, owner, group string) task.Task {
	d := draft(id, owner)
	d.Group = group
	return build(t, d, epoch)
}

// createGroups checks three promises: owners in one group share its limit, all groups together
// leave a part of the total to owners without a group, and ended tasks do not count.
func createGroups(t reporter, s gatestore.Store) {
	limits := task.Limits{PerOwner: 2, PerGroup: 3, Grouped: 5, Total: 7, RetryAfter: time.Minute}
	for i := range 3 {
		must(t, s.Create(t.Context(), inGroup(t, task.ID(fmt.Sprint("tg_a", i)), fmt.Sprint("unidentified ", i), "a"), limits))
	}
	err := s.Create(t.Context(), inGroup(t, "tg_a3", "unidentified 3", "a"), limits)
	mustBe(t, err, task.ErrRateLimited)
	var e *task.Error
	if !errors.As(err, &e) || e.RetryAfter != time.Minute || e.Limit != 3 || e.Size != 3 {
		t.Fatalf("err = %#v; want the limit of the group and the time to retry", err)
	}
	for i := range 2 {
		must(t, s.Create(t.Context(), inGroup(t, task.ID(fmt.Sprint("tg_b", i)), fmt.Sprint("other ", i), "b"), limits))
	}
	mustBe(t, s.Create(t.Context(), inGroup(t, "tg_b2", "other 2", "b"), limits), task.ErrCapacityExceeded)
	must(t, s.Create(t.Context(), build(t, draft("tg_1", "ann"), epoch), limits))
	must(t, s.Create(t.Context(), build(t, draft("tg_2", "ann"), epoch), limits))
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_3", "bob"), epoch), limits), task.ErrCapacityExceeded)

	advance(t, s, "tg_a0", epoch, lifecycle.Submit{By: "gate", Deadline: epoch.Add(ttl)})
	mustBe(t, s.Create(t.Context(), inGroup(t, "tg_a4", "unidentified 4", "a"), limits), task.ErrRateLimited)
	advance(t, s, "tg_a0", epoch, lifecycle.Cancel{By: "unidentified 0"})
	must(t, s.Create(t.Context(), inGroup(t, "tg_a5", "unidentified 5", "a"), limits))
	got, err := s.Get(t.Context(), anyone("tg_a5"))
	must(t, err)
	if got.Group != "a" {
		t.Fatalf("the task has the group %q; want a", got.Group)
	}
}

// createGroupsRace checks that the limits of groups hold for concurrent creations, and that
// groups leave owners without a group their part.
func createGroupsRace(t reporter, s gatestore.Store) {
	limits := task.Limits{PerOwner: 5, PerGroup: 20, Grouped: 50, Total: 60}
	made := make([]task.Task, 160)
	for i := range made {
		made[i] = inGroup(t, task.NewID(epoch), fmt.Sprint("unidentified ", i), fmt.Sprint("group ", i%4))
		if i%16 == 0 {
			made[i] = build(t, draft(task.NewID(epoch), fmt.Sprint("identified ", i)), epoch)
		}
	}
	errs := together(len(made), func(i int) error { return s.Create(t.Context(), made[i], limits) })
	byGroup := make(map[string]int)
	for i, err := range errs {
		switch {
		case err == nil:
			byGroup[made[i].Group]++
		case made[i].Group == "":
			t.Fatalf("an owner without a group: %v", err)
		case !errors.Is(err, task.ErrRateLimited):
			mustBe(t, err, task.ErrCapacityExceeded)
		}
	}
	all := 0
	for group, n := range byGroup {
		if all += n; group != "" && n > limits.PerGroup {
			t.Fatalf("%s has %d tasks; the limit is %d", group, n, limits.PerGroup)
		}
	}
	if all != limits.Total {
		t.Fatalf("%d tasks created; the limit is %d", all, limits.Total)
	}
}

func createUnique(t reporter, s gatestore.Store) {
	unique := task.Limits{Unique: true, PerOwner: 1}
	must(t, s.Create(t.Context(), build(t, draft("tg_1", "ann"), epoch), unique))

	err := s.Create(t.Context(), build(t, draft("tg_2", "ann"), epoch), unique)
	mustBe(t, err, task.ErrDuplicate)
	var e *task.Error
	if !errors.As(err, &e) || e.ID != "tg_1" {
		t.Fatalf("err = %#v; want the pending task", err)
	}

	must(t, s.Create(t.Context(), build(t, draft("tg_3", "bob"), epoch), unique)) // another owner's
	other := draft("tg_4", "ann")
	other.Call.Arguments = `{"path":1}`
	must(t, s.Create(t.Context(), build(t, other, epoch), task.Limits{Unique: true})) // another call
	must(t, s.Create(t.Context(), build(t, draft("tg_5", "ann"), epoch), task.Limits{}))

	advance(t, s, "tg_1", epoch, lifecycle.Cancel{By: "ann"})
	mustBe(t, s.Create(t.Context(), build(t, draft("tg_6", "ann"), epoch), unique), task.ErrDuplicate)
	advance(t, s, "tg_5", epoch, lifecycle.Cancel{By: "ann"})
	must(t, s.Create(t.Context(), build(t, draft("tg_6", "ann"), epoch), task.Limits{Unique: true}))
}

// accountBytes returns the limit with which an owner without tasks can have n tasks like the
// given one. A store that encrypts tasks may need more bytes than the task itself.
func accountBytes(t reporter, s gatestore.Store, like task.Task, n int) int64 {
	t.Helper()
	err := s.Create(t.Context(), like, task.Limits{AccountBytes: 1})
	mustBe(t, err, task.ErrOwnerFull)
	var e *task.Error
	if !errors.As(err, &e) || e.Size < like.Weight() || e.Limit != 1 || !e.StoreFull {
		t.Fatalf("err = %#v; want the weight and the limit", err)
	}
	return e.Size * int64(n)
}

func createAccountBytes(t reporter, s gatestore.Store) {
	large := func(id task.ID, owner string) task.Task {
		d := draft(id, owner)
		d.Call.Message = `"` + strings.Repeat("x", 100<<10) + `"`
		return build(t, d, epoch)
	}
	limits := task.Limits{AccountBytes: accountBytes(t, s, large("tg_1", "ann"), 3), RetryAfter: time.Minute}
	for _, id := range []task.ID{"tg_1", "tg_2", "tg_3"} {
		must(t, s.Create(t.Context(), large(id, "ann"), limits))
	}
	err := s.Create(t.Context(), large("tg_4", "ann"), limits)
	mustBe(t, err, task.ErrOwnerFull)
	var e *task.Error
	if !errors.As(err, &e) || e.RetryAfter != time.Minute || e.Size <= e.Limit {
		t.Fatalf("err = %#v; want the weight, the limit and the time to retry", err)
	}
	must(t, s.Create(t.Context(), large("tg_5", "bob"), limits))

	// A task that has run counts with its call and its answer, also after its end.
	answer := []byte(`"` + strings.Repeat("x", 60<<10) + `"`)
	advance(t, s, "tg_1", epoch, lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(ttl)},
		lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK, Inline: answer, Size: int64(len(answer))}})
	// A task that is cancelled before a decision loses its message.
	advance(t, s, "tg_2", epoch, lifecycle.Cancel{By: "ann"})
	mustBe(t, s.Create(t.Context(), large("tg_4", "ann"), limits), task.ErrOwnerFull)
	advance(t, s, "tg_3", epoch, lifecycle.Cancel{By: "ann"})
	must(t, s.Create(t.Context(), large("tg_4", "ann"), limits))

	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 3 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 3 tasks", n, err)
	}
	for _, id := range []task.ID{"tg_6", "tg_7"} {
		must(t, s.Create(t.Context(), large(id, "ann"), limits))
	}
	mustBe(t, s.Create(t.Context(), large("tg_8", "ann"), limits), task.ErrOwnerFull)
}

func createAccountBytesRace(t reporter, s gatestore.Store) {
	made := make([]task.Task, 30)
	for i := range made {
		made[i] = build(t, draft(task.NewID(epoch), "ann"), epoch)
	}
	const most = 7
	limits := task.Limits{AccountBytes: accountBytes(t, s, made[0], most)}
	errs := together(len(made), func(i int) error { return s.Create(t.Context(), made[i], limits) })
	if n := succeeded(t, errs, task.ErrOwnerFull); n != most {
		t.Fatalf("%d tasks created; the limit is %d", n, most)
	}
}

// createGroupBytes checks that the bytes of a group count together, whoever owns its tasks,
// until they are deleted, and apart from those of owners without a group.
func createGroupBytes(t reporter, s gatestore.Store) {
	create := func(id task.ID, owner, group string, limits task.Limits) error {
		return s.Create(t.Context(), inGroup(t, id, owner, group), limits)
	}
	limits := task.Limits{AccountBytes: accountBytes(t, s, inGroup(t, "tg_1", "ann", "g"), 2)}
	for range 2 {
		must(t, create("tg_1", "ann", "g", limits))
		must(t, create("tg_2", "bob", "g", limits))
		mustBe(t, create("tg_3", "ann", "g", limits), task.ErrOwnerFull)
		mustBe(t, create("tg_3", "eve", "g", limits), task.ErrOwnerFull)
		must(t, create("tg_4", "ann", "h", limits))
		for _, id := range []task.ID{"tg_5", "tg_6"} {
			must(t, create(id, "g", "", limits))
		}
		mustBe(t, create("tg_7", "g", "", limits), task.ErrOwnerFull)

		for _, id := range []task.ID{"tg_1", "tg_2", "tg_4", "tg_5", "tg_6"} {
			advance(t, s, id, epoch, lifecycle.Cancel{By: "ann"})
		}
		if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 5 || err != nil {
			t.Fatalf("Sweep = %d, %v; want 5 tasks", n, err)
		}
		var e *task.Error
		err := create("tg_1", "ann", "g", task.Limits{AccountBytes: 1})
		if !errors.As(err, &e) || e.Size != limits.AccountBytes/2 {
			t.Fatalf("err = %#v; want the weight of one task only", err)
		}
	}
}

func createGroupBytesRace(t reporter, s gatestore.Store) {
	made := make([]task.Task, 40)
	for i := range made {
		made[i] = inGroup(t, task.NewID(epoch), fmt.Sprintf("unidentified %02d", i), "g")
	}
	one := accountBytes(t, s, made[0], 1)
	for _, most := range []int{7, 31} {
		limits := task.Limits{AccountBytes: one * int64(most)}
		errs := together(len(made), func(i int) error {
			err := s.Create(t.Context(), made[i], limits)
			if errors.Is(err, task.ErrExists) {
				err = nil
			}
			return err
		})
		if n := succeeded(t, errs, task.ErrOwnerFull); n != most {
			t.Fatalf("%d tasks created; the limit is %d", n, most)
		}
	}
}

func createRace(t reporter, s gatestore.Store) {
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

func createChurn(t reporter, s gatestore.Store) {
	const limit, workers, rounds = 3, 8, 5
	var pending atomic.Int64 // a lower bound of the pending tasks
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
			if _, err := lifecycle.Advance(t.Context(), s, anyone(id), lifecycle.Cancel{By: "ann"}, epoch); err != nil {
				return err
			}
		}
		return nil
	}
	for range rounds {
		must(t, errors.Join(together(workers, work)...))
	}
}

func createUniqueRace(t reporter, s gatestore.Store) {
	made := make([]task.Task, 30)
	for i := range made {
		made[i] = build(t, draft(task.NewID(epoch), "ann"), epoch)
	}
	errs := together(len(made), func(i int) error { return s.Create(t.Context(), made[i], task.Limits{Unique: true}) })
	if n := succeeded(t, errs, task.ErrDuplicate); n != 1 {
		t.Fatalf("%d tasks created for the same call; want 1", n)
	}
}
