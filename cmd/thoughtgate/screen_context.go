package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// cautions returns what an approver should know before the call itself.
func (s *screen) cautions(x casefile.Context) string {
	text := row("objection", s.paint(yellow, oneLine(x.Objection, maxCell)))
	if x.Changed != nil {
		text += row("caution", s.paint(red, oneLine(x.Changed.Caution(), maxText)))
	}
	return text
}

// background returns what else is known of a call: who may decide, what its
// requester wanted before, and what happened so far.
func background(x casefile.Context, now time.Time) string {
	var earlier, story []string
	for _, a := range x.Earlier {
		earlier = append(earlier, span(now.Sub(a.CreatedAt))+" ago "+fate(a, now)+": "+callText(a))
	}
	for _, e := range x.Story {
		story = append(story, storyLine(e))
	}
	return row("approvers", oneLine(strings.Join(x.Approvers, ", "), maxText)) +
		row("earlier", strings.Join(earlier, "\n")) + row("history", strings.Join(story, "\n"))
}

// storyLine returns one step of a call.
func storyLine(e task.Entry) string {
	text := e.At.Format(time.TimeOnly) + " " + oneLine(e.Step, 60)
	if e.Actor != "" {
		text += " by " + oneLine(e.Actor, 60)
	}
	if outcome := outcomeText(e); outcome != "" {
		text += ": " + oneLine(outcome, maxCell)
	}
	if e.Reason != "" {
		text += " (" + oneLine(e.Reason, maxCell) + ")"
	}
	return text
}

// outcomeText returns the outcome of a step, and whether it was decided without
// reading everything.
func outcomeText(e task.Entry) string {
	if e.UnreadBytes > 0 {
		return fmt.Sprintf("%s (%d bytes not read)", e.Outcome, e.UnreadBytes)
	}
	return e.Outcome
}
