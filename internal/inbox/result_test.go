package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A sender answers each call with a fixed text.
type sender struct {
	approval.Sender

	answer string
}

func (s sender) Call(context.Context, task.Task, approval.UpstreamRequest) (approval.Outcome, error) {
	return approval.Outcome{Body: strings.NewReader(s.answer)}, nil
}

// TestResultShownRedacted checks that operators who see the arguments also see the result, as
// plain text and redacted.
func TestResultShownRedacted(t *testing.T) {
	o := open(t)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "default"})
	id := o.hold(t, held{args: `{"path":"/a","password":"hunter2"}`})
	alice := o.signIn(t, "alice")
	mustLack(t, alice.get("/approvals/"+string(id)), `id="result-title"`)
	alice.decide(id, "approve", "")
	hostile := `<script>alert(1)</script><img src=x onerror=alert(1)> ` + "\u202egpj.exe" + ` hunter2`
	ended, err := o.approvals.Wait(t.Context(), task.OwnedBy("ann").Ref(id), sender{answer: `{"content":[{"type":"text","text":"` + hostile + `"}],"isError":true}`})
	if err != nil || ended.State != task.Completed {
		t.Fatalf("%s, %v", ended.State, err)
	}
	for _, who := range []string{"alice", "vera"} {
		page := o.signIn(t, who).get("/approvals/" + string(id))
		mustHave(t, page, "Result: the tool reports an error", "&lt;script&gt;alert(1)&lt;/script&gt;", "U+202E", "[redacted]")
		mustLack(t, page, "<script>alert", "<img", "hunter2", "\u202e")
	}
}

// TestManySecretsHideResult checks that a result is hidden if the arguments have more secrets
// than the gate searches for, since the result may repeat any of them.
func TestManySecretsHideResult(t *testing.T) {
	o := open(t)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "default"})
	for n, shown := range map[int]bool{50: true, 5000: false} {
		owner := fmt.Sprint("ann", n)
		users := strings.TrimSuffix(strings.Repeat(`{"key":"token-%d-x"},`, n), ",")
		numbers := make([]any, n)
		for i := range numbers {
			numbers[i] = i
		}
		id := o.hold(t, held{by: owner, args: fmt.Sprintf(`{"users":[`+users+`]}`, numbers...)})
		if _, err := decide(t.Context(), o.approvals, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err != nil {
			t.Fatal(err)
		}
		answer := fmt.Sprintf(`{"content":[{"type":"text","text":"created token-%d-x"}]}`, n-1)
		if _, err := o.approvals.Wait(t.Context(), task.OwnedBy(owner).Ref(id), sender{answer: answer}); err != nil {
			t.Fatal(err)
		}
		page := o.signIn(t, "alice").get("/approvals/" + string(id))
		if strings.Contains(page, "created") != shown || strings.Contains(page, fmt.Sprintf("token-%d-x", n-1)) {
			t.Errorf("the result of a call with %d secrets is shown: %t", n, !shown)
		}
	}
}

// TestResultRedactsAllSecrets checks that secrets are redacted in a result if they are numbers,
// or if they were sent outside of the arguments.
func TestResultRedactsAllSecrets(t *testing.T) {
	o := open(t)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "default"})
	id := o.hold(t, held{args: `{"password":4217735},"_meta":{"password":"hunter3"}`})
	alice := o.signIn(t, "alice")
	alice.decide(id, "approve", "")
	answer := `{"content":[{"type":"text","text":"as hunter3"}],"structuredContent":{"pin":4217735,"n":[4217736,-4217735.0]}}`
	if _, err := o.approvals.Wait(t.Context(), task.OwnedBy("ann").Ref(id), sender{answer: answer}); err != nil {
		t.Fatal(err)
	}
	page := alice.get("/approvals/" + string(id))
	mustHave(t, page, "4217736")
	mustLack(t, page, "4217735", "hunter3")
}
