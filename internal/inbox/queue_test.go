package inbox_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

var rowOpen = regexp.MustCompile(`<li class="row`)

// TestPendingPagesAndFilters checks that 200 calls are counted, listed on several pages, and
// found by each filter. Links to other pages keep the filter.
func TestPendingPagesAndFilters(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	for i := range 200 {
		h := held{by: fmt.Sprint("agent", i%4), args: fmt.Sprintf(`{"path":"/file%d"}`, i)}
		if i%2 == 0 {
			h.tool, h.workflow = "send_mail", "two"
		}
		o.hold(t, h)
	}
	page := alice.get("/")
	mustHave(t, page, `<span id="count" class="count">200</span>`, "200 pending", "Next page")
	if n := len(rowOpen.FindAllString(page, -1)); n != 50 {
		t.Errorf("%d rows on the first page, want 50", n)
	}
	page = alice.get("/?tool=MAIL&agent=agent2&workflow=two&q=file")
	mustHave(t, page, "50 of 200 pending", `name="tool" value="MAIL"`, `name="agent" value="agent2"`)
	mustLack(t, page, "delete_file</a>", "Next page")
	mustHave(t, alice.get("/?q=nowhere"), "No pending approvals match.", "0 of 200 pending")

	next := "/?tool=mail"
	seen := map[string]bool{}
	for next != "" {
		page = alice.get(next)
		for _, id := range regexp.MustCompile(`data-id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if seen[id[1]] {
				t.Errorf("%s is listed twice", id[1])
			}
			seen[id[1]] = true
		}
		link := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(page)
		if next = ""; link != nil {
			next = strings.ReplaceAll(link[1], "&amp;", "&")
			mustHave(t, next, "tool=mail")
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d calls of the tool are listed; want 100", len(seen))
	}
	mustHave(t, alice.get("/?tool=mail&cursor=nonsense"), "100 of 200 pending")
}

// TestIdenticalCallsGrouped checks that identical calls are one row with their number, and
// that they are rejected together, including those beyond the first hundred.
func TestIdenticalCallsGrouped(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	const calls = 150
	for range calls {
		_, _, err := o.approvals.Hold(t.Context(), approval.Call{
			Owner: "ci", Principal: policy.Principal{ID: "ci"}, Upstream: "files", SharedOwner: true,
			Verdict: policy.Verdict{Action: policy.Approve, Workflow: "default"},
			Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/a"}}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	other := o.hold(t, held{})
	page := alice.get("/")
	mustHave(t, page, "150 identical", "151 pending")
	if n := len(rowOpen.FindAllString(page, -1)); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	group := regexp.MustCompile(`name="id" value="([^"]+ [^"]+)"`).FindStringSubmatch(page)
	if group == nil {
		t.Fatal("the group cannot be ticked")
	}
	_, page = alice.send("/", "/approvals/reject?tool=delete", url.Values{"id": {group[1]}, "reason": {"no"}})
	mustHave(t, page, "150 requests rejected", `data-self="/?tool=delete"`, "1 of 1 pending")
	if got := o.state(t, other); got != task.InputRequired {
		t.Errorf("the other call is %s, want input_required", got)
	}
}

func TestBulkRejectReportsEachOutcome(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	a, b := o.hold(t, held{}), o.hold(t, held{args: `{"path":"/b"}`})
	theirs, stays := o.hold(t, held{workflow: "bobs", args: `{"path":"/c"}`}), o.hold(t, held{args: `{"path":"/d"}`})
	o.signIn(t, "bob").decide(b, "approve", "")
	_, page := alice.send("/", "/approvals/reject", url.Values{"id": {string(a), string(b), string(theirs)}, "reason": {"not today"}})
	mustHave(t, page, "1 request rejected", "1 other had already been decided", "1 other can only be decided by other approvers")
	for id, want := range map[task.ID]task.State{a: task.Rejected, b: task.Approved, theirs: task.InputRequired, stays: task.InputRequired} {
		if got := o.state(t, id); got != want {
			t.Errorf("%s is %s; want %s", id, got, want)
		}
	}
	_, page = alice.send("/", "/approvals/reject", url.Values{})
	mustHave(t, page, "Nothing was rejected")
}

// Too many at once are refused as a whole, and clearly.
func TestBulkTooMany(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{})
	var many strings.Builder
	fmt.Fprint(&many, id)
	for i := range 5000 {
		fmt.Fprint(&many, " tg_", i)
	}
	_, page := alice.send("/", "/approvals/reject", url.Values{"id": {many.String()}})
	mustHave(t, page, "Nothing was rejected", "5001 requests were ticked; at most 5000")
	if got := o.state(t, id); got != task.InputRequired {
		t.Errorf("the call is %s, want input_required", got)
	}
}

// TestListShowsRisk checks that each row shows the risk of the tool, and the approvals that
// the workflow needs.
func TestListShowsRisk(t *testing.T) {
	yes, no := true, false
	for name, tt := range map[string]struct {
		says policy.Annotations
		want string
	}{
		"destroys": {policy.Annotations{Destructive: &yes}, `<span class="chip risk bad">may destroy</span>`},
		"reads":    {policy.Annotations{ReadOnly: &yes}, `<span class="chip risk good">read-only</span>`},
		"changes":  {policy.Annotations{Destructive: &no}, `<span class="chip risk calm">makes changes</span>`},
		"unknown":  {policy.Annotations{}, `<span class="chip risk waiting">effects unknown</span>`},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t)
			_, _, err := o.approvals.Hold(t.Context(), approval.Call{
				Owner: "ci", Principal: policy.Principal{ID: "ci"}, Upstream: "files",
				Verdict: policy.Verdict{Action: policy.Approve, Workflow: "two"}, Tool: approval.Tool{Annotations: tt.says},
				Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			mustHave(t, o.signIn(t, "alice").get("/"), tt.want, "two, 0 of 2 approvals")
		})
	}
}
