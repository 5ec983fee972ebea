package mcphttp_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// GOV-004 10.1 "Deferred sync setup", "Deferred sync: tasks/get", "Deferred sync: tasks/result
// triggers execution", "tasks/result routing: deferred path", 10.2 "Full deferred sync flow",
// F-003.2, F-003.4, F-005.3: with deferred execution, an approved call waits until its result
// is requested. Unlike "Deferred sync: no storage", the result can be fetched again.
func TestDeferredUntilResult(t *testing.T) {
	p := newTaskFixture(t, func(c *approval.Config, _ *conversation.Waiting) { c.Start = approval.StartOnResult })
	id := taskID(t, p.ask(toolCall("7", "hold_forbidden", `,"task":{}`)))
	p.approve(task.ID(id))
	for range 3 {
		wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"status":"working"`)
	}
	if state, called := p.state(id).State, p.server.heard("tools/call"); state != task.Approved || len(called) != 0 {
		t.Fatalf("state %s, called %v; want it to wait", state, called)
	}
	result := p.send(legacyAbout("tasks/result", id))
	p.server.done(madeIt)
	wantText(t, "result", result.wait(t), "made it")
	wantText(t, "again", p.ask(legacyAbout("tasks/result", id)), "made it")
	if made, called := p.server.made(), p.server.heard("tools/call"); len(made) != 0 || len(called) != 1 {
		t.Errorf("made %v, called %v; want one plain call", made, called)
	}
}

// tasks/result in a batch also starts an approved call.
func TestDeferredInBatch(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		c.Start, w.Hold = approval.StartOnResult, 1
	})
	wantText(t, "held", h.ask(toolCall("7", "hold_x", "")), "has not run")
	id := h.pending(1)[0]
	h.approve(id)
	eventually(t, "the batch gets the result", func() bool { return strings.Contains(h.ask(batch(askResult("8", id))), "done hold_x") })
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// GOV-004 10.2 "Deferred sync: client abandons".
func TestAbandonedDeferredCallNeverRuns(t *testing.T) {
	var shift atomic.Int64
	p := newTaskFixture(t, func(c *approval.Config, _ *conversation.Waiting) {
		c.Start = approval.StartOnResult
		c.Now = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
		c.Sweep = 20 * time.Millisecond
	})
	id := taskID(t, p.ask(toolCall("7", "hold_forbidden", `,"task":{}`)))
	p.approve(task.ID(id))
	shift.Store(int64(48 * time.Hour))
	eventually(t, "the task has ended", func() bool { return p.state(id).State.Terminal() })
	wantText(t, "get", p.ask(legacyAbout("tasks/get", id)), `"status":"failed"`, "not run")
	if called := p.server.heard("tools/call"); len(called) != 0 {
		t.Errorf("called %v", called)
	}
}

// GOV-004 10.1 "Deferred sync: timeout".
func TestDeferredCallTimesOut(t *testing.T) {
	p := newTaskFixture(t, func(c *approval.Config, _ *conversation.Waiting) {
		c.Start, c.Execution = approval.StartOnResult, 100*time.Millisecond
	})
	id := taskID(t, p.ask(toolCall("7", "hold_forbidden", `,"task":{}`)))
	p.approve(task.ID(id))
	wantText(t, "result", p.ask(legacyAbout("tasks/result", id)), `"code":-32001`, `"error_type":"upstream_timeout"`)
	if state := p.state(id).State; state != task.Failed {
		t.Errorf("state %s; want failed", state)
	}
}
