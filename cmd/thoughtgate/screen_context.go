package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// cautions returns the warnings that an approver reads before the call.
func (s *screen) cautions(x review.Context) string {
	text := row("objection", s.paint(yellow, oneLine(x.Objection, maxCell)))
	if x.ToolChange != nil {
		text += row("caution", s.paint(red, oneLine(x.ToolChange.Text(), maxText)))
		var differences []string
		for _, c := range x.ToolChange.Unaccepted {
			differences = append(differences, row("difference", paragraph(c.Diff)))
		}
		text += strings.Join(differences, "")
	}
	return text
}

// background returns the approvers of a call, the requester's earlier calls, and the
// history of the call.
func background(x review.Context, now time.Time) string {
	var earlier, story []string
	for _, a := range x.Earlier {
		earlier = append(earlier, formatDuration(now.Sub(a.CreatedAt))+" ago "+stateText(a, now)+": "+callText(a))
	}
	for _, e := range x.History {
		story = append(story, storyLine(e))
	}
	return row("approvers", oneLine(strings.Join(x.Approvers, ", "), maxText)) +
		row("earlier", strings.Join(earlier, "\n")) + row("history", strings.Join(story, "\n"))
}

// storyLine returns one step of a call.
func storyLine(e auditlog.Entry) string {
	text := e.At.Local().Format(time.TimeOnly) + " " + oneLine(e.Step, 60)
	if e.Actor != "" {
		text += " by " + oneLine(e.Actor, 60)
	}
	if outcome := outcomeText(e); outcome != "" {
		text += ": " + oneLine(outcome, maxCell)
	}
	if e.Via.Kind != "" {
		text += ", via " + oneLine(e.ViaText(), maxCell)
	}
	if e.Reason != "" {
		text += " (" + oneLine(e.Reason, maxCell) + ")"
	}
	return text
}

// outcomeText returns the outcome of a step, with the unread bytes of a decision and the
// policies of a policy change.
func outcomeText(e auditlog.Entry) string {
	if e.UnreadBytes > 0 {
		return fmt.Sprintf("%s (%d bytes not read)", e.Outcome, e.UnreadBytes)
	}
	if e.PolicyBefore != "" && e.PolicyBefore != e.PolicySnapshot {
		return fmt.Sprintf("%s (%s to %s)", e.Outcome, e.PolicyBefore, e.PolicySnapshot)
	}
	return e.Outcome
}
