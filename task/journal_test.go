package task_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func fullNote() task.Note {
	return task.Note{
		At: epoch, Task: "tg_a", Step: "decided", Actor: "bob", Requester: "ann", Upstream: "files", Method: "tools/call",
		Tool: "delete_file", ArgumentDigest: task.Digest{1}, ToolDigest: "d", PolicySnapshot: "s", Verdict: "rules[0]",
		Workflow: "ops", Approver: "bob", Reason: "fine", From: task.InputRequired, To: task.Approved, Outcome: "approved", Ran: task.RanNo,
		UnreadBytes: 7, Grant: "gr_1", PolicyBefore: "p0", Via: gatetask.Via{Kind: gatetask.ViaChannel, Login: "token", Channel: "ops", Account: "U1", PID: 7, Program: "/bin/sh", Terminal: "pts/3", User: "ann", FromAgent: "no"},
		Passkey: &gatetask.Signature{Credential: []byte("c"), Key: []byte("k"), Site: "localhost", Client: []byte("{}"), Auth: []byte("a"), Signature: []byte("s"), Statement: gatetask.Statement{Task: "tg_a"}},
	}
}

// TestHashOfEntriesIsStable pins the hash, because stored entries must verify forever.
func TestHashOfEntriesIsStable(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	first := auditlog.Link{}.Next(task.Note{At: at, Step: "held"})
	if want := "0552b960bddecad6af8cf7e15c03efcfababd32dcfffe5c09b75b668de3e9233"; hex.EncodeToString(first.Hash[:]) != want || first.Seq != 1 {
		t.Errorf("the first entry is %d %s; want %s", first.Seq, first.Hash, want)
	}
	n := fullNote()
	n.At, n.Ran, n.UnreadBytes, n.Grant, n.PolicyBefore, n.Via, n.Passkey = at, "", 0, "", "", gatetask.Via{}, nil
	second := first.Link().Next(n)
	if want := "f569b7654926fe110861ea17c4ce21f53886c820926a89ea35cf46915e10dd8a"; second.Hash.String() != want || second.Prev != first.Hash {
		t.Errorf("the second entry is %s after %s; want %s", second.Hash, second.Prev, want)
	}
}

// TestHashCoversEveryField changes each field of an entry in turn.
func TestHashCoversEveryField(t *testing.T) {
	before := auditlog.Link{Seq: 6, Hash: auditlog.Hash{9}}
	good := before.Next(fullNote())
	if err := before.Verify(good); err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(*auditlog.Entry){
		"Seq": func(e *auditlog.Entry) { e.Seq++ }, "Prev": func(e *auditlog.Entry) { e.Prev[31]++ }, "Hash": func(e *auditlog.Entry) { e.Hash[0]++ },
	}
	note := reflect.TypeFor[task.Note]()
	for i := range note.NumField() {
		changes[note.Field(i).Name] = func(e *auditlog.Entry) {
			switch f := reflect.ValueOf(&e.Note).Elem().Field(i); v := f.Interface().(type) {
			case time.Time:
				f.Set(reflect.ValueOf(v.Add(time.Microsecond)))
			case int64:
				f.SetInt(v + 1)
			case task.Digest:
				f.Set(reflect.ValueOf(task.Digest{2}))
			case gatetask.Via:
				f.Field(0).SetString("x")
			case *gatetask.Signature:
				f.Set(reflect.ValueOf(&gatetask.Signature{Credential: []byte("x")}))
			default:
				f.SetString(f.String() + "x")
			}
		}
		changes[note.Field(i).Name+" emptied"] = func(e *auditlog.Entry) { reflect.ValueOf(&e.Note).Elem().Field(i).SetZero() }
	}
	for i := range reflect.TypeFor[gatetask.Via]().NumField() {
		changes[fmt.Sprint("Via ", i)] = func(e *auditlog.Entry) {
			if f := reflect.ValueOf(&e.Via).Elem().Field(i); f.CanInt() {
				f.SetInt(f.Int() + 1)
			} else {
				f.SetString("x")
			}
		}
	}
	for name, change := range changes {
		bad := good
		change(&bad)
		broken, ok := errors.AsType[*auditlog.ChainError](before.Verify(bad))
		if !ok || broken.Seq != bad.Seq || !strings.HasSuffix(broken.Problem, " was changed") {
			t.Errorf("%s was changed: %v", name, broken)
		}
	}
	moved := good
	moved.From, moved.Outcome = "", "" // text moves from one field to another
	moved.To = good.From + good.To
	if before.Verify(moved) == nil {
		t.Error("text can move between fields")
	}
}

func TestFollow(t *testing.T) {
	all := auditlog.Link{}.Extend([]task.Note{fullNote(), fullNote(), fullNote(), fullNote()})
	forged := all[1].Link().Next(task.Note{At: epoch, Step: "held"})
	for name, c := range map[string]struct {
		after, entry auditlog.Entry
		problem      string
	}{
		"the next":         {all[0], all[1], ""},
		"itself":           {all[1], all[1], "entry 2 comes after entry 2"},
		"an earlier one":   {all[2], all[0], "entry 1 comes after entry 3"},
		"the one after":    {all[0], all[2], "entry 2 is missing"},
		"a later one":      {all[0], all[3], "entries 2 to 3 are missing"},
		"after a forgery":  {forged, all[3], "entry 4 does not follow the entry before it"},
		"a forgery itself": {all[1], forged, ""}, // only the next entry shows it
	} {
		err := c.after.Link().Verify(c.entry)
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: err = %v; want %q", name, err, c.problem)
		}
	}
}

func TestLinkText(t *testing.T) {
	want := auditlog.Link{}.Next(fullNote()).Link()
	got, err := auditlog.ParseLink(want.String())
	if err != nil || got != want {
		t.Errorf("ParseLink(%s) = %v, %v", want, got, err)
	}
	for _, bad := range []string{"", "1", "1:", "x:" + want.Hash.String(), ":" + want.Hash.String(), "-1:" + want.Hash.String(), "1:" + want.Hash.String() + "00", "1:zz" + want.Hash.String()[2:]} {
		if got, err := auditlog.ParseLink(bad); err == nil {
			t.Errorf("ParseLink(%q) = %v", bad, got)
		}
	}
}

func TestNoteStored(t *testing.T) {
	for _, want := range []task.Note{fullNote(), {At: epoch, Step: "held"}} {
		text, err := auditlog.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := auditlog.Decode(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	for _, bad := range []string{`{}x`, `{"at":"2026-01-02T03:04:05Z","step":"held","arguments":"{}"}`, `{"step":1}`} {
		if n, err := auditlog.Decode([]byte(bad)); err == nil {
			t.Errorf("DecodeNote(%s) = %+v", bad, n)
		}
	}
}

// TestNotesDescribeFinalChange checks that the notes describe the final change, when a concurrent change
// comes in between.
func TestNotesDescribeFinalChange(t *testing.T) {
	s := newStore(t)
	store(t, s, task.InputRequired)
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner()})
	if err != nil {
		t.Fatal(err)
	}
	id := page.Tasks[0].ID
	raced := &racing{Store: s, first: lifecycle.Contact{PollInterval: time.Second}}
	tell := func(before, after task.Task, e lifecycle.Event) []task.Note {
		return []task.Note{{At: epoch, Task: after.ID, Step: string(e.Action()), From: before.State, To: after.State, Outcome: before.PollInterval.String()}}
	}
	updater := lifecycle.Updater{Store: raced, Notes: tell}
	if _, err := updater.Advance(t.Context(), task.AnyOwner().Ref(id), lifecycle.Cancel{By: "ann"}, epoch); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Entries(t.Context(), auditlog.Query{})
	if err != nil || len(entries) != 1 {
		t.Fatalf("the journal has %d entries, %v", len(entries), err)
	}
	e := entries[0]
	if e.Step != "cancel" || e.From != task.InputRequired || e.To != task.Cancelled || e.Outcome != "1s" {
		t.Errorf("entry: %+v", e)
	}
}
