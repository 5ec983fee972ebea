package storage_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/precedent"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestImportGoesOn: an import that was broken off is finished by doing it
// again, and what differs stays as it is.
func TestImportGoesOn(t *testing.T) {
	from, to := open(t, storage.Settings{DSN: "memory:"}), open(t, inDir(t))
	fill(t, from)
	var export bytes.Buffer
	_, err := storage.Export(t.Context(), from, &export, storage.AsStored)
	must(t, err)
	for _, part := range []int{3, 2} { // in the tasks, and in the journal
		broken := export.String()[:export.Len()-export.Len()/(3*part)]
		if part == 3 {
			broken = export.String()[:export.Len()/part]
		}
		if _, err := storage.Import(t.Context(), to, strings.NewReader(broken), storage.Shared, epoch); err == nil {
			t.Fatal("a part was taken for the whole")
		}
	}
	for range 2 {
		_, err = storage.Import(t.Context(), to, bytes.NewReader(export.Bytes()), storage.Shared, epoch)
		must(t, err)
		if diff := cmp.Diff(take(t, from), take(t, to)); diff != "" {
			t.Fatalf("after the import (-want +got):\n%s", diff)
		}
	}
	_, err = task.Advance(t.Context(), to, task.AnyOwner().Ref("tg_001"), task.Cancel{By: "ann"}, epoch.Add(2*time.Second))
	must(t, err)
	after := take(t, to)
	if _, err = storage.Import(t.Context(), to, bytes.NewReader(export.Bytes()), storage.Shared, epoch); err == nil {
		t.Error("what differs was not reported")
	}
	if diff := cmp.Diff(after, take(t, to)); diff != "" {
		t.Errorf("what was there was overwritten (-want +got):\n%s", diff)
	}
}

// TestImportTwice: an import into a store with a journal of its own adds no entry that
// the store has, even if somebody used the store in between, but adds what is missing.
func TestImportTwice(t *testing.T) {
	from, to := open(t, storage.Settings{DSN: "memory:"}), open(t, storage.Settings{DSN: "memory:"})
	note := func(s task.GateStore, steps ...string) {
		for _, step := range steps {
			must(t, s.Append(t.Context(), task.Note{At: epoch, Step: step}))
		}
	}
	note(from, "a", "b", "b")
	note(to, "own", "b")
	move := func() {
		var export bytes.Buffer
		_, err := storage.Export(t.Context(), from, &export, storage.AsStored)
		must(t, err)
		_, err = storage.Import(t.Context(), to, &export, storage.Shared, epoch)
		must(t, err)
	}
	move()
	note(to, "own again")
	move()
	note(from, "c")
	move()
	var got []string
	for _, e := range take(t, to).Entries {
		got = append(got, e.Step)
	}
	want := []string{"own", "b", "a", "b", "journal_imported", "own again", "c", "journal_imported"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if _, problems := health(t, to); len(problems) > 0 {
		t.Errorf("problems %q", problems)
	}
}

// TestImportTrimmedJournal: a journal that has lost its beginning is chained
// anew, and says so.
func TestImportTrimmedJournal(t *testing.T) {
	from, to := open(t, storage.Settings{DSN: "memory:"}), open(t, storage.Settings{DSN: "memory:"})
	for i := range 10 {
		must(t, from.Append(t.Context(), task.Note{At: epoch.Add(time.Duration(i) * time.Minute), Step: fmt.Sprint("step ", i)}))
	}
	_, err := from.Trim(t.Context(), epoch.Add(5*time.Minute), 100)
	must(t, err)
	ends, err := from.Ends(t.Context())
	must(t, err)
	var export bytes.Buffer
	_, err = storage.Export(t.Context(), from, &export, storage.AsStored)
	must(t, err)
	_, err = storage.Import(t.Context(), to, &export, storage.Empty, epoch)
	must(t, err)
	entries := take(t, to).Entries
	if len(entries) != 6 || entries[0].Step != "step 5" || !strings.Contains(entries[5].Reason, ends.Head.String()) ||
		!strings.Contains(entries[5].Reason, ends.Anchor.String()) {
		t.Errorf("entries %+v; want five, and one that tells of where they were", entries)
	}
	if _, problems := health(t, to); len(problems) > 0 {
		t.Errorf("problems %q", problems)
	}
}

// TestImportedApprovals: the gate that uses the store next finds in the journal how tools were
// defined when they were last approved, also if it has read a journal before.
func TestImportedApprovals(t *testing.T) {
	from, to := open(t, storage.Settings{DSN: "memory:"}), open(t, storage.Settings{DSN: "memory:"})
	must(t, from.Append(t.Context(), task.Note{
		At: epoch, Task: "tg_1", Step: "decided", Upstream: "files", Method: "tools/call", Tool: "write", ToolDigest: "v2-a",
		Approver: "alice", To: task.Approved,
	}))
	tools := precedent.Store{Records: to}
	must(t, tools.Index(t.Context(), to, 100))
	var export bytes.Buffer
	_, err := storage.Export(t.Context(), from, &export, storage.AsStored)
	must(t, err)
	_, err = storage.Import(t.Context(), to, &export, storage.Shared, epoch)
	must(t, err)
	must(t, tools.Index(t.Context(), to, 100))
	last, err := tools.Last(t.Context(), precedent.Tool{Upstream: "files", Method: "tools/call", Name: "write"}, "v2-b")
	if err != nil || last.Task != "tg_1" {
		t.Errorf("last = %+v, %v", last, err)
	}
}
