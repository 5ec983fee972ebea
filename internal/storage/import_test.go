package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

// Repeating an interrupted import completes it.
func TestRepeatedImportCompletesInterruptedOne(t *testing.T) {
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
		if _, err := storage.Import(t.Context(), to, strings.NewReader(broken), storage.Merge, epoch); err == nil {
			t.Fatal("an incomplete export was accepted as complete")
		}
	}
	for range 2 {
		_, err = storage.Import(t.Context(), to, bytes.NewReader(export.Bytes()), storage.Merge, epoch)
		must(t, err)
		if diff := cmp.Diff(take(t, from), take(t, to)); diff != "" {
			t.Fatalf("after the import (-want +got):\n%s", diff)
		}
	}
	_, err = lifecycle.Advance(t.Context(), to, task.AnyOwner().Ref("tg_001"), lifecycle.Cancel{By: "ann"}, epoch.Add(2*time.Second))
	must(t, err)
	after := take(t, to)
	if _, err = storage.Import(t.Context(), to, bytes.NewReader(export.Bytes()), storage.Merge, epoch); err == nil {
		t.Error("a different task was not reported")
	}
	if diff := cmp.Diff(after, take(t, to)); diff != "" {
		t.Errorf("existing content was overwritten (-want +got):\n%s", diff)
	}
}

// An import adds no journal entry twice.
func TestRepeatedImportAddsNoEntryTwice(t *testing.T) {
	from, to := open(t, storage.Settings{DSN: "memory:"}), open(t, storage.Settings{DSN: "memory:"})
	note := func(s gatestore.Store, steps ...string) {
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
		_, err = storage.Import(t.Context(), to, &export, storage.Merge, epoch)
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

// An import accepts a journal whose beginning was deleted, and creates a new chain.
func TestImportOfTrimmedJournal(t *testing.T) {
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
	_, err = storage.Import(t.Context(), to, &export, storage.IntoEmpty, epoch)
	must(t, err)
	entries := take(t, to).Entries
	if len(entries) != 6 || entries[0].Step != "step 5" || !strings.Contains(entries[5].Reason, ends.Head.String()) ||
		!strings.Contains(entries[5].Reason, ends.Anchor.String()) {
		t.Errorf("entries %+v; want five, and a note with their original hashes", entries)
	}
	if _, problems := health(t, to); len(problems) > 0 {
		t.Errorf("problems %q", problems)
	}
}

// After an import, the gate finds in the journal how approvers saw each tool.
func TestImportKeepsToolHistory(t *testing.T) {
	from, to := open(t, storage.Settings{DSN: "memory:"}), open(t, storage.Settings{DSN: "memory:"})
	must(t, from.Append(t.Context(), task.Note{
		At: epoch, Task: "tg_1", Step: "decided", Upstream: "files", Method: "tools/call", Tool: "write", ToolDigest: "v2-a",
		Approver: "alice", To: task.Approved,
	}))
	tools := toolhistory.Store{Records: to}
	must(t, tools.Index(t.Context(), to, 100))
	var export bytes.Buffer
	_, err := storage.Export(t.Context(), from, &export, storage.AsStored)
	must(t, err)
	_, err = storage.Import(t.Context(), to, &export, storage.Merge, epoch)
	must(t, err)
	must(t, tools.Index(t.Context(), to, 100))
	last, err := tools.LastApproval(t.Context(), toolhistory.Tool{Upstream: "files", Method: "tools/call", Name: "write"}, "v2-b")
	if err != nil || last.Task != "tg_1" {
		t.Errorf("last = %+v, %v", last, err)
	}
}

// An import refuses content that a gate could not have stored.
func TestImportRefusesInvalidContent(t *testing.T) {
	from := open(t, storage.Settings{DSN: "memory:"})
	fill(t, from)
	var export bytes.Buffer
	_, err := storage.Export(t.Context(), from, &export, storage.AsStored)
	must(t, err)
	lines := strings.SplitAfter(export.String(), "\n")
	at := func(texts ...string) int {
		t.Helper()
		for i, line := range lines {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return i
			}
		}
		t.Fatalf("no line has %q", texts)
		return 0
	}
	whole, first := at(`{"task":`, `"id":"tg_007"`), at(`{"chunk":`, `"task":"tg_007"`)
	swap := func(i int, old, replacement string) func([]string) []string {
		return func(lines []string) []string {
			if !strings.Contains(lines[i], old) {
				t.Fatalf("line %d has no %q", i+1, old)
			}
			lines[i] = strings.Replace(lines[i], old, replacement, 1)
			return lines
		}
	}
	for name, change := range map[string]func([]string) []string{
		"a chunk far away": swap(first+1, `"n":1`, `"n":1000000`),
		"a negative chunk": swap(first+1, `"n":1`, `"n":-1`),
		"a chunk twice":    func(l []string) []string { return slices.Insert(l, first, l[first]) },
		"a chunk more": func(l []string) []string {
			return slices.Insert(l, first+4, strings.Replace(l[first], `"n":0`, `"n":4`, 1))
		},
		"a chunk less":            func(l []string) []string { return slices.Delete(l, first+3, first+4) },
		"a chunk of another task": swap(first+1, "tg_007", "tg_001"),
		"a shorter chunk":         func(l []string) []string { l[first+3] = strings.Replace(l[first], `"n":0`, `"n":3`, 1); return l },
		"an id with NUL":          swap(whole, `"tg_007"`, `"tg_\u0000x"`),
		"an id of an upstream":    swap(whole, `"tg_007"`, `"x"`),
		"an owner with NUL":       swap(whole, `"owner":"owner1"`, `"owner":"o\u0000"`),
		"no owner":                swap(whole, `"owner":"owner1"`, `"owner":""`),
		"no version":              swap(whole, `"version":5`, `"version":0`),
		"more chunks than bytes":  swap(whole, `"chunks":4`, `"chunks":40000000`),
		"a size without chunks":   swap(whole, `"chunks":4`, `"chunks":0`),
		"a negative interval":     swap(whole, `"pollInterval":1000000`, `"pollInterval":-1`),
		"a state without its run": swap(at(`{"task":`, `"id":"tg_000"`), `"state":"working"`, `"state":"executing"`),
		"an end without a reason": swap(at(`{"task":`, `"id":"tg_000"`), `"state":"working"`, `"state":"cancelled"`),
		"an answer of none":       swap(at(`{"task":`, `"id":"tg_000"`), `"state":"working"`, `"state":"completed"`),
		"no approval":             swap(at(`{"task":`, `"id":"tg_000"`), `"state":"working"`, `"state":"input_required"`),
		"no life":                 swap(at(`{"task":`, `"id":"tg_000"`), `"expiresAt":"20`, `"expiresAt":"19`),
	} {
		t.Run(name, func(t *testing.T) {
			for _, settings := range []storage.Settings{{DSN: "memory:"}, inDir(t)} {
				to := open(t, settings)
				_, err := storage.Import(t.Context(), to, strings.NewReader(strings.Join(change(slices.Clone(lines)), "")), storage.IntoEmpty, epoch)
				if err == nil || !strings.Contains(err.Error(), "line ") {
					t.Errorf("%s: %v; want an error with the line", settings.DSN, err)
				}
			}
		})
	}
}

// An import never changes the results that a store has.
func TestImportKeepsResults(t *testing.T) {
	from, to := open(t, storage.Settings{DSN: "memory:"}), open(t, storage.Settings{DSN: "memory:"})
	fill(t, from)
	var export bytes.Buffer
	_, err := storage.Export(t.Context(), from, &export, storage.AsStored)
	must(t, err)
	_, err = storage.Import(t.Context(), to, bytes.NewReader(export.Bytes()), storage.IntoEmpty, epoch)
	must(t, err)
	before := take(t, to)
	start, rest, found := strings.Cut(export.String(), `"n":1,"data":"`)
	if !found {
		t.Fatal("no result has a second chunk")
	}
	other := start + `"n":1,"data":"AAAA` + rest[4:]
	if _, err := storage.Import(t.Context(), to, strings.NewReader(other), storage.Merge, epoch); err == nil {
		t.Error("another result was not reported")
	}
	if diff := cmp.Diff(before, take(t, to)); diff != "" {
		t.Errorf("a result was overwritten (-want +got):\n%s", diff)
	}
}

// An import refuses an export with both encrypted and plain calls.
func TestImportRefusesMixture(t *testing.T) {
	settings := storage.Settings{DSN: "memory:", Keys: key("a")}
	from := open(t, settings)
	fill(t, from)
	planted, err := task.New(task.Draft{
		ID: "tg_planted", Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "u", Method: "tools/call", Name: "x", Message: `{}`},
	}, epoch)
	must(t, err)
	must(t, from.Unwrap().Create(t.Context(), planted, task.Limits{}))
	var export bytes.Buffer
	_, err = storage.Export(t.Context(), from, &export, storage.AsStored)
	must(t, err)
	_, err = storage.Import(t.Context(), open(t, settings), &export, storage.IntoEmpty, epoch)
	if !errors.Is(err, sealedstore.ErrNotSealed) {
		t.Errorf("err = %v; want %v", err, sealedstore.ErrNotSealed)
	}
}
