package mcphttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A repeated call attaches although its host numbers its requests in _meta. What
// may mean something to the upstream keeps calls apart, unless a setting says that
// it does not.
func TestAttachWithOtherMeta(t *testing.T) {
	meta := func(text string) string { return `,"_meta":{` + text + `}` }
	for _, tt := range []struct {
		name, first, second string
		ignored             []string
		pending             int
	}{
		{"Codex", `"callId":"call_1","itemId":"fc_1","sessionId":"s","x-codex-turn-metadata":{"turn_id":"a"}`, `"callId":"call_2","itemId":"fc_2","sessionId":"t","x-codex-turn-metadata":{"turn_id":"b"}`, nil, 1},
		{"not Codex", `"callId":"call_1"`, `"callId":"call_2"`, nil, 2},
		{"Claude Code", `"claudecode/toolUseId":"toolu_1"`, `"claudecode/toolUseId":"toolu_2"`, nil, 1},
		{"without any", `"claudecode/toolUseId":"toolu_1"`, ``, nil, 1},
		{"another tenant", `"tenant":"a"`, `"tenant":"b"`, nil, 2},
		{"a tenant and none", `"tenant":"a","claudecode/toolUseId":"1"`, `"claudecode/toolUseId":"2"`, nil, 2},
		{"a setting", `"acme/turn":1`, `"acme/turn":2`, []string{"acme/turn"}, 1},
		{"another setting", `"acme/turn":1`, `"acme/turn":2`, []string{"acme/other"}, 2},
		{"all of it", `"tenant":"a"`, `"turn":"b"`, []string{"*"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, func(_ *gate.Settings, c *approval.Config, w *conversation.Waiting) {
				w.Hold, c.RequestMeta = 5*time.Millisecond, tt.ignored
			})
			wantText(t, "first", h.ask(toolCall("1", "hold_x", meta(tt.first))), "has not run")
			h.pending(1)
			wantText(t, "second", h.ask(toolCall("2", "hold_x", meta(tt.second))), "has not run")
			h.pending(tt.pending)
		})
	}
}

// The call that runs has the metadata that its approvers saw, whichever of the
// repeated calls it answers.
func TestAttachedCallRunsAsShown(t *testing.T) {
	h := newFixture(t, func(_ *gate.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
	sent := make(chan string, 2)
	h.answer = nil
	h.record = func(body string) { sent <- body }
	h.ask(toolCall("1", "hold_x", `,"_meta":{"claudecode/toolUseId":"call_1"}`))
	h.approve(h.pending(1)[0])
	h.askUntil("done hold_x", func() string { return h.ask(toolCall("2", "hold_x", `,"_meta":{"claudecode/toolUseId":"call_2"}`)) })
	wantText(t, "sent", <-sent, `"claudecode/toolUseId":"call_1"`)
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// restart replaces the gate by one that knows no more than the store does.
func (h *fixture) restart() {
	h.t.Helper()
	h.gate = gate.New(h.rules, time.Now, slog.New(slog.DiscardHandler), nil)
	h.gateway = startGate(h.t, h.target, func(s settings) {
		s.handler.Gate, s.handler.Desk, s.handler.Records, s.handler.Waiting = h.gate, h.desk, h.store, h.waiting
	})
}

// A host on the user's own machine that is started again, and has another session
// by then, attaches to the calls of before; so does its old session after a restart
// of the gate. Other hosts, and clients behind a proxy, do not.
func TestLocalHostAttachesInAnotherSession(t *testing.T) {
	h := newFixture(t, func(_ *gate.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
	ask := func(session string, more ...string) string {
		return h.ask(toolCall("3", "hold_x", ""), append([]string{"Mcp-Session-Id", session}, more...)...)
	}
	h.meetIn("s-1", "codex")
	h.meetIn("s-2", "codex")
	h.meetIn("s-3", "opencode")
	ask("s-1")
	id := h.pending(1)[0]
	ask("s-2")
	h.pending(1)
	ask("s-3")
	h.pending(2)
	ask("s-2", "X-Forwarded-For", "192.0.2.1")
	h.pending(3)

	h.restart()
	ask("s-1")
	h.pending(3)
	ask("s-9") // of which nothing is known
	h.pending(4)
	h.approve(id)
	h.askUntil("done hold_x", func() string { return ask("s-1") })
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// The end of a session of a host on the user's own machine withdraws the calls for
// which the host waits, but none that the user was told to ask for again.
func TestLocalHostEndsSession(t *testing.T) {
	h := newFixture(t, func(_ *gate.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
	h.meetIn("s-1", "codex")
	h.meetIn("s-2", "codex")
	h.ask(toolCall("1", "hold_told", ""))
	told := h.pending(1)[0]
	h.waiting.Hold = time.Hour
	h.hub.Configure(h.waiting)
	waits := h.sendHeld(toolCall("2", "hold_waits", ""))
	h.pending(2)
	h.sendAs(http.MethodDelete, "", "Mcp-Session-Id", "s-1").wait(t)
	if left := h.pending(1)[0]; left != told {
		t.Errorf("%s is left; want the call that the user was told of, %s", left, told)
	}
	waits.wait(t)
	h.approve(told)
	wantText(t, "in another session", h.ask(toolCall("1", "hold_told", ""), "Mcp-Session-Id", "s-2"), "done hold_told")
}

// A stallingStore takes its time to create a task.
type stallingStore struct {
	task.GateStore

	creating, goOn chan struct{}
}

// Create implements [task.Store].
func (s *stallingStore) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	close(s.creating)
	<-s.goOn
	return s.GateStore.Create(ctx, t, limits, notes...)
}

// A client that cancels a call which the store is still taking in withdraws the
// call, and the upstream, which has never seen the call, hears nothing of that.
func TestCancelWhileStored(t *testing.T) {
	store := stallingStore{creating: make(chan struct{}), goOn: make(chan struct{})}
	h := newFixture(t, func(_ *gate.Settings, c *approval.Config, _ *conversation.Waiting) {
		store.GateStore = c.Store
		c.Store = &store
	})
	sent := make(chan string, 2)
	h.record = func(body string) { sent <- body }
	held := h.send(toolCall("7", "hold_x", ""))
	<-store.creating
	cancel := h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"AbortError"}}`)
	select {
	case <-cancel.done: // it went past the store
	case <-time.After(50 * time.Millisecond): // it waits for the store
	}
	close(store.goOn)
	cancel.wait(t)
	held.wait(t)
	h.pending(0)
	page, err := h.store.List(t.Context(), task.Query{Scope: task.AnyOwner()})
	if err != nil || len(page.Tasks) != 1 || page.Tasks[0].State != task.Cancelled {
		t.Errorf("tasks %v, %v; want one that is cancelled", page.Tasks, err)
	}
	select {
	case body := <-sent:
		if strings.Contains(body, "cancelled") {
			t.Errorf("the upstream got %s", body)
		}
	default:
	}
}

// A client whose cancellation reaches another replica than its request withdraws
// the call. Another client does not, nor does another session of the same owner,
// whose requests have the same ids.
func TestCancelAtAnotherReplica(t *testing.T) {
	h := newFixture(t, nil)
	h.meetIn("s-1", "codex")
	sent := make(chan string, 2)
	h.record = func(body string) { sent <- body }
	held := h.sendHeld(toolCall("7", "hold_x", ""))
	h.pending(1)
	h.restart()
	h.meetIn("s-2", "codex")
	const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	for _, session := range []string{"s-2", "s-3"} {
		h.ask(cancelled, "Mcp-Session-Id", session)
		h.pending(1)
		wantText(t, "the upstream gets another's", <-sent, "cancelled")
	}
	h.ask(cancelled)
	h.pending(0)
	held.wait(t)
	select {
	case body := <-sent:
		t.Errorf("the upstream got %s", body)
	default:
	}
}
