package lifecycle

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// Reasons that a task gives for its own end.
const (
	leaseLapsed = "the executor's lease lapsed"
	timeOver    = "its time is over"
)

// suggestOthers is the suggestion for a person whose approval does not count.
const suggestOthers = "leave it to the other approvers"

func (e Submit) apply(t *task.Task, now time.Time) *task.Error {
	deadline := earliest(precise(e.Deadline), t.ExpiresAt)
	if e.Quorum < 0 {
		return &task.Error{Kind: task.ErrInvalid, Detail: "negative quorum"}
	}
	if !deadline.After(now) {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the approvers have no time"}
	}
	t.Approval = &gatetask.Approval{Quorum: max(1, e.Quorum), SelfApproval: e.SelfApproval, Passkey: e.Passkey, Deadline: deadline}
	return nil
}

func (e Admit) apply(t *task.Task, now time.Time) *task.Error {
	if e.Grant == "" && len(e.Approvals) == 0 {
		return nil
	}
	if e.Grant == "" || len(e.Approvals) == 0 {
		return &task.Error{Kind: task.ErrInvalid, Detail: "a standing approval has an id and approvals"}
	}
	a := &gatetask.Approval{Quorum: len(e.Approvals), Deadline: now}
	for _, d := range e.Approvals {
		d.At, d.NewGrant, d.Grant, d.UnreadBytes, d.Via = now, nil, e.Grant, 0, gatetask.Via{}
		a.Approvals = append(a.Approvals, d)
	}
	t.Approval = a
	return nil
}

func (e Approve) apply(t *task.Task, now time.Time) *task.Error {
	a := t.Approval.Clone()
	switch {
	//mutate:false task.Test(Quorum|InvalidEventsAreRefused) requesters approve their own calls
	case (e.By == t.Owner || e.As.Own) && !a.SelfApproval:
		return &task.Error{Kind: ErrSelfApproval, Suggest: suggestOthers}
	//mutate:swap "slices.ContainsFunc(a.Approvals, func(d gatetask.Decision) bool { return d.IsBy(append([]string{e.By}, e.As.Aliases...)...) })" "len(a.Approvals) > 0 && !slices.Contains([]string{e.By}, e.By)" task.Test(Quorum|InvalidEventsAreRefused) one person counts twice
	case slices.ContainsFunc(a.Approvals, func(d gatetask.Decision) bool { return d.IsBy(append([]string{e.By}, e.As.Aliases...)...) }):
		return &task.Error{Kind: ErrAlreadyDecided, Suggest: suggestOthers}
	}
	a.Approvals = append(a.Approvals, gatetask.Decision{By: e.By, Authority: e.As, At: now, Reason: e.Reason, UnreadBytes: e.Unread, Via: e.Via, Passkey: e.Passkey, NewGrant: e.NewGrant})
	t.Approval = a
	return nil
}

func (e Reject) apply(t *task.Task, now time.Time) *task.Error {
	a := t.Approval.Clone()
	switch {
	case e.Correction == nil:
	//mutate:false task.TestCorrectionIsAnApproval requesters approve corrections of their own calls
	case (e.By == t.Owner || e.As.Own) && !a.SelfApproval:
		return &task.Error{Kind: ErrSelfApproval, Suggest: suggestOthers}
	//mutate:false task.TestCorrectionIsAnApproval one of several approvers approves a corrected call
	case a.Quorum > 1 || e.NewGrant == nil || e.Correction.Grant == "":
		return &task.Error{Kind: task.ErrInvalid, Detail: "a correction needs an approval that is enough"}
	}
	a.Rejection = &gatetask.Decision{
		By: e.By, Authority: e.As, At: now, Reason: e.Reason, Via: e.Via, Correction: e.Correction, NewGrant: e.NewGrant, Passkey: e.Passkey,
	}
	t.Approval = a
	t.Failure = &task.Failure{Stage: StageApprovalRejected, Reason: e.Reason, Ran: task.RanNo}
	return nil
}

func (e Claim) apply(t *task.Task, now time.Time) *task.Error {
	lease := precise(e.LeaseUntil)
	if !lease.After(now) {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the lease has no length"}
	}
	if !utf8.ValidString(e.Executor) {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the executor's name is no valid UTF-8"}
	}
	//mutate:swap "||" "&&" task.TestClaimRunsOnlyApprovedCall a claim does not check the digest
	if d, err := t.Call.Digest(); err != nil || d != t.CallDigest() {
		return &task.Error{Kind: ErrDigestMismatch, Suggest: "fail the task", Err: err}
	}
	t.Execution = &task.Execution{Executor: cmp.Or(e.Executor, e.By), StartedAt: now, LeaseUntil: lease}
	return nil
}

func (e Complete) apply(t *task.Task, _ time.Time) *task.Error {
	if e.Result.Kind != task.ResultOK && e.Result.Kind != task.ResultToolError {
		return &task.Error{Kind: task.ErrInvalid, Detail: "a " + string(e.Result.Kind) + " completes nothing"}
	}
	//mutate:drop task.TestInvalidEventsAreRefused another executor completes a run
	if refused := runBy(t, cmp.Or(e.Executor, e.By)); refused != nil {
		return refused
	}
	return keepResult(t, e.Result)
}

func (e Fail) apply(t *task.Task, now time.Time) *task.Error {
	if refused := e.check(t.State); refused != nil {
		return refused
	}
	if refused := e.checkRun(t, now); refused != nil {
		return refused
	}
	f := e.Failure
	if f.Ran == "" {
		f.Ran = ranSoFar(t)
	}
	f.Retriable = f.Retriable && f.Ran == task.RanNo
	t.Failure = &f
	if e.Message != "" && t.Execution != nil {
		t.Execution = t.Execution.Clone()
		t.Execution.Message = e.Message
	}
	if e.Result == nil {
		return nil
	}
	return keepResult(t, *e.Result)
}

// checkRun returns an error if e must not end the run of t.
func (e Fail) checkRun(t *task.Task, now time.Time) *task.Error {
	if e.Executor != "" || e.Result != nil {
		if refused := runBy(t, cmp.Or(e.Executor, e.By)); refused != nil {
			return refused
		}
	}
	if x := t.Execution; e.Detached && x != nil && !x.Detached() && !now.After(x.LeaseUntil) {
		return &task.Error{Kind: ErrNotExecutor}
	}
	return nil
}

// check returns an error if e cannot end a task in state s.
func (e Fail) check(s task.State) *task.Error {
	mayHaveRun := e.Failure.Ran == task.RanYes || e.Failure.Ran == task.RanUnknown || e.Result != nil
	switch {
	case e.From != "" && e.From != s:
		return stateChanged(e.From, s)
	case e.Failure.Stage == "":
		return &task.Error{Kind: task.ErrInvalid, Detail: "a failure without a stage"}
	case mayHaveRun && s != task.Executing:
		return &task.Error{Kind: task.ErrInvalid, Detail: "a call that was not made cannot have run"}
	case e.Result != nil && e.Result.Kind != task.ResultRPCError:
		return &task.Error{Kind: task.ErrInvalid, Detail: "failure carries a non-error result"}
	default:
		return nil
	}
}

func (e Lapse) apply(t *task.Task, now time.Time) *task.Error {
	if t.Execution.UpstreamTask != "" || t.Execution.Detached() {
		return &task.Error{Kind: task.ErrInvalidTransition, Detail: "the run needs no executor"}
	}
	if until := t.Execution.LeaseUntil; !e.Dead && !now.After(until) {
		return &task.Error{Kind: task.ErrNotReady, Detail: "the lease holds", RetryAfter: until.Sub(now)}
	}
	t.Failure = &task.Failure{Stage: StageExecutorLost, Reason: leaseLapsed, Ran: task.RanUnknown}
	return nil
}

func (e Cancel) apply(t *task.Task, now time.Time) *task.Error { //nolint:unparam // other events return errors
	oweCancellation(t, now)
	t.Failure = &task.Failure{Stage: StageCancelled, Reason: e.Reason, Ran: ranSoFar(t)}
	return nil
}

func (Expire) apply(t *task.Task, now time.Time) *task.Error {
	if until := t.Deadline(); !now.After(until) {
		return &task.Error{Kind: task.ErrNotReady, Detail: "there is time left", RetryAfter: until.Sub(now)}
	}
	stage := StageApprovalTimeout
	switch t.State {
	case task.Approved:
		stage = StageUncollected
	case task.Executing:
		stage = StageExecutionTimeout
		if t.Execution.Upstream.Ended() {
			stage = StageUnfetched
		}
	default:
	}
	oweCancellation(t, now)
	t.Failure = &task.Failure{Stage: stage, Reason: timeOver, Ran: ranSoFar(t), Retriable: t.State != task.Executing}
	return nil
}

func (e Contact) apply(t *task.Task, now time.Time) *task.Error {
	if e.PollInterval < 0 {
		return &task.Error{Kind: task.ErrInvalid, Detail: "negative poll interval"}
	}
	t.ContactAt = now
	if e.PollInterval > 0 {
		t.PollInterval = e.PollInterval.Truncate(time.Microsecond)
	}
	if !e.WaitsUntil.IsZero() {
		t.WaitsUntil = precise(e.WaitsUntil)
	}
	return nil
}

func (e ExtendTTL) apply(t *task.Task, _ time.Time) *task.Error {
	until := precise(t.CreatedAt.Add(min(e.TTL, e.Max)))
	if !until.After(t.ExpiresAt) {
		return &task.Error{Kind: task.ErrInvalidTTL, Detail: "it lives that long already"}
	}
	t.ExpiresAt = until
	return nil
}

func (e RenewLease) apply(t *task.Task, _ time.Time) *task.Error {
	if refused := runBy(t, e.By); refused != nil {
		return refused
	}
	until := precise(e.Until)
	if !until.After(t.Execution.LeaseUntil) {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the lease holds longer already"}
	}
	t.Execution = t.Execution.Clone()
	t.Execution.LeaseUntil = until
	return nil
}

func (Deliver) apply(t *task.Task, now time.Time) *task.Error {
	if !t.DeliveredAt.IsZero() {
		return &task.Error{Kind: ErrAlreadyDelivered}
	}
	t.DeliveredAt = now
	return nil
}

// runBy returns nil if executor is the one that runs t.
func runBy(t *task.Task, executor string) *task.Error {
	if t.Execution == nil || t.Execution.Executor != executor {
		return &task.Error{Kind: ErrNotExecutor}
	}
	return nil
}

// ranSoFar returns whether the call of t reached the tool, as far as is known, when t
// ends before its run.
func ranSoFar(t *task.Task) task.Ran {
	switch {
	case t.State != task.Executing:
		return task.RanNo
	case t.Execution.Upstream.Ended():
		return task.RanYes
	default:
		return task.RanUnknown
	}
}
