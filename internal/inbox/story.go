package inbox

import (
	"cmp"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// stepTexts are the titles of journal entries, by step.
var stepTexts = map[string]string{
	string(approval.Held):       "Requested",
	string(approval.Asked):      "Approval requested",
	string(approval.Decided):    "Decided",
	string(approval.Rechecked):  "Policy checked again",
	string(approval.Started):    "Sent to the tool",
	string(approval.Finished):   "The tool answered",
	string(approval.NotRun):     "Not run",
	string(approval.Delivered):  "Outcome delivered to the agent",
	string(approval.Cancelled):  "Withdrawn",
	string(approval.Expired):    "Time ran out",
	string(approval.Failed):     "Ended without a result",
	string(approval.Extended):   "The agent asked for more time",
	string(approval.ClientLeft): "Agent no longer waits",
	string(approval.Stopped):    "Cancellation sent to the server",
	string(approval.Granted):    "Standing approval given",
	string(approval.Revoked):    "Standing approval revoked",

	string(approval.Configured): "Configuration changed",
}

// refusedTexts explain why approvals were refused.
var refusedTexts = map[string]string{
	approval.DecidedByAgent:  "Approval by the agent itself refused",
	approval.PasskeyRequired: "Approval without a passkey refused",
	approval.PasskeyInvalid:  "Approval refused, because the passkey does not count",
}

// changeText describes a change of the configuration.
func changeText(n task.Note) string {
	text := "settings other than the policy"
	if n.PolicyBefore != n.PolicySnapshot {
		text = "policy " + cmp.Or(n.PolicyBefore, "none") + " replaced by " + cmp.Or(n.PolicySnapshot, "none")
	}
	if n.Upstream != "" {
		text += " for " + visible(n.Upstream)
	}
	return text + " (" + n.Actor + ")"
}

// step returns the title of a journal entry.
func step(e auditlog.Entry) string {
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
	default:
		return cmp.Or(refusedTexts[e.Outcome], stepTexts[e.Step], visible(e.Step))
	}
}

// byWhom returns the name of the person or agent that caused a step, or "".
func byWhom(e auditlog.Entry) string {
	switch {
	case e.Outcome == approval.DecidedByAgent:
		return "" // the agent, with the token of an operator
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

// onHold returns an addition to the first entry of a call that approvers were asked about.
func onHold(story []auditlog.Entry, e auditlog.Entry) string {
	asked := slices.ContainsFunc(story, func(e auditlog.Entry) bool { return e.Step == string(approval.Asked) })
	if e.Step == string(approval.Held) && asked {
		return "; on hold"
	}
	return ""
}

// saying returns the reason that a person gave with a step.
func saying(e auditlog.Entry) string {
	if e.Approver == "" && e.Step != string(approval.Cancelled) && e.Step != string(approval.Revoked) {
		return ""
	}
	return visible(e.Reason)
}

// remark returns an addition to the title of an entry, or "".
func remark(e auditlog.Entry) string {
	text := detail(e)
	if e.Via.Kind == "" {
		return text
	}
	via := "via " + visible(e.ViaText())
	if text == "" {
		return via
	}
	return via + ", " + text
}

// detail returns what came of a step, or "".
func detail(e auditlog.Entry) string {
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

// ownWords returns the detail that the gate has recorded with a step, such as the limits
// of a standing approval.
func ownWords(e auditlog.Entry) string {
	switch approval.Step(e.Step) {
	case approval.Extended:
		return e.Reason
	case approval.Granted, approval.Revoked:
		return e.Outcome
	default:
		return ""
	}
}
