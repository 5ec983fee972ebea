package toolhistory_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

var files = toolhistory.Source{Upstream: "files"}

// The tools of a server that lists a million fill only a few records. Tools without space are
// omitted, and known tools stay known.
func TestHistoriesAreBounded(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store}
	first := toolhistory.Definition{Shape: strings.Repeat("s", 43), Hints: "tf--"}
	must := func(tools map[string]toolhistory.Definition) map[string]toolhistory.History {
		known, err := s.Observe(t.Context(), files, tools)
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	must(map[string]toolhistory.Definition{"tool": first})
	for page := range 20 {
		tools := map[string]toolhistory.Definition{}
		for n := range 500 {
			tools[fmt.Sprintf("tool%d-%d-%s", page, n, strings.Repeat("é\x01", 20))] = first
		}
		if known := must(tools); page == 19 && len(known) != 0 {
			t.Errorf("%d tools of the last page are known", len(known))
		}
	}
	stricter := toolhistory.Definition{Shape: first.Shape, Hints: "ft--"}
	if known := must(map[string]toolhistory.Definition{"tool": stricter}); known["tool"].First.Hints != "ft--" {
		t.Errorf("first tool %+v", known)
	}
	records, err := store.ListRecords(t.Context(), gatestore.RecordQuery{Limit: 1000})
	if err != nil || len(records) != 16 {
		t.Errorf("%d records, %v; want 16", len(records), err)
	}
}

// Replicas that see different definitions at the same time end with the strictest hints.
func TestConcurrentDefinitionsKeepTheStrictest(t *testing.T) {
	s := toolhistory.Store{Records: open(t)}
	var all sync.WaitGroup
	for _, hints := range []policy.Hints{"tf--", "--t-", "-t--", "tfff", "f---"} {
		all.Go(func() {
			if _, err := s.Observe(t.Context(), files, map[string]toolhistory.Definition{"tool": {Shape: "a", Hints: hints}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	last := toolhistory.Definition{Shape: "a", Hints: "tf--"}
	known, err := s.Observe(t.Context(), files, map[string]toolhistory.Definition{"tool": last})
	if hints, changed := known["tool"].TrustedHints(last); err != nil || hints != "ftf-" || !changed {
		t.Errorf("hints %s, changed %v, %v", hints, changed, err)
	}
}

// Servers with the same name on one store have separate tools.
func TestServersWithSameNameHaveSeparateTools(t *testing.T) {
	s := toolhistory.Store{Records: open(t)}
	for server, hints := range map[string]policy.Hints{"a": "----", "b": "tf--"} {
		d := toolhistory.Definition{Shape: "s", Hints: hints}
		known, err := s.Observe(t.Context(), toolhistory.Source{Upstream: "files", Server: server}, map[string]toolhistory.Definition{"tool": d})
		if err != nil || known["tool"].First != d {
			t.Errorf("%s: %+v, %v", server, known, err)
		}
	}
}

// A change of the hints is in the journal also after changes of the schema that no operator has
// accepted. Many changes of the schema do not fill the journal.
func TestEachChangeOfHintsIsInTheJournal(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store, Journal: store}
	if _, err := s.Observe(t.Context(), files, map[string]toolhistory.Definition{"tool": {Shape: "0", Hints: "f---"}}); err != nil {
		t.Fatal(err)
	}
	note := func(shape string, hints policy.Hints) []auditlog.Entry {
		t.Helper()
		_, err := s.RecordChange(t.Context(), files, "tool", toolhistory.Definition{Shape: shape, Hints: hints}, task.Note{At: time.Now(), Step: "tool_changed", Actor: "gate"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := store.Entries(t.Context(), auditlog.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for i := range 20 {
		note(fmt.Sprint(i+1), "f---")
	}
	before := len(note("21", "f---"))
	if after := note("21", "tf--"); before > 3 || len(after) != before+1 {
		t.Errorf("%d entries about the schema, and then %+v", before, after)
	}
}

// Only a few definitions that differ from the lock file are kept of a tool, and their diffs only
// while there is space. An accepted one is known, and a later one is not.
func TestUnpinnedDefinitionsAreBounded(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store, Journal: store}
	tools := map[string]toolhistory.Definition{}
	for n := range 300 {
		tools[fmt.Sprint("tool", n)] = toolhistory.Definition{Shape: "a", Hints: "----"}
	}
	if _, err := s.Observe(t.Context(), files, tools); err != nil {
		t.Fatal(err)
	}
	var last toolhistory.History
	for tool := range tools {
		for digest := range 5 {
			var err error
			change := toolhistory.UnpinnedChange{Digest: fmt.Sprint(digest), What: "differs", Diff: strings.Repeat("d\n", 1000)}
			if last, err = s.RecordUnpinned(t.Context(), files, tool, change, task.Note{At: time.Now(), Step: "tool_changed", Actor: "gate"}); err != nil {
				t.Fatal(err)
			}
		}
		if len(last.Unpinned) != 3 || !last.HasUnpinned("4") || last.HasUnpinned("0") {
			t.Fatalf("%s: %d definitions", tool, len(last.Unpinned))
		}
	}
	entries, err := store.Entries(t.Context(), auditlog.Query{Limit: 1000})
	if err != nil || len(entries) != 3*len(tools) {
		t.Errorf("%d entries, %v; want 3 of each tool", len(entries), err)
	}
	changes, err := s.Changes(t.Context(), 10)
	if err != nil || len(changes) != 10 {
		t.Fatal(changes, err)
	}
	nothing := func(toolhistory.Change) error { return nil }
	c, err := s.Accept(t.Context(), changes[0].ID, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(t.Context(), changes[0].ID, nothing); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("accepted again: %v", err)
	}
	known, err := s.Observe(t.Context(), files, map[string]toolhistory.Definition{c.Tool: {Shape: "a", Hints: "----"}})
	if err != nil || len(known[c.Tool].Known) != 1 || len(known[c.Tool].Unpinned) != 2 {
		t.Errorf("%+v, %v", known[c.Tool], err)
	}
}
