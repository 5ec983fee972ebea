package gatestoretest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func listCases() []testCase {
	return []testCase{
		{"List of an empty store", listEmpty},
		{"List is newest first", listOrder},
		{"List orders equal times by ID", listTies},
		{"List selects by owner, state and digest", listSelects},
		{"List follows changes of state", listFollows},
		{"List has pages of the requested size", listPages},
		{"List has no cursor after the last task", listEnd},
		{"List of heads has the same tasks", listHeads},
		{"List of outlines has the same tasks", listOutlines},
		{"List of tasks that owe a cancellation", listOwing},
		{"cursors survive new tasks", cursorInserts},
		{"cursors survive deleted tasks", cursorDeletes},
		{"forged cursors and cursors of other queries are refused", cursorForged},
	}
}

// list returns the IDs of the tasks that q selects, page by page.
func list(t reporter, s gatestore.Store, q task.Query) []task.ID {
	t.Helper()
	var ids []task.ID
	for {
		page, err := s.List(t.Context(), q)
		must(t, err)
		for _, found := range page.Tasks {
			ids = append(ids, found.ID)
		}
		if page.Next == "" {
			return ids
		}
		if len(page.Tasks) == 0 || len(ids) > 10_000 {
			t.Fatalf("the list has too many pages")
		}
		q.Cursor = page.Next
	}
}

func listEmpty(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	for _, q := range []task.Query{
		{Scope: task.OwnedBy("bob")},
		{Scope: task.AnyOwner(), States: []task.State{task.Failed}},
		{Scope: task.AnyOwner(), Digest: task.Digest{1}},
	} {
		page, err := s.List(t.Context(), q)
		must(t, err)
		if len(page.Tasks) != 0 || page.Next != "" {
			t.Fatalf("List = %d tasks, next %q; want none", len(page.Tasks), page.Next)
		}
	}
}

// listOrder covers GOV-001 F-005.1 and F-005.3: an owner sees its own tasks,
// newest first.
func listOrder(t reporter, s gatestore.Store) {
	want := make(map[string][]task.ID)
	for i, minute := range []int{5, 1, 9, 3, 7, 0, 8, 2, 6, 4} {
		owner := []string{"ann", "bob"}[i%2]
		add(t, s, task.ID(fmt.Sprint("tg_", minute)), owner, epoch.Add(time.Duration(minute)*time.Microsecond))
	}
	for minute := 9; minute >= 0; minute-- {
		id := task.ID(fmt.Sprint("tg_", minute))
		owner := get(t, s, id).Owner
		want[owner], want[""] = append(want[owner], id), append(want[""], id)
	}
	for limit := range 4 {
		mustEqual(t, "all", list(t, s, task.Query{Scope: task.AnyOwner(), Limit: limit}), want[""])
		mustEqual(t, "of ann", list(t, s, task.Query{Scope: task.OwnedBy("ann"), Limit: limit}), want["ann"])
		mustEqual(t, "of bob", list(t, s, task.Query{Scope: task.OwnedBy("bob"), Limit: limit}), want["bob"])
	}
}

// listHeads checks that a list of heads has the same tasks, with only their heads.
func listHeads(t reporter, s gatestore.Store) {
	for i := range 5 {
		add(t, s, task.ID(fmt.Sprint("tg_", i)), []string{"ann", "bob"}[i%2], epoch.Add(time.Duration(i)*time.Microsecond))
	}
	changed := apply(t, get(t, s, "tg_1"), epoch.Add(time.Second), lifecycle.Cancel{By: "bob"})
	must(t, s.Swap(t.Context(), changed))
	one := get(t, s, "tg_2")
	for _, q := range []task.Query{
		{Scope: task.AnyOwner()},
		{Scope: task.AnyOwner(), Limit: 2},
		{Scope: task.OwnedBy("bob")},
		{Scope: task.AnyOwner(), States: task.Pending()},
		{Scope: task.AnyOwner(), States: []task.State{task.Cancelled}},
		{Scope: task.OwnedBy("ann"), Digest: one.Digest},
	} {
		lessOf(t, s, q, func(q *task.Query) { q.Heads = true }, task.Task.Head)
	}
}

// lessOf checks a query that selects a part of each task. Ask changes the query q in this way,
// and less returns the part of a task. The pages must have the same tasks as those of q.
func lessOf(t reporter, s gatestore.Store, q task.Query, ask func(*task.Query), less func(task.Task) task.Task) {
	t.Helper()
	const enough = 100 // more pages than tasks
	for range enough {
		whole, err := s.List(t.Context(), q)
		must(t, err)
		shorter := q
		ask(&shorter)
		got, err := s.List(t.Context(), shorter)
		must(t, err)
		for i := range whole.Tasks {
			whole.Tasks[i] = less(whole.Tasks[i])
		}
		mustEqual(t, "pages", got, whole)
		if q.Cursor = whole.Next; q.Cursor == "" {
			return
		}
	}
	t.Fatalf("the list has too many pages")
}

// listOutlines checks that a list of outlines has the same tasks in their newest versions,
// without their large fields.
func listOutlines(t reporter, s gatestore.Store) {
	for i := range 5 {
		add(t, s, task.ID(fmt.Sprint("tg_", i)), []string{"ann", "bob"}[i%2], epoch.Add(time.Duration(i)*time.Microsecond))
	}
	admit, claim := lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate 1", LeaseUntil: epoch.Add(time.Minute)}
	advance(t, s, "tg_1", epoch, lifecycle.Cancel{By: "bob"})
	advance(t, s, "tg_2", epoch, admit, claim, lifecycle.Complete{By: "gate 1", Result: task.Result{Kind: task.ResultOK, Size: 2, Inline: []byte("{}")}})
	for _, q := range []task.Query{
		{Scope: task.AnyOwner()},
		{Scope: task.AnyOwner(), Limit: 2},
		{Scope: task.OwnedBy("bob")},
		{Scope: task.AnyOwner(), States: task.Pending()},
		{Scope: task.AnyOwner(), States: []task.State{task.Completed}},
	} {
		lessOf(t, s, q, func(q *task.Query) { q.Outlines = true }, task.Task.Outline)
	}
}

// C20: a query finds tasks whose cancellation the upstream has not received, until it has.
func listOwing(t reporter, s gatestore.Store) {
	admit, claim := lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate 1", LeaseUntil: epoch.Add(time.Minute)}
	var want []task.ID
	for i := range 12 {
		id := task.ID(fmt.Sprintf("tg_%02d", i))
		add(t, s, id, []string{"ann", "bob"}[i%2], epoch.Add(-time.Duration(i)*time.Microsecond))
		switch i % 4 {
		case 0: // still pending
			advance(t, s, id, epoch, admit, claim)
		case 1: // never ran
			advance(t, s, id, epoch, lifecycle.Cancel{By: "ann"})
		default:
			advance(t, s, id, epoch, admit, claim, lifecycle.Cancel{By: "ann"})
			want = append(want, id)
		}
	}
	owing := task.Query{Scope: task.AnyOwner(), OwesCancellation: true}
	for limit := range 3 {
		owing.Limit = limit
		mustEqual(t, "owing", list(t, s, owing), want)
	}
	heads := owing
	heads.Heads = true
	mustEqual(t, "heads of those", list(t, s, heads), want)
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), OwesCancellation: true, Limit: 1})
	must(t, err)
	_, err = s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 1, Cursor: page.Next})
	mustBe(t, err, task.ErrInvalidCursor)

	advance(t, s, want[0], epoch, lifecycle.CancelUpstream{By: "gate 1", OwnerPresent: true}) // attempted, but not settled
	mustEqual(t, "owing after a try", list(t, s, owing), want)
	advance(t, s, want[0], epoch, lifecycle.SettleUpstream{By: "gate 1", Outcome: gatetask.CancellationSent})
	mustEqual(t, "owing after one was settled", list(t, s, owing), want[1:])
	if n, err := s.Sweep(t.Context(), get(t, s, want[1]).Due().Add(time.Second), 100); n == 0 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}
	mustEqual(t, "owing after the sweep", list(t, s, owing), []task.ID(nil))

	// A task may owe a cancellation when it is created.
	late := apply(t, build(t, draft("tg_copied", "ann"), epoch), epoch, admit, claim, lifecycle.Cancel{By: "ann"})
	must(t, s.Create(t.Context(), late, task.Limits{}))
	mustEqual(t, "owing after a copy", list(t, s, owing), []task.ID{"tg_copied"})
}

func listTies(t reporter, s gatestore.Store) {
	ids := []task.ID{"tg_b", "tg_B", "tg_a", "tg_\u00e9", "tg_z", "tg_", "tg_10", "tg_9", "tg_\U0001f600", "tg_\uffee", "tg_-", "tg__"}
	for i, id := range ids {
		add(t, s, id, []string{"ann", "bob"}[i%2], epoch)
	}
	slices.Sort(ids)
	for limit := range 4 {
		mustEqual(t, "tasks of one time", list(t, s, task.Query{Scope: task.AnyOwner(), Limit: limit}), ids)
	}
}

func listSelects(t reporter, s gatestore.Store) {
	add(t, s, "tg_1", "ann", epoch)
	must(t, s.Create(t.Context(), full(t, "tg_2", "ann"), task.Limits{}))
	must(t, s.Create(t.Context(), rejected(t, "tg_3", "bob"), task.Limits{}))
	other := draft("tg_4", "ann")
	other.Call.Name = "read_file"
	read := build(t, other, epoch)
	must(t, s.Create(t.Context(), read, task.Limits{}))

	ann, all := task.OwnedBy("ann"), task.AnyOwner()
	working, ended := []task.State{task.Working}, []task.State{task.Failed, task.Rejected}
	tests := []struct {
		query task.Query
		want  []task.ID
	}{
		{task.Query{Scope: all}, []task.ID{"tg_1", "tg_2", "tg_3", "tg_4"}},
		{task.Query{Scope: ann}, []task.ID{"tg_1", "tg_2", "tg_4"}},
		{task.Query{Scope: all, States: working}, []task.ID{"tg_1", "tg_4"}},
		{task.Query{Scope: all, States: ended}, []task.ID{"tg_2", "tg_3"}},
		{task.Query{Scope: ann, States: ended}, []task.ID{"tg_2"}},
		{task.Query{Scope: ann, States: slices.Concat(working, ended)}, []task.ID{"tg_1", "tg_2", "tg_4"}},
		{task.Query{Scope: all, Digest: read.Digest}, []task.ID{"tg_4"}},
		{task.Query{Scope: ann, Digest: get(t, s, "tg_1").Digest, States: task.Pending()}, []task.ID{"tg_1"}},
	}
	for _, tt := range tests {
		for tt.query.Limit = range 3 {
			mustEqual(t, fmt.Sprintf("%+v", tt.query), list(t, s, tt.query), tt.want)
		}
	}
}

func listFollows(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	in := func(state task.State) []task.ID {
		return list(t, s, task.Query{Scope: task.OwnedBy("ann"), States: []task.State{state}})
	}
	for _, step := range []struct {
		event lifecycle.Event
		from  task.State
		to    task.State
	}{
		{lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)}, task.Working, task.InputRequired},
		{lifecycle.Approve{By: "bob"}, task.InputRequired, task.Approved},
		{lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)}, task.Approved, task.Executing},
		{lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}}, task.Executing, task.Completed},
	} {
		advance(t, s, "tg_a", epoch, step.event)
		mustEqual(t, "the former state", len(in(step.from)), 0)
		mustEqual(t, "the present state", in(step.to), []task.ID{"tg_a"})
	}
}

// listPages covers GOV-001 F-005.5: 20 tasks on a page, and 100 at most.
func listPages(t reporter, s gatestore.Store) {
	const tasks = 105
	for i := range tasks {
		add(t, s, task.ID(fmt.Sprintf("tg_%03d", i)), "ann", epoch.Add(time.Duration(i/3)*time.Millisecond))
	}
	for limit, want := range map[int]int{0: 20, -1: 20, 1: 1, 7: 7, 100: 100, 1000: 100} {
		for _, scope := range []task.Scope{task.OwnedBy("ann"), task.AnyOwner()} {
			page, err := s.List(t.Context(), task.Query{Scope: scope, Limit: limit})
			must(t, err)
			mustEqual(t, fmt.Sprintf("page size with limit %d", limit), len(page.Tasks), want)
		}
	}
	ids := list(t, s, task.Query{Scope: task.OwnedBy("ann"), Limit: 10})
	mustEqual(t, "tasks on all pages", len(ids), tasks)
	slices.Sort(ids)
	mustEqual(t, "different tasks", len(slices.Compact(ids)), tasks)
}

func listEnd(t reporter, s gatestore.Store) {
	for i := range 6 {
		add(t, s, task.ID(fmt.Sprint("tg_", i)), "ann", epoch)
	}
	q := task.Query{Scope: task.OwnedBy("ann"), Limit: 3}
	first, err := s.List(t.Context(), q)
	must(t, err)
	q.Cursor = first.Next
	second, err := s.List(t.Context(), q)
	must(t, err)
	if first.Next == "" || second.Next != "" {
		t.Fatalf("cursors %q and %q; want one only after the first page", first.Next, second.Next)
	}
}

// halfway adds six tasks and returns the cursor after the newest three.
func halfway(t reporter, s gatestore.Store) task.Query {
	t.Helper()
	for i := range 6 {
		add(t, s, task.ID(fmt.Sprint("tg_", i)), "ann", epoch.Add(time.Duration(i)*time.Second))
	}
	q := task.Query{Scope: task.OwnedBy("ann"), Limit: 3}
	page, err := s.List(t.Context(), q)
	must(t, err)
	q.Cursor = page.Next
	return q
}

func cursorInserts(t reporter, s gatestore.Store) {
	q := halfway(t, s)
	add(t, s, "tg_new", "ann", epoch.Add(time.Minute))
	add(t, s, "tg_x", "ann", epoch.Add(3*time.Second)) // the time of the last task on the first page
	add(t, s, "tg_", "ann", epoch.Add(3*time.Second))
	mustEqual(t, "the second half", list(t, s, q), []task.ID{"tg_x", "tg_2", "tg_1", "tg_0"})
}

func cursorDeletes(t reporter, s gatestore.Store) {
	q := halfway(t, s)
	for _, id := range []task.ID{"tg_5", "tg_3", "tg_1"} { // the cursor points to tg_3
		advance(t, s, id, epoch.Add(6*time.Second), lifecycle.Cancel{By: "ann"})
	}
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 3 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 3 tasks", n, err)
	}
	mustEqual(t, "the second half", list(t, s, q), []task.ID{"tg_2", "tg_0"})
}

func cursorForged(t reporter, s gatestore.Store) {
	q := halfway(t, s)
	forged := []string{"x", "!", "0", q.Cursor + "A", q.Cursor[1:], q.Cursor[:len(q.Cursor)-1], strings.ToUpper(q.Cursor), strings.Repeat("A", 4000)}
	for i := range q.Cursor {
		swapped := "A"
		if q.Cursor[i] == 'A' {
			swapped = "B"
		}
		forged = append(forged, q.Cursor[:i]+swapped+q.Cursor[i+1:])
	}
	for _, cursor := range forged {
		_, err := s.List(t.Context(), task.Query{Scope: q.Scope, Limit: q.Limit, Cursor: cursor})
		mustBe(t, err, task.ErrInvalidCursor)
	}
	for _, other := range []task.Query{
		{Scope: task.OwnedBy("bob")},
		{Scope: task.AnyOwner()},
		{Scope: q.Scope, States: []task.State{task.Working}},
		{Scope: q.Scope, Digest: task.Digest{1}},
	} {
		other.Cursor = q.Cursor
		_, err := s.List(t.Context(), other)
		mustBe(t, err, task.ErrInvalidCursor)
	}
	q.Limit = 1 // the page size may change between pages
	mustEqual(t, "the second half", list(t, s, q), []task.ID{"tg_2", "tg_1", "tg_0"})
}
