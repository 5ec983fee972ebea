package inbox

import (
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// stepTexts are the steps of a story, in words.
var stepTexts = map[string]string{
	string(approval.Held):      "Requested",
	string(approval.Asked):     "Approval requested",
	string(approval.Decided):   "Decided",
	string(approval.Rechecked): "Policy checked again",
	string(approval.Started):   "Sent to the tool",
	string(approval.Finished):  "The tool answered",
	string(approval.NotRun):    "Not run",
	string(approval.Delivered): "Outcome delivered to the agent",
	string(approval.Cancelled): "Withdrawn",
	string(approval.Expired):   "Time ran out",
	string(approval.Failed):    "Ended without a result",
	string(approval.Extended):  "The agent asked for more time",
	string(approval.Left):      "Agent no longer waits",
	string(approval.Stopped):   "Cancellation sent to the server",
	string(approval.Granted):   "Standing approval given",
	string(approval.Revoked):   "Standing approval revoked",
}

// step says what a step of a story was.
func step(e task.Entry) string {
	switch {
	case e.Step == string(approval.Decided) && e.Grant != "":
		return "Approved by a standing approval, given"
	case e.Step == string(approval.Decided) && e.Outcome == string(approval.Approve):
		return "Approved"
	case e.Step == string(approval.Decided) && e.Outcome == string(approval.Reject):
		return "Rejected"
	case e.Step == string(approval.Decided):
		return "No approval needed"
	case e.Step == string(approval.Finished) && e.To == task.Failed:
		return "Ended without an answer from the tool"
	case stepTexts[e.Step] != "":
		return stepTexts[e.Step]
	default:
		return visible(e.Step)
	}
}

// byWhom returns whose step it was, if it was a person's or an agent's.
func byWhom(e task.Entry) string {
	switch {
	case e.Approver != "":
		return e.Approver
	case e.Step == string(approval.Revoked):
		return e.Actor
	case e.Step == string(approval.Held) || e.Step == string(approval.Cancelled) && e.Actor == e.Requester:
		return e.Requester
	default:
		return ""
	}
}

// onHold says of the first step of a story what the approvers were asked for.
func onHold(story []task.Entry, e task.Entry) string {
	asked := slices.ContainsFunc(story, func(e task.Entry) bool { return e.Step == string(approval.Asked) })
	if e.Step == string(approval.Held) && asked {
		return "; on hold"
	}
	return ""
}

// saying returns what a person said with a step.
func saying(e task.Entry) string {
	if e.Approver == "" && e.Step != string(approval.Cancelled) && e.Step != string(approval.Revoked) {
		return ""
	}
	return visible(e.Reason)
}

// remark returns what a step needs to have said of it beyond that.
func remark(e task.Entry) string {
	switch {
	case e.UnreadBytes > 0:
		return "without reading everything (" + bytesText(int(e.UnreadBytes)) + " not read)"
	case e.Step == string(approval.Rechecked) && e.Outcome == "allowed":
		return "still allowed"
	case e.Step == string(approval.Rechecked):
		return "no longer allowed"
	case e.Ran == task.RanUnknown:
		return "outcome unknown: it may have run"
	case e.Step == string(approval.Finished) && e.Outcome == string(task.ResultToolError):
		return "with an error of its own"
	case e.To.Terminal() && e.Ran == task.RanNo:
		return "it did not run"
	default:
		return ownWords(e)
	}
}

// ownWords returns how far something goes that was done with a step.
func ownWords(e task.Entry) string {
	switch approval.Step(e.Step) {
	case approval.Extended:
		return e.Reason
	case approval.Granted, approval.Revoked:
		return e.Outcome
	default:
		return ""
	}
}
