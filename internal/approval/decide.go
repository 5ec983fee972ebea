package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/precedent"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Decision is what an approver says.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Reject  Decision = "reject"
)

// A Ruling is a decision with what the approver says about it.
type Ruling struct {
	Decision Decision
	Reason   string

	// Shown is the [casefile.Approval.ShownDigest] of what the approver saw. An approval
	// must name it; a rejection may.
	Shown string

	// Unread is the [casefile.Approval.UnreadBytes] of what the approver saw: the
	// approver knows that so much was left out, and approves anyway. The
	// journal says so.
	Unread int

	// Gives is the standing approval that the approver gives with an approval, or nil.
	// If several people must approve, it counts if all of them give one, and goes as
	// far as the narrowest.
	Gives *task.GrantTerms
}

// A NotGivenError says why there is no standing approval, or may be none, although the
// approvers of a call gave one. The call is approved.
type NotGivenError struct {
	Why     string
	Unknown bool // whether it was made
}

// Error implements error.
func (e *NotGivenError) Error() string {
	return "the call was approved, but " + e.Outcome() + ": " + e.Why
}

// Outcome says what became of the standing approval.
func (e *NotGivenError) Outcome() string {
	if e.Unknown {
		return "it is not known whether the standing approval was made"
	}
	return "the standing approval was not made"
}

// A decider takes the decisions of approvers.
type decider struct {
	*core

	contacts *contacts
	tasks    *tasks
	runner   *runner
	cases    *casefile.Viewer
	grants   *grants
	looks    looks
}

// Decide records what an approver says of a pending call. The first final
// decision counts: a rejection is final, an approval is when the quorum is
// reached. The error is [ErrForbidden], [task.ErrSelfApproval] or
// [task.ErrAlreadyDecided] if it is not for this approver to decide,
// [casefile.ErrNotShown], [casefile.ErrViewChanged] or [casefile.ErrUnread] if the approver has not seen
// what would be approved, a [*casefile.NoGrantError] if the standing approval cannot be
// given, and [task.ErrExpired], [task.ErrAlreadyTerminal],
// [task.ErrInvalidTransition] or [task.ErrConcurrentModification] if it is too
// late. After a [*NotGivenError] the call is approved, and the standing approval is
// missing. After [ErrUnsure] nobody knows whether the decision was recorded.
//
// An approved call runs as [Config.Start] says, if the policy still allows it then.
func (d *decider) Decide(ctx context.Context, id task.ID, who Approver, r Ruling) (task.Task, error) {
	ref := task.AnyOwner().Ref(id)
	before, err := d.cfg.Store.Get(ctx, ref)
	if err != nil {
		return task.Task{}, err
	}
	if err := d.mayDecide(before, who, r.Decision); err != nil {
		return before, err
	}
	if err := d.checkShown(before, who, r); err != nil {
		return before, err
	}
	if err := d.grants.mayGive(before, who, r); err != nil {
		return before, err
	}
	e, err := r.event(before, who)
	if err != nil {
		return before, err
	}
	now := d.cfg.Now()
	after, err := d.updater().Advance(ctx, ref, e, now)
	if task.Unsure(err) && after.ID != "" { // it was sent to the store
		after, err = d.recorded(ctx, ref, who, now, err)
	}
	if err != nil {
		return after, err
	}
	d.cfg.Log.InfoContext(About(ctx, after), "call decided", "decision", r.Decision, "by", who.Name, "from", before.State, "to", after.State)
	d.looked(ctx, before) // who decides has looked
	d.observe(ctx, Event{Step: Decided, Task: after, By: who.Name})
	if after.State == task.Approved {
		d.rememberTools(ctx, after)
		err = d.give(ctx, after)
		d.approved(ctx, after)
	}
	return after, err
}

// ErrUnsure is the error of a decision if the store does not say whether it was recorded.
var ErrUnsure = errors.New("it is not known whether the decision was recorded")

// rereading is how long a store that failed is asked what became of a decision.
const rereading = 3 * time.Second

// recorded returns the task with the decision that who made at the given time, after the
// store could not say whether it was recorded: err is what it said. A decision that the
// store has not got does not count; one that it has counts, even if the approver is gone.
func (d *decider) recorded(ctx context.Context, ref task.Ref, who Approver, at time.Time, err error) (task.Task, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), rereading)
	defer stop()
	t, failed := d.runner.readAgain(ctx, ref)
	switch {
	case failed != nil:
		return t, errors.Join(ErrUnsure, err)
	case !hasDecision(t, who, at):
		return t, err
	default:
		return t, nil
	}
}

// hasDecision reports whether who decided about t at the given time.
func hasDecision(t task.Task, who Approver, at time.Time) bool {
	if t.Approval == nil {
		return false
	}
	decisions := t.Approval.Approvals
	if t.Approval.Rejection != nil {
		decisions = append(slices.Clone(decisions), *t.Approval.Rejection)
	}
	return slices.ContainsFunc(decisions, func(made task.Decision) bool {
		return made.By == who.Name && made.At.Equal(at.Truncate(time.Microsecond))
	})
}

// give keeps the standing approval that the approvers of t gave, if they did. The error
// is a [*NotGivenError].
func (d *decider) give(ctx context.Context, t task.Task) error {
	err := d.grants.give(context.WithoutCancel(ctx), t)
	if err == nil {
		return nil
	}
	d.cfg.Log.ErrorContext(About(ctx, t), "standing approval not given", "error", err)
	if refused, ok := errors.AsType[*casefile.NoGrantError](err); ok {
		return &NotGivenError{Why: refused.Why}
	}
	if errors.Is(err, grantstore.ErrUncertain) {
		return &NotGivenError{Why: "look at the list of standing approvals", Unknown: true}
	}
	return &NotGivenError{Why: "the gate could not keep it"}
}

// rememberTools keeps how the tools of t, which was just approved, are defined. Approvers of
// later calls are warned if one of them has changed since. A call that a standing approval
// lets run is not kept: its tool is as those who gave it saw it.
func (d *decider) rememberTools(ctx context.Context, t task.Task) {
	ctx = context.WithoutCancel(ctx)
	for _, one := range casefile.Definitions(t) {
		last := precedent.Approved{Task: t.ID, At: t.Approval.DecidedAt(), Digest: one.Digest}
		if err := (precedent.Store{Records: d.cfg.Store}).Keep(ctx, one.Tool, last); err != nil {
			d.cfg.Log.ErrorContext(About(ctx, t), "the definition of an approved tool was not kept", "error", err)
		}
	}
}

// event returns what r does to t.
func (r Ruling) event(t task.Task, who Approver) (task.Event, error) {
	reason := plain.Text(r.Reason, casefile.MaxReason)
	as := task.Authority{Groups: who.Groups, Roles: who.Roles, Own: isRequester(t, who), Aliases: who.Aliases}
	switch r.Decision {
	case Approve:
		return task.Approve{By: who.Name, Reason: reason, As: as, Unread: int64(max(0, r.Unread)), Gives: r.Gives}, nil
	case Reject:
		return task.Reject{By: who.Name, Reason: reason, As: as}, nil
	default:
		return nil, &task.Error{Kind: task.KindInvalid, ID: t.ID, Detail: "neither approve nor reject"}
	}
}

func (d *decider) mayDecide(t task.Task, who Approver, what Decision) error {
	w, ok := d.workflow(t)
	if !ok || !w.escalated(t, d.cfg.Now()).admits(who) {
		return ErrForbidden
	}
	// Both as it was when the call was held and as it is now.
	own := w.SelfApproval && t.Approval != nil && t.Approval.SelfApproval
	if what == Approve && !own && isRequester(t, who) {
		return &task.Error{Kind: task.KindSelfApproval, ID: t.ID, State: t.State, Action: task.ActionApprove}
	}
	return nil
}

// Objection returns a function that says why an approver may not approve a task,
// if that is so. It reads nothing.
func (d *decider) Objection(who Approver) func(task.Task) error {
	return func(t task.Task) error {
		if err := d.mayDecide(t, who, Approve); err != nil {
			return err
		}
		if approvedBy(t, who) {
			return task.ErrAlreadyDecided
		}
		return nil
	}
}

// approvedBy reports whether who is one of those that have approved t.
func approvedBy(t task.Task, who Approver) bool {
	return t.Approval != nil && slices.ContainsFunc(t.Approval.Approvals, func(a task.Decision) bool {
		return a.IsBy(append([]string{who.Name}, who.Aliases...)...)
	})
}

// checkShown returns nil if who has seen what r says about t. A ruling that
// cannot count, because it is too late or the second one, is not checked.
func (d *decider) checkShown(t task.Task, who Approver, r Ruling) error {
	if !d.counts(t, who) || r.Decision != Approve && r.Shown == "" {
		return nil
	}
	err := d.cases.CheckShown(t, r.Shown, r.Unread)
	if r.Decision == Reject && errors.Is(err, casefile.ErrUnread) {
		return nil // one may reject what one has read a part of
	}
	return err
}

// counts reports whether a ruling by who on t can still count. A ruling is late if
// [task.Task.Apply] says so, which compares times in whole microseconds.
func (d *decider) counts(t task.Task, who Approver) bool {
	late := d.cfg.Now().Truncate(time.Microsecond).After(t.Due())
	return t.State == task.InputRequired && !late && !approvedBy(t, who)
}

// approved starts t if there is somebody to start it for, even if the approver
// has gone since.
func (d *decider) approved(ctx context.Context, t task.Task) {
	ctx = context.WithoutCancel(ctx)
	send := d.contacts.senderFor(t)
	if send == nil {
		// A request that waits for t, here or elsewhere, is woken by the store.
		if !t.InContact(d.cfg.Now()) && !d.contacts.awaited(t.ID) {
			d.tasks.abandon(ctx, t)
		}
		return
	}
	if _, err := d.runner.launch(ctx, task.AnyOwner().Ref(t.ID), send); err != nil {
		d.cfg.Log.WarnContext(About(ctx, t), "approved call not started", "error", err)
	}
}
