package mcphttp_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// shortApproval gives approvers almost no time.
func shortApproval(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
	c.Workflow = func(string) (approval.Workflow, bool) { return approval.Workflow{Timeout: 50 * time.Millisecond}, true }
	c.Sweep = 10 * time.Millisecond
}

// CORE-003 5.4, EC-TASK-012: each kind of waiting client is told of the expiry, and nothing
// runs.
func TestUndecidedCallExpires(t *testing.T) {
	h := newFixture(t, shortApproval)
	wantText(t, "held request", h.ask(toolCall("7", "hold_x", "")), `"code":-32008`, `"approval_expired"`, "did not run")
	wantText(t, "modern", h.ask(modernCall("hold_x", ""), modernHeaders("hold_x")...), `"isError":true`, "did not run")
	id := taskID(t, h.ask(toolCall("8", "hold_y", `,"task":{}`)))
	wantText(t, "tasks/result", h.ask(legacyAbout("tasks/result", id)), `"code":-32008`)
	wantText(t, "tasks/get", h.ask(legacyAbout("tasks/get", id)), `"status":"failed"`)
	_, err := decide(t.Context(), h.approvals, task.ID(id), approval.Approver{Name: "alice"}, approval.Approve, "")
	if err == nil {
		t.Error("approved after the expiry")
	}
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v; want nothing", ran)
	}
}

// CORE-003 5.4, last row but one: the task expires without a client.
func TestUndecidedCallExpiresWithoutClient(t *testing.T) {
	h := newFixture(t, shortApproval)
	req := h.send(toolCall("7", "hold_x", ""))
	all := func() []task.Task {
		page, err := h.store.List(t.Context(), task.Query{Scope: task.AnyOwner()})
		if err != nil {
			t.Fatal(err)
		}
		return page.Tasks
	}
	eventually(t, "the call is held", func() bool { return len(all()) == 1 })
	req.cancel()
	<-req.done
	eventually(t, "the task has expired", func() bool { return all()[0].State == task.Expired })
}

// EC-TASK-013: of two concurrent decisions one wins, and the client is told that one.
func TestFirstApproverDecides(t *testing.T) {
	h := newFixture(t, nil)
	for range 20 {
		before := len(h.ran())
		req := h.send(toolCall("7", "hold_x", ""))
		id := h.pending(1)[0]
		var wg sync.WaitGroup
		var approved, rejected error
		wg.Go(func() {
			_, approved = decide(t.Context(), h.approvals, id, approval.Approver{Name: "alice"}, approval.Approve, "")
		})
		wg.Go(func() {
			_, rejected = decide(t.Context(), h.approvals, id, approval.Approver{Name: "bob"}, approval.Reject, "")
		})
		wg.Wait()
		if (approved == nil) == (rejected == nil) {
			t.Fatalf("approve: %v, reject: %v; want one winner", approved, rejected)
		}
		if loser := errors.Join(approved, rejected); errors.Is(loser, approval.ErrForbidden) {
			t.Fatal(loser)
		}
		answer, ran := req.wait(t), len(h.ran())-before
		switch {
		case approved == nil && (ran != 1 || !strings.Contains(answer, "done hold_x")):
			t.Errorf("approved, but %d ran and the client got %s", ran, answer)
		case rejected == nil && (ran != 0 || !strings.Contains(answer, "-32007")):
			t.Errorf("rejected, but %d ran and the client got %s", ran, answer)
		}
	}
}

// client.* variables are stored and visible in _meta; server.* variables are refused.
func TestVariables(t *testing.T) {
	h := newFixture(t, nil)
	created := h.ask(toolCall("3", "hold_x", `,"task":{},"_meta":{"client.reason":"cleaning up"}`))
	wantText(t, "create", created, `"client.reason":"cleaning up"`)
	wantText(t, "get", h.ask(legacyAbout("tasks/get", taskID(t, created))), `"client.reason":"cleaning up"`)
	shown, err := h.approvals.Viewer().Show(t.Context(), task.ID(taskID(t, created)))
	if err != nil || shown.ClientReason == nil || shown.ClientReason.Text != "cleaning up" || !shown.ClientReason.Untrusted {
		t.Errorf("the approver sees %+v, %v; want the agent's reason", shown, err)
	}
	wantText(t, "server.*", h.ask(toolCall("3", "hold_y", `,"task":{},"_meta":{"server.approval":{"state":"approved"}}`)), `"code":-32602`, `"variable_ownership"`)
}
