package mcphttp_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// extending returns a tasks/update that asks for a time to live, and its headers.
func extending(id, ttl string) (string, []string) {
	message, headers := about("tasks/update", id)
	return strings.Replace(message, `"taskId"`, `"inputResponses":{},"ttlMs":`+ttl+`,"taskId"`, 1), headers
}

// newExtendingFixture starts a gate whose tasks live four hours at most, with its
// log.
func newExtendingFixture(t *testing.T) (*fixture, *logBuffer) {
	t.Helper()
	log := new(logBuffer)
	return newFixture(t, func(_ *gate.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.MaxTTL, c.Log = 4*time.Hour, slog.New(slog.NewJSONHandler(log, nil))
	}), log
}

// life returns how long a task lives.
func (h *fixture) life(id string) time.Duration {
	h.t.Helper()
	kept, err := h.store.Get(h.t.Context(), task.AnyOwner().Ref(task.ID(id)))
	if err != nil {
		h.t.Fatal(err)
	}
	return kept.TTL()
}

// extensions returns what the journal says of the time that a task was given.
func (h *fixture) extensions(id string) []string {
	h.t.Helper()
	entries, err := h.store.Entries(context.Background(), task.JournalQuery{Task: task.ID(id)})
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

// design 9: a modern client gives its task more time with tasks/update, up to
// the maximum, and never less.
func TestModernExtend(t *testing.T) {
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
		t.Fatalf("the task lives %v at first; the test wants less", first)
	}
	for _, tt := range steps {
		message, headers := extending(id, tt.ttl)
		wantText(t, tt.name, h.ask(message, headers...), tt.answer)
		if got := h.life(id); got != tt.life {
			t.Errorf("%s: the task lives %v; want %v", tt.name, got, tt.life)
		}
	}
	message, headers := about("tasks/get", id)
	wantText(t, "get", h.ask(message, headers...), `"ttlMs":14400000`)
	told := h.extensions(id)
	if len(told) != 2 || strings.Contains(strings.Join(told, " "), "agent") {
		t.Errorf("the journal tells of %q; want both extensions, and no credential", told)
	}
	if !strings.Contains(log.String(), "time to live limited") {
		t.Error("nothing is logged of a time to live that was limited")
	}
}

// design 9: only the owner of a task gives it more time, and for anybody else it
// looks like a missing one; one that has ended gets none.
func TestExtendForeignOrEnded(t *testing.T) {
	h, _ := newExtendingFixture(t)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	first := h.life(id)
	message, headers := extending(id, "7200000")
	missing, missingHeaders := extending("tg_none", "7200000")
	headers[9], missingHeaders[9] = "Bearer somebody else", "Bearer somebody else"
	foreign := h.ask(message, headers...)
	if wantText(t, "foreign", foreign, `"code":-32602`); correlation.ReplaceAllString(foreign, "") != correlation.ReplaceAllString(h.ask(missing, missingHeaders...), "") {
		t.Errorf("a foreign task differs from a missing one: %s", foreign)
	}
	if got := h.life(id); got != first {
		t.Errorf("somebody else made the task live %v instead of %v", got, first)
	}
	headers[9] = "Bearer agent"
	h.reject(task.ID(id), "no")
	wantText(t, "ended", h.ask(message, headers...), `"result":{"resultType":"complete"}`)
	if got := h.life(id); got != first {
		t.Errorf("a task that has ended lives %v; want %v", got, first)
	}
}

// design 9: a legacy client gives its task more time by the same call with a
// longer ttl, which joins the task.
func TestLegacyExtend(t *testing.T) {
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
			t.Errorf("%s: the task lives %v; want %v", tt.task, got, tt.life)
		}
	}
	wantText(t, "get", h.ask(legacyAbout("tasks/get", id)), `"ttl":14400000`)
	if told := h.extensions(id); len(told) != 2 {
		t.Errorf("the journal tells of %q; want both extensions", told)
	}
	h.pending(1)
}

// The time that a client asks for is the task's, not the approvers': the
// workflow says how long they have. An approver sees how long an approved call
// waits for its client.
func TestExtendShownToApprovers(t *testing.T) {
	h, _ := newExtendingFixture(t)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	before, err := h.desk.Cases().Show(t.Context(), task.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	message, headers := extending(id, "14400000")
	wantText(t, "update", h.ask(message, headers...), `"resultType":"complete"`)
	after, err := h.desk.Cases().Show(t.Context(), task.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	if !after.ExpiresAt.Equal(before.ExpiresAt) {
		t.Errorf("approvers have until %v instead of %v", after.ExpiresAt, before.ExpiresAt)
	}
	h.approve(task.ID(id))
	if after, err = h.desk.Cases().Show(t.Context(), task.ID(id)); err != nil {
		t.Fatal(err)
	}
	if got := after.ExpiresAt.Sub(after.CreatedAt); got != 4*time.Hour {
		t.Errorf("an approved call is shown to wait %v; want 4h", got)
	}
}
