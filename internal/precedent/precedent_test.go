package precedent_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/precedent"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

var (
	epoch = time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC)
	tool  = precedent.Tool{Upstream: "files", Method: "tools/call", Name: "write"}
)

func open(t *testing.T) *memstore.Store {
	t.Helper()
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	return s
}

// approved is the n-th approved call of these tests.
func approved(n int, digest string) precedent.Approved {
	return precedent.Approved{Task: task.ID(fmt.Sprintf("tg_%d", n)), At: epoch.Add(time.Duration(n) * time.Second), Digest: digest}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantLast(t *testing.T, s precedent.Store, of precedent.Tool, digest string, want precedent.Approved) {
	t.Helper()
	got, err := s.Last(t.Context(), of, digest)
	if want == (precedent.Approved{}) {
		if !errors.Is(err, task.ErrNotFound) {
			t.Errorf("last = %+v, %v; want none", got, err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("last: %v\n%s", err, diff)
	}
}

// The last approval counts, whatever the order in which they are kept, and there is one
// record of each tool.
func TestKeep(t *testing.T) {
	store := open(t)
	s := precedent.Store{Records: store}
	wantLast(t, s, tool, "v2-a", precedent.Approved{})
	for _, n := range []int{1, 3, 2} {
		must(t, s.Keep(t.Context(), tool, approved(n, fmt.Sprintf("v2-%d", n))))
	}
	wantLast(t, s, tool, "v2-a", approved(3, "v2-3"))
	for _, other := range []precedent.Tool{
		{Upstream: "mail", Method: "tools/call", Name: "write"},
		{Upstream: "files", Method: "prompts/get", Name: "write"},
		{Upstream: "files", Method: "tools/call", Name: "read"},
		{Upstream: "filestools/call", Name: "write"},
	} {
		wantLast(t, s, other, "v2-a", precedent.Approved{})
	}
	all, err := store.ListRecords(t.Context(), task.RecordQuery{Limit: 10})
	if err != nil || len(all) != 1 {
		t.Errorf("%d records, %v", len(all), err)
	}
	if want := epoch.Add(3*time.Second + 2*365*24*time.Hour); !all[0].Expires.Equal(want) {
		t.Errorf("expires %v; want %v", all[0].Expires, want)
	}
}

// Approvals with digests of another form replace no others, and few forms are kept.
func TestForms(t *testing.T) {
	s := precedent.Store{Records: open(t)}
	for n, digest := range []string{"aa", "v2-a", "v3-a", "v2-b", "v4-a", "v5-a"} {
		must(t, s.Keep(t.Context(), tool, approved(n, digest)))
	}
	wantLast(t, s, tool, "v2-x", approved(3, "v2-b"))
	wantLast(t, s, tool, "v3-x", approved(2, "v3-a"))
	wantLast(t, s, tool, "xx", precedent.Approved{}) // the oldest form
	wantLast(t, s, tool, "", precedent.Approved{})
}

// Replicas that keep approvals at the same time end with the last one.
func TestKeepAtOnce(t *testing.T) {
	s := precedent.Store{Records: open(t)}
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if err := s.Keep(t.Context(), tool, approved(n, fmt.Sprintf("v2-%d", n))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	wantLast(t, s, tool, "v2-a", approved(19, "v2-19"))
}

// A record that cannot be read is no missing one, and the next approval replaces it.
func TestUnreadable(t *testing.T) {
	store := open(t)
	s := precedent.Store{Records: store}
	must(t, s.Keep(t.Context(), tool, approved(1, "v2-a")))
	all, err := store.ListRecords(t.Context(), task.RecordQuery{Limit: 1})
	must(t, err)
	must(t, store.PutRecord(t.Context(), task.Record{Name: all[0].Name, Version: 2, Value: []byte("x")}))
	if _, err := s.Last(t.Context(), tool, "v2-a"); !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("err = %v", err)
	}
	must(t, s.Keep(t.Context(), tool, approved(2, "v2-b")))
	wantLast(t, s, tool, "v2-a", approved(2, "v2-b"))
}

// approve notes an approval in the journal.
func approve(t *testing.T, s *memstore.Store, n int, name, digest string) {
	t.Helper()
	a := approved(n, digest)
	must(t, s.Append(t.Context(), task.Note{
		At: a.At, Task: a.Task, Step: "decided", Upstream: "files", Method: "tools/call", Tool: name, ToolDigest: digest,
		Approver: "alice", To: task.Approved,
	}))
}

// A journal that an earlier version wrote is read to its end, some entries at a time, once.
func TestIndex(t *testing.T) {
	for _, most := range []int{1, 7, 20, 100} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			store := open(t)
			s := precedent.Store{Records: store}
			approve(t, store, 1, "write", "v2-a")
			approve(t, store, 2, "write", "v3-a")
			approve(t, store, 3, "read", "v2-r")
			approve(t, store, 4, "unknown", "")
			must(t, store.Append(t.Context(), task.Note{At: epoch, Step: "held", Upstream: "files", Method: "tools/call", Tool: "write", ToolDigest: "v2-z", To: task.Working}))
			for range 15 {
				must(t, store.Append(t.Context(), task.Note{At: epoch, Step: "held", Tool: "other"}))
			}
			must(t, s.Keep(t.Context(), tool, approved(9, "v3-b"))) // by this version
			for range 20/most + 1 {
				must(t, s.Index(t.Context(), store, most))
			}
			wantLast(t, s, tool, "v2-x", approved(1, "v2-a"))
			wantLast(t, s, tool, "v3-x", approved(9, "v3-b"))
			read := precedent.Tool{Upstream: "files", Method: "tools/call", Name: "read"}
			wantLast(t, s, read, "v2-x", approved(3, "v2-r"))
			approve(t, store, 10, "read", "v2-s")
			must(t, s.Index(t.Context(), store, most))
			wantLast(t, s, read, "v2-x", approved(3, "v2-r")) // whoever approves keeps it
			must(t, s.IndexAgain(t.Context()))
			for range 21/most + 1 {
				must(t, s.Index(t.Context(), store, most))
			}
			wantLast(t, s, read, "v2-x", approved(10, "v2-s"))
		})
	}
}

// While the journal is being read, every record is already about the last approval of its
// tool: the last entries are read first.
func TestIndexNewestFirst(t *testing.T) {
	store := open(t)
	s := precedent.Store{Records: store}
	tools := map[string]string{"write": "v2-c", "read": "v2-s", "list": "v2-l"}
	for n, e := range [][2]string{{"list", "v2-l"}, {"write", "v2-a"}, {"read", "v2-r"}, {"write", "v2-b"}, {"read", "v2-s"}, {"write", "v2-c"}} {
		approve(t, store, n, e[0], e[1])
	}
	for step, known := range []int{1, 2, 2, 2, 2, 3, 3} {
		must(t, s.Index(t.Context(), store, 1))
		got := 0
		for name, digest := range tools {
			last, err := s.Last(t.Context(), precedent.Tool{Upstream: "files", Method: "tools/call", Name: name}, "v2-x")
			switch {
			case errors.Is(err, task.ErrNotFound):
			case err != nil || last.Digest != digest:
				t.Errorf("step %d: last of %s = %+v, %v; want %s", step, name, last, err, digest)
			default:
				got++
			}
		}
		if got != known {
			t.Errorf("step %d: %d tools are known; want %d", step, got, known)
		}
	}
}

// What is trimmed while the journal is being read is left out, and the reading ends.
func TestIndexOfTrimmedJournal(t *testing.T) {
	store := open(t)
	s := precedent.Store{Records: store}
	approve(t, store, 1, "write", "v2-a")
	approve(t, store, 2, "read", "v2-r")
	approve(t, store, 3, "list", "v2-l")
	must(t, s.Index(t.Context(), store, 1))
	if _, err := store.Trim(t.Context(), epoch.Add(time.Hour), 3); err != nil {
		t.Fatal(err)
	}
	must(t, s.Index(t.Context(), store, 1))
	wantLast(t, s, tool, "v2-x", precedent.Approved{})
	approve(t, store, 4, "write", "v2-b")
	must(t, s.Index(t.Context(), store, 9))
	wantLast(t, s, tool, "v2-x", precedent.Approved{}) // the reading was over
}

// A call that a standing approval let run is none that people approved.
func TestIndexWithoutStandingApprovals(t *testing.T) {
	store := open(t)
	s := precedent.Store{Records: store}
	approve(t, store, 1, "write", "v2-a")
	must(t, store.Append(t.Context(), task.Note{
		At: epoch.Add(time.Minute), Task: "tg_2", Step: "decided", Upstream: "files", Method: "tools/call", Tool: "write", ToolDigest: "v2-b",
		Approver: "alice", Grant: "gr_1", To: task.Approved,
	}))
	must(t, s.Index(t.Context(), store, 100))
	wantLast(t, s, tool, "v2-x", approved(1, "v2-a"))
}

// A name of any length, and of any characters, has a record.
func TestNames(t *testing.T) {
	s := precedent.Store{Records: open(t)}
	for n, name := range []string{"", "a/b", "~", "é", strings.Repeat("x", 5000)} {
		of := precedent.Tool{Upstream: "files", Method: "tools/call", Name: name}
		must(t, s.Keep(t.Context(), of, approved(n, "v2-a")))
		wantLast(t, s, of, "v2-b", approved(n, "v2-a"))
	}
}
