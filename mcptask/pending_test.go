package mcptask_test

import (
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// GOV-001: a client that polls learns of a decision within seconds in the first two minutes.
// The message names the approvers, the remaining time, and the link.
func TestPendingMessageFollowsAge(t *testing.T) {
	pending := newTask(t, submit)
	pending.PollInterval = 30 * time.Second
	for _, tt := range []struct {
		age     time.Duration
		poll    int64
		message string
	}{
		{0, 2000, "Waiting for approval by ops · tg_786512e2 · 1h0m left · https://gate.example/" + id},
		{59 * time.Second, 2000, "Waiting for approval by ops · tg_786512e2 · 59m1s left · https://gate.example/" + id},
		{time.Minute, 5000, "Waiting for approval by ops · tg_786512e2 · 59m0s left · https://gate.example/" + id},
		{2 * time.Minute, 30000, "Waiting for approval by ops · tg_786512e2 · 58m0s left · https://gate.example/" + id},
		{2 * time.Hour, 30000, "Waiting for approval by ops · tg_786512e2 · 0s left · https://gate.example/" + id},
	} {
		d := mcptask.Dialect{Now: pending.CreatedAt.Add(tt.age), Gate: gatedialect.Options{ApprovalURL: func(id task.ID) string { return "https://gate.example/" + string(id) }}}
		got := jsonrpc.Value{Bytes: mustWith(nil)(d.GetResult(pending))}
		poll, _ := got.Member("pollInterval").Int()
		if message, _ := got.Member("statusMessage").Text(); message != tt.message || poll != tt.poll {
			t.Errorf("after %v: %q, poll every %d ms; want %q, %d", tt.age, message, poll, tt.message, tt.poll)
		}
	}
	pending.PollInterval = time.Second
	d := mcptask.Dialect{Now: pending.CreatedAt}
	if poll, _ := (jsonrpc.Value{Bytes: mustWith(nil)(d.GetResult(pending))}).Member("pollInterval").Int(); poll != 1000 {
		t.Errorf("poll every %d ms; want the interval of the task", poll)
	}
}

// In the literal dialect, a legacy client gets an error with a code.
func TestLiteralDialectAnswersWithErrors(t *testing.T) {
	for want, tk := range map[int]task.Task{
		-32007: newTask(t, submit, lifecycle.Reject{By: "bob"}),
		-32008: newTask(t, submit, lifecycle.Expire{By: "gate"}),
		-32602: newTask(t, submit, lifecycle.Cancel{By: "alice"}),
	} {
		answer, err := literal.Outcome(tk)
		if e := answer.Err(nil); err != nil || e == nil || e.Code != want {
			t.Errorf("%s: %v, %v; want %d", tk.State, e, err, want)
		}
	}
}
