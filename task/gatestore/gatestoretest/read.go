package gatestoretest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func readCases() []testCase {
	return []testCase{
		{"Get of an unknown task fails", getUnknown},
		{"another owner's task is refused", foreign},
		{"names are compared byte by byte", names},
		{"tasks share no memory with Create and Get", noAliasing},
		{"tasks share no memory with List, Swap and Overdue", noAliasingElsewhere},
	}
}

func getUnknown(t reporter, s gatestore.Store) {
	for _, id := range []task.ID{"tg_nobody", "", "%", "tg_*"} {
		_, err := s.Get(t.Context(), anyone(id))
		mustBe(t, err, task.ErrNotFound)
		_, err = s.Get(t.Context(), task.OwnedBy("ann").Ref(id))
		mustBe(t, err, task.ErrNotFound)
	}
}

func foreign(t reporter, s gatestore.Store) {
	want := add(t, s, "tg_a", "ann", epoch)
	for _, scope := range []task.Scope{task.OwnedBy("bob"), task.OwnedBy(""), {}} {
		_, err := s.Get(t.Context(), scope.Ref("tg_a"))
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = s.ReadChunk(t.Context(), scope.Ref("tg_a"), 0)
		mustBe(t, err, task.ErrOwnerMismatch)
		mustBe(t, s.WriteChunk(t.Context(), scope.Ref("tg_a"), 0, []byte("x")), task.ErrOwnerMismatch)
		page, err := s.List(t.Context(), task.Query{Scope: scope})
		must(t, err)
		mustEqual(t, "another owner's list", len(page.Tasks), 0)
	}
	_, err := s.ReadChunk(t.Context(), anyone("tg_a"), 0)
	mustBe(t, err, task.ErrChunkMissing)
	for _, scope := range []task.Scope{task.OwnedBy("ann"), task.AnyOwner()} {
		got, err := s.Get(t.Context(), scope.Ref("tg_a"))
		must(t, err)
		mustEqual(t, "the own task", got, want)
	}
}

func names(t reporter, s gatestore.Store) {
	all := []string{
		"ann", "Ann", "ann ", " ann", "a%n", "a_n", "a'n", `a"n`, `a\n`, "a\nn", "a{n}", "a:n", "a*n",
		"\u00e9", "e\u0301", "\u00df", "ss", "\u65e5\u672c", "\U0001f600", "\uffff", "\u202eann",
	}
	made := make([]task.Task, len(all))
	for i, name := range all {
		made[i] = add(t, s, task.ID("tg_"+name), "o:"+name, epoch)
	}
	for i, name := range all {
		mustEqual(t, fmt.Sprintf("task %q", name), get(t, s, task.ID("tg_"+name)), made[i])
		page, err := s.List(t.Context(), task.Query{Scope: task.OwnedBy("o:" + name)})
		must(t, err)
		mustEqual(t, fmt.Sprintf("list of %q", name), page.Tasks, made[i:i+1])
		must(t, s.Create(t.Context(), build(t, draft(task.NewID(epoch), "o:"+name), epoch.Add(time.Second)), task.Limits{PerOwner: 2}))
	}
}

func noAliasing(t reporter, s gatestore.Store) {
	for _, made := range []task.Task{full(t, "tg_a", "ann"), rejected(t, "tg_r", "bob")} {
		want := made.Clone()
		must(t, s.Create(t.Context(), made, task.Limits{}))
		overwrite(&made)
		mustEqual(t, "after overwriting the created task", get(t, s, want.ID), want)
		got := get(t, s, want.ID)
		overwrite(&got)
		mustEqual(t, "after overwriting the task from Get", get(t, s, want.ID), want)
	}
}

func noAliasingElsewhere(t reporter, s gatestore.Store) {
	want := full(t, "tg_a", "ann")
	must(t, s.Create(t.Context(), want, task.Limits{}))
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner()})
	must(t, err)
	overwrite(&page.Tasks[0])
	mustEqual(t, "after overwriting the task from List", get(t, s, "tg_a"), want)

	running := apply(t, build(t, draft("tg_b", "ann"), epoch), epoch,
		lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)}, lifecycle.Approve{By: "bob"},
		lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)},
		lifecycle.Progress{By: "gate", InputRequests: json.RawMessage(`{"a":1,"b":2}`), RequestState: "s1", Release: true},
	)
	must(t, s.Create(t.Context(), running, task.Limits{}))
	running = apply(t, running, epoch, lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`1.0`)}})
	want = running.Clone()
	must(t, s.Swap(t.Context(), running))
	overwrite(&running)
	mustEqual(t, "after overwriting the swapped task", get(t, s, "tg_b"), want)

	overdue, err := s.Overdue(t.Context(), epoch.Add(2*ttl), 10)
	must(t, err)
	mustEqual(t, "overdue tasks", len(overdue), 1)
	overwrite(&overdue[0])
	mustEqual(t, "after overwriting the task from Overdue", get(t, s, "tg_b"), want)
}

// overwrite overwrites all memory of t that a copy might share.
func overwrite(t *task.Task) {
	for i := range t.Transitions {
		t.Transitions[i].By = "mallory"
	}
	for name := range t.Variables {
		t.Variables[name][0] = '!'
	}
	if t.Variables != nil {
		t.Variables["client.more"] = nil
	}
	if t.Approval != nil {
		t.Approval.Quorum = 99
		t.Approval.Approvals[0].By = "mallory"
	}
	if t.Approval != nil && t.Approval.Rejection != nil {
		t.Approval.Rejection.By = "mallory"
	}
	if t.Execution != nil {
		t.Execution.Executor = "mallory"
		for i := range t.Execution.InputRequests {
			t.Execution.InputRequests[i] = '!'
		}
		for i := range t.Execution.Answers {
			t.Execution.Answers[i] = '!'
		}
	}
	if t.Failure != nil {
		t.Failure.Reason = "mallory"
	}
	if t.Result != nil {
		t.Result.Kind, t.Result.Inline[0] = "none", '!'
	}
}
