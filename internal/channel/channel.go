// Package channel asks approvers about held calls in a chat, by e-mail, on their phones or
// through another system. A [Channel] delivers questions and their outcomes. Package
// approval decides which answers count.
//
// An [Outbox] compares the state of each held call with the last message to each channel,
// and sends a message if they differ:
//
//	call          last message   next message
//	pending       none           Ask
//	pending       Ask            Remind, if a reminder is due
//	rejected      Ask            Update
//
// The store has the last message of each question and channel, so no message is lost while
// the gate or the channel is down, and replicas do not send the same message. If a gate is
// killed after sending a message and before storing that, the message is sent again with
// the same [Question.MessageID].
package channel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Channel sends questions to approvers. For each question, one goroutine of one replica
// calls the methods at a time. Their errors are a [NotSentError] if the message was
// certainly not sent.
type Channel interface {
	// Ask sends a question, and returns a reference to the message for later calls. The
	// reference may be empty.
	Ask(ctx context.Context, q Question) (ref string, err error)

	// Update sends the present stage of a question. If it is unknown whether the question
	// was sent, the reference is empty and [Question.Again] is set.
	Update(ctx context.Context, ref string, q Question) error

	// Remind sends a reminder of a pending question: see [Question.Reminder].
	Remind(ctx context.Context, ref string, q Question) error

	// Address returns the destination of questions. Channels with the same address reach
	// the same people.
	Address() string
}

// A Runner is a [Channel] on which approvers answer. Every replica runs it.
type Runner interface {
	// Run receives answers until ctx ends. It reports an error while answers do not
	// arrive, and nil when they arrive again.
	Run(ctx context.Context, report func(error))
}

// A Closer is a [Channel] that may have work in progress after its methods have returned.
type Closer interface {
	// Close waits for that work. No other method is called afterwards.
	Close()
}

// A Stage is the state of a question for channels.
type Stage string

// The stages.
const (
	Pending   Stage = "pending"
	Approved  Stage = "approved" // the call has not ended yet
	Rejected  Stage = "rejected"
	Expired   Stage = "expired"   // the time to decide or the time to collect the result is over
	Cancelled Stage = "cancelled" // withdrawn by the agent
	Completed Stage = "completed" // the tool answered
	Failed    Stage = "failed"    // approved, but the call did not run or failed
)

// Final reports whether the stage is the last one of a question.
func (s Stage) Final() bool { return s != "" && s != Pending && s != Approved }

// stages maps the states of tasks to stages.
var stages = map[task.State]Stage{
	task.Working: Pending, task.InputRequired: Pending,
	task.Approved: Approved, task.Executing: Approved,
	task.Rejected: Rejected, task.Expired: Expired, task.Cancelled: Cancelled,
	task.Completed: Completed, task.Failed: Failed,
}

// A Question is a held call, as approvers are shown it.
type Question struct {
	Stage    Stage
	Approval review.Approval // only ID and State if the task was deleted
	Page     string          // the URL of the call in the inbox
	Again    bool            // an earlier attempt may have been sent
	At       time.Time       // when the stage began, or now if that is unknown

	// Changed is the last approved call of the tool if the definition of the tool has
	// changed since, or may have. It is set for pending questions only.
	Changed *review.ToolChange

	// Reminder is the number of the reminder, from 1; 0 if the message is not a reminder.
	Reminder int

	// Escalated is the workflow whose approvers may decide as well, or "". NewlyEscalated
	// is set in the reminder that first reports it.
	Escalated      string
	NewlyEscalated bool
}

// MessageID identifies the message about q's stage, or the reminder. A repeated message
// has the same ID.
func (q Question) MessageID() string {
	if q.Reminder > 0 {
		return fmt.Sprintf("%s.reminder-%d", q.Approval.ID, q.Reminder)
	}
	return fmt.Sprintf("%s.%s", q.Approval.ID, q.Stage)
}

// A RetryError tells the outbox to pause the channel for some time.
type RetryError struct {
	After time.Duration
	Err   error
}

// Error implements error.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// A NotSentError says that a message was certainly not sent. After any other error it may
// have been sent.
type NotSentError struct{ Err error }

// NotSent returns err as a [NotSentError], and nil for nil.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return &NotSentError{Err: err}
}

// Error implements error.
func (e *NotSentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NotSentError) Unwrap() error { return e.Err }

// Settings are the settings of one channel. Each package of a kind of channel declares its
// own type, together with a [config.ChannelKind].
type Settings interface {
	config.Section

	// Open returns the channel. Earlier has the channels of the same configuration that
	// are open: the new one may share a connection with one of them.
	Open(g Gate, earlier []Channel) (Channel, error)
}

// A Gate has the parts of the gate that channels use. All fields are set.
type Gate struct {
	Channel string // the name of the channel
	Records gatestore.Records
	Now     func() time.Time
	Log     *slog.Logger

	// Decide decides about a call. Explain returns the text for approvers about an error
	// of Decide.
	Decide  func(context.Context, task.ID, approval.Approver, approval.Ruling) (task.Task, error)
	Explain func(error) string

	// Shown returns the present [review.Approval.ShownDigest] of a call.
	Shown func(context.Context, task.ID) (string, error)

	// DecisionsURL returns the URL for requests to a [Receiver].
	DecisionsURL func() string

	// FindOperator returns the operator of a session, as [operator.Auth.FindOperator]
	// does.
	FindOperator func(ctx context.Context, session string) (operator.Operator, error)

	// MayDecide reports whether an operator may decide about a call, or has decided
	// about it.
	MayDecide func(ctx context.Context, id task.ID, o operator.Operator) (bool, error)
}

// A Receiver is a [Channel] whose answers arrive as requests to
// POST /api/channels/NAME/decisions on the operators' listener.
type Receiver interface {
	// Receive returns the answer in a request. The error is [ErrUnsigned], or describes
	// the expected body.
	Receive(ctx context.Context, h http.Header, body []byte) (Answer, error)
}

// An Answer is a decision from a [Receiver]. If Reply is not empty, the channel has handled
// the request itself, and Reply is the JSON text with which the gate responds.
type Answer struct {
	Reply  []byte
	ID     task.ID
	By     approval.Approver
	Ruling approval.Ruling
}

// ErrUnsigned reports a request without a valid, recent signature.
var ErrUnsigned = errors.New("not signed")
