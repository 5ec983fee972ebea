package task

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"
)

// Reasons that a task gives for its own end.
const (
	leaseLapsed = "the executor's lease lapsed"
	timeOver    = "its time is over"
)

func (e Submit) apply(t *Task, now time.Time) *Error {
	deadline := earliest(precise(e.Deadline), t.ExpiresAt)
	if e.Quorum < 0 {
		return &Error{Kind: KindInvalid, Detail: "negative quorum"}
	}
	if !deadline.After(now) {
		return &Error{Kind: KindInvalid, Detail: "the approvers have no time"}
	}
	t.Approval = &Approval{Quorum: max(1, e.Quorum), SelfApproval: e.SelfApproval, Deadline: deadline}
	return nil
}

func (e Admit) apply(t *Task, now time.Time) *Error {
	if e.Grant == "" && len(e.Approvals) == 0 {
		return nil
	}
	if e.Grant == "" || len(e.Approvals) == 0 {
		return &Error{Kind: KindInvalid, Detail: "a standing approval has an id and approvals"}
	}
	a := &Approval{Quorum: len(e.Approvals), Deadline: now}
	for _, d := range e.Approvals {
		d.At, d.Gives, d.Grant, d.UnreadBytes = now, nil, e.Grant, 0
		a.Approvals = append(a.Approvals, d)
	}
	t.Approval = a
	return nil
}

func (e Approve) apply(t *Task, now time.Time) *Error {
	a := t.Approval.clone()
	switch {
	case (e.By == t.Owner || e.As.Own) && !a.SelfApproval:
		return &Error{Kind: KindSelfApproval}
	case slices.ContainsFunc(a.Approvals, func(d Decision) bool { return d.IsBy(append([]string{e.By}, e.As.Aliases...)...) }):
		return &Error{Kind: KindAlreadyDecided}
	}
	a.Approvals = append(a.Approvals, Decision{By: e.By, Authority: e.As, At: now, Reason: e.Reason, UnreadBytes: e.Unread, Gives: e.Gives})
	t.Approval = a
	return nil
}

func (e Reject) apply(t *Task, now time.Time) *Error { //nolint:unparam // others refuse
	t.Approval = t.Approval.clone()
	t.Approval.Rejection = &Decision{By: e.By, Authority: e.As, At: now, Reason: e.Reason}
	t.Failure = &Failure{Stage: StageApprovalRejected, Reason: e.Reason, Ran: RanNo}
	return nil
}

func (e Claim) apply(t *Task, now time.Time) *Error {
	lease := precise(e.LeaseUntil)
	if !lease.After(now) {
		return &Error{Kind: KindInvalid, Detail: "the lease has no length"}
	}
	if !utf8.ValidString(e.Executor) {
		return &Error{Kind: KindInvalid, Detail: "the executor's name is no valid UTF-8"}
	}
	if d, err := t.Call.Digest(); err != nil || d != t.CallDigest() {
		return &Error{Kind: KindDigestMismatch, Err: err}
	}
	t.Execution = &Execution{Executor: cmp.Or(e.Executor, e.By), StartedAt: now, LeaseUntil: lease}
	return nil
}

func (e Complete) apply(t *Task, _ time.Time) *Error {
	if e.Result.Kind != ResultOK && e.Result.Kind != ResultToolError {
		return &Error{Kind: KindInvalid, Detail: "a " + string(e.Result.Kind) + " completes nothing"}
	}
	if refused := t.runBy(cmp.Or(e.Executor, e.By)); refused != nil {
		return refused
	}
	return t.keep(e.Result)
}

func (e Fail) apply(t *Task, now time.Time) *Error {
	if refused := e.check(t.State); refused != nil {
		return refused
	}
	if refused := e.checkRun(t, now); refused != nil {
		return refused
	}
	f := e.Failure
	if f.Ran == "" {
		f.Ran = t.ranSoFar()
	}
	f.Retriable = f.Retriable && f.Ran == RanNo
	t.Failure = &f
	if e.Message != "" && t.Execution != nil {
		t.Execution = t.Execution.clone()
		t.Execution.Message = e.Message
	}
	if e.Result == nil {
		return nil
	}
	return t.keep(*e.Result)
}

// checkRun refuses e if it must not end the run of t.
func (e Fail) checkRun(t *Task, now time.Time) *Error {
	if e.Executor != "" || e.Result != nil {
		if refused := t.runBy(cmp.Or(e.Executor, e.By)); refused != nil {
			return refused
		}
	}
	if x := t.Execution; e.Detached && x != nil && !x.Detached() && !now.After(x.LeaseUntil) {
		return &Error{Kind: KindNotExecutor}
	}
	return nil
}

// check returns what is wrong with e as the end of a task in state s.
func (e Fail) check(s State) *Error {
	mayHaveRun := e.Failure.Ran == RanYes || e.Failure.Ran == RanUnknown || e.Result != nil
	switch {
	case e.From != "" && e.From != s:
		return lost(e.From, s)
	case e.Failure.Stage == "":
		return &Error{Kind: KindInvalid, Detail: "a failure without a stage"}
	case mayHaveRun && s != Executing:
		return &Error{Kind: KindInvalid, Detail: "a call that was not made cannot have run"}
	case e.Result != nil && e.Result.Kind != ResultRPCError:
		return &Error{Kind: KindInvalid, Detail: "a result is no failure"}
	default:
		return nil
	}
}

func (Lapse) apply(t *Task, now time.Time) *Error {
	if t.Execution.UpstreamTask != "" || t.Execution.Detached() {
		return &Error{Kind: KindInvalidTransition, Detail: "the run needs no executor"}
	}
	if until := t.Execution.LeaseUntil; !now.After(until) {
		return &Error{Kind: KindNotReady, Detail: "the lease holds", RetryAfter: until.Sub(now)}
	}
	t.Failure = &Failure{Stage: StageExecutorLost, Reason: leaseLapsed, Ran: RanUnknown}
	return nil
}

func (e Cancel) apply(t *Task, now time.Time) *Error { //nolint:unparam // others refuse
	t.owe(now)
	t.Failure = &Failure{Stage: StageCancelled, Reason: e.Reason, Ran: t.ranSoFar()}
	return nil
}

func (Expire) apply(t *Task, now time.Time) *Error {
	if until := t.deadline(); !now.After(until) {
		return &Error{Kind: KindNotReady, Detail: "there is time left", RetryAfter: until.Sub(now)}
	}
	stage := StageApprovalTimeout
	switch t.State {
	case Approved:
		stage = StageUncollected
	case Executing:
		stage = StageExecutionTimeout
		if t.Execution.Upstream.Ended() {
			stage = StageUnfetched
		}
	default:
	}
	t.owe(now)
	t.Failure = &Failure{Stage: stage, Reason: timeOver, Ran: t.ranSoFar(), Retriable: t.State != Executing}
	return nil
}

func (e Contact) apply(t *Task, now time.Time) *Error {
	if e.PollInterval < 0 {
		return &Error{Kind: KindInvalid, Detail: "negative poll interval"}
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

func (e ExtendTTL) apply(t *Task, _ time.Time) *Error {
	until := precise(t.CreatedAt.Add(min(e.TTL, e.Max)))
	if !until.After(t.ExpiresAt) {
		return &Error{Kind: KindInvalidTTL, Detail: "it lives that long already"}
	}
	t.ExpiresAt = until
	return nil
}

func (e RenewLease) apply(t *Task, _ time.Time) *Error {
	if refused := t.runBy(e.By); refused != nil {
		return refused
	}
	until := precise(e.Until)
	if !until.After(t.Execution.LeaseUntil) {
		return &Error{Kind: KindInvalid, Detail: "the lease holds longer already"}
	}
	t.Execution = t.Execution.clone()
	t.Execution.LeaseUntil = until
	return nil
}

func (Deliver) apply(t *Task, now time.Time) *Error {
	if !t.DeliveredAt.IsZero() {
		return &Error{Kind: KindAlreadyDelivered}
	}
	t.DeliveredAt = now
	return nil
}

// runBy returns nil if executor is the one that runs t.
func (t *Task) runBy(executor string) *Error {
	if t.Execution == nil || t.Execution.Executor != executor {
		return &Error{Kind: KindNotExecutor}
	}
	return nil
}

// ranSoFar returns what is known of the run of a task that ends for a reason of
// its own.
func (t *Task) ranSoFar() Ran {
	switch {
	case t.State != Executing:
		return RanNo
	case t.Execution.Upstream.Ended():
		return RanYes
	default:
		return RanUnknown
	}
}
