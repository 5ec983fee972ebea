package channel

import "github.com/thoughtgate/thoughtgate-go/task"

// headlines begin a message at each stage, as far as nothing more is known.
var headlines = map[Stage]string{
	Pending: "Approval needed", Approved: "Approved", Rejected: "Rejected", Expired: "Expired",
	Cancelled: "Withdrawn by the agent", Completed: "Approved, and it ran", Failed: "Approved, and it failed",
}

// unrun and unsure are the headlines of questions that have ended without a result: of
// calls that surely did not run, and of those that may have run.
var (
	unrun = map[Stage]string{
		Expired: "Approved, but it did not run in time", Failed: "Approved, but it did not run",
	}
	unsure = map[Stage]string{
		Expired: "Approved, but no result in time: it may have run", Failed: "Approved, and it failed: it may have run",
		Cancelled: "Withdrawn by the agent: it may have run",
	}
)

// Headline says how a question stands, and if it ended without a result, whether the call
// may have run.
func (q Question) Headline() string {
	f := q.Approval.Failure
	switch {
	case f == nil:
		return headlines[q.Stage]
	case f.Stage == task.StageApprovalTimeout:
		return "Expired: nobody decided in time"
	}
	special := map[task.Ran]map[Stage]string{task.RanNo: unrun, task.RanUnknown: unsure}[f.Ran]
	if text, ok := special[q.Stage]; ok {
		return text
	}
	return headlines[q.Stage]
}
