package lifecycle

import "github.com/thoughtgate/thoughtgate-go/task"

// The kinds of errors of this package. Match a [task.Error] with [errors.Is].
const (
	ErrSelfApproval     task.Kind = "self_approval"     // the owner may not approve its own call
	ErrAlreadyDecided   task.Kind = "already_decided"   // this approver has approved before
	ErrAlreadyDelivered task.Kind = "already_delivered" // the outcome was delivered before
	ErrNotExecutor      task.Kind = "not_executor"      // another executor runs the task
	ErrDigestMismatch   task.Kind = "digest_mismatch"   // the call is not the one that was approved
)
