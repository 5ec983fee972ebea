package mcphttp_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// extending returns a tasks/update request for a new ttl, and its headers.
func extending(id, ttl string) (string, []string) {
	message, headers := about("tasks/update", id)
	return strings.Replace(message, `"taskId"`, `"inputResponses":{},"ttlMs":`+ttl+`,"taskId"`, 1), headers
}

// newExtendingFixture starts a gate whose tasks live at most four hours, and returns its log.
func newExtendingFixture(t *testing.T) (*fixture, *logBuffer) {
	t.Helper()
	log := new(logBuffer)
	return newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.MaxTTL, c.Log = 4*time.Hour, slog.New(slog.NewJSONHandler(log, nil))
	}), log
}

// life returns the ttl of a task.
func (h *fixture) life(id string) time.Duration {
	h.t.Helper()
	kept, err := h.store.Get(h.t.Context(), task.AnyOwner().Ref(task.ID(id)))
	if err != nil {
		h.t.Fatal(err)
	}
	return kept.TTL()
}

// extensions returns the journal entries about a task's ttl.
func (h *fixture) extensions(id string) []string {
	h.t.Helper()
	entries, err := h.store.Entries(context.Background(), auditlog.Query{Task: task.ID(id)})
	if err != nil {
		h.t.Fatal(err)
	}
	var told []string
	for _, e := range entries {
		if e.Step == string(approval.Extended) {
			told = append(told, e.Actor+": "+e.Reason)
		}
	}
	return told
}

// design 9: tasks/update raises the ttl up to the maximum, and never lowers it.
func TestModernClientExtendsTask(t *testing.T) {
	h, log := newExtendingFixture(t)
	created := h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...)
	id := taskID(t, created)
	first := h.life(id)
	steps := []struct {
		name, ttl string
		answer    string
		life      time.Duration
	}{
		{"more", "7200000", `"result":{"resultType":"complete"}`, 2 * time.Hour},
		{"the same again", "7200000", `"result":{"resultType":"complete"}`, 2 * time.Hour},
		{"less", "1000", `"result":{"resultType":"complete"}`, 2 * time.Hour},
		{"null", "null", `"result":{"resultType":"complete"}`, 2 * time.Hour},
		{"nothing", "0", `"code":-32602`, 2 * time.Hour},
		{"negative", "-7200000", `"code":-32602`, 2 * time.Hour},
		{"a fraction", "7200000.5", `"code":-32602`, 2 * time.Hour},
		{"a text", `"7200000"`, `"code":-32602`, 2 * time.Hour},
		{"more than there is", "360000000", `"result":{"resultType":"complete"}`, 4 * time.Hour},
		{"far too much", "1e300", `"result":{"resultType":"complete"}`, 4 * time.Hour},
	}
	if first >= 2*time.Hour {
		t.Fatalf("the ttl is %v; the test needs less", first)
	}
	for _, tt := range steps {
		message, headers := extending(id, tt.ttl)
		wantText(t, tt.name, h.ask(message, headers...), tt.answer)
		if got := h.life(id); got != tt.life {
			t.Errorf("%s: ttl %v; want %v", tt.name, got, tt.life)
		}
	}
	message, headers := about("tasks/get", id)
	wantText(t, "get", h.ask(message, headers...), `"ttlMs":14400000`)
	told := h.extensions(id)
	if len(told) != 2 || strings.Contains(strings.Join(told, " "), "agent") {
		t.Errorf("the journal has %q; want both extensions, and no credential", told)
	}
	if !strings.Contains(log.String(), "time to live limited") {
		t.Error("the reduced ttl is not logged")
	}
}

// design 9: for other clients the task looks missing. An ended task cannot be extended.
func TestOnlyOwnerExtendsOpenTask(t *testing.T) {
	h, _ := newExtendingFixture(t)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	first := h.life(id)
	message, headers := extending(id, "7200000")
	missing, missingHeaders := extending("tg_none", "7200000")
	headers[9], missingHeaders[9] = "Bearer other", "Bearer somebody else"
	foreign := h.ask(message, headers...)
	if wantText(t, "foreign", foreign, `"code":-32602`); correlation.ReplaceAllString(foreign, "") != correlation.ReplaceAllString(h.ask(missing, missingHeaders...), "") {
		t.Errorf("a task of another client differs from a missing one: %s", foreign)
	}
	if got := h.life(id); got != first {
		t.Errorf("another client changed the ttl to %v; want %v", got, first)
	}
	headers[9] = "Bearer agent"
	h.reject(task.ID(id), "no")
	wantText(t, "ended", h.ask(message, headers...), `"result":{"resultType":"complete"}`)
	if got := h.life(id); got != first {
		t.Errorf("an ended task has ttl %v; want %v", got, first)
	}
}

// design 9: a legacy client repeats the call with a longer ttl.
func TestLegacyClientExtendsTask(t *testing.T) {
	h, _ := newExtendingFixture(t)
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{"ttl":60000}`)))
	steps := []struct {
		task string
		life time.Duration
	}{
		{`{"ttl":7200000}`, 2 * time.Hour},
		{`{"ttl":60000}`, 2 * time.Hour},
		{`{}`, 2 * time.Hour},
		{`{"ttl":36000000}`, 4 * time.Hour},
	}
	for _, tt := range steps {
		answer := h.ask(toolCall("4", "hold_x", `,"task":`+tt.task))
		if again := taskID(t, answer); again != id {
			t.Fatalf("%s: task %s; want the call to join %s", tt.task, again, id)
		}
		if got := h.life(id); got != tt.life {
			t.Errorf("%s: ttl %v; want %v", tt.task, got, tt.life)
		}
	}
	wantText(t, "get", h.ask(legacyAbout("tasks/get", id)), `"ttl":14400000`)
	if told := h.extensions(id); len(told) != 2 {
		t.Errorf("the journal has %q; want both extensions", told)
	}
	h.pending(1)
}

// The requested ttl does not change how long approvers have. Approvers see how long an approved
// call waits for its client.
func TestApproversSeeExtension(t *testing.T) {
	h, _ := newExtendingFixture(t)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	before, err := h.approvals.Viewer().Show(t.Context(), task.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	message, headers := extending(id, "14400000")
	wantText(t, "update", h.ask(message, headers...), `"resultType":"complete"`)
	after, err := h.approvals.Viewer().Show(t.Context(), task.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	if !after.ExpiresAt.Equal(before.ExpiresAt) {
		t.Errorf("approvers have until %v; want %v", after.ExpiresAt, before.ExpiresAt)
	}
	h.approve(task.ID(id))
	if after, err = h.approvals.Viewer().Show(t.Context(), task.ID(id)); err != nil {
		t.Fatal(err)
	}
	if got := after.ExpiresAt.Sub(after.CreatedAt); got != 4*time.Hour {
		t.Errorf("approvers see that an approved call waits %v; want 4h", got)
	}
}
