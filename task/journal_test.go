package task_test

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

func fullNote() task.Note {
	return task.Note{
		At: epoch, Task: "tg_a", Step: "decided", Actor: "bob", Requester: "ann", Upstream: "files", Method: "tools/call",
		Tool: "delete_file", ArgumentDigest: task.Digest{1}, ToolDigest: "d", PolicySnapshot: "s", Verdict: "rules[0]",
		Workflow: "ops", Approver: "bob", Reason: "fine", From: task.InputRequired, To: task.Approved, Outcome: "approved", Ran: task.RanNo,
		UnreadBytes: 7, Grant: "gr_1",
	}
}

// TestNextIsFixed pins the hash: entries that were written must verify for ever.
func TestNextIsFixed(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	first := task.Link{}.Next(task.Note{At: at, Step: "held"})
	if want := "0552b960bddecad6af8cf7e15c03efcfababd32dcfffe5c09b75b668de3e9233"; hex.EncodeToString(first.Hash[:]) != want || first.Seq != 1 {
		t.Errorf("the first entry is %d %s; want %s", first.Seq, first.Hash, want)
	}
	n := fullNote()
	n.At, n.Ran, n.UnreadBytes, n.Grant = at, "", 0, ""
	second := first.Link().Next(n)
	if want := "f569b7654926fe110861ea17c4ce21f53886c820926a89ea35cf46915e10dd8a"; second.Hash.String() != want || second.Prev != first.Hash {
		t.Errorf("the second entry is %s after %s; want %s", second.Hash, second.Prev, want)
	}
}

// TestEveryFieldIsCovered changes each field of an entry in turn.
func TestEveryFieldIsCovered(t *testing.T) {
	before := task.Link{Seq: 6, Hash: task.Hash{9}}
	good := before.Next(fullNote())
	if err := before.Follow(good); err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(*task.Entry){
		"Seq": func(e *task.Entry) { e.Seq++ }, "Prev": func(e *task.Entry) { e.Prev[31]++ }, "Hash": func(e *task.Entry) { e.Hash[0]++ },
	}
	note := reflect.TypeFor[task.Note]()
	for i := range note.NumField() {
		changes[note.Field(i).Name] = func(e *task.Entry) {
			switch f := reflect.ValueOf(&e.Note).Elem().Field(i); v := f.Interface().(type) {
			case time.Time:
				f.Set(reflect.ValueOf(v.Add(time.Microsecond)))
			case int64:
				f.SetInt(v + 1)
			case task.Digest:
				f.Set(reflect.ValueOf(task.Digest{2}))
			default:
				f.SetString(f.String() + "x")
			}
		}
		changes[note.Field(i).Name+" emptied"] = func(e *task.Entry) { reflect.ValueOf(&e.Note).Elem().Field(i).SetZero() }
	}
	for name, change := range changes {
		bad := good
		change(&bad)
		broken, ok := errors.AsType[*task.ChainError](before.Follow(bad))
		if !ok || broken.Seq != bad.Seq || !strings.HasSuffix(broken.Problem, " was changed") {
			t.Errorf("%s was changed: %v", name, broken)
		}
	}
	moved := good
	moved.From, moved.Outcome = "", "" // what one field loses another does not gain
	moved.To = good.From + good.To
	if before.Follow(moved) == nil {
		t.Error("fields can be shifted")
	}
}

func TestFollow(t *testing.T) {
	all := task.Link{}.Extend([]task.Note{fullNote(), fullNote(), fullNote(), fullNote()})
	forged := all[1].Link().Next(task.Note{At: epoch, Step: "held"})
	for name, c := range map[string]struct {
		after, entry task.Entry
		problem      string
	}{
		"the next":         {all[0], all[1], ""},
		"itself":           {all[1], all[1], "entry 2 comes after entry 2"},
		"an earlier one":   {all[2], all[0], "entry 1 comes after entry 3"},
		"the one after":    {all[0], all[2], "entry 2 is missing"},
		"a later one":      {all[0], all[3], "entries 2 to 3 are missing"},
		"after a forgery":  {forged, all[3], "entry 4 does not follow the entry before it"},
		"a forgery itself": {all[1], forged, ""}, // only what comes after it can tell
	} {
		err := c.after.Link().Follow(c.entry)
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: err = %v; want %q", name, err, c.problem)
		}
	}
}

func TestLinkText(t *testing.T) {
	want := task.Link{}.Next(fullNote()).Link()
	got, err := task.ParseLink(want.String())
	if err != nil || got != want {
		t.Errorf("ParseLink(%s) = %v, %v", want, got, err)
	}
	for _, bad := range []string{"", "1", "1:", "x:" + want.Hash.String(), ":" + want.Hash.String(), "-1:" + want.Hash.String(), "1:" + want.Hash.String() + "00", "1:zz" + want.Hash.String()[2:]} {
		if got, err := task.ParseLink(bad); err == nil {
			t.Errorf("ParseLink(%q) = %v", bad, got)
		}
	}
}

func TestNoteStored(t *testing.T) {
	for _, want := range []task.Note{fullNote(), {At: epoch, Step: "held"}} {
		text, err := task.EncodeNote(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := task.DecodeNote(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	for _, bad := range []string{`{}x`, `{"at":"2026-01-02T03:04:05Z","step":"held","arguments":"{}"}`, `{"step":1}`} {
		if n, err := task.DecodeNote([]byte(bad)); err == nil {
			t.Errorf("DecodeNote(%s) = %+v", bad, n)
		}
	}
}

// TestUpdaterNotes checks that what is noted is what happens in the end, when
// somebody else gets in between.
func TestUpdaterNotes(t *testing.T) {
	s := newStore(t)
	store(t, s, task.InputRequired)
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner()})
	if err != nil {
		t.Fatal(err)
	}
	id := page.Tasks[0].ID
	raced := &racing{Store: s, first: task.Contact{PollInterval: time.Second}}
	tell := func(before, after task.Task, e task.Event) []task.Note {
		return []task.Note{{At: epoch, Task: after.ID, Step: string(e.Action()), From: before.State, To: after.State, Outcome: before.PollInterval.String()}}
	}
	updater := task.Updater{Store: raced, Notes: tell}
	if _, err := updater.Advance(t.Context(), task.AnyOwner().Ref(id), task.Cancel{By: "ann"}, epoch); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Entries(t.Context(), task.JournalQuery{})
	if err != nil || len(entries) != 1 {
		t.Fatalf("the journal has %d entries, %v", len(entries), err)
	}
	e := entries[0]
	if e.Step != "cancel" || e.From != task.InputRequired || e.To != task.Cancelled || e.Outcome != "1s" {
		t.Errorf("told: %+v", e)
	}
}
