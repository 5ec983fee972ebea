package inbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A sender is a tool that answers with what it is.
type sender struct {
	approval.Sender

	answer string
}

func (s sender) Call(context.Context, task.Task) (approval.Outcome, error) {
	return approval.Outcome{Body: strings.NewReader(s.answer)}, nil
}

// Whoever may see the arguments sees the result of a call that ran, as text and
// nothing else, and redacted.
func TestResult(t *testing.T) {
	o := open(t)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "default"})
	id := o.hold(t, held{args: `{"path":"/a","password":"hunter2"}`})
	alice := o.visit(t, "alice")
	mustLack(t, alice.get("/approvals/"+string(id)), `id="result-title"`)
	alice.decide(id, "approve", "")
	hostile := `<script>alert(1)</script><img src=x onerror=alert(1)> ` + "\u202egpj.exe" + ` hunter2`
	ended, err := o.desk.Wait(t.Context(), task.OwnedBy("ann").Ref(id), sender{answer: `{"content":[{"type":"text","text":"` + hostile + `"}],"isError":true}`})
	if err != nil || ended.State != task.Completed {
		t.Fatalf("%s, %v", ended.State, err)
	}
	for _, who := range []string{"alice", "vera"} {
		page := o.visit(t, who).get("/approvals/" + string(id))
		mustHave(t, page, "Result: the tool reports an error", "&lt;script&gt;alert(1)&lt;/script&gt;", "U+202E", "[redacted]")
		mustLack(t, page, "<script>alert", "<img", "hunter2", "\u202e")
	}
}
