package approval_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// F-009: an owner that keeps creating and canceling calls is slowed down, so its ended tasks
// cannot fill the store. Other owners are not affected.
func TestCreationRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(c *approval.Config) { c.Limits.PerOwner = 2 })
		made := 0
		var refused error
		for i := range 1000 {
			held, _, err := o.Hold(t.Context(), call("ann", strconv.Itoa(i)))
			if err != nil {
				refused = err
				break
			}
			made++
			if _, err := o.Cancel(t.Context(), task.OwnedBy("ann").Ref(held.ID), approval.Withdrawal{By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		mustBe(t, refused, task.ErrRateLimited)
		if e, _ := errors.AsType[*task.Error](refused); made != 120 || e.RetryAfter != time.Second {
			t.Errorf("%d created, then %v with retry after %v; want 120 and a second", made, refused, e.RetryAfter)
		}
		o.hold(t, call("bea", "1"))
		pass(time.Second)
		o.hold(t, call("ann", "again"))
	})
}
