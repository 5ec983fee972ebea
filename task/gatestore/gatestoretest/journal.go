package gatestoretest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func journalCases() []testCase {
	return []testCase{
		{"the journal of a new store is empty", journalEmpty},
		{"notes are kept and chained", journalChained},
		{"notes are added together with their change", journalChanges},
		{"refused changes leave no notes", journalRefused},
		{"an invalid note prevents its change", journalInvalid},
		{"the journal is read in pages", journalPages},
		{"the journal selects the notes of one task", journalStory},
		{"the journal outlives its tasks", journalOutlives},
		{"concurrent changes make one chain", journalRace},
		{"the journal is trimmed from its beginning", journalTrim},
		{"a journal that was trimmed to its end continues its chain", journalTrimAll},
		{"concurrent trims remove different entries", journalTrimRace},
	}
}

// note returns a note in which every field is set.
func note(id task.ID, step string) task.Note {
	return task.Note{
		At: epoch, Task: id, Step: step, Actor: "gate-1", Requester: "ann", Upstream: "files", Method: "tools/call",
		Tool: "delete_file\u00e9\x01", ArgumentDigest: task.Digest{1, 2, 3}, ToolDigest: "d1", PolicySnapshot: "s1",
		Verdict: "rule 3", Workflow: "ops", Approver: "bob", Reason: "because \u2028 \"<", From: task.Working, To: task.InputRequired,
		Outcome: "ok", Ran: task.RanYes,
	}
}

// notes returns numbered notes about one task.
func notes(n int) []task.Note {
	all := make([]task.Note, n)
	for i := range all {
		all[i] = note("tg_a", fmt.Sprint("step ", i))
	}
	return all
}

// journal reads the whole journal, page by page, and checks its chain.
func journal(t reporter, s gatestore.Store) []auditlog.Entry {
	t.Helper()
	ends, err := s.Ends(t.Context())
	must(t, err)
	var all []auditlog.Entry
	at := ends.Anchor
	for {
		page, err := s.Entries(t.Context(), auditlog.Query{After: at.Seq, Limit: 7})
		must(t, err)
		for _, e := range page {
			must(t, at.Verify(e))
			at = e.Link()
		}
		all = append(all, page...)
		if len(page) == 0 {
			break
		}
	}
	mustEqual(t, "the last entry", at, ends.Head)
	return all
}

// steps returns the steps of the entries.
func steps(entries []auditlog.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, string(e.Task)+" "+e.Step)
	}
	return all
}

func journalEmpty(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	ends, err := s.Ends(t.Context())
	must(t, err)
	mustEqual(t, "the ends", ends, auditlog.Ends{})
	entries, err := s.Entries(t.Context(), auditlog.Query{})
	must(t, err)
	mustEqual(t, "entries", len(entries), 0)
	must(t, s.Append(t.Context()))
	mustEqual(t, "entries after nothing was added", len(journal(t, s)), 0)
}

func journalChained(t reporter, s gatestore.Store) {
	want := append(notes(3), task.Note{At: epoch, Step: "bare"})
	want[1].At = epoch.Add(time.Microsecond + 999).In(time.FixedZone("elsewhere", 3600))
	must(t, s.Append(t.Context(), want...))
	want[1].At = epoch.Add(time.Microsecond)
	mustEqual(t, "the journal", journal(t, s), auditlog.Link{}.Extend(want))

	more := note("tg_b", "more")
	must(t, s.Append(t.Context(), more))
	mustEqual(t, "the journal, continued", journal(t, s), auditlog.Link{}.Extend(append(want, more)))
}

func journalChanges(t reporter, s gatestore.Store) {
	first := build(t, draft("tg_a", "ann"), epoch)
	must(t, s.Create(t.Context(), first, task.Limits{}, note("tg_a", "held"), note("tg_a", "asked")))
	second := apply(t, first, epoch, lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)})
	must(t, s.Swap(t.Context(), second, note("tg_a", "decided")))
	must(t, s.Swap(t.Context(), apply(t, second, epoch, lifecycle.Contact{})))
	mustEqual(t, "the journal", steps(journal(t, s)), []string{"tg_a held", "tg_a asked", "tg_a decided"})
}

func journalRefused(t reporter, s gatestore.Store) {
	held := note("tg_a", "held")
	first := build(t, draft("tg_a", "ann"), epoch)
	cancelled := apply(t, first, epoch, lifecycle.Cancel{By: "ann"})
	mustBe(t, s.Swap(t.Context(), cancelled, held), task.ErrNotFound)
	must(t, s.Create(t.Context(), first, task.Limits{}, held))

	mustBe(t, s.Create(t.Context(), first, task.Limits{}, held), task.ErrExists)
	another := build(t, draft("tg_b", "ann"), epoch)
	mustBe(t, s.Create(t.Context(), another, task.Limits{Unique: true}, held), task.ErrDuplicate)
	mustBe(t, s.Create(t.Context(), another, task.Limits{PerOwner: 1}, held), task.ErrRateLimited)
	mustBe(t, s.Create(t.Context(), another, task.Limits{Total: 1}, held), task.ErrCapacityExceeded)
	mustBe(t, s.Swap(t.Context(), first, held), task.ErrConcurrentModification)
	mustEqual(t, "the journal", steps(journal(t, s)), []string{"tg_a held"})
}

func journalInvalid(t reporter, s gatestore.Store) {
	first := add(t, s, "tg_a", "ann", epoch)
	cancelled := apply(t, first, epoch, lifecycle.Cancel{By: "ann"})
	for name, spoil := range map[string]func(*task.Note){
		"no step":       func(n *task.Note) { n.Step = "" },
		"no time":       func(n *task.Note) { n.At = time.Time{} },
		"invalid UTF-8": func(n *task.Note) { n.Reason = "\xff" },
		"a zero byte":   func(n *task.Note) { n.Task = "tg_\x00" },
	} {
		bad := note("tg_a", "bad")
		spoil(&bad)
		for what, err := range map[string]error{
			"Create": s.Create(t.Context(), build(t, draft("tg_b", "ann"), epoch), task.Limits{}, note("tg_b", "held"), bad),
			"Swap":   s.Swap(t.Context(), cancelled, note("tg_a", "cancelled"), bad),
			"Append": s.Append(t.Context(), note("tg_a", "fine"), bad),
		} {
			if !errors.Is(err, task.ErrInvalid) {
				t.Fatalf("%s with %s: %v", what, name, err)
			}
		}
	}
	mustEqual(t, "the task", get(t, s, "tg_a"), first)
	_, err := s.Get(t.Context(), anyone("tg_b"))
	mustBe(t, err, task.ErrNotFound)
	mustEqual(t, "entries", len(journal(t, s)), 0)
}

func journalPages(t reporter, s gatestore.Store) {
	must(t, s.Append(t.Context(), notes(120)...))
	for _, c := range []struct {
		q           auditlog.Query
		first, size int64
	}{
		{auditlog.Query{}, 1, 100},
		{auditlog.Query{After: 100}, 101, 20},
		{auditlog.Query{After: 5, Limit: 3}, 6, 3},
		{auditlog.Query{After: 119, Limit: 10}, 120, 1},
		{auditlog.Query{After: 120}, 0, 0},
		{auditlog.Query{After: 1000}, 0, 0},
		{auditlog.Query{Limit: 1000}, 1, 120},
		{auditlog.Query{Task: "tg_a", After: 5, Limit: 3}, 6, 3},
		{auditlog.Query{Task: "tg_a", After: 110}, 111, 10},
	} {
		page, err := s.Entries(t.Context(), c.q)
		must(t, err)
		if int64(len(page)) != c.size || c.size > 0 && (page[0].Seq != c.first || page[c.size-1].Seq != c.first+c.size-1) {
			t.Fatalf("Entries(%+v): %d entries; want %d from number %d", c.q, len(page), c.size, c.first)
		}
	}
}

func journalStory(t reporter, s gatestore.Store) {
	for i, id := range []task.ID{"tg_a", "tg_b", "tg_a", "tg_A", "tg_a:1", "", "tg_a"} {
		must(t, s.Append(t.Context(), note(id, fmt.Sprint(i))))
	}
	whole := journal(t, s)
	entries, err := s.Entries(t.Context(), auditlog.Query{Task: "tg_a"})
	must(t, err)
	mustEqual(t, "the entries of the task", entries, []auditlog.Entry{whole[0], whole[2], whole[6]})
	none, err := s.Entries(t.Context(), auditlog.Query{Task: "tg_none"})
	must(t, err)
	mustEqual(t, "entries about nothing", len(none), 0)
}

func journalOutlives(t reporter, s gatestore.Store) {
	must(t, s.Create(t.Context(), full(t, "tg_ended", "ann"), task.Limits{}, note("tg_ended", "held")))
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
	}
	entries, err := s.Entries(t.Context(), auditlog.Query{Task: "tg_ended"})
	must(t, err)
	mustEqual(t, "the entries of the task", steps(entries), []string{"tg_ended held"})
}

func journalRace(t reporter, s gatestore.Store) { journalOf(t, []gatestore.Store{s}) }

// journalOf lets replicas change tasks at the same time, and checks the journal of each
// replica.
func journalOf(t reporter, replicas []gatestore.Store) {
	t.Helper()
	const workers, each = 8, 6
	work := func(i int) error {
		s := replicas[i%len(replicas)]
		for j := range each {
			id := task.ID(fmt.Sprintf("tg_%d_%d", i, j))
			made, err := task.New(draft(id, fmt.Sprint("owner", i)), epoch)
			if err == nil {
				err = s.Create(t.Context(), made, task.Limits{PerOwner: 100, Total: 1000}, note(id, "held"), note(id, "asked"))
			}
			if err == nil {
				tell := func(task.Task, task.Task, lifecycle.Event) []task.Note { return []task.Note{note(id, "cancelled")} }
				_, err = lifecycle.Updater{Store: s, Notes: tell}.Advance(t.Context(), anyone(id), lifecycle.Cancel{By: "ann"}, epoch)
			}
			if err == nil {
				err = s.Append(t.Context(), note(id, "delivered"))
			}
			if err == nil {
				err = finds(t, replicas[(i+1)%len(replicas)], id, 4)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	must(t, errors.Join(together(workers, work)...))

	for _, s := range replicas {
		stories := make(map[task.ID][]string)
		for _, e := range journal(t, s) {
			stories[e.Task] = append(stories[e.Task], e.Step)
		}
		mustEqual(t, "stories", len(stories), workers*each)
		for id, entries := range stories {
			mustEqual(t, "entries of "+string(id), entries, []string{"held", "asked", "cancelled", "delivered"})
		}
	}
}

// finds returns nil if the store has exactly n notes about a task.
func finds(t reporter, s gatestore.Store, id task.ID, n int) error {
	entries, err := s.Entries(t.Context(), auditlog.Query{Task: id})
	if err == nil && len(entries) != n {
		err = fmt.Errorf("found %d notes about %s; want %d", len(entries), id, n)
	}
	return err
}

func journalTrim(t reporter, s gatestore.Store) {
	all := notes(10)
	for i := range all {
		all[i].At = epoch.Add(time.Duration(i) * time.Second)
	}
	all[6].At = epoch // written by a replica whose clock is behind
	all[9].Task = "tg_b"
	must(t, s.Append(t.Context(), all...))
	whole := journal(t, s)

	for _, c := range []struct {
		before  time.Time
		limit   int
		removed int
		left    int
	}{
		{epoch, 10, 0, 10}, // entries at this time stay
		{epoch.Add(2 * time.Second), 0, 0, 10},
		{epoch.Add(2*time.Second + time.Nanosecond), 2, 2, 8},
		{epoch.Add(2*time.Second + time.Nanosecond), 2, 1, 7},
		{epoch.Add(2*time.Second + time.Nanosecond), 2, 0, 7},
		{epoch.Add(5 * time.Second), 100, 2, 5}, // the old entry in the middle stays
	} {
		n, err := s.Trim(t.Context(), c.before, c.limit)
		if err != nil || n != c.removed {
			t.Fatalf("Trim(%v, %d) = %d, %v; want %d", c.before, c.limit, n, err, c.removed)
		}
		mustEqual(t, "the remaining entries", journal(t, s), whole[10-c.left:])
	}
	ends, err := s.Ends(t.Context())
	must(t, err)
	mustEqual(t, "the ends", ends, auditlog.Ends{Anchor: whole[4].Link(), Head: whole[9].Link()})
	for id, want := range map[task.ID][]auditlog.Entry{"tg_a": whole[5:9], "tg_b": whole[9:]} {
		entries, err := s.Entries(t.Context(), auditlog.Query{Task: id})
		must(t, err)
		mustEqual(t, "the remaining entries of the task", entries, want)
	}
}

func journalTrimAll(t reporter, s gatestore.Store) {
	must(t, s.Append(t.Context(), notes(3)...))
	whole := journal(t, s)
	if n, err := s.Trim(t.Context(), epoch.Add(time.Second), 10); n != 3 || err != nil {
		t.Fatalf("Trim = %d, %v; want 3", n, err)
	}
	mustEqual(t, "entries", len(journal(t, s)), 0)
	must(t, s.Append(t.Context(), note("tg_a", "more")))
	mustEqual(t, "the journal, continued", journal(t, s), []auditlog.Entry{whole[2].Link().Next(note("tg_a", "more"))})
}

func journalTrimRace(t reporter, s gatestore.Store) {
	const entries = 60
	must(t, s.Append(t.Context(), notes(entries)...))
	var removed atomic.Int64
	must(t, errors.Join(together(8, func(i int) error {
		for {
			n, err := s.Trim(t.Context(), epoch.Add(time.Second), 3+i%3)
			if all := removed.Add(int64(n)); n == 0 || err != nil || all > entries {
				return err
			}
		}
	})...))
	mustEqual(t, "entries removed", removed.Load(), int64(entries))
	mustEqual(t, "entries", len(journal(t, s)), 0)
}
