package channel

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// TestQuietHoursFollowTheClock checks that quiet hours end at the configured local time, also
// when daylight saving time begins or ends.
func TestQuietHoursFollowTheClock(t *testing.T) {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	night := policy.QuietHours{From: 22 * time.Hour, To: 7*time.Hour + 30*time.Minute, Timezone: "Europe/Vienna"}
	lunch := policy.QuietHours{From: 12 * time.Hour, To: 13 * time.Hour, Timezone: "Europe/Vienna"}
	for _, c := range []struct {
		quiet    policy.QuietHours
		at, want string
	}{
		{night, "2026-11-16T21:59", "2026-11-16T21:59"},
		{night, "2026-11-16T22:00", "2026-11-17T07:30"},
		{night, "2026-11-30T23:59", "2026-12-01T07:30"},
		{night, "2026-11-16T07:29", "2026-11-16T07:30"},
		{night, "2026-11-16T07:30", "2026-11-16T07:30"},
		{night, "2026-10-24T23:00", "2026-10-25T07:30"}, // one hour longer
		{night, "2026-03-28T23:00", "2026-03-29T07:30"}, // one hour shorter
		{lunch, "2026-11-16T12:30", "2026-11-16T13:00"},
		{lunch, "2026-11-16T13:00", "2026-11-16T13:00"},
		{lunch, "2026-11-16T11:59", "2026-11-16T11:59"},
		{policy.QuietHours{}, "2026-11-16T00:00", "2026-11-16T00:00"},
	} {
		at, err := time.ParseInLocation("2006-01-02T15:04", c.at, vienna)
		if err != nil {
			t.Fatal(err)
		}
		if got := endOfQuiet(c.quiet, at.UTC()).In(vienna).Format("2006-01-02T15:04"); got != c.want {
			t.Errorf("%s: until %s; want %s", c.at, got, c.want)
		}
	}
}

// TestEscalationInQuietHours checks that there are no reminders in quiet hours, and no message
// about an escalation to the first approvers. The approvers of the escalation are asked at
// once, also on a channel that got the question before.
func TestEscalationInQuietHours(t *testing.T) {
	night := policy.QuietHours{From: 22 * time.Hour, To: 7 * time.Hour, Timezone: "UTC"}
	workflow := policy.Workflow{
		Channels: []string{"inbox", "team", "phone"}, Remind: []float64{0.25}, QuietHours: night,
		Escalate: policy.Escalation{After: 0.5, Workflow: "managers", Channels: []string{"inbox", "phone", "pager"}},
	}
	begin := time.Date(2026, 11, 16, 23, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, channel string
		time          time.Duration // the time to decide
		want          []string
	}{
		{"those who were asked first", "team", 10 * time.Hour, []string{"07:00", "07:00 escalation"}},
		{"both", "phone", 10 * time.Hour, []string{"04:00 escalation", "07:00"}},
		{"the others", "pager", 10 * time.Hour, []string{"04:00 escalation", "07:00"}},
		{"those who were asked first, until the night ends", "team", 4 * time.Hour, nil},
		{"both, until the night ends", "phone", 4 * time.Hour, []string{"01:00 escalation"}},
	} {
		var got []string
		held := task.Task{CreatedAt: begin, HeldCall: gatetask.HeldCall{Approval: &gatetask.Approval{Deadline: begin.Add(c.time)}}}
		for _, n := range remindersOf(workflow, held, c.channel) {
			text := n.due.Format("15:04")
			if n.escalation {
				text += " escalation"
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
