package task_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNotifierWakesWatchers checks which watches a change wakes.
func TestNotifierWakesWatchers(t *testing.T) {
	var notifier storekit.Notifier
	notifier.Notify("tg_1", "ann") // without a watcher
	ann, bob, all := task.OwnedBy("ann"), task.OwnedBy("bob"), task.AnyOwner()
	watches := map[string]<-chan struct{}{}
	for name, ref := range map[string]task.Ref{
		"the task": all.Ref("tg_1"), "the own task": ann.Ref("tg_1"), "own tasks": ann.Ref(""), "everything": all.Ref(""),
		"another task": all.Ref("tg_2"), "a foreign task": bob.Ref("tg_1"), "foreign tasks": bob.Ref(""),
	} {
		changed, err := notifier.Watch(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		watches[name] = changed
	}
	told := map[string]bool{"the task": true, "the own task": true, "own tasks": true, "everything": true}
	for range 3 {
		notifier.Notify("tg_1", "ann")
		notifier.Notify("tg_1", "ann") // notified once
		for name, changed := range watches {
			if got := len(changed) == 1; got != told[name] {
				t.Errorf("%s: notified %v; want %v", name, got, told[name])
			}
			if told[name] {
				<-changed
			}
		}
	}

	notifier.Close()
	notifier.Close()
	notifier.Notify("tg_1", "ann")
	for name, changed := range watches {
		if _, open := <-changed; open {
			t.Errorf("%s: notified after the end", name)
		}
	}
	_, err := notifier.Watch(t.Context(), all.Ref(""))
	mustBe(t, err, task.ErrClosed)
}

// TestNotifierForgetsEndedWatches checks that ended watches leave nothing behind, in any order
// in which their contexts and the notifier end.
func TestNotifierForgetsEndedWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notifier storekit.Notifier
		ref := task.AnyOwner().Ref("tg_1")
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		a, err := notifier.Watch(first, ref)
		if err != nil {
			t.Fatal(err)
		}
		b, err := notifier.Watch(second, ref)
		if err != nil {
			t.Fatal(err)
		}
		cancelFirst()
		synctest.Wait()
		notifier.Notify("tg_1", "ann")
		if _, open := <-a; open || len(b) != 1 {
			t.Errorf("the first watch is open: %v; the second was notified %d times", open, len(b))
		}
		notifier.Close()
		cancelSecond()
		synctest.Wait()
		_, err = notifier.Watch(second, ref)
		mustBe(t, err, context.Canceled)
	})
}
