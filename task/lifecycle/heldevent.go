package lifecycle

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// Events of held calls that change a task's state. By is the actor.
type (
	// Submit requests an approval: [task.Working] becomes [task.InputRequired].
	Submit struct {
		By           string
		Quorum       int       // the number of different people who must approve; 0 means 1
		SelfApproval bool      // whether the owner may be one of them
		Passkey      bool      // [gatetask.Approval.Passkey]
		Deadline     time.Time // the deadline of the approval; at most the deadline of the task
	}

	// Approve is the approval by one approver. With the last approval of the quorum,
	// [task.InputRequired] becomes [task.Approved]. The caller must have authenticated
	// By. Names of the same person count once; see [gatetask.Decision.IsBy].
	Approve struct {
		By, Reason string
		As         gatetask.Authority
		Unread     int64                // [gatetask.Decision.UnreadBytes]
		NewGrant   *gatetask.GrantTerms // [gatetask.Decision.NewGrant]
		Via        gatetask.Via
		Passkey    *gatetask.Signature
	}

	// Reject is the rejection by one approver, which is final: [task.InputRequired] becomes [task.Rejected].
	// With a Correction it is also an approval, and is refused where one approval would not be enough.
	Reject struct {
		By, Reason string
		As         gatetask.Authority
		Via        gatetask.Via

		Correction *gatetask.Correction // [gatetask.Decision.Correction]
		NewGrant   *gatetask.GrantTerms // of the correction
		Passkey    *gatetask.Signature  // of the correction
	}
)

// Events of held calls that leave a task's state as it is.
type (
	// Contact records that the owner has made a request about the task.
	Contact struct {
		PollInterval time.Duration // the interval sent to the owner; 0 keeps the last value
		WaitsUntil   time.Time     // see [gatetask.HeldCall]; the present time means that the owner has stopped waiting, and zero keeps the last value
	}

	// Resume makes By the executor of a detached run: to fetch the outcome of the
	// upstream's task, or to call the upstream again when the client has answered all
	// questions. It is refused with [task.ErrNotReady] while another process is the
	// executor.
	Resume struct {
		By         string
		LeaseUntil time.Time
	}

	// CancelUpstream records that By is about to send the upstream the [gatetask.Cancellation]
	// of a task that has ended. It is refused with [task.ErrNotReady] while another process
	// may be sending it, unless OwnerPresent: then By uses the owner's credentials. While
	// the lease of the executor holds, only the executor may send it; then By is its
	// name. UpstreamTask is the upstream's task for the call, if it was not known before.
	CancelUpstream struct {
		By           string
		OwnerPresent bool
		UpstreamTask string
	}

	// SettleUpstream records the outcome of a [gatetask.Cancellation].
	SettleUpstream struct {
		By      string
		Outcome gatetask.CancellationResult
	}

	// Deliver records that the outcome of a terminal task was sent to its owner. A
	// second one is refused with [ErrAlreadyDelivered].
	Deliver struct{}
)

// Action implements [Event].
func (Submit) Action() action.Name { return action.Submit }

// Action implements [Event].
func (Approve) Action() action.Name { return action.Approve }

// Action implements [Event].
func (Reject) Action() action.Name { return action.Reject }

// Action implements [Event].
func (Contact) Action() action.Name { return action.Contact }

// Action implements [Event].
func (Resume) Action() action.Name { return action.Resume }

// Action implements [Event].
func (CancelUpstream) Action() action.Name { return action.CancelUpstream }

// Action implements [Event].
func (SettleUpstream) Action() action.Name { return action.SettleUpstream }

// Action implements [Event].
func (Deliver) Action() action.Name { return action.Deliver }
