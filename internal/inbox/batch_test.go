package inbox_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// TestBatchShowsGreatestRisk checks that a batch is shown as a batch, with the risk of its
// most dangerous call.
func TestBatchShowsGreatestRisk(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	alice.decide(o.hold(t, held{tool: "delete_file", toolDigest: "v2-a"}), "approve", "")
	yes := true
	got, _, err := o.approvals.Hold(t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "default", Rule: 1, Label: "rules[1]", Match: "delete_*"},
		Message: []byte(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/a"}}},` +
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/b"}}}]`),
		InBatch: []approval.Tool{
			{Annotations: policy.Annotations{ReadOnly: &yes}},
			{Annotations: policy.Annotations{Destructive: &yes}, Description: "Deletes <it>.", Digest: "v2-b"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustHave(t, alice.get("/"), "may destroy")
	page := alice.get("/approvals/" + string(got.ID))
	mustHave(t, read(page), "wants to make all of these calls", "read_file", "/a", "delete_file", "/b", "may destroy something",
		"Held by rules[1] (delete_*), which matches a call in this batch.", "if you reject, none runs",
		"The tool delete_file has changed since it was last approved", "The server now describes delete_file in another way")
	mustHave(t, page, "delete_file: Deletes &lt;it&gt;.", "read_file: the server gives no description.")
	mustLack(t, page, "only reads", "The server gives no description")
}
