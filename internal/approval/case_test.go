package approval_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// An approval has the complete arguments. Redacted values are distinguishable from values that
// look like them.
func TestRedactedArgumentsAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		c := call("ann", "")
		c.Message = message("delete_file", `{"password":"hunter2","note":"[redacted]","text":"`+string(make100KB())+`"}`)
		held := o.hold(t, c)
		got, err := o.views.Details(t.Context(), held.ID, o.Objection(approval.Approver{Name: "alice"}))
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(len(`{"password":"[redacted]"`)); len(got.RedactedArguments) != 1 || !got.RedactedArguments.Has(want) {
			t.Errorf("ends of redacted values = %v; want %d", got.RedactedArguments, want)
		}
		if len(got.AllArguments) < 100<<10 || !got.ArgumentsTruncated {
			t.Errorf("%d bytes of arguments, truncated = %v", len(got.AllArguments), got.ArgumentsTruncated)
		}
		if want := `{"password":"[redacted]","note":"[redacted]","text":"aa`; string(got.AllArguments[:len(want)]) != want {
			t.Errorf("arguments begin %s", got.AllArguments[:len(want)])
		}
	})
}

func make100KB() []byte {
	b := make([]byte, 100<<10)
	for i := range b {
		b[i] = 'a'
	}
	return b
}

// An approval says whether its viewer may approve it.
func TestApprovalHasObjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.setWorkflow("ops", approval.Workflow{Approvers: []string{"alice", "bob"}, Quorum: 2})
		held := o.hold(t, call("bob", "/a"))
		for name, want := range map[string]error{"alice": nil, "bob": lifecycle.ErrSelfApproval, "eve": approval.ErrForbidden} {
			got, err := o.views.Details(t.Context(), held.ID, o.Objection(approval.Approver{Name: name}))
			if err != nil {
				t.Fatal(err)
			}
			if want == nil && got.Objection != nil {
				t.Errorf("%s: %v", name, got.Objection)
			}
			if want != nil {
				mustBe(t, got.Objection, want)
			}
		}
		o.approve(t, held.ID)
		got, err := o.views.Details(t.Context(), held.ID, o.Objection(approval.Approver{Name: "alice"}))
		if err != nil {
			t.Fatal(err)
		}
		mustBe(t, got.Objection, lifecycle.ErrAlreadyDecided)
	})
}

// The last approval of a tool is known as long as the journal has it. A changed definition is
// noticed.
func TestChangeIsKnownFromJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		stop := o.runHousekeeping(t)
		defer stop()
		hold := func(file, digest string) task.Task {
			c := call("ann", file)
			c.Tool.Digest = digest
			return o.hold(t, c)
		}
		changed := func(held task.Task) *review.ToolChange {
			t.Helper()
			got, err := o.views.Details(t.Context(), held.ID, o.Objection(approval.Approver{Name: "alice"}))
			if err != nil {
				t.Fatal(err)
			}
			return got.ToolChange
		}
		first := hold("/a", "d1")
		if got := changed(first); got != nil {
			t.Errorf("change without an earlier approval: %+v", got)
		}
		o.approve(t, first.ID)
		if got := changed(hold("/b", "d1")); got != nil {
			t.Errorf("change of an unchanged tool: %+v", got)
		}
		want := &review.ToolChange{ID: first.ID, At: first.CreatedAt}
		if diff := cmp.Diff(want, changed(hold("/c", "d2"))); diff != "" {
			t.Errorf("changed:\n%s", diff)
		}
		pass(24 * time.Hour) // the tasks are deleted
		if _, err := o.views.Show(t.Context(), first.ID); err == nil {
			t.Fatal("the task is still there")
		}
		if diff := cmp.Diff(want, changed(hold("/d", "d2"))); diff != "" {
			t.Errorf("change from the journal:\n%s", diff)
		}
		if got := changed(hold("/e", "d1")); got != nil {
			t.Errorf("change of a tool that is unchanged in the journal: %+v", got)
		}
		history, err := o.views.History(t.Context(), first.ID)
		if err != nil || len(history) == 0 {
			t.Errorf("history: %v", err)
		}
	})
}

// Digests of different forms are not compared, neither for approvers nor before the run. The
// last approval with a digest of the same form counts.
func TestDigestsOfOtherFormsAreNotCompared(t *testing.T) {
	tests := []struct {
		name, first, second, third string // the digests of three calls, the first two approved
		changed                    string // the approved call since which the third one's tool has changed
	}{
		{name: "other form", first: "", second: "aa", third: "v2-bb"},
		{name: "earlier form", first: "v2-aa", second: "aa", third: "v2-bb", changed: "first"},
		{name: "unchanged in its form", first: "v2-bb", second: "aa", third: "v2-bb"},
		{name: "later form", first: "v2-aa", second: "v3-aa", third: "v2-aa"},
		{name: "same form", first: "v2-aa", second: "v2-bb", third: "v2-cc", changed: "second"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				ids := make(map[task.ID]string)
				for i, digest := range []string{tt.first, tt.second, tt.third} {
					c := call("ann", fmt.Sprint(i))
					c.Tool.Digest = digest
					held := o.hold(t, c)
					pass(time.Second)
					if ids[held.ID] = []string{"first", "second", "third"}[i]; i < 2 {
						o.approve(t, held.ID)
						continue
					}
					got, err := o.views.Details(t.Context(), held.ID, o.Objection(approval.Approver{Name: "alice"}))
					if err != nil {
						t.Fatal(err)
					}
					changed := ""
					if got.ToolChange != nil {
						changed = ids[got.ToolChange.ID]
					}
					if changed != tt.changed {
						t.Errorf("changed since %q; want %q", changed, tt.changed)
					}
				}
			})
		})
	}
}

// A definer is a sender that knows the digest of the tool.
type definer struct {
	approval.Sender

	digest string
}

func (d definer) Definitions(context.Context, approval.UpstreamRequest) []string {
	return []string{d.digest}
}

// A call that was held with a digest of another form runs, because its digest cannot be
// compared.
func TestCallWithOtherDigestFormRuns(t *testing.T) {
	tests := []struct {
		held, now string
		runs      bool
	}{
		{"aa", "v2-bb", true},
		{"v2-aa", "v3-bb", true},
		{"aa", "", true},
		{"", "v2-aa", true},
		{"v2-aa", "v2-aa", true},
		{"v2-aa", "v2-bb", false},
		{"aa", "bb", false},
	}
	for _, tt := range tests {
		t.Run(tt.held+" "+tt.now, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				c := call("ann", "/a")
				c.Tool.Digest = tt.held
				held := o.hold(t, c)
				o.approve(t, held.ID)
				l := newFakeUpstream()
				if _, err := o.Contact(t.Context(), mine(held), definer{l.send, tt.now}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				after := o.now(t, held.ID)
				if ran := len(l.entries()) == 1; ran != tt.runs || !ran && after.Failure.Stage != lifecycle.StageToolDrift {
					t.Errorf("ran %t, and is %s (%+v); want %t", ran, after.State, after.Failure, tt.runs)
				}
			})
		})
	}
}

// An approval lists the requester's earlier calls of the tool, but not later ones.
func TestApprovalListsEarlierCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		var want []task.ID
		for i := range 7 {
			held := o.hold(t, call("ann", fmt.Sprint(i)))
			want = append([]task.ID{held.ID}, want...)
			pass(time.Second)
		}
		other := call("ann", "")
		other.Message = message("read_file", `{}`)
		o.hold(t, other)
		o.hold(t, call("zoe", "/z"))
		got, err := o.views.Details(t.Context(), want[0], o.Objection(approval.Approver{Name: "alice"}))
		if err != nil {
			t.Fatal(err)
		}
		var ids []task.ID
		for _, a := range got.Earlier {
			ids = append(ids, a.ID)
		}
		if diff := cmp.Diff(want[1:6], ids); diff != "" {
			t.Error(diff)
		}
		got, err = o.views.Details(t.Context(), want[4], o.Objection(approval.Approver{Name: "alice"}))
		if err != nil {
			t.Fatal(err)
		}
		ids = nil
		for _, a := range got.Earlier {
			ids = append(ids, a.ID)
		}
		if diff := cmp.Diff(want[5:], ids); diff != "" {
			t.Errorf("the third call (-want +got):\n%s", diff)
		}
	})
}

// The pages of a filtered list have each matching call once, even if few calls match.
func TestFilteredPagesAreComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		for i := range 60 {
			c := call(fmt.Sprintf("agent %d", i), fmt.Sprint(i))
			c.Principal = policy.Principal{ID: c.Owner}
			if i%10 == 0 {
				c.Message = message("Send_mail", fmt.Sprintf(`{"n":%d}`, i))
			}
			o.hold(t, c)
			pass(time.Millisecond)
		}
		for name, tt := range map[string]struct {
			filter review.Filter
			want   int
		}{
			"tool":          {review.Filter{Tool: "mail", Limit: 4}, 6},
			"requester":     {review.Filter{Principal: "agent 1", Limit: 3}, 11},
			"both":          {review.Filter{Tool: "SEND", Principal: "agent 10"}, 1},
			"nothing":       {review.Filter{Tool: "nothing"}, 0},
			"another state": {review.Filter{Tool: "mail", States: []task.State{task.Rejected}}, 0},
		} {
			seen := map[task.ID]bool{}
			for f := tt.filter; ; {
				page, err := o.views.Pending(t.Context(), f)
				if err != nil {
					t.Fatal(err)
				}
				if f.Limit > 0 && len(page.Approvals) > f.Limit {
					t.Errorf("%s: a page has %d", name, len(page.Approvals))
				}
				for _, a := range page.Approvals {
					if seen[a.ID] {
						t.Errorf("%s: %s twice", name, a.ID)
					}
					seen[a.ID] = true
				}
				if f.Cursor = page.Next; f.Cursor == "" {
					break
				}
			}
			if len(seen) != tt.want {
				t.Errorf("%s: %d; want %d", name, len(seen), tt.want)
			}
		}
		if n, err := o.views.CountPending(t.Context()); n != 60 || err != nil {
			t.Errorf("waiting: %d, %v", n, err)
		}
	})
}
