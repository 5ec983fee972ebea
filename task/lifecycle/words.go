package lifecycle

import "github.com/thoughtgate/thoughtgate-go/task"

// Words explain why a task ended at a stage without a result. [RanText] tells whether the call
// ran.
type Words struct {
	Client   string // for the client, whose model may read it
	Approver string // for approvers, after the names of the approvers of this call
}

// WordsOf returns the words for a stage. They are empty for an unknown stage.
func WordsOf(s task.Stage) Words { return words[s] }

// words has every stage at which a task can end.
var words = map[task.Stage]Words{
	StageInspection:       {"Refused before approval was requested.", "It was refused before anybody was asked."},
	StageApprovalRejected: {"Rejected by an approver.", "It was rejected."},
	StageApprovalTimeout:  {"Nobody decided in time.", "Nobody decided in time."},
	StageUncollected:      {"Approved, but its owner did not come back in time.", "The agent did not come back for it in time."},
	StagePolicyDrift:      {"Approved, but the policy has changed and no longer allows it.", "By then policy no longer allowed it."},
	StageToolDrift: {
		"Approved, but the tool has changed since then: the call needs a new approval.",
		"By then the tool had changed, so that the call needs a new approval.",
	},
	StageArgumentDrift:       {"The call is not the one that was approved.", "The call was no longer the one that was shown."},
	StageUpstreamError:       {"The server answered with an error.", "The tool’s server answered with an error."},
	StageUpstreamUnreachable: {"The server cannot be reached.", "The tool’s server could not be reached."},
	StageUpstreamTimeout:     {"The server did not answer in time.", "It took too long."},
	StageUpstreamInvalid:     {"The server sent an invalid answer.", "The tool’s server sent an invalid answer."},
	StageUpstreamGone: {
		"The server no longer knows the task that it created for the call.",
		"The tool’s server no longer knew the task that it had created for the call.",
	},
	StageSessionGone: {
		"Approved, but the server no longer accepts the session or the credentials of this client. " +
			"After signing in again, make exactly the same call: it runs then, and nobody is asked again.",
		"The tool’s server no longer accepted the agent’s session or credentials. " +
			"If the agent makes exactly the same call again in time, it runs without a new approval.",
	},
	StageUnfetched:        {"It ran, but its result was not fetched in time.", "The agent did not fetch the result in time."},
	StageResultTooLarge:   {"It ran, but its result is too large to be kept.", "The result was too large to be kept."},
	StageExecutionTimeout: {"Still running when its time ended.", "It had not ended when its time was over."},
	StageExecutorLost:     {"Interrupted while it ran.", "The gate was interrupted while it ran."},
	StageShutdown:         {"Stopped before it could run.", "The gate stopped and could not keep it."},
	StageCancelled:        {"Cancelled by the requestor.", "The agent withdrew it."},
}

// RanText returns a sentence about whether a call that ended without a result ran.
func RanText(r task.Ran) string {
	switch r {
	case task.RanNo:
		return "It did not run."
	case task.RanYes:
		return "It ran."
	default:
		return "Outcome unknown: it may have run."
	}
}
