package approval_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// defined returns a call of ann's whose tool has the given digest.
func defined(file, digest string) approval.Call {
	c := call("ann", file)
	c.Tool.Digest = digest
	return c
}

// changed returns what approvers are told of a tool that has changed, which channels and
// the inbox agree on.
func (o *office) changed(t *testing.T, id task.ID) *casefile.Precedent {
	t.Helper()
	_, asked, err := o.ShowToAsk(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.Case(t.Context(), id, o.Objection(alice))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asked, got.Changed); diff != "" {
		t.Errorf("channels and the inbox differ:\n%s", diff)
	}
	return got.Changed
}

// flood fills the journal with what an agent can do: it holds calls of another tool and
// withdraws them.
func (o *office) flood(t *testing.T) {
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
	for range 5000 { // the rest of the same
		if err := o.store.Append(t.Context(), task.Note{At: time.Now(), Task: "tg_x", Step: "held", Tool: "other_tool"}); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent cannot have the gate forget how a tool was defined when it was last approved: not
// by any number of calls, nor by those of another gate on the same store.
func TestChangedAfterManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		stop := o.runHousekeeping(t)
		defer stop()
		first := o.hold(t, defined("/a", "v2-aa"))
		o.approve(t, first.ID)
		pass(24 * time.Hour) // the task is swept away
		o.flood(t)
		restarted := branch(t, o.store, nil)
		want := &casefile.Precedent{ID: first.ID, At: first.CreatedAt}
		if diff := cmp.Diff(want, restarted.changed(t, o.hold(t, defined("/b", "v2-bb")).ID)); diff != "" {
			t.Errorf("changed:\n%s", diff)
		}
		if got := restarted.changed(t, o.hold(t, defined("/c", "v2-aa")).ID); got != nil {
			t.Errorf("changed although it is the same: %+v", got)
		}
	})
}

// What was approved before this version of the gate is known too, once housekeeping has read
// the journal.
func TestChangedSinceEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		first := o.hold(t, defined("/a", "v2-aa"))
		o.approve(t, first.ID)
		for _, r := range o.records(t) { // the earlier version has written none
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

// records returns what the store has of approved tools.
func (o *office) records(t *testing.T) []task.Record {
	t.Helper()
	all, err := o.store.ListRecords(t.Context(), task.RecordQuery{Prefix: "approvedtool/", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Only what people approve has a record, one for each tool: an agent makes none, whatever
// it calls.
func TestRecordsOfApprovedTools(t *testing.T) {
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

// If it cannot be known whether a tool has changed, approvers are told that.
func TestChangedUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.approve(t, o.hold(t, defined("/a", "v2-aa")).ID)
		r := o.records(t)[0]
		if err := o.store.PutRecord(t.Context(), task.Record{Name: r.Name, Version: r.Version + 1, Value: []byte("?")}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		// The journal says more.
		if got := o.changed(t, o.hold(t, defined("/b", "v2-bb")).ID); got == nil || got.Unknown {
			t.Errorf("changed: %+v", got)
		}
		o.flood(t)
		next := o.hold(t, defined("/c", "v2-bb"))
		got := o.changed(t, next.ID)
		if got == nil || !got.Unknown || !strings.Contains(got.Caution(), "not known") {
			t.Errorf("changed: %+v", got)
		}
		o.approve(t, next.ID)
		if got := o.changed(t, o.hold(t, defined("/d", "v2-bb")).ID); got != nil {
			t.Errorf("changed after an approval: %+v", got)
		}
	})
}

// A call that was decided keeps its warning, although it is the last approved one itself.
func TestChangedAfterDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		first := o.hold(t, defined("/a", "v2-aa"))
		o.approve(t, first.ID)
		pass(time.Second)
		next := o.hold(t, defined("/b", "v2-bb"))
		o.approve(t, next.ID)
		got, err := o.Case(t.Context(), next.ID, o.Objection(alice))
		if err != nil || got.Changed == nil || got.Changed.ID != first.ID {
			t.Errorf("changed: %+v, %v", got.Changed, err)
		}
	})
}
