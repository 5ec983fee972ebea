package task_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHub checks who is told of what.
func TestHub(t *testing.T) {
	var hub task.Hub
	hub.Notify("tg_1", "ann") // nobody listens
	ann, bob, all := task.OwnedBy("ann"), task.OwnedBy("bob"), task.AnyOwner()
	watches := map[string]<-chan struct{}{}
	for name, ref := range map[string]task.Ref{
		"the task": all.Ref("tg_1"), "the own task": ann.Ref("tg_1"), "own tasks": ann.Ref(""), "everything": all.Ref(""),
		"another task": all.Ref("tg_2"), "a foreign task": bob.Ref("tg_1"), "foreign tasks": bob.Ref(""),
	} {
		changed, err := hub.Watch(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		watches[name] = changed
	}
	told := map[string]bool{"the task": true, "the own task": true, "own tasks": true, "everything": true}
	for range 3 {
		hub.Notify("tg_1", "ann")
		hub.Notify("tg_1", "ann") // told of once
		for name, changed := range watches {
			if got := len(changed) == 1; got != told[name] {
				t.Errorf("%s: told %v; want %v", name, got, told[name])
			}
			if told[name] {
				<-changed
			}
		}
	}

	hub.Close()
	hub.Close()
	hub.Notify("tg_1", "ann")
	for name, changed := range watches {
		if _, open := <-changed; open {
			t.Errorf("%s: told of something after the end", name)
		}
	}
	_, err := hub.Watch(t.Context(), all.Ref(""))
	mustBe(t, err, task.ErrClosed)
}

// TestHubForgets checks that watches leave nothing behind, in whatever order
// their contexts and the hub end.
func TestHubForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hub task.Hub
		ref := task.AnyOwner().Ref("tg_1")
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		a, err := hub.Watch(first, ref)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hub.Watch(second, ref)
		if err != nil {
			t.Fatal(err)
		}
		cancelFirst()
		synctest.Wait()
		hub.Notify("tg_1", "ann")
		if _, open := <-a; open || len(b) != 1 {
			t.Errorf("the first watch is open: %v; the second was told %d times", open, len(b))
		}
		hub.Close()
		cancelSecond()
		synctest.Wait()
		_, err = hub.Watch(second, ref)
		mustBe(t, err, context.Canceled)
	})
}
