package inbox_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// holdSame holds a call of an agent that makes the same one several times.
func (o *fixture) holdSame(t *testing.T, workflow, says string) task.ID {
	t.Helper()
	o.pass(time.Second)
	c := approval.Call{
		Owner: "ci", Principal: policy.Principal{ID: "ci"}, Upstream: "files", SharedOwner: true,
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: workflow},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/same"}}}`),
	}
	if says != "" {
		c.Variables = task.Variables{review.ClientReason: fmt.Appendf(nil, "%q", says)}
	}
	got, _, err := o.approvals.Hold(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID
}

// holdThree holds three calls, the most urgent first.
func (o *fixture) holdThree(t *testing.T) (ids [3]task.ID) {
	t.Helper()
	for n, tool := range []string{"delete_file", "send_mail", "delete_file"} {
		o.pass(time.Second)
		ids[n] = o.hold(t, held{tool: tool, args: fmt.Sprintf(`{"path":"/%d"}`, n)})
	}
	return ids
}

// form returns the form of a decision on a page.
func (v *browser) form(page string) url.Values {
	v.t.Helper()
	form := url.Values{}
	for _, field := range regexp.MustCompile(`name="(shown|read|same|csrf)" value="([^"]*)"`).FindAllStringSubmatch(v.get(page), -1) {
		if field[1] == "same" || !form.Has(field[1]) {
			form.Add(field[1], field[2])
		}
	}
	return form
}

// TestPageShowsPlace checks that the page of a call has its position in the list that it was opened from, and
// links to the calls before and after it.
func TestPageShowsPlace(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	ids := o.holdThree(t)
	at := func(n int) string { return "/approvals/" + string(ids[n]) }
	mustHave(t, alice.get(at(1)), "2 of 3", `rel="prev" href="`+at(0)+`"`, `rel="next" href="`+at(2)+`"`)
	mustLack(t, alice.get(at(0)), `rel="prev"`)
	mustHave(t, alice.get("/?tool=delete"), `href="`+at(2)+`?tool=delete"`)
	page := alice.get(at(2) + "?tool=delete")
	mustHave(t, page, "2 of 2", `rel="prev" href="`+at(0)+`?tool=delete"`, `href="/?tool=delete">← Waiting`, at(2)+`/approve?tool=delete"`, `name="tool" value="delete"`)
	mustLack(t, page, `rel="next"`)
	mustLack(t, alice.get(at(1)+"?tool=delete"), `rel="prev"`, `rel="next"`, " of 2")
	alice.decide(ids[1], "reject", "")
	mustLack(t, alice.get(at(1)), `rel="prev"`)
}

// TestDecisionAdvances checks that a decision of the script leads to the next call of the list, after the last
// one to the first, and at the end to the list, and that each page says what was decided before.
func TestDecisionAdvances(t *testing.T) {
	o := open(t)
	alice, bob := o.signIn(t, "alice"), o.signIn(t, "bob")
	ids := o.holdThree(t)
	theirs := o.hold(t, held{workflow: "bobs", tool: "delete_all"})
	decide := func(n int, what string) string {
		t.Helper()
		path := "/approvals/" + string(ids[n])
		form := alice.form(path + "?tool=e")
		form.Set("advance", "yes")
		status, page := alice.post(path+"/"+what+"?tool=e", form)
		if status != http.StatusOK {
			t.Fatal(status)
		}
		return page
	}
	page := decide(1, "approve")
	mustHave(t, page, `data-case="`+string(ids[2])+`"`, "You approved send_mail.", "Approved by alice", "Show it", `data-self="/approvals/`+string(ids[2])+`?tool=e"`)
	page = decide(2, "reject")
	mustHave(t, page, `data-case="`+string(ids[0])+`"`, "You rejected delete_file.")
	page = decide(0, "approve")
	mustHave(t, page, "1 of 1 pending", "You approved delete_file.", `data-self="/?tool=e"`, string(theirs))
	mustLack(t, bob.get("/?after="+string(ids[0])), `id="notice"`)
	mustLack(t, alice.get("/?after=unknown"), `id="notice"`)
	mustHave(t, alice.get("/approvals/"+string(theirs)+"/next"), "Waiting for a decision")
}

// TestNextSkipsOwnApproval checks that a call that needs a second approver is not shown again to the first one.
func TestNextSkipsOwnApproval(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	two := o.hold(t, held{workflow: "two"})
	o.pass(time.Second)
	other := o.hold(t, held{args: `{"path":"/b"}`})
	path := "/approvals/" + string(two)
	form := alice.form(path)
	form.Set("advance", "yes")
	_, page := alice.post(path+"/approve", form)
	mustHave(t, page, `data-case="`+string(other)+`"`, "You approved delete_file.", "1 of 2 approvals")
	mustHave(t, alice.get("/approvals/"+string(other)+"/next"), "Waiting for a decision")
}

// TestDecisionWithoutScriptShowsItsCall checks that a form without the script leads to the page of its call: the
// second click of a double click must not meet the buttons of another call.
func TestDecisionWithoutScriptShowsItsCall(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	ids := o.holdThree(t)
	_, page := alice.decide(ids[0], "approve", "")
	mustHave(t, page, `data-case="`+string(ids[0])+`"`, "2 more are waiting", "/approvals/"+string(ids[0])+"/next")
	mustHave(t, alice.get("/approvals/"+string(ids[0])+"/next"), `data-case="`+string(ids[1])+`"`)
}

// TestGroupIsDecidedTogether checks that identical calls are approved or rejected with one form, each with the
// digest of its own view.
func TestGroupIsDecidedTogether(t *testing.T) {
	for what, want := range map[string]task.State{"approve": task.Approved, "reject": task.Rejected} {
		t.Run(what, func(t *testing.T) {
			o := open(t)
			alice := o.signIn(t, "alice")
			var ids []task.ID
			for range 4 {
				ids = append(ids, o.holdSame(t, "default", ""))
			}
			other := o.hold(t, held{})
			path := "/approvals/" + string(ids[1])
			mustHave(t, alice.get(path), "Decide all 4 identical calls together")
			form := alice.form(path)
			if n := len(form["same"]); n != 3 {
				t.Fatalf("the form has %d other calls, want 3", n)
			}
			form.Set("all", "yes")
			form.Set("advance", "yes")
			_, page := alice.post(path+"/"+what, form)
			mustHave(t, page, "4 requests "+string(want), `data-case="`+string(other)+`"`)
			for _, id := range ids {
				if got := o.state(t, id); got != want {
					t.Errorf("%s is %s, want %s", id, got, want)
				}
			}
			if got := o.state(t, other); got != task.InputRequired {
				t.Errorf("the other call is %s", got)
			}
		})
	}
}

// TestGroupWithoutScript checks that the form of a group leads to the list without the script.
func TestGroupWithoutScript(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	first := o.holdSame(t, "two", "")
	o.holdSame(t, "two", "")
	form := alice.form("/approvals/" + string(first))
	form.Set("all", "yes")
	_, page := alice.post("/approvals/"+string(first)+"/approve?tool=file", form)
	mustHave(t, page, "Waiting for a decision", "2 requests approved", "More approvals are needed.", `data-self="/?tool=file"`)
}

// TestChangedCallOfGroupIsNotDecided checks that a call of a group whose view is not what was shown stays pending.
func TestChangedCallOfGroupIsNotDecided(t *testing.T) {
	for _, what := range []string{"approve", "reject"} {
		t.Run(what, func(t *testing.T) {
			o := open(t)
			alice := o.signIn(t, "alice")
			first, second, third := o.holdSame(t, "default", ""), o.holdSame(t, "default", ""), o.holdSame(t, "default", "")
			form := alice.form("/approvals/" + string(first))
			form.Set("all", "yes")
			for n, same := range form["same"] {
				if strings.HasPrefix(same, string(third)) {
					form["same"][n] = string(third) + " " + strings.Repeat("0", 64)
				}
			}
			_, page := alice.post("/approvals/"+string(first)+"/"+what, form)
			mustHave(t, page, "2 requests", "1 other had changed since you were shown it: not decided.")
			if got := o.state(t, third); got != task.InputRequired {
				t.Errorf("the changed call is %s, want input_required", got)
			}
			if got := o.state(t, second); got == task.InputRequired {
				t.Error("the other call was not decided")
			}
		})
	}
}

// TestGroupHasOnlyCallsThatLookAlike checks that the form of a group leaves out calls with another reason, calls
// with more than a page shows, and those that need a passkey.
func TestGroupHasOnlyCallsThatLookAlike(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	first, other, same := o.holdSame(t, "default", "a test"), o.holdSame(t, "default", "production"), o.holdSame(t, "default", "a test")
	form := alice.form("/approvals/" + string(first))
	if len(form["same"]) != 1 || !strings.HasPrefix(form.Get("same"), string(same)) {
		t.Errorf("the form of %s has %q; want %s, and not %s with another reason", first, form["same"], same, other)
	}
	mustHave(t, alice.get("/approvals/"+string(first)), "Decide 2 of 3 identical calls together")
	keys := o.holdSame(t, "keys", "")
	o.holdSame(t, "keys", "")
	mustLack(t, alice.get("/approvals/"+string(keys)), `name="same"`)
}
