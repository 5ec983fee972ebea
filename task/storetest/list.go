package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

func listCases() []testCase {
	return []testCase{
		{"List of nothing", listEmpty},
		{"List is newest first", listOrder},
		{"List orders equal times by ID", listTies},
		{"List selects by owner, state and digest", listSelects},
		{"List follows changes of state", listFollows},
		{"List has pages of the size asked for", listPages},
		{"List ends with the last task", listEnd},
		{"List of heads", listHeads},
		{"List of outlines", listOutlines},
		{"List of what is owed to upstreams", listOwing},
		{"cursors survive new tasks", cursorInserts},
		{"cursors survive deleted tasks", cursorDeletes},
		{"cursors of another query or of nobody are refused", cursorForged},
	}
}

// list returns the IDs of the tasks that q selects, page by page.
func list(t reporter, s task.GateStore, q task.Query) []task.ID {
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
			t.Fatalf("pages never end")
		}
		q.Cursor = page.Next
	}
}

func listEmpty(t reporter, s task.GateStore) {
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
func listOrder(t reporter, s task.GateStore) {
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

// listHeads: a list of heads is the same list, with no more of each task.
func listHeads(t reporter, s task.GateStore) {
	for i := range 5 {
		add(t, s, task.ID(fmt.Sprint("tg_", i)), []string{"ann", "bob"}[i%2], epoch.Add(time.Duration(i)*time.Microsecond))
	}
	changed := apply(t, get(t, s, "tg_1"), epoch.Add(time.Second), task.Cancel{By: "bob"})
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

// lessOf demands that a query which asks for less of each task, as ask says, finds
// the same pages, with what less returns of each task.
func lessOf(t reporter, s task.GateStore, q task.Query, ask func(*task.Query), less func(task.Task) task.Task) {
	t.Helper()
	const enough = 100 // more pages than there are tasks
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
	t.Fatalf("pages never end")
}

// listOutlines: a list of outlines is the same list, without what may be large,
// and each is of the newest version.
func listOutlines(t reporter, s task.GateStore) {
	for i := range 5 {
		add(t, s, task.ID(fmt.Sprint("tg_", i)), []string{"ann", "bob"}[i%2], epoch.Add(time.Duration(i)*time.Microsecond))
	}
	admit, claim := task.Admit{By: "gate"}, task.Claim{By: "gate 1", LeaseUntil: epoch.Add(time.Minute)}
	advance(t, s, "tg_1", epoch, task.Cancel{By: "bob"})
	advance(t, s, "tg_2", epoch, admit, claim, task.Complete{By: "gate 1", Result: task.Result{Kind: task.ResultOK, Size: 2, Inline: []byte("{}")}})
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

// C20: tasks whose upstream is still to be told of their end are found among all
// others, until it has been told.
func listOwing(t reporter, s task.GateStore) {
	admit, claim := task.Admit{By: "gate"}, task.Claim{By: "gate 1", LeaseUntil: epoch.Add(time.Minute)}
	var want []task.ID
	for i := range 12 {
		id := task.ID(fmt.Sprintf("tg_%02d", i))
		add(t, s, id, []string{"ann", "bob"}[i%2], epoch.Add(-time.Duration(i)*time.Microsecond))
		switch i % 4 {
		case 0: // it goes on
			advance(t, s, id, epoch, admit, claim)
		case 1: // it never ran
			advance(t, s, id, epoch, task.Cancel{By: "ann"})
		default:
			advance(t, s, id, epoch, admit, claim, task.Cancel{By: "ann"})
			want = append(want, id)
		}
	}
	owing := task.Query{Scope: task.AnyOwner(), Owing: true}
	for limit := range 3 {
		owing.Limit = limit
		mustEqual(t, "owing", list(t, s, owing), want)
	}
	heads := owing
	heads.Heads = true
	mustEqual(t, "heads of those", list(t, s, heads), want)
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Owing: true, Limit: 1})
	must(t, err)
	_, err = s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 1, Cursor: page.Next})
	mustBe(t, err, task.ErrInvalidCursor)

	advance(t, s, want[0], epoch, task.CancelUpstream{By: "gate 1", Now: true}) // tried, and not settled
	mustEqual(t, "owing after a try", list(t, s, owing), want)
	advance(t, s, want[0], epoch, task.SettleUpstream{By: "gate 1", Outcome: task.CancellationSent})
	mustEqual(t, "owing after one was told", list(t, s, owing), want[1:])
	if n, err := s.Sweep(t.Context(), get(t, s, want[1]).Due().Add(time.Second), 100); n == 0 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}
	mustEqual(t, "owing after the sweep", list(t, s, owing), []task.ID(nil))

	// A store may be given a task that owes something already.
	late := apply(t, build(t, draft("tg_copied", "ann"), epoch), epoch, admit, claim, task.Cancel{By: "ann"})
	must(t, s.Create(t.Context(), late, task.Limits{}))
	mustEqual(t, "owing after a copy", list(t, s, owing), []task.ID{"tg_copied"})
}

func listTies(t reporter, s task.GateStore) {
	ids := []task.ID{"tg_b", "tg_B", "tg_a", "tg_\u00e9", "tg_z", "tg_", "tg_10", "tg_9", "tg_\U0001f600", "tg_\uffee", "tg_-", "tg__"}
	for i, id := range ids {
		add(t, s, id, []string{"ann", "bob"}[i%2], epoch)
	}
	slices.Sort(ids)
	for limit := range 4 {
		mustEqual(t, "tasks of one time", list(t, s, task.Query{Scope: task.AnyOwner(), Limit: limit}), ids)
	}
}

func listSelects(t reporter, s task.GateStore) {
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

func listFollows(t reporter, s task.GateStore) {
	add(t, s, "tg_a", "ann", epoch)
	in := func(state task.State) []task.ID {
		return list(t, s, task.Query{Scope: task.OwnedBy("ann"), States: []task.State{state}})
	}
	for _, step := range []struct {
		event task.Event
		from  task.State
		to    task.State
	}{
		{task.Submit{By: "gate", Deadline: epoch.Add(time.Minute)}, task.Working, task.InputRequired},
		{task.Approve{By: "bob"}, task.InputRequired, task.Approved},
		{task.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)}, task.Approved, task.Executing},
		{task.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}}, task.Executing, task.Completed},
	} {
		advance(t, s, "tg_a", epoch, step.event)
		mustEqual(t, "the former state", len(in(step.from)), 0)
		mustEqual(t, "the present state", in(step.to), []task.ID{"tg_a"})
	}
}

// listPages covers GOV-001 F-005.5: 20 tasks on a page, and 100 at most.
func listPages(t reporter, s task.GateStore) {
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

func listEnd(t reporter, s task.GateStore) {
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
		t.Fatalf("cursors %q and %q; want one after the first page only", first.Next, second.Next)
	}
}

// halfway adds six tasks and returns the cursor after the newest three.
func halfway(t reporter, s task.GateStore) task.Query {
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

func cursorInserts(t reporter, s task.GateStore) {
	q := halfway(t, s)
	add(t, s, "tg_new", "ann", epoch.Add(time.Minute))
	add(t, s, "tg_x", "ann", epoch.Add(3*time.Second)) // the time of the last one on the first page
	add(t, s, "tg_", "ann", epoch.Add(3*time.Second))
	mustEqual(t, "the second half", list(t, s, q), []task.ID{"tg_x", "tg_2", "tg_1", "tg_0"})
}

func cursorDeletes(t reporter, s task.GateStore) {
	q := halfway(t, s)
	for _, id := range []task.ID{"tg_5", "tg_3", "tg_1"} { // tg_3 is where the cursor stands
		advance(t, s, id, epoch.Add(6*time.Second), task.Cancel{By: "ann"})
	}
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 3 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 3 tasks", n, err)
	}
	mustEqual(t, "the second half", list(t, s, q), []task.ID{"tg_2", "tg_0"})
}

func cursorForged(t reporter, s task.GateStore) {
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
	q.Limit = 1 // a cursor is good for pages of any size
	mustEqual(t, "the second half", list(t, s, q), []task.ID{"tg_2", "tg_1", "tg_0"})
}
