package approval

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Every step of a held call is recorded in the journal together with the change:
// if it cannot be recorded, the change is not made. The steps that
// no [Event] has are these.
const (
	Asked     Step = "asked"     // the approvers were asked
	Rechecked Step = "rechecked" // everything was asked again before the call was made
	Expired   Step = "expired"   // its time ran out
	Failed    Step = "failed"    // it ended by no decision: its executor died, or the gate was shut down
	Extended  Step = "extended"  // its owner gave it more time to live
	Left      Step = "left"      // its client no longer waits, and it stays pending
	Stopped   Step = "stopped"   // a call that the upstream runs was cancelled there, or could not be
)

// Recorded returns the steps that the journal may have.
func Recorded() []Step {
	return []Step{
		Held, Asked, Left, Extended, Decided, Rechecked, NotRun, Started, Finished, Delivered, Cancelled, Expired, Failed, Stopped,
		Granted, Revoked,
	}
}

// recorded is a store that logs what happens to tasks, and counts what its
// journal records.
type recorded struct {
	task.GateStore

	log     *slog.Logger
	observe func(notes []task.Note, err error)
}

// Create implements [task.Store].
func (r recorded) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	err := r.GateStore.Create(ctx, t, limits, notes...)
	if err == nil {
		logCreated(ctx, r.log, t, notes)
	}
	r.count(notes, err)
	return err
}

// Swap implements [task.Store].
func (r recorded) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	err := r.GateStore.Swap(ctx, t, notes...)
	if err == nil {
		logMoves(About(ctx, t), r.log, notes)
	}
	r.count(notes, err)
	return err
}

// Append implements [task.Journal].
func (r recorded) Append(ctx context.Context, notes ...task.Note) error {
	err := r.GateStore.Append(ctx, notes...)
	r.count(notes, err)
	return err
}

// count reports notes that were recorded, or could not be because the store
// failed. A change that is refused has nothing to record.
func (r recorded) count(notes []task.Note, err error) {
	if r.observe != nil && len(notes) > 0 && (err == nil || failed(err)) {
		r.observe(notes, err)
	}
}

// failed reports whether err is a store's failure and not its answer.
func failed(err error) bool {
	refused, ok := errors.AsType[*task.Error](err)
	if !ok {
		return true
	}
	switch refused.Kind {
	case task.KindInvalid, task.KindUnavailable, task.KindOutdated:
		return true
	case task.KindCapacityExceeded:
		return refused.Err != nil // the disk is full, and not the quota
	default:
		return false
	}
}

// creationNotes returns what the journal says of a call that is held.
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

// notesOf returns what the journal says of a change. Contact, variables, leases and the
// like are no steps.
func notesOf(before, after task.Task, e task.Event) []task.Note {
	n := change(before, after)
	switch e := e.(type) {
	case task.Approve:
		n.Actor, n.Approver, n.Reason, n.Outcome = e.By, e.By, e.Reason, string(Approve)
		n.UnreadBytes = e.Unread
		return steps(n, Decided)
	case task.Reject:
		n.Approver, n.Outcome = e.By, string(Reject)
		return steps(n, Decided)
	case task.Claim:
		return claimNotes(n)
	case task.Complete:
		n.Outcome, n.Ran = string(e.Result.Kind), task.RanYes
		return steps(n, Finished)
	case task.Fail:
		return failureNotes(n)
	case task.Lapse, task.Cancel, task.Expire:
		return steps(n, endings[e.Action()])
	case task.Deliver:
		n.At, n.Actor, n.Reason = after.DeliveredAt, n.Requester, ""
		n.Outcome = string(after.State)
		return steps(n, Delivered)
	case task.ExtendTTL:
		n.Actor, n.Reason = actor(after, e.By), "lives until "+after.ExpiresAt.UTC().Format(time.RFC3339)
		return steps(n, Extended)
	case task.Submit, task.Admit, task.Contact, task.SetVariables, task.RenewLease,
		task.Progress, task.Describe, task.Answer, task.Resume, task.Restart, task.CancelUpstream:
	case task.SettleUpstream:
		n.At, n.Actor, n.Reason = after.Execution.Cancellation.SettledAt, e.By, ""
		n.Outcome = string(e.Outcome)
		return steps(n, Stopped)
	}
	return nil
}

// endings are the steps of events that end a task without an outcome.
var endings = map[task.Action]Step{
	task.ActionLapse: Failed, task.ActionCancel: Cancelled, task.ActionExpire: Expired,
}

// change returns what is to be said of every change.
func change(before, after task.Task) task.Note {
	n := note(after, "", after.UpdatedAt)
	if before.State != after.State {
		moved := after.Transitions[len(after.Transitions)-1]
		n.Actor, n.Reason, n.From, n.To = actor(after, moved.By), moved.Reason, moved.From, moved.To
	}
	if f := after.Failure; f != nil {
		n.Outcome, n.Ran = string(f.Stage), f.Ran
	}
	return n
}

// steps returns n as each of the steps, of which the last is the change.
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

func claimNotes(n task.Note) []task.Note {
	notes := steps(n, Rechecked, Started)
	notes[0].Outcome = "allowed"
	return notes
}

// failureNotes returns what the journal says of a task that failed.
func failureNotes(n task.Note) []task.Note {
	switch {
	case n.Outcome == string(task.StageShutdown):
		return steps(n, Failed)
	case n.From == task.Executing:
		return steps(n, Finished)
	case n.From == task.Approved:
		return steps(n, Rechecked, NotRun)
	default:
		return steps(n, Failed)
	}
}

// note returns what every note about t says.
func note(t task.Task, step Step, at time.Time) task.Note {
	return task.Note{
		At: at, Task: t.ID, Step: string(step), Requester: casefile.Requester(t),
		Upstream: t.Call.Upstream, Method: t.Call.Method, Tool: casefile.ToolName(t), ArgumentDigest: t.CallDigest(),
		ToolDigest: t.Verdict.ToolDigest, PolicySnapshot: t.Verdict.Snapshot,
		Verdict: plain.Text(t.Verdict.Reason, casefile.MaxReason), Workflow: t.Workflow,
	}
}

// actor returns who did something: owners are named as requesters.
func actor(t task.Task, by string) string {
	if by == t.Owner {
		return casefile.Requester(t)
	}
	return by
}
