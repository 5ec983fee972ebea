package approval_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// The first view of a call causes one event on one replica, however often and wherever it is
// viewed. A decision counts as a view.
func TestFirstViewIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		t.Cleanup(func() { store.Close() })
		one, two := branch(t, store, nil), branch(t, store, nil)
		seen := one.hold(t, call("ann", "/a"))
		unseen := one.hold(t, call("ann", "/b"))
		time.Sleep(time.Minute)
		for _, o := range []*fixture{one, two, one, two} {
			a, err := o.views.Show(t.Context(), seen.ID)
			if err != nil {
				t.Fatal(err)
			}
			o.RecordView(t.Context(), a)
		}
		for _, id := range []task.ID{seen.ID, unseen.ID} {
			if _, err := two.decide(t.Context(), id, alice, approval.Reject, ""); err != nil {
				t.Fatal(err)
			}
		}
		a, err := two.views.Show(t.Context(), unseen.ID)
		if err != nil {
			t.Fatal(err)
		}
		two.RecordView(t.Context(), a)
		if n, m := one.count(approval.Viewed), two.count(approval.Viewed); n != 1 || m != 1 {
			t.Errorf("%d and %d first views; want 1 and 1", n, m)
		}
		for _, e := range one.steps {
			if e.Step == approval.Viewed && (e.Task.Workflow != "ops" || e.Task.UpdatedAt.Sub(e.Task.CreatedAt) != time.Minute) {
				t.Errorf("%s after %s", e.Task.Workflow, e.Task.UpdatedAt.Sub(e.Task.CreatedAt))
			}
		}
	})
}
