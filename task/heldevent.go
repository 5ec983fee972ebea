package task

import "time"

// Events of held calls that change a task's state. By is who did it.
type (
	// Submit asks the approvers: [Working] becomes [InputRequired].
	Submit struct {
		By           string
		Quorum       int       // how many different people must approve; 0 means 1
		SelfApproval bool      // whether the owner may be one of them
		Deadline     time.Time // how long they have; never longer than the task lives
	}

	// Approve is one approver's yes. The last one that the quorum needs makes
	// [InputRequired] into [Approved]. It is for the caller to know that By is
	// authentic. Names of the same person count once; see [Decision.IsBy].
	Approve struct {
		By, Reason string
		As         Authority
		Unread     int64       // [Decision.UnreadBytes]
		Gives      *GrantTerms // [Decision.Gives]
	}

	// Reject is one approver's no, which is final: [InputRequired] becomes [Rejected].
	Reject struct {
		By, Reason string
		As         Authority
	}
)

// Events of held calls that leave a task's state as it is.
type (
	// Contact records that the owner has made a request about the task.
	Contact struct {
		PollInterval time.Duration // how often the owner was asked to poll; 0 keeps the last one
		WaitsUntil   time.Time     // see [Task]; the present time if the owner waits no longer; zero keeps the last one
	}

	// Resume takes up a run that needed no process: to fetch the outcome of the
	// upstream's task, or to call the upstream again once all it asked has been
	// answered. It is refused with [ErrNotReady] while another process does it. By is
	// the [Execution]'s Executor from then on.
	Resume struct {
		By         string
		LeaseUntil time.Time
	}

	// CancelUpstream records that By is about to send the upstream the [Cancellation]
	// of a task that has ended. It is refused with [ErrNotReady] while another process
	// may be sending it, unless Now says that the owner is present, whose credentials
	// it takes. While the lease of the executor holds, only the executor may send it;
	// then By is its name. UpstreamTask is the task that the upstream has made of the
	// call, if that was not known before.
	CancelUpstream struct {
		By           string
		Now          bool
		UpstreamTask string
	}

	// SettleUpstream records the outcome of a [Cancellation].
	SettleUpstream struct {
		By      string
		Outcome CancellationResult
	}

	// Deliver records that the outcome of a terminal task was sent to its owner. A
	// second one is refused with [ErrAlreadyDelivered].
	Deliver struct{}
)

// Action implements [Event].
func (Submit) Action() Action { return ActionSubmit }

// Action implements [Event].
func (Approve) Action() Action { return ActionApprove }

// Action implements [Event].
func (Reject) Action() Action { return ActionReject }

// Action implements [Event].
func (Contact) Action() Action { return ActionContact }

// Action implements [Event].
func (Resume) Action() Action { return ActionResume }

// Action implements [Event].
func (CancelUpstream) Action() Action { return ActionCancelUpstream }

// Action implements [Event].
func (SettleUpstream) Action() Action { return ActionSettleUpstream }

// Action implements [Event].
func (Deliver) Action() Action { return ActionDeliver }
