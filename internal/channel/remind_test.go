package channel_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestRemindersAreSentOnce checks that reminders are sent after the configured shares of the
// time to decide, once for all replicas, and not after the decision.
func TestRemindersAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.plan.Remind = []float64{0.5, 0.75, 0.9}
		for _, name := range []string{"a", "b", "c"} {
			f.run(f.outbox(name))
		}
		id := f.hold("chat", 1)
		began := time.Now()
		time.Sleep(50 * time.Minute)
		f.reject(id)
		time.Sleep(20 * time.Minute)
		if diff := cmp.Diff([]string{"pending", "reminder 1", "reminder 2", "rejected"}, f.chat.sent()); diff != "" {
			t.Fatal(diff)
		}
		for i, want := range []time.Duration{0, 30 * time.Minute, 45 * time.Minute} {
			if at := f.chat.times[i].Sub(began); at < want || at > want+2*time.Second {
				t.Errorf("message %d after %s; want %s", i, at, want)
			}
		}
	})
}

// TestMissedRemindersAreSentOnce checks that a gate that was down sends one reminder for those
// that it missed, and that a restart does not repeat it.
func TestMissedRemindersAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.plan.Remind = []float64{0.25, 0.5, 0.9}
		stop := f.run(f.outbox("a"))
		f.hold("chat", 1)
		time.Sleep(time.Minute)
		stop()
		time.Sleep(40 * time.Minute)
		for range 3 {
			stop := f.run(f.outbox("a"))
			time.Sleep(time.Minute)
			stop()
		}
		if diff := cmp.Diff([]string{"pending", "reminder 2"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestFailedReminderIsRetried checks that a failed reminder is retried, and that a reminder that
// a dead replica may have sent is marked as repeated.
func TestFailedReminderIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.plan.Remind = []float64{0.5}
		f.chat.fail = func(n int) error {
			if n == 1 || n == 2 {
				return errors.New("down")
			}
			return nil
		}
		f.run(f.outbox("a"))
		f.hold("chat", 1)
		time.Sleep(31 * time.Minute)
		if diff := cmp.Diff([]string{"pending", "reminder 1"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestEscalationAsksOthers checks that the approvers of the escalation are asked after a share of
// the time to decide, and that the first approvers are told. A call that is decided earlier is
// not escalated.
func TestEscalationAsksOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		managers := &chat{}
		f.plan.Remind = []float64{0.9}
		f.plan.Escalate = policy.Escalation{After: 0.5, Workflow: "managers", Channels: []string{"inbox", "managers"}}
		o := f.outboxWith("a", map[string]channel.Channel{"chat": f.chat, "managers": managers}, func(task.Task) bool { return true })
		f.run(o)
		synctest.Wait() // the outbox waits for changes now
		id := f.hold("chat", 1)
		f.reject(f.hold("chat", 2))
		time.Sleep(29 * time.Minute)
		if got := managers.sent(); len(got) > 0 {
			t.Errorf("the managers were asked too early: %v", got)
		}
		time.Sleep(2 * time.Minute)
		if diff := cmp.Diff([]string{"pending"}, managers.sent()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(25 * time.Minute)
		f.reject(id)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"pending", "reminder 2", "rejected"}, managers.sent()); diff != "" {
			t.Errorf("managers: %s", diff)
		}
		if diff := cmp.Diff([]string{"pending", "reminder 1 escalated to managers", "reminder 2", "rejected"}, f.chat.sent()); diff != "" {
			t.Errorf("the first approvers: %s", diff)
		}
	})
}

// TestRemindersInQuietHours checks that questions are sent in quiet hours, and that reminders
// are sent when quiet hours end, if the call has not expired.
func TestRemindersInQuietHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t) // at midnight of 1 January 2000, UTC
		f.plan.Remind = []float64{0.2, 0.4, 0.6}
		f.plan.QuietHours = policy.QuietHours{From: 0, To: 30 * time.Minute, Timezone: "UTC"}
		began := time.Now()
		stop := f.run(f.outbox("a"))
		f.hold("chat", 1)
		time.Sleep(59 * time.Minute)
		if diff := cmp.Diff([]string{"pending", "reminder 2", "reminder 3"}, f.chat.sent()); diff != "" {
			t.Fatal(diff)
		}
		if at := f.chat.times[1].Sub(began); at < 30*time.Minute || at > 31*time.Minute {
			t.Errorf("the reminders of quiet hours were sent after %s", at)
		}
		stop()
		f.plan.QuietHours.To = 2 * time.Hour
		f.run(f.outbox("a"))
		f.hold("chat", 2) // expires before the end of quiet hours
		time.Sleep(2 * time.Hour)
		if diff := cmp.Diff([]string{"pending", "reminder 2", "reminder 3", "pending"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestEscalatedInQuietHours checks a call that is escalated in quiet hours. A channel of both
// workflows gets the escalation at once. A channel of the second workflow gets the question,
// and no further message when quiet hours end.
func TestEscalatedInQuietHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t) // at midnight of 1 January 2000, UTC
		managers := &chat{}
		f.plan.Remind = []float64{0.2}
		f.plan.Escalate = policy.Escalation{After: 0.5, Workflow: "managers", Channels: []string{"chat", "managers"}}
		f.plan.QuietHours = policy.QuietHours{From: 0, To: 55 * time.Minute, Timezone: "UTC"}
		f.run(f.outboxWith("a", map[string]channel.Channel{"chat": f.chat, "managers": managers}, func(task.Task) bool { return true }))
		f.hold("chat", 1)
		time.Sleep(31 * time.Minute)
		if diff := cmp.Diff([]string{"pending", "reminder 1 escalated to managers"}, f.chat.sent()); diff != "" {
			t.Errorf("in quiet hours: %s", diff)
		}
		time.Sleep(28 * time.Minute)
		if diff := cmp.Diff([]string{"pending", "reminder 1 escalated to managers", "reminder 2"}, f.chat.sent()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"pending", "reminder 2"}, managers.sent()); diff != "" {
			t.Errorf("managers: %s", diff)
		}
	})
}
