package approval

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A Step is an event in the life of a held call or of a service.
type Step string

// The steps.
const (
	Held           Step = "held"          // a call became a task
	Attached       Step = "attached"      // a call joined the task of an identical one
	Refused        Step = "refused"       // a call could not become a task; in the journal, an approval was refused
	Decided        Step = "decided"       // an approver approved or rejected
	OwnerAbsent    Step = "abandoned"     // approved, but not run because its owner is absent
	NotRun         Step = "not_run"       // approved, but no longer allowed to run
	Started        Step = "started"       // the call is being made
	Reported       Step = "reported"      // the upstream reported progress; the state is unchanged
	Finished       Step = "finished"      // the call has ended
	Delivered      Step = "delivered"     // the owner has the result
	Cancelled      Step = "cancelled"     // the owner withdrew it
	Overdue        Step = "overdue"       // the deadline passed, or its executor died
	ShutDown       Step = "shut_down"     // pending tasks ended when the service closed; Count is their number
	Deleted        Step = "swept_away"    // ended tasks were deleted; Count is their number
	TTLLimited     Step = "ttl_limited"   // the owner asked for a lifetime over the maximum
	Granted        Step = "granted"       // a standing approval was given
	UsedGrant      Step = "used_grant"    // a call became a task that a standing approval let run
	Revoked        Step = "revoked"       // a standing approval was revoked
	AcceptedChange Step = "tool_accepted" // an operator accepted a changed tool
	Counted        Step = "counted"       // Pending has the number of tasks by state
	Viewed         Step = "looked"        // first view of a pending call, or a decision without a view
)

// An Event describes a [Step].
type Event struct {
	Step  Step
	Task  task.Task // the task after the step
	By    string    // of Decided: the approver
	Count int
	Err   error // of Refused

	Pending           map[task.State]int // of Counted: for every state that does not end a task
	Oldest            time.Time          // of Counted: when the oldest pending task was created; zero if there is none
	PendingByWorkflow map[string]int     // of Counted: the number of pending tasks by workflow
}

// Steps that are only in the journal. Every step of a held call is recorded together with its
// change: if the journal cannot be written, the change is not made.
const (
	Asked      Step = "asked"     // approvers were asked
	Rechecked  Step = "rechecked" // all checks were made again before the run
	Expired    Step = "expired"   // the deadline passed
	Failed     Step = "failed"    // it ended without a decision: its executor died, or the gate was shut down
	Extended   Step = "extended"  // the owner extended its lifetime
	ClientLeft Step = "left"      // the client no longer waits; the task stays pending
	Stopped    Step = "stopped"   // the upstream call was canceled, or could not be
)

// Configured is the step of a new policy or other configuration that has taken effect. It belongs
// to no call.
const Configured Step = "configured"

// RecordedSteps returns the steps that the journal may have.
func RecordedSteps() []Step {
	return []Step{
		Held, Asked, ClientLeft, Extended, Decided, Rechecked, NotRun, Started, Finished, Delivered, Cancelled, Expired, Failed, Stopped,
		Granted, Revoked, Configured, Refused, AcceptedChange, auditlog.ToolChanged, auditlog.Imported,
		auditlog.PasskeyAdded, auditlog.PasskeyRemoved, auditlog.PasskeyInvited, auditlog.Connected, auditlog.Disconnected,
	}
}

// A recorded store logs changes of tasks and reports writes to its journal.
type recorded struct {
	gatestore.Store

	log     *slog.Logger
	observe func(notes []task.Note, err error)
	ended   func(task.Task)
}

// Create implements [task.Store].
func (r recorded) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	err := r.Store.Create(ctx, t, limits, notes...)
	if err == nil {
		logCreated(ctx, r.log, t, notes)
	}
	r.count(notes, err)
	return err
}

// Swap implements [task.Store].
func (r recorded) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	err := r.Store.Swap(ctx, t, notes...)
	if err == nil {
		//mutate:swap "notes" "nil" internal/app.TestCancellationIsLogged changes of state are not logged
		logMoves(LogContext(ctx, t), r.log, notes)
		if r.ended != nil && slices.ContainsFunc(notes, func(n task.Note) bool { return n.To.Terminal() }) {
			r.ended(t)
		}
	}
	r.count(notes, err)
	return err
}

// Append implements [auditlog.Journal].
func (r recorded) Append(ctx context.Context, notes ...task.Note) error {
	err := r.Store.Append(ctx, notes...)
	r.count(notes, err)
	return err
}

// count reports notes that were recorded, or that could not be recorded because the store failed.
// A refused change has no notes.
func (r recorded) count(notes []task.Note, err error) {
	if r.observe != nil && len(notes) > 0 && (err == nil || failed(err)) {
		r.observe(notes, err)
	}
}

// failed reports whether err is a failure of the store, rather than its answer.
func failed(err error) bool {
	refused, ok := errors.AsType[*task.Error](err)
	if !ok {
		return true
	}
	switch refused.Kind {
	case task.ErrInvalid, task.ErrUnavailable, task.ErrOutdated:
		return true
	case task.ErrCapacityExceeded:
		return refused.Err != nil // the disk is full, not a quota
	default:
		return false
	}
}

// creationNotes returns the notes for a new task.
func creationNotes(t task.Task) []task.Note {
	held := note(t, Held, t.CreatedAt)
	held.Actor, held.To = held.Requester, task.Working
	notes := []task.Note{held}
	for _, moved := range t.Transitions {
		n := held
		n.At, n.Step = moved.At, string(Asked)
		n.Actor, n.From, n.To, n.Reason = moved.By, moved.From, moved.To, moved.Reason
		switch {
		case t.Approval == nil:
			n.Step, n.Outcome = string(Decided), "no_approval_needed"
		case t.Approval.Grant() != "":
			n.Step = string(Decided)
			notes = append(notes, grantNotes(t, n)...)
			continue
		}
		notes = append(notes, n)
	}
	return notes
}

// notesOf returns the notes for a change of a task. Contacts, variables and leases have no notes.
func notesOf(before, after task.Task, e lifecycle.Event) []task.Note {
	n := change(before, after)
	switch e := e.(type) {
	case lifecycle.Approve:
		n.Actor, n.Approver, n.Reason, n.Outcome = e.By, e.By, e.Reason, string(Approve)
		n.UnreadBytes, n.Via, n.Passkey = e.Unread, e.Via, e.Passkey
		return steps(n, Decided)
	case lifecycle.Reject:
		n.Approver, n.Outcome, n.Via = e.By, string(Reject), e.Via
		return append(correctionNotes(after, e), steps(n, Decided)...)
	case lifecycle.Claim:
		notes := steps(n, Rechecked, Started)
		notes[0].Outcome = "allowed"
		return notes
	case lifecycle.Complete:
		n.Outcome, n.Ran = string(e.Result.Kind), task.RanYes
		return steps(n, Finished)
	case lifecycle.Fail:
		return failureNotes(n)
	case lifecycle.Lapse, lifecycle.Cancel, lifecycle.Expire:
		return steps(n, endings[e.Action()])
	case lifecycle.Deliver:
		n.At, n.Actor, n.Reason = after.DeliveredAt, n.Requester, ""
		n.Outcome = string(after.State)
		return steps(n, Delivered)
	case lifecycle.ExtendTTL:
		n.Actor, n.Reason = actor(n, after, e.By), "lives until "+after.ExpiresAt.UTC().Format(time.RFC3339)
		return steps(n, Extended)
	case lifecycle.Submit, lifecycle.Admit, lifecycle.Contact, lifecycle.SetVariables, lifecycle.RenewLease,
		lifecycle.Progress, lifecycle.Describe, lifecycle.Ask, lifecycle.Answer, lifecycle.Resume, lifecycle.Restart, lifecycle.CancelUpstream:
	case lifecycle.SettleUpstream:
		n.At, n.Actor, n.Reason = after.Execution.Cancellation.SettledAt, e.By, ""
		n.Outcome = string(e.Outcome)
		return steps(n, Stopped)
	}
	return nil
}

// endings are the steps of events that end a task without a result.
var endings = map[action.Name]Step{
	action.Lapse: Failed, action.Cancel: Cancelled, action.Expire: Expired,
}

// change returns the fields that the notes of every change have.
func change(before, after task.Task) task.Note {
	n := note(after, "", after.UpdatedAt)
	if before.State != after.State {
		moved := after.Transitions[len(after.Transitions)-1]
		n.Actor, n.Reason, n.From, n.To = actor(n, after, moved.By), moved.Reason, moved.From, moved.To
	}
	if f := after.Failure; f != nil {
		n.Outcome, n.Ran = string(f.Stage), f.Ran
	}
	return n
}

// steps returns a copy of n for each of the steps. The last one is the change itself.
func steps(n task.Note, all ...Step) []task.Note {
	notes := make([]task.Note, len(all))
	for i, step := range all {
		notes[i] = n
		notes[i].Step = string(step)
		if i < len(all)-1 {
			notes[i].From, notes[i].To, notes[i].Ran = "", "", ""
		}
	}
	return notes
}

// failureNotes returns the notes for a failed task.
func failureNotes(n task.Note) []task.Note {
	switch {
	case n.Outcome == string(lifecycle.StageShutdown):
		return steps(n, Failed)
	case n.From == task.Executing:
		return steps(n, Finished)
	case n.From == task.Approved:
		return steps(n, Rechecked, NotRun)
	default:
		return steps(n, Failed)
	}
}

// note returns the fields that every note about t has.
func note(t task.Task, step Step, at time.Time) task.Note {
	return task.Note{
		At: at, Task: t.ID, Step: string(step), Requester: review.Requester(t),
		Upstream: t.Call.Upstream, Method: t.Call.Method, Tool: review.ToolName(t), ArgumentDigest: t.CallDigest(),
		ToolDigest: t.Verdict.ToolDigest, PolicySnapshot: t.Verdict.Snapshot,
		Verdict: safetext.Text(t.Verdict.Reason, review.MaxReason), Workflow: t.Workflow,
	}
}

// actor returns the name of by in a note: owners appear as requesters.
func actor(n task.Note, t task.Task, by string) string {
	if by == t.Owner {
		return n.Requester
	}
	return by
}

// LogContext returns a context whose log lines carry the attributes of t's call, such as the
// correlation id of its request. So all lines about a call can be found, whichever replica logs
// them.
func LogContext(ctx context.Context, t task.Task) context.Context {
	return logging.AboutCall(ctx, sync.OnceValue(func() logging.Call {
		f := review.ReadFacts(t)
		return logging.Call{CorrelationID: f.Correlation, Principal: f.Requester(t.Owner), TaskID: string(t.ID), Tool: t.Call.Name}
	}))
}

// logCreated logs that a call was held, and the state changes since.
func logCreated(ctx context.Context, log *slog.Logger, t task.Task, notes []task.Note) {
	ctx = LogContext(ctx, t)
	log.InfoContext(ctx, "Task created", "upstream", t.Call.Upstream, "workflow", t.Workflow)
	logMoves(ctx, log, notes)
}

// logMoves logs the state changes that notes describe.
func logMoves(ctx context.Context, log *slog.Logger, notes []task.Note) {
	for _, n := range notes {
		if n.From != "" {
			log.InfoContext(ctx, "Task status changed", "from", n.From, "to", n.To, "by", n.Actor, "outcome", n.Outcome)
		}
	}
}

// lastMove returns the last state change of t.
func lastMove(t task.Task) (from, to task.State) {
	if len(t.Transitions) == 0 {
		return "", t.State
	}
	last := t.Transitions[len(t.Transitions)-1]
	return last.From, last.To
}
