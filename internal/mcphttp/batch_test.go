package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// newBatchFixture returns a gate whose upstream answers batches in reverse order, using tell.
func newBatchFixture(t *testing.T, tell func(w http.ResponseWriter, answers []string)) *fixture {
	t.Helper()
	h := newFixture(t, nil)
	h.batch = func(w http.ResponseWriter, p jsonrpc.Packet) {
		var answers []string
		for i := range p.Messages {
			m := &p.Messages[len(p.Messages)-1-i]
			if name, _ := m.Params.Name.Text(); m.Kind == jsonrpc.Request {
				answers = append(answers, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done %s"}]}}`, m.ID.Bytes, name))
			}
		}
		tell(w, answers)
	}
	return h
}

func tellArray(w http.ResponseWriter, answers []string) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, "["+strings.Join(answers, ",")+"]")
}

func tellEvents(w http.ResponseWriter, answers []string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, answer := range answers {
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\ndata: %s\n\n", answer)
	}
}

func batch(messages ...string) string { return "[" + strings.Join(messages, ",") + "]" }

// F-007.5 of REQ-CORE-003, EC-MCP-005: one approval covers the whole batch and shows all of it.
// Nothing runs before, and everything runs once.
func TestBatchIsApprovedAsWhole(t *testing.T) {
	for name, tell := range map[string]func(http.ResponseWriter, []string){"array": tellArray, "events": tellEvents} {
		t.Run(name, func(t *testing.T) {
			h := newBatchFixture(t, tell)
			note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}`
			asked := h.send(batch(toolCall("1", "get_a", ""), note, toolCall(`"two"`, "hold_b", "")))
			id := h.pending(1)[0]
			shown, err := h.approvals.Viewer().Show(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, "the approver", string(shown.Arguments), "get_a", "hold_b", "notifications/progress")
			if shown.Tool != "get_a, hold_b" || shown.Method != approval.MethodBatch {
				t.Errorf("the approver sees %s %s", shown.Method, shown.Tool)
			}
			if ran := h.ran(); len(ran) != 0 {
				t.Fatalf("ran %v before the approval", ran)
			}
			h.approve(id)
			<-asked.done
			wantText(t, "the client", asked.body, `[{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done get_a"`, `{"jsonrpc":"2.0","id":"two","result":{"content":[{"type":"text","text":"done hold_b"`)
			h.wantRan(`get_a {"x":1}`, ` `, `hold_b {"x":1}`)
		})
	}
}

// The batch has new IDs, and its answers carry them.
func TestRepeatedBatchAttaches(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 1 })
	h.batch = newBatchFixture(t, tellArray).batch
	first := h.ask(batch(toolCall("1", "get_a", ""), toolCall("2", "hold_b", ""), `{"jsonrpc":"2.0","id":3,"method":"ping"}`))
	wantText(t, "pending", first, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Nothing is wrong with this call`, `"id":2,"result"`, `"id":3,"error"`)
	h.approve(h.pending(1)[0])
	eventually(t, "the batch ran", func() bool {
		return strings.Contains(h.ask(batch(toolCall("7", "get_a", ""), toolCall("8", "hold_b", ""), `{"jsonrpc":"2.0","id":9,"method":"ping"}`)), `"id":8,"result":{"content":[{"type":"text","text":"done hold_b"`)
	})
	h.wantRan(`get_a {"x":1}`, `hold_b {"x":1}`, ` `)
}

// If one message is denied, or calls need different approvals, no message runs.
func TestBatchNeedsStrictestVerdict(t *testing.T) {
	h := newBatchFixture(t, tellArray)
	wantText(t, "denied", h.ask(batch(toolCall("1", "get_a", ""), toolCall("2", "drop_b", ""), toolCall("3", "hold_c", ""))),
		`"id":1,"error":{"code":-32003,"message":"not run, because another`, `"id":2,"result":{"content":[{"type":"text","text":"Denied by policy`, `"id":3,"error"`)
	wantText(t, "an answer to the server", h.ask(batch(toolCall("1", "hold_b", ""), `{"jsonrpc":"2.0","id":"q1","result":{}}`)),
		`"id":1,"error":{"code":-32600`, "send the answer by itself")
	wantText(t, "different approvals", h.ask(batch(toolCall("1", "hold_two_a", ""), toolCall("2", "hold_b", ""))),
		`"id":1,"error":{"code":-32600,"message":"the calls of this batch need different approvals`, `"id":2,"error"`)
	h.pending(0)
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("ran %v", ran)
	}
	wantText(t, "nothing to hold", h.ask(batch(toolCall("1", "get_a", ""), toolCall("2", "get_b", ""))), "done get_a", "done get_b")
	rejected := h.send(batch(toolCall("1", "get_c", ""), toolCall("2", "hold_d", "")))
	h.reject(h.pending(1)[0], "no")
	<-rejected.done
	wantText(t, "rejected", rejected.body, `[{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Rejected by`, `"id":2,"result":`, `"code":-32007`, "did not run")
	h.wantRan(`get_a {"x":1}`, `get_b {"x":1}`)
}

// A stricter verdict on one call stops all calls.
func TestPolicyDriftStopsBatch(t *testing.T) {
	h := newBatchFixture(t, tellArray)
	asked := h.send(batch(toolCall("1", "get_a", ""), toolCall("2", "hold_b", "")))
	id := h.pending(1)[0]
	h.catalog.Configure(&catalog.Settings{Policy: compile(t,
		policy.Rule{Match: "get_*", Action: policy.Deny},
		policy.Rule{Match: "hold_*", Action: policy.Approve})})
	h.approve(id)
	<-asked.done
	wantText(t, "the client", asked.body, `"id":1,"result":{`, `"id":2,"result":{`, `"code":-32011`)
	h.wantRan()
}

// askResult requests the result of a task.
func askResult(requestID string, id task.ID) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tasks/result","params":{"taskId":%q}}`, requestID, id)
}

// newRunFixture returns a gate whose client has not yet fetched the outcome of a finished task.
func newRunFixture(t *testing.T) (*fixture, task.ID) {
	t.Helper()
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 1 })
	h.ask(toolCall("1", "hold_b", ""))
	id := h.pending(1)[0]
	h.approve(id)
	eventually(t, "it has run", func() bool {
		return strings.Contains(h.ask(legacyAbout("tasks/get", string(id))), `"completed"`)
	})
	return h, id
}

// If the other answers of the batch do not arrive, the outcome can be fetched again. The call
// does not run again.
func TestOutcomeOfFailedBatchStaysAvailable(t *testing.T) {
	h, id := newRunFixture(t)
	h.batch = func(http.ResponseWriter, jsonrpc.Packet) { panic(http.ErrAbortHandler) }
	if told := h.ask(batch(toolCall("1", "get_a", ""), askResult("2", id))); strings.Contains(told, "done hold_b") {
		t.Fatalf("the batch did not fail: %s", told)
	}
	wantText(t, "again", h.ask(toolCall("3", "hold_b", "")), "done hold_b")
	h.wantRan(`hold_b {"x":1}`, `get_a {"x":1}`)
}

// A client that reads nothing of the answer can fetch the outcome again.
func TestUndeliveredBatchOutcomeStaysAvailable(t *testing.T) {
	h, id := newRunFixture(t)
	h.batch = func(w http.ResponseWriter, _ jsonrpc.Packet) {
		tellEvents(w, []string{`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`})
	}
	front := httptest.NewUnstartedServer(h.handler)
	front.Listener = failingListener{front.Listener, true, func() {}}
	front.Start()
	defer front.Close()
	direct := h.URL
	h.URL = front.URL
	if told := h.ask(batch(toolCall("1", "get_a", ""), askResult("2", id))); !strings.Contains(told, "EOF") {
		t.Fatalf("the client got %s", told)
	}
	h.URL = direct
	wantText(t, "again", h.ask(toolCall("3", "hold_b", "")), "done hold_b")
	h.wantRan(`hold_b {"x":1}`, `get_a {"x":1}`)
}

// Before the batch runs, policy judges each call again with the tool's annotations.
func TestBatchIsJudgedWithAnnotations(t *testing.T) {
	var mu sync.Mutex
	judged := make(map[string]policy.Annotations)
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		judge := c.Judge
		c.Judge = func(call policy.Call) policy.Verdict {
			mu.Lock()
			defer mu.Unlock()
			judged[call.Method+" "+call.Name] = call.Annotations
			return judge(call)
		}
	})
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"get_a","inputSchema":{},"annotations":{"readOnlyHint":true}},{"name":"hold_b","inputSchema":{},"annotations":{"destructiveHint":true}}]}}`, id)
	}
	h.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	h.batch = newBatchFixture(t, tellArray).batch
	asked := h.send(batch(toolCall("1", "get_a", ""), toolCall("2", "hold_b", ""), strings.Replace(toolCall("3", "hold_b", ""), "tools/call", "prompts/get", 1)))
	h.approve(h.pending(1)[0])
	wantText(t, "the client", asked.wait(t), "done get_a", "done hold_b")
	mu.Lock()
	defer mu.Unlock()
	yes := true
	want := map[string]policy.Annotations{"tools/call get_a": {ReadOnly: &yes}, "tools/call hold_b": {Destructive: &yes}, "prompts/get hold_b": {}}
	if diff := cmp.Diff(want, judged); diff != "" {
		t.Errorf("judged with (-want +got):\n%s", diff)
	}
}

func TestBatchWithDuplicateIDsIsRefused(t *testing.T) {
	h := newBatchFixture(t, tellArray)
	wantText(t, "the client", h.ask(batch(toolCall("1", "get_a", ""), toolCall("1", "hold_b", ""))), `"id":1,"error":{"code":-32600,"message":"two requests of this batch have the same id`)
	h.pending(0)
	h.wantRan()
}

// described is a tool with a description, as an upstream lists it.
func described(tool, description string) string {
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, tool, description)
}

// A batch does not run if the tool of any of its calls has changed. Agent, approver and journal
// learn this, and the batch can be approved anew.
func TestToolDriftStopsBatch(t *testing.T) {
	held := described("get_a", "Reads.") + "," + described("hold_b", "Lists files.")
	tests := map[string]string{
		"the call that was held":  described("get_a", "Reads.") + "," + described("hold_b", "Deletes files."),
		"a call beside it":        described("get_a", "Deletes.") + "," + described("hold_b", "Lists files."),
		"one of them in the list": described("hold_b", "Deletes files."),
	}
	for name, changed := range tests {
		t.Run(name, func(t *testing.T) {
			h := newBatchFixture(t, tellArray)
			h.define(held)
			calls := batch(toolCall("1", "get_a", ""), toolCall("2", "hold_b", ""))
			asked := h.send(calls)
			id := h.pending(1)[0]
			h.define(changed)
			h.forgetTools()
			h.approve(id)
			wantText(t, "the client", asked.wait(t), `"id":1,"result":{`, `"id":2,"result":{`, `"code":-32011`, "tool_drift", "did not run")
			h.wantRan()
			h.wantToolDrift(id)
			again := h.send(calls)
			h.approve(h.pending(1)[0])
			wantText(t, "approved anew", again.wait(t), "done get_a", "done hold_b")
			h.wantRan(`get_a {"x":1}`, `hold_b {"x":1}`)
		})
	}
}

// The approver sees the description of each tool, and a warning about a tool that has changed
// since its last approval.
func TestApproverSeesToolsOfBatch(t *testing.T) {
	h := newBatchFixture(t, tellArray)
	h.define(described("get_a", "Reads.") + "," + described("hold_b", "Lists files."))
	alone := h.send(toolCall("1", "hold_b", ""))
	h.approve(h.pending(1)[0])
	alone.wait(t)
	h.define(described("get_a", "Reads.") + "," + described("hold_b", "Deletes files."))
	h.forgetTools()
	asked := h.send(batch(toolCall("1", "get_a", ""), toolCall("2", "hold_b", "")))
	id := h.pending(1)[0]
	seen, changed, err := h.approvals.Viewer().ShowWithChange(t.Context(), id)
	if want := "get_a: Reads.\n\nhold_b: Deletes files."; err != nil || seen.Description != want {
		t.Errorf("the approver reads %q, %v; want %q", seen.Description, err, want)
	}
	if changed == nil || !slices.Equal(changed.Tools, []string{"hold_b"}) {
		t.Errorf("changed: %+v", changed)
	}
	h.approve(id)
	wantText(t, "the client", asked.wait(t), "done get_a", "done hold_b")
}

// The spelling of the descriptions may differ, or the upstream may not list the tools any more.
func TestBatchRunsWithUnchangedTools(t *testing.T) {
	tests := map[string]string{
		"written otherwise": `{"inputSchema":{"type":"object"},"_meta":{"n":2},"description":"Lists files.","name":"hold_b"} , ` + described("get_a", "Reads."),
		"not told":          "",
	}
	for name, now := range tests {
		t.Run(name, func(t *testing.T) {
			h := newBatchFixture(t, tellArray)
			h.define(described("get_a", "Reads.") + "," + described("hold_b", "Lists files."))
			asked := h.send(batch(toolCall("1", "get_a", ""), toolCall("2", "hold_b", "")))
			id := h.pending(1)[0]
			h.define(now)
			h.forgetTools()
			h.approve(id)
			wantText(t, "the client", asked.wait(t), "done get_a", "done hold_b")
		})
	}
}

// The gate lists the tools once per batch, so a hanging list delays the client once.
func TestBatchAsksForToolsOnce(t *testing.T) {
	p := newTaskFixture(t, func(_ *approval.Config, w *conversation.Waiting) { w.Hold = 1 })
	p.server.intercepted(replying("tools/list", `{"tools":[]}`))
	p.ask(batch(toolCall("1", "hold_a", ""), toolCall("2", "hold_b", ""), toolCall("3", "hold_c", "")))
	if lists := p.server.heard("tools/list"); len(lists) != 1 {
		t.Errorf("the upstream was asked for its tools %d times; want once", len(lists))
	}
}

// wantNoAnswer checks that a cancelled request is not answered.
func wantNoAnswer(t *testing.T, r *request, id string) {
	t.Helper()
	if answer := r.wait(t); strings.Contains(answer, `"id":`+id) {
		t.Errorf("a cancelled request was answered: %s", answer)
	}
}

func cancelling(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// The upstream, which never got the call, does not get the notification.
func TestBatchCancellationWithdrawsHeldCall(t *testing.T) {
	h := newBatchFixture(t, tellArray)
	first := h.sendHeld(toolCall("7", "hold_a", ""))
	h.pending(1)
	wantText(t, "the rest of the batch", h.ask(batch(cancelling("7"), toolCall("8", "get_b", ""))), "done get_b")
	wantNoAnswer(t, first, "7")
	second := h.sendHeld(toolCall("9", "hold_a", ""))
	h.pending(1)
	alone := h.send(batch(cancelling("9")))
	wantNoAnswer(t, second, "9")
	if alone.wait(t); alone.status != http.StatusAccepted || alone.body != "" {
		t.Errorf("a batch with only the notification: status %d, %q; want 202", alone.status, alone.body)
	}
	h.pending(0)
	h.wantRan(`get_b {"x":1}`)
}

// Without one call, the batch would differ from the one that its approver saw.
func TestCancellingOneCallWithdrawsBatch(t *testing.T) {
	h := newBatchFixture(t, tellArray)
	asked := h.sendHeld(batch(toolCall("1", "get_a", ""), toolCall("2", "hold_b", "")))
	id := h.pending(1)[0]
	cancel := h.send(cancelling("1"))
	wantText(t, "the batch", asked.wait(t), `"id":1,"result"`, `"id":2,"result"`, "task_cancelled")
	if cancel.wait(t); cancel.status != http.StatusAccepted {
		t.Errorf("cancelling: status %d; want 202", cancel.status)
	}
	if err := h.decide(id, "alice", approval.Approve); err == nil {
		t.Error("a cancelled batch was approved")
	}
	h.wantRan()
}

// forgetTools makes the gate forget the tools of client s-1, as after a restart.
func (h *fixture) forgetTools() {
	h.catalog.LearnHandshake(h.t.Context(), catalog.Client{Upstream: "test", Key: "session s-1"}, catalog.Handshake{})
}

// wantToolDrift checks that approver and journal learn about a changed tool.
func (h *fixture) wantToolDrift(id task.ID) {
	h.t.Helper()
	seen, err := h.approvals.Viewer().Show(h.t.Context(), id)
	if err != nil || seen.Failure == nil || seen.Failure.Stage != lifecycle.StageToolDrift || seen.Failure.Ran != task.RanNo {
		h.t.Errorf("the approver sees %+v, %v", seen.Failure, err)
	}
	story, err := h.approvals.Viewer().History(h.t.Context(), id)
	if err != nil || !slices.ContainsFunc(story, func(e auditlog.Entry) bool {
		return e.Outcome == string(lifecycle.StageToolDrift) && e.Ran == task.RanNo
	}) {
		h.t.Errorf("the journal has %+v, %v", story, err)
	}
}
