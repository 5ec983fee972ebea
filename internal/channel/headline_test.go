package channel_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// TestHeadlines checks the headlines. An approved call is never called undecided, and a failed
// or withdrawn call that may have run is always described as such.
func TestHeadlines(t *testing.T) {
	failure := func(stage task.Stage, ran task.Ran) *task.Failure { return &task.Failure{Stage: stage, Ran: ran} }
	for want, q := range map[string]channel.Question{
		"Approval needed":                      {Stage: channel.Pending},
		"Rejected":                             {Stage: channel.Rejected, Approval: review.Approval{Failure: failure(lifecycle.StageApprovalRejected, task.RanNo)}},
		"Expired: no decision in time":         {Stage: channel.Expired, Approval: review.Approval{Failure: failure(lifecycle.StageApprovalTimeout, task.RanNo)}},
		"Expired":                              {Stage: channel.Expired}, // its task was deleted
		"Approved, but it did not run in time": {Stage: channel.Expired, Approval: review.Approval{Failure: failure(lifecycle.StageUncollected, task.RanNo)}},
		"Approved, but no result in time: it may have run": {Stage: channel.Expired, Approval: review.Approval{Failure: failure(lifecycle.StageExecutionTimeout, task.RanUnknown)}},
		"Withdrawn by the agent":                           {Stage: channel.Cancelled, Approval: review.Approval{Failure: failure(lifecycle.StageCancelled, task.RanNo)}},
		"Withdrawn by the agent: it may have run":          {Stage: channel.Cancelled, Approval: review.Approval{Failure: failure(lifecycle.StageCancelled, task.RanUnknown)}},
		"Approved, but it did not run":                     {Stage: channel.Failed, Approval: review.Approval{Failure: failure(lifecycle.StageToolDrift, task.RanNo)}},
		"Approved, and it failed: it may have run":         {Stage: channel.Failed, Approval: review.Approval{Failure: failure(lifecycle.StageUpstreamTimeout, task.RanUnknown)}},
		"Approved, and it failed":                          {Stage: channel.Failed, Approval: review.Approval{Failure: failure(lifecycle.StageUpstreamError, task.RanYes)}},
		"Approved, and it ran":                             {Stage: channel.Completed},
	} {
		if got := q.Headline(); got != want {
			t.Errorf("%s: %q; want %q", q.Stage, got, want)
		}
	}
}
