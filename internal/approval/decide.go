package approval

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Decision is approve or reject.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Reject  Decision = "reject"
)

// A Ruling is a decision and its details.
type Ruling struct {
	Decision Decision
	Reason   string

	// Shown is the [review.Approval.ShownDigest] of what the approver saw. It is required for an
	// approval and optional for a rejection.
	Shown string

	// Unread is the [review.Approval.UnreadBytes] of what the approver saw. The approver knows
	// that so much was left out and approves anyway. The journal records it.
	Unread int

	// Gives is the standing approval that the approver gives with an approval, or nil. If several
	// approvals are needed, all of them must give one, and the narrowest terms count.
	Gives *gatetask.GrantTerms

	// Correction is an object with the arguments that the approver of a rejection approves instead,
	// or nil. It needs all that an approval needs. See correct.go.
	Correction jsontext.Value

	// Signed is the answer of the approver's browser, which has signed the [Service.Statement] with a
	// passkey at a site. It is empty without a passkey.
	Signed string
	Site   passkey.Site

	Via gatetask.Via // how the decision reached the gate

	// SenderGone says that a program of this machine sent the decision and did not wait for the
	// answer, so that it cannot be identified.
	SenderGone bool
}

// ErrDecidedByAgent is the error of an approval by a program that an agent has started, or by one
// that did not wait to be identified.
var ErrDecidedByAgent = errors.New("approval: an agent cannot approve by itself")

// isByAgent reports whether an agent itself, and no person, may have made r. Sessions are excepted:
// agent hosts start browsers for people.
func (r Ruling) isByAgent() bool {
	return r.Via.IsToken() && (r.Via.FromAgent == gatetask.FromAgentYes || r.SenderGone)
}

// approves reports whether r approves a call: this one, or a corrected one.
func (r Ruling) approves() bool { return r.Decision == Approve || r.Correction != nil }

// needs returns the decision whose authority r needs.
func (r Ruling) needs() Decision {
	if r.approves() {
		return Approve
	}
	return r.Decision
}

// CommandLineUserAgent is the User-Agent of the command line in requests to the operators' API.
const CommandLineUserAgent = "thoughtgate-command-line"

// A GrantFailedError reports that a call was decided, but its standing approval was not stored or
// may not be stored.
type GrantFailedError struct {
	Reason    string
	Unknown   bool // the standing approval may have been stored
	Corrected bool // the call was rejected with a correction
}

// Error implements error.
func (e *GrantFailedError) Error() string {
	if e.Corrected {
		return "the call was rejected, but " + e.Outcome() + ": " + e.Reason
	}
	return "the call was approved, but " + e.Outcome() + ": " + e.Reason
}

// Outcome describes the state of the standing approval.
func (e *GrantFailedError) Outcome() string {
	if e.Unknown {
		return "it is not known whether the standing approval was made"
	}
	return "the standing approval was not made"
}

// A decider records the decisions of approvers.
type decider struct {
	env       *env
	workflows *workflows
	contacts  *contacts
	tasks     *tasks
	runner    *runner
	viewer    *review.Viewer
	grants    *grants
	confirmer *confirmer
	views     views
}

// Decide records the decision of an approver about a pending call. The first final decision
// counts: a rejection is final, and an approval is final when the quorum is reached.
//
// The error is [ErrForbidden], [lifecycle.ErrSelfApproval] or [lifecycle.ErrAlreadyDecided] if
// this approver may not decide; [review.ErrNotShown], [review.ErrViewChanged] or
// [review.ErrUnread] if the approver has not seen what would be approved; [*review.NoGrantError]
// if the standing approval cannot be given; [*review.NoCorrectionError] if the correction does not
// count; [ErrPasskeyRequired] or [ErrPasskeyInvalid] if the
// approver did not confirm with a passkey; and [task.ErrExpired], [task.ErrAlreadyTerminal],
// [task.ErrInvalidTransition] or [task.ErrConcurrentModification] if it is too late. After a
// [*GrantFailedError] the call is approved, but the standing approval is missing. After
// [ErrUnsure] it is unknown whether the decision was recorded.
//
// An approved call starts as [Settings.Start] says, if policy still allows it then.
func (s *Service) Decide(ctx context.Context, id task.ID, who Approver, r Ruling) (task.Task, error) {
	return s.decider.decide(ctx, id, who, r)
}

// decide implements [Service.Decide].
func (d *decider) decide(ctx context.Context, id task.ID, who Approver, r Ruling) (task.Task, error) {
	ref := task.AnyOwner().Ref(id)
	before, err := d.env.store.Get(ctx, ref)
	if err != nil {
		return task.Task{}, err
	}
	e, err := d.event(ctx, before, who, r)
	if err != nil {
		return before, err
	}
	after, err := d.record(ctx, before, who, e)
	if _, decided := errors.AsType[*GrantFailedError](err); err != nil && !decided {
		return after, err
	}
	d.env.log.InfoContext(LogContext(ctx, after), "call decided", "decision", r.Decision, "by", who.Name, "via", r.Via.Kind, "from", before.State, "to", after.State)
	d.recordView(ctx, before) // a decision counts as a view
	d.env.observe(ctx, Event{Step: Decided, Task: after, By: who.Name})
	if after.State == task.Approved {
		//mutate:drop TestChangedAfterManyCalls the definition of an approved tool is not stored
		d.rememberTools(ctx, after)
		err = d.give(ctx, after)
		d.approved(ctx, after)
	}
	return after, err
}

// record stores the decision e about before.
func (d *decider) record(ctx context.Context, before task.Task, who Approver, e lifecycle.Event) (task.Task, error) {
	if reject, ok := e.(lifecycle.Reject); ok && reject.Correction != nil {
		return d.correct(ctx, before, who, reject)
	}
	return d.advance(ctx, before, who, e, d.env.now())
}

// advance changes before by the decision e.
func (d *decider) advance(ctx context.Context, before task.Task, who Approver, e lifecycle.Event, now time.Time) (task.Task, error) {
	after, err := d.env.updater.AdvanceFrom(ctx, before, e, now)
	if storekit.MaybeChanged(err) && after.ID != "" { // the change was sent to the store
		after, err = d.recorded(ctx, task.AnyOwner().Ref(before.ID), who, now, err)
	}
	return after, err
}

// ErrUnsure is the error of a decision that the store may or may not have recorded.
var ErrUnsure = errors.New("it is not known whether the decision was recorded")

// rereading is how long to try to read a task after an unconfirmed decision.
const rereading = 3 * time.Second

// recorded reads the task again after the store did not confirm the decision that the approver
// made at the given time. It returns nil if the decision was stored, even if the approver has
// disconnected, and err if it was not.
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

// hasDecision reports whether t has a decision by who at the given time.
func hasDecision(t task.Task, who Approver, at time.Time) bool {
	if t.Approval == nil {
		return false
	}
	decisions := t.Approval.Approvals
	if t.Approval.Rejection != nil {
		decisions = append(slices.Clone(decisions), *t.Approval.Rejection)
	}
	return slices.ContainsFunc(decisions, func(made gatetask.Decision) bool {
		return made.By == who.Name && made.At.Equal(at.Truncate(time.Microsecond))
	})
}

// give stores the standing approval that the approvers of t gave, if any. The error is a
// [*GrantFailedError].
func (d *decider) give(ctx context.Context, t task.Task) error {
	err := d.grants.give(context.WithoutCancel(ctx), t)
	if err == nil {
		return nil
	}
	d.env.log.ErrorContext(LogContext(ctx, t), "standing approval not given", "err", err)
	if refused, ok := errors.AsType[*review.NoGrantError](err); ok {
		return &GrantFailedError{Reason: refused.Reason}
	}
	if errors.Is(err, grantstore.ErrUncertain) {
		return &GrantFailedError{Reason: "look at the list of standing approvals", Unknown: true}
	}
	return &GrantFailedError{Reason: "the gate could not keep it"}
}

// rememberTools records the tool definitions of t, which was just approved. Approvers of later
// calls are warned about changes. Calls approved by a grant are not recorded.
func (d *decider) rememberTools(ctx context.Context, t task.Task) {
	ctx = context.WithoutCancel(ctx)
	for _, one := range review.Definitions(t) {
		last := toolhistory.ApprovedCall{Task: t.ID, At: t.Approval.DecidedAt(), Digest: one.Digest}
		if err := (toolhistory.Store{Records: d.env.store}).RecordApproval(ctx, one.Tool, last); err != nil {
			d.env.log.ErrorContext(LogContext(ctx, t), "the definition of an approved tool was not kept", "err", err)
		}
	}
}

// event returns the event for the decision r about t, after all checks.
func (d *decider) event(ctx context.Context, t task.Task, who Approver, r Ruling) (lifecycle.Event, error) {
	if err := d.mayDecide(t, who, r.needs()); err != nil {
		return nil, err
	}
	if err := d.checkSender(ctx, t, who, r); err != nil {
		return nil, err
	}
	if err := d.checkShown(ctx, t, who, r); err != nil {
		return nil, err
	}
	if err := d.grants.mayGive(t, who, r); err != nil {
		return nil, err
	}
	if r.Correction != nil {
		return d.correction(ctx, t, who, r)
	}
	if !d.counts(t, who) {
		return r.event(t, who, nil) // it is refused
	}
	signed, err := d.confirmer.sign(ctx, t, who, r)
	if err != nil {
		return nil, err
	}
	return r.event(t, who, signed)
}

// event returns the event for the decision r about t, which may be signed.
func (r Ruling) event(t task.Task, who Approver, signed *gatetask.Signature) (lifecycle.Event, error) {
	reason := safetext.Text(r.Reason, review.MaxReason)
	as := gatetask.Authority{Groups: who.Groups, Roles: who.Roles, Own: isRequester(t, who), Aliases: who.Aliases}
	switch r.Decision {
	case Approve:
		return lifecycle.Approve{By: who.Name, Reason: reason, As: as, Unread: int64(max(0, r.Unread)), NewGrant: r.Gives, Via: r.Via, Passkey: signed}, nil
	case Reject:
		return lifecycle.Reject{By: who.Name, Reason: reason, As: as, Via: r.Via}, nil
	default:
		return nil, &task.Error{Kind: task.ErrInvalid, ID: t.ID, Detail: "neither approve nor reject"}
	}
}

func (d *decider) mayDecide(t task.Task, who Approver, what Decision) error {
	w, ok := d.workflows.of(t)
	onlyRejects := who.onlyRejects()
	if onlyRejects { // a workflow for approvers lets them reject
		who.Roles = append(slices.Clone(who.Roles), "approver")
	}
	//mutate:swap "|| !admits(escalated(w, t, d.env.now()), who) " "" TestDecideWho any operator may decide
	if !ok || !admits(escalated(w, t, d.env.now()), who) {
		return ErrForbidden
	}
	//mutate:false TestRejecterOnlyRejects a role that only rejects approves
	if onlyRejects && what == Approve {
		return ErrOnlyRejects
	}
	// Both the settings at the time of holding and the current ones must allow it.
	//mutate:swap "w.SelfApproval && " "" TestDecideSelfApprovalWithdrawn requesters may approve although self-approval was withdrawn
	own := w.SelfApproval && t.Approval != nil && t.Approval.SelfApproval
	if what == Approve && !own && isRequester(t, who) {
		return &task.Error{Kind: lifecycle.ErrSelfApproval, ID: t.ID, State: t.State, Action: action.Approve}
	}
	return nil
}

// checkSender returns [ErrDecidedByAgent] if an agent approves by itself and the workflow does not
// allow that. The journal records the attempt.
func (d *decider) checkSender(ctx context.Context, t task.Task, who Approver, r Ruling) error {
	//mutate:swap "!r.approves() || " "" TestAgentCannotApproveByToken an agent cannot reject
	//mutate:false TestAgentCannotApproveByToken an agent approves its own calls with the token of its user
	if w, known := d.workflows.of(t); !r.approves() || !r.isByAgent() || known && w.AgentApproval {
		return nil
	}
	return d.env.refuseAgent(ctx, note(t, Refused, d.env.now()), who, r.Via)
}

// refuseAgent records the attempt of an agent to decide by itself, and returns
// [ErrDecidedByAgent].
func (e *env) refuseAgent(ctx context.Context, n task.Note, who Approver, via gatetask.Via) error {
	n.Actor, n.Approver, n.Outcome, n.Via = who.Name, who.Name, DecidedByAgent, via
	e.log.WarnContext(ctx, "approval by an agent refused", "task_id", n.Task, "by", who.Name, "via", via.Details())
	return errors.Join(ErrDecidedByAgent, e.store.Append(context.WithoutCancel(ctx), n))
}

// DecidedByAgent is the outcome of a refused approval in the journal.
const DecidedByAgent = "decided_by_agent"

// Objection returns a function that returns the reason why an operator may not approve a task,
// or nil. The function does not read the store.
func (s *Service) Objection(who Approver) func(task.Task) error {
	return func(t task.Task) error {
		if err := s.decider.mayDecide(t, who, Approve); err != nil {
			return err
		}
		if approvedBy(t, who) {
			return lifecycle.ErrAlreadyDecided
		}
		return nil
	}
}

// approvedBy reports whether t has an approval by who.
func approvedBy(t task.Task, who Approver) bool {
	return t.Approval != nil && slices.ContainsFunc(t.Approval.Approvals, func(a gatetask.Decision) bool {
		return a.IsBy(append([]string{who.Name}, who.Aliases...)...)
	})
}

// checkShown returns nil if the approver has seen the view that r names. A ruling that cannot
// count, because it is late or repeated, is not checked.
func (d *decider) checkShown(ctx context.Context, t task.Task, who Approver, r Ruling) error {
	if !d.counts(t, who) || !r.approves() && r.Shown == "" {
		return nil
	}
	err := d.viewer.CheckShown(ctx, t, r.Shown, r.Unread)
	if !r.approves() && errors.Is(err, review.ErrUnread) {
		return nil // an approver who saw only a part may reject
	}
	return err
}

// counts reports whether a ruling by who on t can still count. Like [lifecycle.Apply], it compares
// times in whole microseconds.
func (d *decider) counts(t task.Task, who Approver) bool {
	late := d.env.now().Truncate(time.Microsecond).After(t.Due())
	return t.State == task.InputRequired && !late && !approvedBy(t, who)
}

// approved starts t if its owner is present, even if the approver has disconnected.
func (d *decider) approved(ctx context.Context, t task.Task) {
	ctx = context.WithoutCancel(ctx)
	send := d.contacts.senderFor(t)
	if send == nil {
		// The store wakes a request that waits for t, on any replica.
		if !t.InContact(d.env.now()) && !d.contacts.awaited(t.ID) {
			d.tasks.abandon(ctx, t)
		}
		return
	}
	if _, err := d.runner.launch(ctx, t, send); err != nil {
		d.env.log.WarnContext(LogContext(ctx, t), "approved call not started", "err", err)
	}
}

// Views remember which calls were viewed at this replica.
type views struct {
	mu   sync.Mutex
	seen map[task.ID]bool
}

// maxViews is the number of remembered calls. For other calls, the store knows whether a view
// is the first.
const maxViews = 1000

func (l *views) first(id task.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[id] {
		return false
	}
	if l.seen == nil || len(l.seen) >= maxViews {
		l.seen = map[task.ID]bool{}
	}
	l.seen[id] = true
	return true
}

// viewPrefix is the prefix of the records of first views.
const viewPrefix = "look/"

// viewKept is how long the record of a view is kept after the task expires.
const viewKept = time.Hour

// RecordView records that an approver views a call. The first view of a pending call causes an
// event, on one replica.
func (s *Service) RecordView(ctx context.Context, a review.Approval) {
	if a.State == task.InputRequired {
		s.decider.recordView(ctx, task.Task{ID: a.ID, HeldCall: gatetask.HeldCall{Workflow: a.Workflow}, CreatedAt: a.CreatedAt, ExpiresAt: a.ExpiresAt})
	}
}

func (d *decider) recordView(ctx context.Context, t task.Task) {
	if d.env.observer == nil || !d.views.first(t.ID) {
		return
	}
	now := d.env.now()
	r := gatestore.Record{Name: viewPrefix + string(t.ID), Version: 1, Value: []byte{'1'}, Expires: t.ExpiresAt.Add(viewKept)}
	switch err := d.env.store.PutRecord(ctx, r); {
	case err == nil:
		d.env.observe(ctx, Event{Step: Viewed, Task: task.Task{ID: t.ID, HeldCall: gatetask.HeldCall{Workflow: t.Workflow}, CreatedAt: t.CreatedAt, UpdatedAt: now}})
	case errors.Is(err, task.ErrConcurrentModification): // it was viewed before
	default:
		d.env.log.DebugContext(ctx, "look not recorded", "err", err)
	}
}

// maxChanges is the maximum number of listed tool changes.
const maxChanges = 1000

// Changes returns the tool definitions that policy has met and no operator has accepted, the
// latest first.
func (s *Service) Changes(ctx context.Context) ([]toolhistory.Change, error) {
	return toolhistory.Store{Records: s.env.store}.Changes(ctx, maxChanges)
}

// AcceptChange makes policy trust a changed tool definition from now on, on every replica. The
// journal records it before it takes effect. The error is [task.ErrNotFound] if the change does
// not exist, and [ErrDecidedByAgent] if an agent accepts it by itself. Of r, only the reason and the
// sender count.
func (s *Service) AcceptChange(ctx context.Context, id string, who Approver, r Ruling) (toolhistory.Change, error) {
	if who.Name == "" {
		return toolhistory.Change{}, ErrForbidden
	}
	ctx = context.WithoutCancel(ctx)
	//mutate:false TestAgentCannotAcceptChange an agent makes policy trust a changed tool
	if r.isByAgent() {
		n := task.Note{At: s.env.now(), Step: string(Refused), Method: mcpname.ToolsCall, Reason: "accept the changed tool " + safetext.Text(id, review.MaxReason)}
		return toolhistory.Change{}, s.env.refuseAgent(ctx, n, who, r.Via)
	}
	c, err := toolhistory.Store{Records: s.env.store}.Accept(ctx, id, func(c toolhistory.Change) error {
		return s.env.store.Append(ctx, task.Note{
			//mutate:swap "string(AcceptedChange)" `"other"` internal/app.TestChangedToolIsHeld an accepted change is not in the journal
			At: s.env.now(), Step: string(AcceptedChange), Actor: who.Name, Upstream: c.Upstream, Method: mcpname.ToolsCall, Tool: c.Tool,
			Approver: who.Name, Reason: safetext.Text(r.Reason, review.MaxReason), Outcome: c.What, Via: r.Via,
		})
	})
	if err == nil {
		s.env.log.InfoContext(ctx, "changed tool accepted", "upstream", c.Upstream, "tool", c.Tool, "by", who.Name, "change", c.What)
	}
	return c, err
}
