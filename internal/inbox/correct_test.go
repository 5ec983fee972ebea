package inbox_test

import (
	"net/http"
	"net/url"
	"testing"

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
	mustHave(t, page, "Corrected arguments", "/b", "one call with other arguments was approved instead", "Used 0 of 1 times.")
	if next := o.hold(t, held{workflow: "again", args: `{"path":"/b"}`, toolDigest: "v2-1"}); o.state(t, next) != task.Approved {
		t.Errorf("the corrected call is %s", o.state(t, next))
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
