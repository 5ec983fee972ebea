package channel

import (
	"testing"
	"time"
)

// Quiet hours end at the time of day that people read on their clocks, also when
// the clocks are changed.
func TestQuietHours(t *testing.T) {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	night := Quiet{From: 22 * time.Hour, To: 7*time.Hour + 30*time.Minute, Zone: vienna}
	lunch := Quiet{From: 12 * time.Hour, To: 13 * time.Hour, Zone: vienna}
	for _, c := range []struct {
		quiet    Quiet
		at, want string
	}{
		{night, "2026-11-16T21:59", "2026-11-16T21:59"},
		{night, "2026-11-16T22:00", "2026-11-17T07:30"},
		{night, "2026-11-30T23:59", "2026-12-01T07:30"},
		{night, "2026-11-16T07:29", "2026-11-16T07:30"},
		{night, "2026-11-16T07:30", "2026-11-16T07:30"},
		{night, "2026-10-24T23:00", "2026-10-25T07:30"}, // the night has an hour more
		{night, "2026-03-28T23:00", "2026-03-29T07:30"}, // and one less
		{lunch, "2026-11-16T12:30", "2026-11-16T13:00"},
		{lunch, "2026-11-16T13:00", "2026-11-16T13:00"},
		{lunch, "2026-11-16T11:59", "2026-11-16T11:59"},
		{Quiet{}, "2026-11-16T00:00", "2026-11-16T00:00"},
	} {
		at, err := time.ParseInLocation("2006-01-02T15:04", c.at, vienna)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.quiet.until(at.UTC()).In(vienna).Format("2006-01-02T15:04"); got != c.want {
			t.Errorf("%s: until %s; want %s", c.at, got, c.want)
		}
	}
}
