package approval_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// defined returns a call by ann of a tool with the given digest.
func defined(file, digest string) approval.Call {
	c := call("ann", file)
	c.Tool.Digest = digest
	return c
}

// changed returns the tool change that approvers see, and checks that channels and the inbox
// agree about it.
func (o *fixture) changed(t *testing.T, id task.ID) *review.ToolChange {
	t.Helper()
	_, asked, err := o.views.ShowWithChange(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.views.Details(t.Context(), id, o.Objection(alice))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asked, got.ToolChange); diff != "" {
		t.Errorf("channels and the inbox have different changes:\n%s", diff)
	}
	return got.ToolChange
}

// flood fills the journal as an agent could: it holds calls of another tool and cancels them.
func (o *fixture) flood(t *testing.T) {
	t.Helper()
	for range 101 {
		c := call("mallory", "/x")
		c.Message, c.Tool.Digest = message("other_tool", `{}`), "v2-zz"
		held := o.hold(t, c)
		if _, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "mallory"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
	}
	for range 5000 { // more entries of the same kind
		if err := o.store.Append(t.Context(), task.Note{At: time.Now(), Task: "tg_x", Step: "held", Tool: "other_tool"}); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent cannot make the gate forget the approved definition of a tool, however many calls it
// makes through any gate on the same store.
func TestChangedAfterManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		stop := o.runHousekeeping(t)
		defer stop()
		first := o.hold(t, defined("/a", "v2-aa"))
		o.approve(t, first.ID)
		pass(24 * time.Hour) // the task is deleted
		o.flood(t)
		restarted := branch(t, o.store, nil)
		want := &review.ToolChange{ID: first.ID, At: first.CreatedAt}
		if diff := cmp.Diff(want, restarted.changed(t, o.hold(t, defined("/b", "v2-bb")).ID)); diff != "" {
			t.Errorf("changed:\n%s", diff)
		}
		if got := restarted.changed(t, o.hold(t, defined("/c", "v2-aa")).ID); got != nil {
			t.Errorf("change of an unchanged tool: %+v", got)
		}
	})
}

// Definitions approved through an earlier version are known after housekeeping has read the
// journal.
func TestChangedSinceEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		first := o.hold(t, defined("/a", "v2-aa"))
		o.approve(t, first.ID)
		for _, r := range o.records(t) { // the earlier version wrote no records
			if err := o.store.DeleteRecord(t.Context(), r.Name); err != nil {
				t.Fatal(err)
			}
		}
		o.flood(t)
		stop := o.runHousekeeping(t)
		pass(24 * time.Hour)
		stop()
		if got := o.changed(t, o.hold(t, defined("/b", "v2-bb")).ID); got == nil || got.ID != first.ID {
			t.Errorf("changed: %+v", got)
		}
	})
}

// The last approval counts even if only an earlier approval has a record: the gate died before
// it wrote the record, or an earlier version took the decision.
func TestChangedSinceApprovalWithoutRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		// These are held before the approval and decided after it.
		same, other := o.hold(t, defined("/c", "v2-bb")), o.hold(t, defined("/d", "v2-aa"))
		pass(time.Second)
		o.approve(t, o.hold(t, defined("/a", "v2-aa")).ID)
		old := o.records(t)[0]
		pass(time.Second)
		last := o.hold(t, defined("/b", "v2-bb"))
		o.approve(t, last.ID)
		if err := o.store.DeleteRecord(t.Context(), old.Name); err != nil {
			t.Fatal(err)
		}
		old.Version = 1
		if err := o.store.PutRecord(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		for _, held := range []task.Task{same, o.hold(t, defined("/e", "v2-bb"))} {
			if got := o.changed(t, held.ID); got != nil {
				t.Errorf("change of a tool that is as last approved: %+v", got)
			}
		}
		for _, held := range []task.Task{other, o.hold(t, defined("/f", "v2-aa"))} {
			if got := o.changed(t, held.ID); got == nil || got.ID != last.ID {
				t.Errorf("changed: %+v; want since %s", got, last.ID)
			}
		}
		// A decided call keeps the warning that its approvers saw.
		o.approve(t, other.ID)
		pass(time.Second)
		o.approve(t, same.ID)
		got, err := o.views.Details(t.Context(), other.ID, o.Objection(alice))
		if err != nil || got.ToolChange == nil || got.ToolChange.ID != last.ID {
			t.Errorf("changed after the decision: %+v, %v; want since %s", got.ToolChange, err, last.ID)
		}
	})
}

// A call approved by a grant does not count as an approval of the tool's definition. Only
// approvals by people count.
func TestChangedDespiteStandingApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall(`{"path":"/a"}`), terms(5))
		pass(time.Second)
		last := o.hold(t, defined("/b", "v2-bb"))
		o.approve(t, last.ID)
		pass(time.Second)
		if ran := o.hold(t, toolCall(`{"path":"/a"}`)); ran.Approval.Grant() == "" {
			t.Fatalf("not approved by a grant: %+v", ran.Approval)
		}
		pass(time.Second)
		if got := o.changed(t, o.hold(t, defined("/c", "v2-bb")).ID); got != nil {
			t.Errorf("change of a tool that is as people last approved it: %+v", got)
		}
		if got := o.changed(t, o.hold(t, toolCall(`{"path":"/d"}`)).ID); got == nil || got.ID != last.ID {
			t.Errorf("changed: %+v; want since %s", got, last.ID)
		}
	})
}

// The date of an earlier approval has a year, because records are kept for two years.
func TestChangeDateHasYear(t *testing.T) {
	p := review.ToolChange{ID: "tg_1", At: time.Date(2025, 8, 22, 10, 30, 0, 0, time.UTC)}
	if got := p.Text(); !strings.HasSuffix(got, ", on 22 August 2025 at 10:30 UTC") {
		t.Errorf("caution %q", got)
	}
}

// While housekeeping reads an earlier version's journal in batches, warnings compare only with
// the last approval.
func TestChangedWhileIndexing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		for _, digest := range []string{"v2-aa", "v2-bb"} {
			if err := o.store.Append(t.Context(), task.Note{
				At: time.Now(), Task: task.ID("tg_" + digest), Step: "decided", Upstream: "files", Method: "tools/call", Tool: "delete_file",
				ToolDigest: digest, Approver: "alice", To: task.Approved,
			}); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		same, other := o.hold(t, defined("/a", "v2-bb")), o.hold(t, defined("/b", "v2-aa"))
		for step := range 10 {
			if err := (toolhistory.Store{Records: o.store}).Index(t.Context(), o.store, 1); err != nil {
				t.Fatal(err)
			}
			if got := o.changed(t, same.ID); got != nil {
				t.Errorf("step %d: change of a tool that is as last approved: %+v", step, got)
			}
			if got := o.changed(t, other.ID); got == nil || got.ID != "tg_v2-bb" {
				t.Errorf("step %d: changed: %+v", step, got)
			}
		}
	})
}

// records returns the stored records of approved tools.
func (o *fixture) records(t *testing.T) []gatestore.Record {
	t.Helper()
	all, err := o.store.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "approvedtool/", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Each tool that people approved has one record. Calls alone create no records.
func TestOnlyApprovedToolsHaveRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.setWorkflow("two", approval.Workflow{Quorum: 2})
		want := func(n int, when string) {
			t.Helper()
			if got := len(o.records(t)); got != n {
				t.Errorf("%d records after %s; want %d", got, when, n)
			}
		}
		o.hold(t, defined("/pending", "v2-a"))
		rejected := o.hold(t, defined("/rejected", "v2-a"))
		if _, err := o.decide(t.Context(), rejected.ID, alice, approval.Reject, "no"); err != nil {
			t.Fatal(err)
		}
		free := defined("/free", "v2-a")
		free.Verdict.Action = policy.Forward
		o.hold(t, free)
		o.approve(t, o.hold(t, defined("/unknown", "")).ID)
		want(0, "calls that nobody approved, or whose tool is not known")
		half := defined("/two", "v2-a")
		half.Verdict.Workflow = "two"
		held := o.hold(t, half)
		o.approve(t, held.ID)
		want(0, "one of two approvals")
		if _, err := o.decide(t.Context(), held.ID, bob, approval.Approve, ""); err != nil {
			t.Fatal(err)
		}
		want(1, "both approvals")
		for _, file := range []string{"/b", "/c"} {
			o.approve(t, o.hold(t, defined(file, "v2-b")).ID)
		}
		want(1, "more of them")
	})
}

// If it is unknown whether a tool has changed, approvers are told so.
func TestChangedUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.approve(t, o.hold(t, defined("/a", "v2-aa")).ID)
		r := o.records(t)[0]
		if err := o.store.PutRecord(t.Context(), gatestore.Record{Name: r.Name, Version: r.Version + 1, Value: []byte("?")}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		// The journal has more information.
		if got := o.changed(t, o.hold(t, defined("/b", "v2-bb")).ID); got == nil || got.Unknown {
			t.Errorf("changed: %+v", got)
		}
		o.flood(t)
		next := o.hold(t, defined("/c", "v2-bb"))
		got := o.changed(t, next.ID)
		if got == nil || !got.Unknown || !strings.Contains(got.Text(), "not known") {
			t.Errorf("changed: %+v", got)
		}
		o.approve(t, next.ID)
		if got := o.changed(t, o.hold(t, defined("/d", "v2-bb")).ID); got != nil {
			t.Errorf("changed after an approval: %+v", got)
		}
	})
}

// A decided call keeps its warning, although it is now the last approved one.
func TestChangedAfterDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		first := o.hold(t, defined("/a", "v2-aa"))
		o.approve(t, first.ID)
		pass(time.Second)
		next := o.hold(t, defined("/b", "v2-bb"))
		o.approve(t, next.ID)
		got, err := o.views.Details(t.Context(), next.ID, o.Objection(alice))
		if err != nil || got.ToolChange == nil || got.ToolChange.ID != first.ID {
			t.Errorf("changed: %+v, %v", got.ToolChange, err)
		}
	})
}
