package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

const sharePattern = "^[1-9][0-9]?%$"

// share parses a share of a workflow's timeout, such as 50%.
func share(p *float64) Leaf {
	return Read(p, "a share of the time from 1% to 99%, such as 50%", func(s string) (float64, bool) {
		digits, percent := strings.CutSuffix(s, "%")
		n, err := strconv.Atoi(digits)
		return float64(n) / 100, percent && err == nil && n >= 1 && n <= 99
	}).like(sharePattern)
}

// clock parses a time of day.
func clock(p *time.Duration) Leaf {
	return Read(p, "a time of day such as 22:00", func(s string) (time.Duration, bool) {
		t, err := time.Parse("15:04", s)
		return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err == nil && len(s) == len("15:04")
	}).like("^([01][0-9]|2[0-3]):[0-5][0-9]$")
}

// maxReminders is the most entries of remind.
const maxReminders = 5

// checkAskingAgain rejects reminders, escalations and quiet hours that have no effect, or
// are too many.
func (l *loader) checkAskingAgain(at string, w policy.Workflow) {
	report := func(setting, text string) { l.rejectNew(at+"."+setting, text) }
	outside := slices.ContainsFunc(w.Channels, func(name string) bool { return name != inboxChannel })
	switch {
	case len(w.Remind) > 0 && !outside:
		report("remind", "has no effect: the workflow has no channel besides the inbox")
	case len(w.Remind) > maxReminders:
		report("remind", fmt.Sprintf("must not have more than %d entries", maxReminders))
	case !slices.IsSorted(w.Remind) || len(slices.Compact(slices.Clone(w.Remind))) != len(w.Remind):
		report("remind", "must rise from one entry to the next")
	}
	switch {
	case !l.given(at+".quiet_hours.from") || !l.given(at+".quiet_hours.to"):
	case w.QuietHours.From == w.QuietHours.To:
		report("quiet_hours.to", "must differ from quiet_hours.from")
	case len(w.Remind) == 0 && w.Escalate.After == 0:
		report("quiet_hours", "has no effect: the workflow has neither remind nor escalate")
	}
	l.checkEscalation(at+".escalate.workflow", w)
}

// checkEscalation checks the workflow of an escalation, whose setting is at a path.
func (l *loader) checkEscalation(at string, w policy.Workflow) {
	other := l.workflow(w.Escalate.Workflow)
	switch {
	case w.Escalate.Workflow == "":
	case other.Name == "":
		l.rejectNew(at, fmt.Sprintf("no workflow %q", w.Escalate.Workflow))
	case w.Escalate.Workflow == w.Name:
		l.rejectNew(at, "is the workflow itself")
	case len(other.Approvers) == 0 && len(w.Approvers) > 0:
		l.rejectNew(at, fmt.Sprintf("the workflow %q has no approvers, so any operator could decide: set its approvers", w.Escalate.Workflow))
	}
}
