package lifecycle

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// The points at which a task can end without a result.
const (
	StageInspection          task.Stage = "inspection"           // refused before approval was requested
	StageApprovalRejected    task.Stage = "approval_rejected"    // an approver rejected it
	StageApprovalTimeout     task.Stage = "approval_timeout"     // no decision in time
	StageUncollected         task.Stage = "uncollected"          // approved, but not started before the end of its time
	StagePolicyDrift         task.Stage = "policy_drift"         // the policy no longer allows the approved call
	StageToolDrift           task.Stage = "tool_drift"           // the tool differs from the approved one
	StageArgumentDrift       task.Stage = "argument_drift"       // the call differs from the approved one
	StageUpstreamError       task.Stage = "upstream_error"       // the upstream answered with a JSON-RPC error
	StageUpstreamUnreachable task.Stage = "upstream_unreachable" // the upstream could not be called
	StageUpstreamTimeout     task.Stage = "upstream_timeout"     // the upstream did not answer in time
	StageUpstreamInvalid     task.Stage = "upstream_invalid"     // the upstream's answer was invalid
	StageUpstreamGone        task.Stage = "upstream_gone"        // the upstream no longer knows the task that it made
	StageSessionGone         task.Stage = "session_gone"         // the upstream refused the session or the credentials of the client
	StageResultTooLarge      task.Stage = "result_too_large"     // the upstream's answer is too large
	StageExecutionTimeout    task.Stage = "execution_timeout"    // still running at the end of its time
	StageUnfetched           task.Stage = "unfetched"            // it ran, but its result was not fetched in time
	StageExecutorLost        task.Stage = "executor_lost"        // the executor died while the call ran
	StageShutdown            task.Stage = "shutdown"             // the process stopped and could not keep the task
	StageCancelled           task.Stage = "cancelled"            // cancelled by its owner
)

// precise returns t as it is stored: in UTC and in whole microseconds.
func precise(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
