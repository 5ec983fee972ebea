package inbox_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// TestUnaskedCallNotShownAsApproved checks that a call that needed no approval is not shown as
// approved.
func TestUnaskedCallNotShownAsApproved(t *testing.T) {
	o := open(t)
	forwarded, _, err := o.approvals.Hold(t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files", Verdict: policy.Verdict{Action: policy.Forward},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_files","arguments":{}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	alice := o.signIn(t, "alice")
	approved := o.hold(t, held{tool: "send_mail"})
	alice.decide(approved, "approve", "")

	page := alice.get("/approvals/" + string(forwarded.ID))
	mustHave(t, page, `<h2 id="verdict-title">No approval needed</h2>`)
	mustLack(t, page, "Approved")
	page = alice.get("/history?outcome=approved")
	mustHave(t, page, "send_mail")
	mustLack(t, page, "list_files")
	page = alice.get("/history?outcome=unasked")
	mustHave(t, page, "list_files", ">No approval needed</span>")
	mustLack(t, page, "send_mail")
	mustHave(t, alice.get("/history"), "list_files", "send_mail")
}
