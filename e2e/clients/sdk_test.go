package clients_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A remove is the call of most tests.
type remove struct {
	Name    string            `json:"name"`
	Args    map[string]string `json:"args"`
	Timeout int               `json:"timeout,omitzero"` // milliseconds
}

func removing() remove {
	return remove{Name: "delete_file", Args: map[string]string{"path": bonuses}}
}

// A tool that may be held has task support, a forwarded tool has none, and a denied tool is
// not listed.
func TestSDKLists(t *testing.T) {
	s := open(t, longHold)
	a := start(t, "sdk.mjs", s.url)
	var tools []struct {
		Name      string `json:"name"`
		Execution struct {
			TaskSupport string `json:"taskSupport"`
		} `json:"execution"`
	}
	a.tell("list", nil).await("returned", &tools)
	got := map[string]string{}
	for _, tool := range tools {
		got[tool.Name] = tool.Execution.TaskSupport
	}
	want := map[string]string{"list_files": "", "read_file": "", "delete_file": "optional", "slow_report": "", "big_report": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("task support (-want +got):\n%s", diff)
	}
}

// A call that needs no approval is answered at once.
func TestSDKForwards(t *testing.T) {
	s := open(t, longHold)
	a := start(t, "sdk.mjs", s.url)
	var got result
	a.tell("call", map[string]any{"name": "read_file", "args": map[string]string{"path": "/notes/nothing.txt"}}).await("returned", &got)
	if !got.IsError || len(s.approvals(t, "all")) != 0 || len(s.demo.Calls()) != 1 {
		t.Errorf("%+v, approvals %v, ran %v", got, s.approvals(t, "all"), s.demo.Calls())
	}
}

func TestSDKCallTool(t *testing.T) {
	t.Run("approved", func(t *testing.T) {
		s := open(t, longHold)
		call := start(t, "sdk.mjs", s.url).tell("call", removing())
		held := s.pending(t)
		s.ran(t, 0)
		s.approve(t, held)
		var got result
		call.await("returned", &got)
		deleted(t, got.told())
		s.ran(t, 1)
	})
	t.Run("rejected", func(t *testing.T) {
		s := open(t, longHold)
		call := start(t, "sdk.mjs", s.url).tell("call", removing())
		s.reject(t, s.pending(t))
		var got result
		call.await("returned", &got)
		if end := got.told(); !end.isError || !strings.Contains(end.text, "Rejected by an approver") {
			t.Errorf("the client got %+v", end)
		}
		s.ran(t, 0)
	})
	t.Run("denied", func(t *testing.T) {
		s := open(t, longHold)
		a := start(t, "sdk.mjs", s.url)
		var got result
		a.tell("call", map[string]any{"name": "write_file", "args": map[string]string{"path": "/x", "text": "x"}}).await("returned", &got)
		if end := got.told(); !end.isError || !strings.Contains(end.text, "It did not run") {
			t.Errorf("the client got %+v", end)
		}
		s.ran(t, 0)
	})
}

// The approval takes longer than the gate holds a request. The client gets an answer before
// its timeout, calls again, is attached to the pending call, and gets its result.
func TestSDKSlowApproval(t *testing.T) {
	s := open(t, shortHold)
	a := start(t, "sdk.mjs", s.url)
	call := removing()
	call.Timeout = int(patience.Milliseconds())
	var pending result
	for range 3 {
		a.tell("call", call).await("returned", &pending)
		if got := pending.told(); !got.isUndecided() {
			t.Fatalf("the client got %+v", got)
		}
	}
	held := s.pending(t)
	s.ran(t, 0)

	s.approve(t, held)
	deleted(t, untilAnswered(t, func() told {
		var got result
		a.tell("call", call).await("returned", &got)
		return got.told()
	}))
	if all := s.approvals(t, "all"); len(all) != 1 {
		t.Errorf("%d approvals were requested", len(all))
	}
	s.ran(t, 1)
}

// A client with a short timeout cancels its call, as the protocol requires. The call stays
// pending, and the same call attaches to it.
func TestSDKTimesOut(t *testing.T) {
	s := open(t, longHold)
	a := start(t, "sdk.mjs", s.url)
	call := removing()
	call.Timeout = 500
	var held approval
	for {
		var got failure
		a.tell("call", call).await("threw", &got)
		if got.Code != -32001 || !strings.Contains(got.Message, "timed out") {
			t.Fatalf("the client threw %+v", got)
		}
		// On a slow machine the client may leave before its call is held.
		if pending := s.approvals(t, "pending"); len(pending) > 0 {
			held = pending[0]
			break
		}
		call.Timeout *= 2
	}
	call.Timeout = int(patience.Milliseconds())
	again := a.tell("call", call)
	if same := s.pending(t); same.ID != held.ID {
		t.Error("a second approval was requested")
	}
	s.ran(t, 0)
	s.approve(t, held)
	var got result
	again.await("returned", &got)
	deleted(t, got.told())
	s.ran(t, 1)
}

// A taskView is a task as clients see it.
type taskView struct {
	TaskID        string `json:"taskId"`
	Status        string `json:"status"`
	StatusMessage string `json:"statusMessage"`
}

// stream begins a call as a task, and returns it when the client has seen its status working.
func stream(t *testing.T, s *site, a *agent) (*order, approval) {
	t.Helper()
	call := a.tell("stream", removing())
	var created, working taskView
	call.await("taskCreated", &created)
	call.await("taskStatus", &working)
	held := s.pending(t)
	for _, seen := range []taskView{created, working} {
		if seen.TaskID != held.ID || seen.Status != "working" || !strings.HasPrefix(seen.StatusMessage, "Waiting for approval by default · ") {
			t.Errorf("the client sees %+v", seen)
		}
	}
	s.ran(t, 0)
	return call, held
}

func TestSDKCallToolStream(t *testing.T) {
	t.Run("approved", func(t *testing.T) {
		s := open(t, longHold)
		a := start(t, "sdk.mjs", s.url)
		call, held := stream(t, s, a)
		s.approve(t, held)
		var got, again result
		call.await("result", &got)
		call.await("returned", nil)
		deleted(t, got.told())
		a.tell("result", map[string]string{"id": held.ID}).await("returned", &again)
		deleted(t, again.told())
		s.ran(t, 1)
	})
	t.Run("rejected", func(t *testing.T) {
		s := open(t, longHold)
		a := start(t, "sdk.mjs", s.url)
		call, held := stream(t, s, a)
		s.reject(t, held)
		var got failure
		call.await("threw", &got)
		if got.Message != "MCP error -32603: Task "+held.ID+" failed" {
			t.Errorf("the client threw %+v", got)
		}
		var seen taskView
		a.tell("get", map[string]string{"id": held.ID}).await("returned", &seen)
		if seen.Status != "failed" || !strings.Contains(seen.StatusMessage, "Rejected by an approver") {
			t.Errorf("the task is %+v", seen)
		}
		var reason result
		a.tell("result", map[string]string{"id": held.ID}).await("returned", &reason)
		if end := reason.told(); !end.isError || !strings.Contains(end.text, "Rejected by an approver") {
			t.Errorf("the result is %+v", end)
		}
		s.ran(t, 0)
	})
	t.Run("cancelled", func(t *testing.T) {
		s := open(t, longHold)
		a := start(t, "sdk.mjs", s.url)
		call, held := stream(t, s, a)
		var listed []taskView
		a.tell("tasks", nil).await("returned", &listed)
		if len(listed) != 1 || listed[0].TaskID != held.ID {
			t.Errorf("the client's tasks are %+v", listed)
		}
		var seen taskView
		a.tell("cancel", map[string]string{"id": held.ID}).await("returned", &seen)
		if seen.Status != "cancelled" {
			t.Errorf("the task is %+v", seen)
		}
		var got failure
		call.await("threw", &got)
		if got.Message != "MCP error -32603: Task "+held.ID+" was cancelled" {
			t.Errorf("the client threw %+v", got)
		}
		s.inState(t, "cancelled")
		s.ran(t, 0)
	})
}

// A call as a task may take longer than the client's timeout.
func TestSDKStreamOutlivesTimeout(t *testing.T) {
	t.Parallel()
	s := open(t, longHold)
	a := start(t, "sdk.mjs", s.url)
	input := removing()
	input.Timeout = 10_000 // longer than each single request about the task
	call := a.tell("stream", input)
	call.await("taskCreated", nil)
	for outlived := time.Now().Add(11 * time.Second); time.Now().Before(outlived); {
		call.await("taskStatus", nil)
	}
	s.approve(t, s.pending(t))
	var got result
	call.await("result", &got)
	deleted(t, got.told())
	s.ran(t, 1)
}
