package app

import (
	"context"
	"errors"
	"runtime"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// newMetrics returns metrics. Series with known labels are on the page from the start.
func newMetrics() *metrics.Metrics {
	m := metrics.New()
	m.SetBuild(version.This().Version, runtime.Version())
	for _, t := range mcp.Types() {
		m.AddErrorTypes(string(t))
	}
	for from, to := range lifecycle.Transitions() {
		m.AddTransition(string(from), string(to))
	}
	for _, step := range approval.RecordedSteps() {
		m.AddSteps(string(step))
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

// grantEvents maps steps of standing approvals to their metric labels.
var grantEvents = map[approval.Step]string{
	approval.Granted: metrics.GrantGiven, approval.UsedGrant: metrics.GrantUsed, approval.Revoked: metrics.GrantRevoked,
}

// observe counts the events of held calls.
func (b *base) observe(ctx context.Context, e approval.Event) {
	switch e.Step {
	case approval.Held:
		//mutate:drop TestHeldCallsAreCounted held calls are not counted
		b.metrics.TaskHeld(e.Task.Call.Name)
	case approval.Refused:
		if !errors.Is(e.Err, task.ErrUnavailable) {
			//mutate:drop TestHeldCallsAreCounted refused calls are not counted
			b.metrics.TaskRefused()
		}
	case approval.Granted, approval.UsedGrant, approval.Revoked:
		b.metrics.Granted(grantEvents[e.Step])
	case approval.OwnerAbsent:
		b.metrics.ZombiePrevented()
	case approval.Counted:
		pending := make(map[string]int, len(e.Pending))
		for state, n := range e.Pending {
			pending[string(state)] = n
		}
		b.metrics.TasksCounted(pending, e.Oldest)
		b.metrics.ApprovalsCounted(e.PendingByWorkflow)
	case approval.Viewed:
		b.metrics.ApprovalSeen(e.Task.Workflow, e.Task.UpdatedAt.Sub(e.Task.CreatedAt))
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
	case approval.Attached, approval.Refused, approval.Delivered, approval.OwnerAbsent, approval.Reported, approval.Viewed:
		return false
	case approval.Decided:
		return !e.Task.Approval.DecidedAt().IsZero() // the first of several approvals changes no state
	default:
		return len(e.Task.Transitions) > 0
	}
}

// measure counts the last change of state of t, and measures how long the state lasted.
func (b *base) measure(ctx context.Context, t task.Task) {
	last := t.Transitions[len(t.Transitions)-1]
	//mutate:drop TestHeldCallsAreCounted changes of state are not counted
	b.metrics.TaskMoved(string(last.From), string(last.To))
	switch last.From {
	case task.InputRequired:
		b.metrics.ApprovalEnded(t.Workflow, string(last.To), last.At.Sub(t.CreatedAt))
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
		//mutate:drop TestHeldCallsAreCounted ends of tasks are not counted
		b.metrics.TaskEnded(t.Call.Name, string(last.To))
		b.metrics.TaskTook(metrics.StageTotal, last.At.Sub(t.CreatedAt))
	}
}
