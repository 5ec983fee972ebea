package task

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// Undecided reports whether t has ended without having run and without a decision of any
// approver.
func (t *Task) Undecided() bool {
	a := t.Approval
	//mutate:swap "== 0 && a.Rejection == nil" ">= 0" TestUndecidedCallLosesItsMessage a decided call loses its message
	return t.State.Terminal() && t.Execution == nil && (a == nil || len(a.Approvals) == 0 && a.Rejection == nil)
}

// Abridged reports whether [lifecycle.Apply] has removed the message of t.
func (t Task) Abridged() bool { return t.Undecided() && t.Call.Message == "" }

// Disposable reports whether a full store may delete t early: t has ended, no
// cancellation is owed, and either the owner has got the outcome or the call did not run,
// so that it can be repeated.
func (t Task) Disposable() bool {
	if !t.State.Terminal() || t.OwesCancellation() {
		return false
	}
	withdrawn := (t.State == Cancelled || t.State == Expired) && t.Failure != nil && t.Failure.Ran == RanNo
	//mutate:swap "!t.DeliveredAt.IsZero" "t.State.Terminal" task/memstore.TestStore an outcome that was not delivered is deleted
	return withdrawn || !t.DeliveredAt.IsZero()
}

// InContact reports whether the owner counts as present: whether it made a request
// within the last two poll intervals.
func (t Task) InContact(now time.Time) bool {
	return !now.After(t.ContactAt.Add(2 * t.PollInterval))
}

// Presence returns whether the owner of t is present.
func (t Task) Presence(now time.Time) gatetask.Presence {
	switch {
	case !t.InContact(now):
		return gatetask.OwnerGone
	case now.Before(t.WaitsUntil):
		return gatetask.OwnerWaits
	default:
		return gatetask.OwnerPolls
	}
}
