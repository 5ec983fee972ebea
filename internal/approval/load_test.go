package approval_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// The first look at a call is an event on one replica, however often and wherever
// people look. Somebody who decides has looked.
func TestLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		t.Cleanup(func() { store.Close() })
		one, two := branch(t, store, nil), branch(t, store, nil)
		seen := one.hold(t, call("ann", "/a"))
		unseen := one.hold(t, call("ann", "/b"))
		time.Sleep(time.Minute)
		for _, o := range []*office{one, two, one, two} {
			a, err := o.Show(t.Context(), seen.ID)
			if err != nil {
				t.Fatal(err)
			}
			o.Looked(t.Context(), a)
		}
		for _, id := range []task.ID{seen.ID, unseen.ID} {
			if _, err := two.decide(t.Context(), id, alice, approval.Reject, ""); err != nil {
				t.Fatal(err)
			}
		}
		a, err := two.Show(t.Context(), unseen.ID)
		if err != nil {
			t.Fatal(err)
		}
		two.Looked(t.Context(), a)
		if n, m := one.count(approval.Looked), two.count(approval.Looked); n != 1 || m != 1 {
			t.Errorf("%d and %d first looks; want 1 and 1", n, m)
		}
		for _, e := range one.steps {
			if e.Step == approval.Looked && (e.Task.Workflow != "ops" || e.Task.UpdatedAt.Sub(e.Task.CreatedAt) != time.Minute) {
				t.Errorf("%s after %s", e.Task.Workflow, e.Task.UpdatedAt.Sub(e.Task.CreatedAt))
			}
		}
	})
}
