package inbox_test

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An approver edits the arguments of a call in its form. Without a script too, the call is rejected,
// the corrected one is approved, and the page shows both. A correction that does not count is kept.
func TestCorrectionForm(t *testing.T) {
	o := open(t)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "again"})
	alice, vera := o.signIn(t, "alice"), o.signIn(t, "vera")
	call := held{workflow: "again", args: `{"path":"</textarea>\u202e"}`, toolDigest: "v2-1"}
	id := o.hold(t, call)
	at := "/approvals/" + string(id)
	mustHave(t, alice.get(at), "Reject with this correction", `formaction="`+at+`/correct"`, `&#34;path&#34;: &#34;&lt;/textarea&gt;\u202e&#34;`)
	mustLack(t, vera.get(at), "Reject with this correction")

	for wrong, why := range map[string]string{
		`{"path":`:                "must be one JSON object",
		`{"path":"a","path":"b"}`: "must be one JSON object",
		call.args:                 "are those of the call",
	} {
		status, page := alice.decideSeeing(at, id, "correct", url.Values{"correction": {wrong}, "reason": {"my reason"}})
		if status != http.StatusUnprocessableEntity || o.state(t, id) != task.InputRequired {
			t.Errorf("%s: %d, %s", wrong, status, o.state(t, id))
		}
		mustHave(t, page, why, "my reason", "<details id=\"correction\" class=\"small\" open")
	}
	status, page := alice.decideSeeing(at, id, "correct", url.Values{"correction": {"{\r\n  \"path\": \"/b\"\r\n}"}})
	if status != http.StatusOK || o.state(t, id) != task.Rejected {
		t.Fatalf("correct: %d, %s\n%s", status, o.state(t, id), page)
	}
	mustHave(t, page, "Corrected arguments", "/b", "one call with other arguments was approved instead", "Used 0 of 1 time.")
	if next := o.hold(t, held{workflow: "again", args: `{"path":"/b"}`, toolDigest: "v2-1"}); o.state(t, next) != task.Approved {
		t.Errorf("the corrected call is %s", o.state(t, next))
	}
}

// An approver who has changed the arguments does not approve the call with its own ones by the other button.
func TestChangedArgumentsAreNotApproved(t *testing.T) {
	o := open(t)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "again"})
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{workflow: "again", args: `{"path":"/a"}`, toolDigest: "v2-1"})
	at := "/approvals/" + string(id)
	status, page := alice.decideSeeing(at, id, "approve", url.Values{"correction": {"{\r\n  \"path\": \"/b\"\r\n}"}})
	if status != http.StatusUnprocessableEntity || o.state(t, id) != task.InputRequired {
		t.Fatalf("changed: %d, %s", status, o.state(t, id))
	}
	mustHave(t, page, "You have changed the arguments", "/b", "<details id=\"correction\" class=\"small\" open")
	if status, page := alice.decideSeeing(at, id, "approve", url.Values{"correction": {"{\r\n  \"path\": \"/a\"\r\n}"}}); o.state(t, id) == task.InputRequired {
		t.Errorf("unchanged: %d\n%s", status, page)
	}
}

// A call of which a part is hidden has no form for a correction, and a plain rejection ignores the field.
func TestNoCorrectionOfHiddenParts(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, again) // with a hidden password
	at := "/approvals/" + string(id)
	mustLack(t, alice.get(at), "Reject with this correction")
	if status, page := alice.decideSeeing(at, id, "correct", url.Values{"correction": {`{"path":"/b"}`}}); status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", status, page)
	}
	alice.decideSeeing(at, id, "reject", url.Values{"correction": {`{"path":"/b"}`}})
	if o.state(t, id) != task.Rejected {
		t.Error(o.state(t, id))
	}
	if next := o.hold(t, held{workflow: "again", args: `{"path":"/b"}`, toolDigest: "v2-1"}); o.state(t, next) != task.InputRequired {
		t.Errorf("the call is %s", o.state(t, next))
	}
}

// With passkeys, the page asks for a signature over the corrected call. It counts for no other arguments.
func TestPasskeyCorrects(t *testing.T) {
	o := open(t)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "keys"})
	ada := o.at(t, "ada")
	code, err := o.approvals.Passkeys().First(t.Context(), "localhost", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := ada.send("/passkeys", "/passkeys", ada.adding(code)); status != http.StatusOK {
		t.Fatalf("%d\n%s", status, text)
	}
	id := o.hold(t, held{workflow: "keys", args: `{"path":"/a"}`, toolDigest: "v2-1"})
	page := "/approvals/" + string(id)
	seen := ada.get(page)
	mustHave(t, seen, `data-sign="`+page+`/correct/confirm"`)
	form := url.Values{
		"shown": {regexp.MustCompile(`name="shown" value="([^"]*)"`).FindStringSubmatch(seen)[1]}, "read": {"all"}, "correction": {`{"path":"/b"}`},
	}
	if status, text := ada.send(page, page+"/correct", maps.Clone(form)); status != http.StatusForbidden {
		t.Errorf("without a signature: %d\n%s", status, text)
	}
	ada.signing(page, page+"/correct/confirm", form)
	other := maps.Clone(form)
	other.Set("correction", `{"path":"/etc"}`)
	approving := maps.Clone(form)
	approving.Del("correction")
	for what, wrong := range map[string]url.Values{"correct": other, "approve": approving} {
		if status, text := ada.send(page, page+"/"+what, wrong); status != http.StatusForbidden || o.state(t, id) != task.InputRequired {
			t.Errorf("%s: %d\n%s", what, status, text)
		}
	}
	o.pass(5 * time.Second) // as the page waits before it sends a rejection
	if status, text := ada.send(page, page+"/correct", form); status != http.StatusOK || o.state(t, id) != task.Rejected {
		t.Fatalf("correct: %d\n%s", status, text)
	}
	if next := o.hold(t, held{workflow: "keys", args: `{"path":"/b"}`, toolDigest: "v2-1"}); o.state(t, next) != task.Approved {
		t.Errorf("the corrected call is %s", o.state(t, next))
	}
}
