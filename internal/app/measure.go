package app

import (
	"context"
	"errors"
	"runtime"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// newMetrics returns metrics that have every series on their page from the start
// whose labels are known.
func newMetrics() *metrics.Metrics {
	m := metrics.New()
	m.Built(version.This().Version, runtime.Version())
	for _, t := range wire.Types() {
		m.CanRefuse(string(t))
	}
	for from, to := range task.Transitions() {
		m.CanMove(string(from), string(to))
	}
	for _, step := range approval.Recorded() {
		m.CanRecord(string(step))
	}
	return m
}

// recorded counts the notes that were added to the journal.
func (b *base) recorded(notes []task.Note, err error) {
	if err != nil {
		b.metrics.AuditFailed()
		return
	}
	for _, n := range notes {
		b.metrics.Audited(n.Step)
	}
}

// grantEvents are what happens to standing approvals, as metrics call it.
var grantEvents = map[approval.Step]string{
	approval.Granted: metrics.GrantGiven, approval.UsedGrant: metrics.GrantUsed, approval.Revoked: metrics.GrantRevoked,
}

// observe counts what happens at the desk.
func (b *base) observe(ctx context.Context, e approval.Event) {
	switch e.Step {
	case approval.Held:
		b.metrics.TaskHeld(e.Task.Call.Name)
	case approval.Refused:
		if !errors.Is(e.Err, task.ErrUnavailable) {
			b.metrics.TaskRefused()
		}
	case approval.Granted, approval.UsedGrant, approval.Revoked:
		b.metrics.Granted(grantEvents[e.Step])
	case approval.Abandoned:
		b.metrics.ZombiePrevented()
	case approval.Counted:
		pending := make(map[string]int, len(e.Pending))
		for state, n := range e.Pending {
			pending[string(state)] = n
		}
		b.metrics.TasksCounted(pending, e.Oldest)
		b.metrics.QuestionsCounted(e.Asked)
	case approval.Looked:
		b.metrics.QuestionSeen(e.Task.Workflow, e.Task.UpdatedAt.Sub(e.Task.CreatedAt))
	default:
	}
	if moved(e) {
		b.measure(ctx, e.Task)
	}
}

// moved reports whether e is a change of state.
func moved(e approval.Event) bool {
	switch e.Step {
	case approval.Granted, approval.UsedGrant, approval.Revoked:
		return false
	case approval.Attached, approval.Refused, approval.Delivered, approval.Abandoned, approval.Reported, approval.Looked:
		return false
	case approval.Decided:
		return !e.Task.Approval.DecidedAt().IsZero() // one of several that are needed changes nothing
	default:
		return len(e.Task.Transitions) > 0
	}
}

// measure counts the last change of state of t, and how long what it ended took.
func (b *base) measure(ctx context.Context, t task.Task) {
	last := t.Transitions[len(t.Transitions)-1]
	b.metrics.TaskMoved(string(last.From), string(last.To))
	switch last.From {
	case task.InputRequired:
		b.metrics.QuestionEnded(t.Workflow, string(last.To), last.At.Sub(t.CreatedAt))
		if last.To == task.Approved || last.To == task.Rejected {
			b.metrics.TaskTook(metrics.StageApproval, last.At.Sub(t.CreatedAt))
			b.tracing.ApprovalWaited(ctx, tracing.Wait{
				From: t.CreatedAt, To: last.At, Request: approval.TraceOf(t), Task: string(t.ID), Outcome: string(last.To),
			})
		}
	case task.Executing:
		b.metrics.TaskTook(metrics.StageExecution, last.At.Sub(t.Execution.StartedAt))
		if t.Result != nil {
			b.metrics.ResultKept(t.Result.Size)
		}
	default:
	}
	if last.To.Terminal() {
		b.metrics.TaskEnded(t.Call.Name, string(last.To))
		b.metrics.TaskTook(metrics.StageTotal, last.At.Sub(t.CreatedAt))
	}
}
