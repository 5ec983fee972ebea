package channel

import (
	"cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// headlines are the headlines of messages without a known failure.
var headlines = map[Stage]string{
	Pending: "Approval needed", Approved: "Approved", Rejected: "Rejected", Expired: "Expired",
	Cancelled: "Withdrawn by the agent", Completed: "Approved, and it ran", Failed: "Approved, and it failed",
}

// headlinesNotRun and headlinesMaybeRun are the headlines of calls that ended without a
// result and certainly did not run, or may have run.
var (
	headlinesNotRun = map[Stage]string{
		Expired: "Approved, but it did not run in time", Failed: "Approved, but it did not run",
	}
	headlinesMaybeRun = map[Stage]string{
		Expired: "Approved, but no result in time: it may have run", Failed: "Approved, and it failed: it may have run",
		Cancelled: "Withdrawn by the agent: it may have run",
	}
)

// Headline returns the stage of a question in words. If the call ended without a result,
// the headline says whether the call may have run.
func (q Question) Headline() string {
	f := q.Approval.Failure
	if f == nil {
		return headlines[q.Stage]
	}
	if f.Stage == lifecycle.StageApprovalTimeout {
		return "Expired: no decision in time"
	}
	byRan := map[task.Ran]map[Stage]string{task.RanNo: headlinesNotRun, task.RanUnknown: headlinesMaybeRun}[f.Ran]
	return cmp.Or(byRan[q.Stage], headlines[q.Stage])
}
