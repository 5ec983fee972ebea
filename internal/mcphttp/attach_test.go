package mcphttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// Hosts may number their requests in _meta. Members that may have a meaning for the upstream
// keep calls apart.
func TestAttachWithOtherMeta(t *testing.T) {
	meta := func(text string) string { return `,"_meta":{` + text + `}` }
	for _, tt := range []struct {
		name, first, second string
		pending             int
	}{
		{"Codex", `"callId":"call_1","itemId":"fc_1","sessionId":"s","x-codex-turn-metadata":{"turn_id":"a"}`, `"callId":"call_2","itemId":"fc_2","sessionId":"t","x-codex-turn-metadata":{"turn_id":"b"}`, 1},
		{"not Codex", `"callId":"call_1"`, `"callId":"call_2"`, 2},
		{"Claude Code", `"claudecode/toolUseId":"toolu_1"`, `"claudecode/toolUseId":"toolu_2"`, 1},
		{"without any", `"claudecode/toolUseId":"toolu_1"`, ``, 1},
		{"another tenant", `"tenant":"a"`, `"tenant":"b"`, 2},
		{"a tenant and none", `"tenant":"a","claudecode/toolUseId":"1"`, `"claudecode/toolUseId":"2"`, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
			wantText(t, "first", h.ask(toolCall("1", "hold_x", meta(tt.first))), "has not run")
			h.pending(1)
			wantText(t, "second", h.ask(toolCall("2", "hold_x", meta(tt.second))), "has not run")
			h.pending(tt.pending)
		})
	}
}

// The call runs with the metadata that its approvers saw.
func TestAttachedCallRunsAsShown(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
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

// Clients and approvers are told that two waiting calls are identical. A call that is repeated
// after its request has ended does not count.
func TestConcurrentIdenticalCallsAreReported(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
	const told = "ran once, for 2 identical requests"
	requests := func() int {
		shown, err := h.approvals.Viewer().Show(t.Context(), h.pending(1)[0])
		if err != nil {
			t.Fatal(err)
		}
		return shown.Requests
	}
	for range 2 {
		wantText(t, "one after the other", h.ask(toolCall("1", "hold_x", "")), "has not run")
	}
	if n := requests(); n != 0 {
		t.Errorf("approvers see %d requests; want no more than one", n)
	}
	h.waiting.Hold = time.Hour
	h.conversations.Configure(h.waiting)
	first := h.sendHeld(toolCall("3", "hold_x", ""))
	second := h.sendHeld(toolCall("4", "hold_x", `,"_meta":{"progressToken":7}`))
	eventually(t, "approvers see two requests", func() bool { return requests() == 2 })
	h.approve(h.pending(1)[0])
	wantText(t, "the first", first.wait(t), told)
	wantText(t, "the second", second.wait(t), told)
	wantText(t, "the second, while it waits", second.body, "runs once for 2 identical requests")
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}

	alone := h.sendHeld(toolCall("5", "hold_x", ""))
	h.approve(h.pending(1)[0])
	if body := alone.wait(t); !strings.Contains(body, "done hold_x") || strings.Contains(body, "identical") {
		t.Errorf("a call that waited alone is answered with %s", body)
	}
}

// A departureStore delays the departure of clients until it is released.
type departureStore struct {
	gatestore.Store

	departing chan struct{} // gets a value when a client departs
	depart    chan struct{} // is closed to let all depart
}

func (s *departureStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if len(notes) == 0 && t.State == task.InputRequired && t.Presence(time.Now()) == gatetask.OwnerGone {
		s.departing <- struct{}{}
		<-s.depart
	}
	return s.Store.Swap(ctx, t, notes...)
}

// A request does not count as waiting once its host has reported a timeout.
func TestCallThatTimedOutIsNotCounted(t *testing.T) {
	store := &departureStore{departing: make(chan struct{}, 8), depart: make(chan struct{})}
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		store.Store, c.Store = c.Store, store
	})
	first := h.sendHeld(toolCall("3", "hold_x", ""))
	id := h.pending(1)[0]
	h.ask(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"Request timed out"}}`)
	<-store.departing
	second := h.sendHeld(toolCall("4", "hold_x", ""))
	shown, err := h.approvals.Viewer().Show(t.Context(), id)
	if err != nil || shown.Requests > 1 {
		t.Errorf("approvers see %d requests, %v; want one", shown.Requests, err)
	}
	h.approve(id)
	if body := second.wait(t); !strings.Contains(body, "done hold_x") || strings.Contains(body, "identical") {
		t.Errorf("a call after one that timed out is answered with %s", body)
	}
	close(store.depart)
	first.wait(t)
}

// restart replaces the gate by a new one with the same store.
func (h *fixture) restart() {
	h.t.Helper()
	h.catalog = catalog.New(h.rules, time.Now, slog.New(slog.DiscardHandler), nil)
	h.gateway = startGate(h.t, h.target, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Records, s.handler.Waiting = h.catalog, h.approvals, h.store, h.waiting
	})
}

// A restarted host on the user's machine attaches to its earlier calls from a new session, and
// from the old session after a restart of the gate. Other hosts and proxied clients do not.
func TestLocalHostAttachesInAnotherSession(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
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
	ask("s-9") // a session that the gate does not know
	h.pending(4)
	h.approve(id)
	h.askUntil("done hold_x", func() string { return ask("s-1") })
	if ran := h.ran(); len(ran) != 1 {
		t.Errorf("ran %v; want one call", ran)
	}
}

// Approvers are told that a standing approval applies to all programs of the user with the same
// name, and to no other agent.
func TestGrantToLocalHostIsShared(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		w.Hold = 5 * time.Millisecond
		c.Workflow = func(string) (approval.Workflow, bool) {
			return approval.Workflow{Timeout: time.Hour, Grants: policy.Grants{Longest: time.Hour, Uses: 5}}, true
		}
	})
	h.define(`{"name":"hold_x"}`)
	h.meetIn("s-1", "codex")
	h.meetIn("s-2", "codex")
	h.meetIn("s-3", "opencode")
	ask := func(session string) string {
		return h.ask(toolCall("3", "hold_x", ""), "Mcp-Session-Id", session)
	}
	ask("s-1")
	id := h.pending(1)[0]
	shown, err := h.approvals.Viewer().Details(t.Context(), id, func(task.Task) error { return nil })
	if err != nil || shown.GrantOffer == nil {
		t.Fatalf("the offer is %+v, %v", shown.GrantOffer, err)
	}
	wantText(t, "offer", shown.GrantOffer.Caution, `calls itself "codex"`)
	_, err = h.approvals.Decide(t.Context(), id, approval.Approver{Name: "alice"}, approval.Ruling{
		Decision: approval.Approve, Shown: shown.ShownDigest, Gives: &gatetask.GrantTerms{Until: time.Now().Add(time.Minute), Uses: 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.askUntil("done hold_x", func() string { return ask("s-1") })
	h.askUntil("done hold_x", func() string { return ask("s-2") })
	h.pending(0)
	given, err := h.approvals.Viewer().Grants(t.Context(), true)
	if err != nil || len(given) != 1 {
		t.Fatalf("there are %+v, %v", given, err)
	}
	wantText(t, "grant", given[0].Caution, `calls itself "codex"`)
	ask("s-3")
	h.pending(1)
}

// The end of the session withdraws the calls for which the host waits, but not the calls that
// it was told to repeat.
func TestLocalHostEndsSession(t *testing.T) {
	h := newFixture(t, func(_ *catalog.Settings, _ *approval.Config, w *conversation.Waiting) { w.Hold = 5 * time.Millisecond })
	h.meetIn("s-1", "codex")
	h.meetIn("s-2", "codex")
	h.ask(toolCall("1", "hold_told", ""))
	told := h.pending(1)[0]
	h.waiting.Hold = time.Hour
	h.conversations.Configure(h.waiting)
	waits := h.sendHeld(toolCall("2", "hold_waits", ""))
	h.pending(2)
	h.sendAs(http.MethodDelete, "", "Mcp-Session-Id", "s-1").wait(t)
	if left := h.pending(1)[0]; left != told {
		t.Errorf("%s is left; want the call that the client must repeat, %s", left, told)
	}
	waits.wait(t)
	h.approve(told)
	wantText(t, "in another session", h.ask(toolCall("1", "hold_told", ""), "Mcp-Session-Id", "s-2"), "done hold_told")
}

// A stallingStore delays the creation of a task.
type stallingStore struct {
	gatestore.Store

	creating, goOn chan struct{}
}

// Create implements [task.Store].
func (s *stallingStore) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	close(s.creating)
	<-s.goOn
	return s.Store.Create(ctx, t, limits, notes...)
}

// A client can cancel a call while the store saves it. The upstream, which never got the call,
// gets no cancellation.
func TestCancelWhileStored(t *testing.T) {
	store := stallingStore{creating: make(chan struct{}), goOn: make(chan struct{})}
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		store.Store = c.Store
		c.Store = &store
	})
	sent := make(chan string, 2)
	h.record = func(body string) { sent <- body }
	held := h.send(toolCall("7", "hold_x", ""))
	<-store.creating
	cancel := h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"AbortError"}}`)
	select {
	case <-cancel.done: // the cancellation did not wait for the store
	case <-time.After(50 * time.Millisecond): // the cancellation waits for the store
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

// A cancellation at another replica withdraws the call. Another client, or another session of
// the same owner with equal request IDs, cannot cancel it.
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
