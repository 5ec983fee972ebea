package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const sharePattern = "^[1-9][0-9]?%$"

// share reads a share of the time that approvers have, such as 50%.
func share(p *float64) leaf {
	return read(p, isText, "a share of the time from 1% to 99%, such as 50%", func(s string) (float64, bool) {
		digits, percent := strings.CutSuffix(s, "%")
		n, err := strconv.Atoi(digits)
		return float64(n) / 100, percent && err == nil && n >= 1 && n <= 99
	}).like(sharePattern)
}

// clock reads a time of day.
func clock(p *time.Duration) leaf {
	return read(p, isText, "a time of day such as 22:00", func(s string) (time.Duration, bool) {
		t, err := time.Parse("15:04", s)
		return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err == nil && len(s) == len("15:04")
	}).like("^([01][0-9]|2[0-3]):[0-5][0-9]$")
}

// maxReminders is how often people are reminded at most.
const maxReminders = 5

// checkAskingAgain reports reminders, escalations and quiet hours that do nothing, or
// more than anybody wants.
func (l *loader) checkAskingAgain(at string, w Workflow) {
	report := func(setting, text string) {
		if full := at + "." + setting; !l.faulty(full) {
			l.report(l.origin(full), full, text)
		}
	}
	outside := slices.ContainsFunc(w.Channels, func(name string) bool { return name != inboxChannel })
	switch {
	case len(w.Remind) > 0 && !outside:
		report("remind", "reminds nobody: the workflow has no channel besides the inbox")
	case len(w.Remind) > maxReminders:
		report("remind", fmt.Sprintf("must not have more than %d entries", maxReminders))
	case !slices.IsSorted(w.Remind) || len(slices.Compact(slices.Clone(w.Remind))) != len(w.Remind):
		report("remind", "must rise from one entry to the next")
	}
	if l.given(at + ".quiet_hours") {
		l.checkQuietHours(at+".quiet_hours", w, report)
	}
	if l.given(at + ".escalate") {
		l.checkEscalation(at+".escalate", w, report)
	}
}

func (l *loader) checkQuietHours(at string, w Workflow, report func(setting, text string)) {
	for _, key := range []string{"from", "to"} {
		if !l.given(at + "." + key) {
			l.need(at, key, "")
			return
		}
	}
	switch {
	case w.QuietHours.From == w.QuietHours.To:
		report("quiet_hours.to", "must differ from quiet_hours.from")
	case len(w.Remind) == 0 && w.Escalate.After == 0:
		report("quiet_hours", "holds nothing back: the workflow has neither remind nor escalate")
	}
}

func (l *loader) checkEscalation(at string, w Workflow, report func(setting, text string)) {
	if w.Escalate.After == 0 {
		l.need(at, "after", "")
	}
	l.need(at, "workflow", w.Escalate.Workflow)
	if w.Escalate.Workflow == "" {
		return
	}
	i := slices.IndexFunc(l.cfg.Workflows, func(other Workflow) bool { return other.Name == w.Escalate.Workflow })
	switch {
	case i < 0:
		report("escalate.workflow", fmt.Sprintf("no workflow %q", w.Escalate.Workflow))
	case w.Escalate.Workflow == w.Name:
		report("escalate.workflow", "is the workflow itself")
	case len(l.cfg.Workflows[i].Approvers) == 0 && len(w.Approvers) > 0:
		report("escalate.workflow", fmt.Sprintf("the workflow %q has no approvers, so any operator could decide: give it some", w.Escalate.Workflow))
	}
}
