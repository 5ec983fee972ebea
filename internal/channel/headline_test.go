package channel_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A message never says that nobody decided about a call that was approved, nor that a call
// failed or was withdrawn without saying that it may have run.
func TestHeadlines(t *testing.T) {
	failure := func(stage task.Stage, ran task.Ran) *task.Failure { return &task.Failure{Stage: stage, Ran: ran} }
	for want, q := range map[string]channel.Question{
		"Approval needed":                      {Stage: channel.Pending},
		"Rejected":                             {Stage: channel.Rejected, Approval: casefile.Approval{Failure: failure(task.StageApprovalRejected, task.RanNo)}},
		"Expired: nobody decided in time":      {Stage: channel.Expired, Approval: casefile.Approval{Failure: failure(task.StageApprovalTimeout, task.RanNo)}},
		"Expired":                              {Stage: channel.Expired}, // its task was deleted
		"Approved, but it did not run in time": {Stage: channel.Expired, Approval: casefile.Approval{Failure: failure(task.StageUncollected, task.RanNo)}},
		"Approved, but no result in time: it may have run": {Stage: channel.Expired, Approval: casefile.Approval{Failure: failure(task.StageExecutionTimeout, task.RanUnknown)}},
		"Withdrawn by the agent":                           {Stage: channel.Cancelled, Approval: casefile.Approval{Failure: failure(task.StageCancelled, task.RanNo)}},
		"Withdrawn by the agent: it may have run":          {Stage: channel.Cancelled, Approval: casefile.Approval{Failure: failure(task.StageCancelled, task.RanUnknown)}},
		"Approved, but it did not run":                     {Stage: channel.Failed, Approval: casefile.Approval{Failure: failure(task.StageToolDrift, task.RanNo)}},
		"Approved, and it failed: it may have run":         {Stage: channel.Failed, Approval: casefile.Approval{Failure: failure(task.StageUpstreamTimeout, task.RanUnknown)}},
		"Approved, and it failed":                          {Stage: channel.Failed, Approval: casefile.Approval{Failure: failure(task.StageUpstreamError, task.RanYes)}},
		"Approved, and it ran":                             {Stage: channel.Completed},
	} {
		if got := q.Headline(); got != want {
			t.Errorf("%s: %q; want %q", q.Stage, got, want)
		}
	}
}
