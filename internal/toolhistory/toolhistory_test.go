package toolhistory_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

var (
	epoch = time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC)
	tool  = toolhistory.Tool{Upstream: "files", Method: "tools/call", Name: "write"}
)

func open(t *testing.T) *memstore.Store {
	t.Helper()
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	return s
}

// approved is the nth approved call of these tests.
func approved(n int, digest string) toolhistory.ApprovedCall {
	return toolhistory.ApprovedCall{Task: task.ID(fmt.Sprintf("tg_%d", n)), At: epoch.Add(time.Duration(n) * time.Second), Digest: digest}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantLast(t *testing.T, s toolhistory.Store, of toolhistory.Tool, digest string, want toolhistory.ApprovedCall) {
	t.Helper()
	got, err := s.LastApproval(t.Context(), of, digest)
	if want == (toolhistory.ApprovedCall{}) {
		if !errors.Is(err, task.ErrNotFound) {
			t.Errorf("last = %+v, %v; want none", got, err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("last: %v\n%s", err, diff)
	}
}

// The last approval counts, in whatever order approvals are recorded. Each tool has one record.
func TestLastApprovalCounts(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store}
	wantLast(t, s, tool, "v2-a", toolhistory.ApprovedCall{})
	for _, n := range []int{1, 3, 2} {
		must(t, s.RecordApproval(t.Context(), tool, approved(n, fmt.Sprintf("v2-%d", n))))
	}
	wantLast(t, s, tool, "v2-a", approved(3, "v2-3"))
	for _, other := range []toolhistory.Tool{
		{Upstream: "mail", Method: "tools/call", Name: "write"},
		{Upstream: "files", Method: "prompts/get", Name: "write"},
		{Upstream: "files", Method: "tools/call", Name: "read"},
		{Upstream: "filestools/call", Name: "write"},
	} {
		wantLast(t, s, other, "v2-a", toolhistory.ApprovedCall{})
	}
	all, err := store.ListRecords(t.Context(), gatestore.RecordQuery{Limit: 10})
	if err != nil || len(all) != 1 {
		t.Errorf("%d records, %v", len(all), err)
	}
	if want := epoch.Add(3*time.Second + 2*365*24*time.Hour); !all[0].Expires.Equal(want) {
		t.Errorf("expires %v; want %v", all[0].Expires, want)
	}
}

// Approvals with different forms of digests do not replace each other, and only a few forms are
// kept.
func TestFormsAreSeparate(t *testing.T) {
	s := toolhistory.Store{Records: open(t)}
	for n, digest := range []string{"aa", "v2-a", "v3-a", "v2-b", "v4-a", "v5-a"} {
		must(t, s.RecordApproval(t.Context(), tool, approved(n, digest)))
	}
	wantLast(t, s, tool, "v2-x", approved(3, "v2-b"))
	wantLast(t, s, tool, "v3-x", approved(2, "v3-a"))
	wantLast(t, s, tool, "xx", toolhistory.ApprovedCall{}) // the oldest form
	wantLast(t, s, tool, "", toolhistory.ApprovedCall{})
}

// When replicas record approvals at the same time, the last approval remains.
func TestConcurrentApprovalsKeepLast(t *testing.T) {
	s := toolhistory.Store{Records: open(t)}
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if err := s.RecordApproval(t.Context(), tool, approved(n, fmt.Sprintf("v2-%d", n))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	wantLast(t, s, tool, "v2-a", approved(19, "v2-19"))
}

// An unreadable record is not reported as missing. The next approval replaces it.
func TestUnreadableRecordIsReported(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store}
	must(t, s.RecordApproval(t.Context(), tool, approved(1, "v2-a")))
	all, err := store.ListRecords(t.Context(), gatestore.RecordQuery{Limit: 1})
	must(t, err)
	must(t, store.PutRecord(t.Context(), gatestore.Record{Name: all[0].Name, Version: 2, Value: []byte("x")}))
	if _, err := s.LastApproval(t.Context(), tool, "v2-a"); !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("err = %v", err)
	}
	must(t, s.RecordApproval(t.Context(), tool, approved(2, "v2-b")))
	wantLast(t, s, tool, "v2-a", approved(2, "v2-b"))
}

// approve adds an approval to the journal.
func approve(t *testing.T, s *memstore.Store, n int, name, digest string) {
	t.Helper()
	a := approved(n, digest)
	must(t, s.Append(t.Context(), task.Note{
		At: a.At, Task: a.Task, Step: "decided", Upstream: "files", Method: "tools/call", Tool: name, ToolDigest: digest,
		Approver: "alice", To: task.Approved,
	}))
}

// A journal that an earlier version wrote is read completely, some entries at a time, once.
func TestIndexReadsJournalOnce(t *testing.T) {
	for _, most := range []int{1, 7, 20, 100} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			store := open(t)
			s := toolhistory.Store{Records: store}
			approve(t, store, 1, "write", "v2-a")
			approve(t, store, 2, "write", "v3-a")
			approve(t, store, 3, "read", "v2-r")
			approve(t, store, 4, "unknown", "")
			must(t, store.Append(t.Context(), task.Note{At: epoch, Step: "held", Upstream: "files", Method: "tools/call", Tool: "write", ToolDigest: "v2-z", To: task.Working}))
			for range 15 {
				must(t, store.Append(t.Context(), task.Note{At: epoch, Step: "held", Tool: "other"}))
			}
			must(t, s.RecordApproval(t.Context(), tool, approved(9, "v3-b"))) // recorded by this version
			for range 20/most + 1 {
				must(t, s.Index(t.Context(), store, most))
			}
			wantLast(t, s, tool, "v2-x", approved(1, "v2-a"))
			wantLast(t, s, tool, "v3-x", approved(9, "v3-b"))
			read := toolhistory.Tool{Upstream: "files", Method: "tools/call", Name: "read"}
			wantLast(t, s, read, "v2-x", approved(3, "v2-r"))
			approve(t, store, 10, "read", "v2-s")
			must(t, s.Index(t.Context(), store, most))
			wantLast(t, s, read, "v2-x", approved(3, "v2-r")) // the approval itself would have recorded it
			must(t, s.ResetIndex(t.Context()))
			for range 21/most + 1 {
				must(t, s.Index(t.Context(), store, most))
			}
			wantLast(t, s, read, "v2-x", approved(10, "v2-s"))
		})
	}
}

// While the journal is being read, every record already has the last approval of its tool,
// because the last entries are read first.
func TestIndexNewestFirst(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store}
	tools := map[string]string{"write": "v2-c", "read": "v2-s", "list": "v2-l"}
	for n, e := range [][2]string{{"list", "v2-l"}, {"write", "v2-a"}, {"read", "v2-r"}, {"write", "v2-b"}, {"read", "v2-s"}, {"write", "v2-c"}} {
		approve(t, store, n, e[0], e[1])
	}
	for step, known := range []int{1, 2, 2, 2, 2, 3, 3} {
		must(t, s.Index(t.Context(), store, 1))
		got := 0
		for name, digest := range tools {
			last, err := s.LastApproval(t.Context(), toolhistory.Tool{Upstream: "files", Method: "tools/call", Name: name}, "v2-x")
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

// Entries that are trimmed while the journal is being read are skipped, and reading ends.
func TestIndexOfTrimmedJournal(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store}
	approve(t, store, 1, "write", "v2-a")
	approve(t, store, 2, "read", "v2-r")
	approve(t, store, 3, "list", "v2-l")
	must(t, s.Index(t.Context(), store, 1))
	if _, err := store.Trim(t.Context(), epoch.Add(time.Hour), 3); err != nil {
		t.Fatal(err)
	}
	must(t, s.Index(t.Context(), store, 1))
	wantLast(t, s, tool, "v2-x", toolhistory.ApprovedCall{})
	approve(t, store, 4, "write", "v2-b")
	must(t, s.Index(t.Context(), store, 9))
	wantLast(t, s, tool, "v2-x", toolhistory.ApprovedCall{}) // the journal was already read
}

// A call approved by a grant does not count as approved by people.
func TestIndexWithoutStandingApprovals(t *testing.T) {
	store := open(t)
	s := toolhistory.Store{Records: store}
	approve(t, store, 1, "write", "v2-a")
	must(t, store.Append(t.Context(), task.Note{
		At: epoch.Add(time.Minute), Task: "tg_2", Step: "decided", Upstream: "files", Method: "tools/call", Tool: "write", ToolDigest: "v2-b",
		Approver: "alice", Grant: "gr_1", To: task.Approved,
	}))
	must(t, s.Index(t.Context(), store, 100))
	wantLast(t, s, tool, "v2-x", approved(1, "v2-a"))
}

// Names of any length and with any characters can have a record.
func TestAnyNameHasRecord(t *testing.T) {
	s := toolhistory.Store{Records: open(t)}
	for n, name := range []string{"", "a/b", "~", "é", strings.Repeat("x", 5000)} {
		of := toolhistory.Tool{Upstream: "files", Method: "tools/call", Name: name}
		must(t, s.RecordApproval(t.Context(), of, approved(n, "v2-a")))
		wantLast(t, s, of, "v2-b", approved(n, "v2-a"))
	}
}
