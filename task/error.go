package task

import (
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// An Error is an action on a task that failed, with a suggestion for the caller.
// Match its kind with [errors.Is], as in errors.Is(err, task.ErrNotFound).
type Error struct {
	Kind    Kind
	ID      ID          // the task, if there is one
	State   State       // the state of the task, if known
	Action  action.Name // what was attempted
	Suggest string      // what the caller can do

	RetryAfter       time.Duration // after which a retry may succeed; zero if unknown
	Expected, Actual State         // the states of a task that was changed concurrently
	Limit, Size      int64         // a limit and the size that exceeds it
	Detail           string        // what is wrong, in words
	Err              error         // the cause, or nil
	NotAttempted     bool          // the store was not called, so nothing has changed
	StoreFull        bool          // no storage is left: deleting tasks that have ended may help
}

// A Kind is the kind of an [Error].
type Kind string //nolint:errname // a kind is compared with, and an Error says which one it is

// The kinds of errors, of this package and of every store. Each is an error itself, to match
// an [Error] with.
const (
	ErrNotFound               Kind = "not_found"               // there is no such task
	ErrOwnerMismatch          Kind = "owner_mismatch"          // the task belongs to another owner: show it as ErrNotFound
	ErrExists                 Kind = "exists"                  // a task with this ID exists
	ErrDuplicate              Kind = "duplicate"               // the owner has the same call pending; ID names it
	ErrExpired                Kind = "expired"                 // too late
	ErrNotReady               Kind = "not_ready"               // too early
	ErrAlreadyTerminal        Kind = "already_terminal"        // the task has ended
	ErrInvalidTransition      Kind = "invalid_transition"      // it cannot happen in this state
	ErrConcurrentModification Kind = "concurrent_modification" // another change came first
	ErrRateLimited            Kind = "rate_limited"            // the owner has too many tasks pending
	ErrCapacityExceeded       Kind = "capacity_exceeded"       // too many tasks of all owners are pending, or the store is full
	ErrOwnerFull              Kind = "owner_full"              // the tasks of the account take too many bytes; see [Task.Account]
	ErrVariableSizeExceeded   Kind = "variable_size_exceeded"  // variables are too many or too large
	ErrVariableOwnership      Kind = "variable_ownership"      // the variable belongs to the other side
	ErrInvalidVariable        Kind = "invalid_variable"        // its name or value is malformed
	ErrInvalidTTL             Kind = "invalid_ttl"             // not a positive number of milliseconds
	ErrInvalidCursor          Kind = "invalid_cursor"          // not a cursor of this query
	ErrInvalid                Kind = "invalid"                 // an argument makes no sense
	ErrChunkMissing           Kind = "chunk_missing"           // the result is not there, or not whole
	ErrUnreadable             Kind = "unreadable"              // the stored task is damaged, or its key is missing
	ErrUnavailable            Kind = "unavailable"             // the store does not work now; whether it made the change is unknown
	ErrOutdated               Kind = "outdated"                // a newer program has changed the store, and this one must not write to it
	ErrClosed                 Kind = "closed"                  // the store is closed
)

// Error implements error.
func (k Kind) Error() string { return "task: " + strings.ReplaceAll(string(k), "_", " ") }

// suggestions holds what a caller may do about an error of each kind.
var suggestions = map[Kind]string{
	ErrNotFound:               "make the call again",
	ErrOwnerMismatch:          "make the call again",
	ErrExpired:                "make the call again",
	ErrDuplicate:              "use the task that is pending",
	ErrAlreadyTerminal:        "read the outcome",
	ErrNotReady:               "wait and ask again",
	ErrInvalidTransition:      "read the task and decide again",
	ErrConcurrentModification: "read the task and decide again",
	ErrRateLimited:            "wait until pending tasks have ended",
	ErrCapacityExceeded:       "wait until pending tasks have ended",
	ErrOwnerFull:              "fetch the outcomes of earlier calls, or wait until their time is over",
	ErrVariableSizeExceeded:   "write less, or delete variables first",
	ErrVariableOwnership:      "write only variables of your own prefix",
	ErrInvalidTTL:             "give a positive whole number of milliseconds",
	ErrInvalidCursor:          "start again with the first page",
	ErrChunkMissing:           "treat the result as lost",
	ErrUnavailable:            "try again in a moment",
	ErrOutdated:               "update the program",
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
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// Unwrap returns the cause of e.
func (e *Error) Unwrap() error { return e.Err }
