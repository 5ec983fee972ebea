// Package channel asks people about held calls where they are: in a chat, by
// e-mail, or through another system. It carries questions, and how they end; who
// may answer is decided by package approval.
//
// An [Outbox] compares how each held call stands with what each channel was last
// sent, and sends the difference. The store has what was sent, so a message
// is neither lost when the gate or the channel is down nor sent by two replicas.
// If a gate is killed between sending a message and recording that, the message is
// sent again with the same [Question.MessageID].
package channel

import (
	"context"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Channel carries questions to people. Its methods are called by one goroutine
// of one replica at a time for the same question. An error of theirs is an [UnsentError]
// if the message was surely not sent.
type Channel interface {
	// Ask sends a question, and returns a reference with which the channel finds
	// the message again. The reference may be empty.
	Ask(ctx context.Context, q Question) (ref string, err error)

	// Update says how a question stands that was sent before, or may have been: then
	// the reference is empty and [Question.Again] is set.
	Update(ctx context.Context, ref string, q Question) error

	// Remind says that a question which was sent before still waits: see
	// [Question.Reminder].
	Remind(ctx context.Context, ref string, q Question) error

	// Address says where questions go. Channels with the same address reach the
	// same people.
	Address() string
}

// A Runner is a [Channel] that people answer on. Every replica runs it.
type Runner interface {
	// Run takes answers until ctx ends. It reports why answers do not arrive, and
	// nil once they do.
	Run(ctx context.Context, report func(error))
}

// A Waiter is a [Channel] that may still be doing something when it has returned.
type Waiter interface {
	// Wait waits for that. It is called when nothing more is to be sent.
	Wait()
}

// A Stage is how a question stands, as far as channels are concerned.
type Stage string

// The stages.
const (
	Pending   Stage = "pending"
	Approved  Stage = "approved" // the call has not ended yet
	Rejected  Stage = "rejected"
	Expired   Stage = "expired"   // nobody decided in time, or its time was over later
	Cancelled Stage = "cancelled" // the agent withdrew it
	Completed Stage = "completed" // it ran, and the tool answered
	Failed    Stage = "failed"    // it was approved, and did not run or failed
)

// Final reports whether a question stays at the stage.
func (s Stage) Final() bool { return s != "" && s != Pending && s != Approved }

// stages has the stage of a task in each state.
var stages = map[task.State]Stage{
	task.Working: Pending, task.InputRequired: Pending,
	task.Approved: Approved, task.Executing: Approved,
	task.Rejected: Rejected, task.Expired: Expired, task.Cancelled: Cancelled,
	task.Completed: Completed, task.Failed: Failed,
}

// A Question is a held call, as it is put to people.
type Question struct {
	Stage    Stage
	Approval casefile.Approval // if the task was deleted: its ID and State alone
	Page     string            // the URL at which people look at the call and decide
	Again    bool              // an earlier attempt may have been sent, or may not
	At       time.Time         // when the question came to the stage, as far as is known

	// Changed is the last approved call of the tool, if the tool was defined
	// otherwise then, or if that is not known, and the question is pending.
	Changed *casefile.Precedent

	// Reminder is which reminder it is, counted from 1; 0 if it is none.
	Reminder int

	// Escalated is the workflow whose approvers may decide now as well; empty if
	// there is none. A reminder that says so first has NewlyEscalated.
	Escalated      string
	NewlyEscalated bool
}

// MessageID identifies the message about q's stage, or the reminder. A message
// that is sent again has the same.
func (q Question) MessageID() string {
	if q.Reminder > 0 {
		return fmt.Sprintf("%s.reminder-%d", q.Approval.ID, q.Reminder)
	}
	return fmt.Sprintf("%s.%s", q.Approval.ID, q.Stage)
}

// A RetryError asks the outbox to send nothing to the channel for a while.
type RetryError struct {
	After time.Duration
	Err   error
}

// Error implements error.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// An UnsentError says that a message was surely not sent. After any other error it may
// have been.
type UnsentError struct{ Err error }

// Unsent returns err as an [UnsentError], and nil if there is none.
func Unsent(err error) error {
	if err == nil {
		return nil
	}
	return &UnsentError{Err: err}
}

// Error implements error.
func (e *UnsentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnsentError) Unwrap() error { return e.Err }
