package task

import (
	"errors"
	"strings"
	"time"
)

// An Error says what could not be done with a task, and what to do instead.
// Match its kind with [errors.Is] against the Err values of this package.
type Error struct {
	Kind    Kind
	ID      ID     // the task, if there is one
	State   State  // the state it is in, if that is known
	Action  Action // what was attempted
	Suggest string // what the caller may do about it

	RetryAfter       time.Duration // when trying again may help, if it may
	Expected, Actual State         // of a task that changed in between
	Limit, Size      int64         // of what is too much, and how much it is
	Detail           string        // what exactly is wrong
	Err              error         // the cause, if there is another
	NotAsked         bool          // the store was not asked, so it has changed nothing
}

// A Kind is the kind of an [Error].
type Kind string

// The kinds of errors. Each has an Err value to match it with.
const (
	KindNotFound               Kind = "not_found"
	KindOwnerMismatch          Kind = "owner_mismatch"
	KindExists                 Kind = "exists"
	KindDuplicate              Kind = "duplicate"
	KindExpired                Kind = "expired"
	KindNotReady               Kind = "not_ready"
	KindAlreadyTerminal        Kind = "already_terminal"
	KindInvalidTransition      Kind = "invalid_transition"
	KindConcurrentModification Kind = "concurrent_modification"
	KindRateLimited            Kind = "rate_limited"
	KindCapacityExceeded       Kind = "capacity_exceeded"
	KindVariableSizeExceeded   Kind = "variable_size_exceeded"
	KindVariableOwnership      Kind = "variable_ownership"
	KindInvalidVariable        Kind = "invalid_variable"
	KindInvalidTTL             Kind = "invalid_ttl"
	KindInvalidCursor          Kind = "invalid_cursor"
	KindInvalid                Kind = "invalid"
	KindSelfApproval           Kind = "self_approval"
	KindAlreadyDecided         Kind = "already_decided"
	KindAlreadyDelivered       Kind = "already_delivered"
	KindNotExecutor            Kind = "not_executor"
	KindDigestMismatch         Kind = "digest_mismatch"
	KindChunkMissing           Kind = "chunk_missing"
	KindUnreadable             Kind = "unreadable"
	KindUnavailable            Kind = "unavailable"
	KindOutdated               Kind = "outdated"
	KindClosed                 Kind = "closed"
)

// The errors of this package and of every store.
var (
	ErrNotFound               error = kindError(KindNotFound)               // there is no such task
	ErrOwnerMismatch          error = kindError(KindOwnerMismatch)          // it is somebody else's: show it as ErrNotFound
	ErrExists                 error = kindError(KindExists)                 // there is a task with this ID already
	ErrDuplicate              error = kindError(KindDuplicate)              // the owner has the same call pending; ID names it
	ErrExpired                error = kindError(KindExpired)                // too late
	ErrNotReady               error = kindError(KindNotReady)               // too early
	ErrAlreadyTerminal        error = kindError(KindAlreadyTerminal)        // the task has ended
	ErrInvalidTransition      error = kindError(KindInvalidTransition)      // it cannot happen in this state
	ErrConcurrentModification error = kindError(KindConcurrentModification) // somebody else changed the task first
	ErrRateLimited            error = kindError(KindRateLimited)            // the owner has too many tasks pending
	ErrCapacityExceeded       error = kindError(KindCapacityExceeded)       // all owners together have
	ErrVariableSizeExceeded   error = kindError(KindVariableSizeExceeded)   // variables are too many or too large
	ErrVariableOwnership      error = kindError(KindVariableOwnership)      // the variable is the other side's
	ErrInvalidVariable        error = kindError(KindInvalidVariable)        // its name or value is malformed
	ErrInvalidTTL             error = kindError(KindInvalidTTL)             // not a positive number of milliseconds
	ErrInvalidCursor          error = kindError(KindInvalidCursor)          // not a cursor of this query
	ErrInvalid                error = kindError(KindInvalid)                // an argument makes no sense
	ErrSelfApproval           error = kindError(KindSelfApproval)           // the owner may not approve its own call
	ErrAlreadyDecided         error = kindError(KindAlreadyDecided)         // this approver has approved before
	ErrAlreadyDelivered       error = kindError(KindAlreadyDelivered)       // somebody has collected the outcome
	ErrNotExecutor            error = kindError(KindNotExecutor)            // somebody else runs the task
	ErrDigestMismatch         error = kindError(KindDigestMismatch)         // the call is not the one that was approved
	ErrChunkMissing           error = kindError(KindChunkMissing)           // the result is not there, or not whole
	ErrUnreadable             error = kindError(KindUnreadable)             // what is stored of this task is damaged, or nobody here has the key to it
	ErrUnavailable            error = kindError(KindUnavailable)            // the store cannot be reached, or cannot do it now; nobody knows whether it did
	ErrOutdated               error = kindError(KindOutdated)               // a newer program has changed the store, and this one must not write to it
	ErrClosed                 error = kindError(KindClosed)                 // the store is closed
)

// kindError makes a kind a value to compare errors with.
type kindError Kind

func (k kindError) Error() string { return "task: " + strings.ReplaceAll(string(k), "_", " ") }

// Unsure reports whether err leaves open if the store has made a change.
func Unsure(err error) bool {
	_, refused := errors.AsType[*Error](err)
	return err != nil && (!refused || errors.Is(err, ErrUnavailable))
}

// suggestions holds what a caller may do about an error of each kind.
var suggestions = map[Kind]string{
	KindNotFound:               "make the call again",
	KindOwnerMismatch:          "make the call again",
	KindExpired:                "make the call again",
	KindDuplicate:              "use the task that is pending",
	KindAlreadyTerminal:        "read the outcome",
	KindNotReady:               "wait and ask again",
	KindInvalidTransition:      "read the task and decide again",
	KindConcurrentModification: "read the task and decide again",
	KindAlreadyDecided:         "leave it to the other approvers",
	KindSelfApproval:           "leave it to the other approvers",
	KindRateLimited:            "wait until pending tasks have ended",
	KindCapacityExceeded:       "wait until pending tasks have ended",
	KindVariableSizeExceeded:   "write less, or delete variables first",
	KindVariableOwnership:      "write only variables of your own prefix",
	KindInvalidTTL:             "give a positive whole number of milliseconds",
	KindInvalidCursor:          "start again with the first page",
	KindDigestMismatch:         "fail the task",
	KindChunkMissing:           "treat the result as lost",
	KindUnavailable:            "try again in a moment",
	KindOutdated:               "update the program",
}

// Error describes e in one line. The text is for logs: it holds no request.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("task")
	if e.ID != "" {
		b.WriteString(" " + string(e.ID))
	}
	if e.Action != "" {
		b.WriteString(": cannot " + string(e.Action))
	}
	if e.State != "" {
		b.WriteString(" while " + string(e.State))
	}
	b.WriteString(": " + strings.ReplaceAll(string(e.Kind), "_", " "))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Is reports whether target is the Err value of e's kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(kindError)
	return ok && Kind(k) == e.Kind
}

// Unwrap returns the cause of e.
func (e *Error) Unwrap() error { return e.Err }
