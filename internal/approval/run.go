package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A runner runs approved calls, at most once each, and stores their results.
type runner struct {
	env        *env
	workflows  *workflows
	leases     *leases
	background *background
	contacts   *contacts
	canceller  *canceller
	tasks      *tasks
	answers    *partialAnswers
	grants     *grants
	confirmer  *confirmer
}

// launch runs t with send if it is approved, passes all checks and no other run claims it. It
// returns the updated task. The run continues when ctx ends. If t has changed since it was read,
// the claim fails.
func (rn *runner) launch(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	t, err := rn.tasks.settled(ctx, t)
	if err != nil || t.State != task.Approved {
		return t, err
	}
	held, _ := readStored(t) // recheck refuses a call that cannot be parsed
	verdict, drift, err := rn.recheckAll(ctx, held, send)
	if err != nil {
		return t, err
	}
	if drift != nil {
		return rn.refuse(ctx, t, *drift, verdict)
	}
	if !rn.background.enter() {
		return t, closedError(t.ID, action.Claim)
	}
	claimed, err := rn.claimRun(ctx, claimAttempt{
		updater: rn.rechecker(verdict), ref: task.OwnedBy(t.Owner).Ref(t.ID), read: &t,
		event: func(executor string, until time.Time) lifecycle.Event {
			return lifecycle.Claim{By: rn.env.name, Executor: executor, LeaseUntil: until}
		},
		mayStillRun: func(ctx context.Context) bool {
			_, drift, err := rn.recheckAll(ctx, held, send)
			return err == nil && drift == nil
		},
	})
	if err != nil {
		rn.background.running.Done()
		if lostRace(err) {
			return rn.tasks.get(ctx, task.OwnedBy(t.Owner).Ref(t.ID))
		}
		return claimed, err
	}
	rn.contacts.forget(t.ID)
	rn.env.observe(ctx, Event{Step: Started, Task: claimed})
	go rn.run(context.WithoutCancel(ctx), claimed, held.request(), send)
	return claimed, nil
}

// recheckAll makes every check before a run: those of recheck, of the tool's definition, of the grant
// and of passkeys. It returns the current verdict, and the reason not to run the task, or nil.
func (rn *runner) recheckAll(ctx context.Context, held storedCall, send Sender) (policy.Verdict, *task.Failure, error) {
	verdict, drift := rn.recheck(held)
	if drift == nil {
		drift = toolDrift(ctx, held, send)
	}
	if drift != nil {
		return verdict, drift, nil
	}
	drift, err := rn.grants.drift(ctx, held.t, verdict)
	if drift == nil && err == nil {
		drift, err = rn.confirmer.drift(ctx, held.t)
	}
	return verdict, drift, err
}

// rechecker returns an updater that records the current verdict v in its notes.
func (rn *runner) rechecker(v policy.Verdict) lifecycle.Updater {
	return lifecycle.Updater{Store: rn.env.store, Notes: func(before, after task.Task, e lifecycle.Event) []task.Note {
		notes := notesOf(before, after, e)
		for i := range notes {
			if v.Snapshot != "" {
				notes[i].PolicySnapshot, notes[i].Verdict = v.Snapshot, safetext.Text(v.Reason, review.MaxReason)
			}
		}
		return notes
	}}
}

// claimTries is how often a claim is sent to a store that does not confirm it. A second claim
// changes the version of the task, so the first one cannot take effect later.
const claimTries = 2

// A claimAttempt describes how a run claims its task.
type claimAttempt struct {
	updater     lifecycle.Updater
	ref         task.Ref
	read        *task.Task // the last stored state of the task, if it was read
	event       func(executor string, until time.Time) lifecycle.Event
	mayStillRun func(context.Context) bool // whether the run may still start after a slow claim
}

func (b claimAttempt) advance(ctx context.Context, e lifecycle.Event, now time.Time) (task.Task, error) {
	if b.read == nil {
		return b.updater.Advance(ctx, b.ref, e, now)
	}
	return b.updater.AdvanceFrom(ctx, *b.read, e, now)
}

// claimRun makes a new run the executor of a task, and returns the claimed task. If the store does
// not confirm the claim, claimRun reads the task to find out: a claimed call that is not made
// would count as one that may have run. So claimRun does not end with ctx, but well before the
// lease expires.
func (rn *runner) claimRun(ctx context.Context, b claimAttempt) (task.Task, error) {
	if err := ctx.Err(); err != nil {
		return task.Task{}, err
	}
	ctx, stop := rn.beforeKill(ctx, rn.env.lease/2)
	defer stop()
	executor := rn.leases.newExecutor()
	for tries := 1; ; tries++ {
		now := rn.env.now()
		t, err := b.advance(ctx, b.event(executor, now.Add(rn.env.lease)), now)
		unread := t.ID == "" // the task was not read, so nothing changed
		switch {
		case err == nil || isRunBy(t, executor):
			return t, nil
		case !storekit.MaybeChanged(err) || unread && tries == 1:
			return t, err
		}
		stored, failed := rn.readAgain(ctx, b.ref)
		switch {
		case failed != nil:
			return t, &task.Error{Kind: task.ErrUnavailable, ID: b.ref.ID, Action: action.Claim, Suggest: "try again in a moment", Err: failed}
		case isRunBy(stored, executor):
			return stored, nil
		case tries == claimTries || !b.mayStillRun(ctx):
			return t, err
		}
	}
}

// beforeKill returns a context that ends after the given time or when the service must stop, but
// not with ctx, and its cancel function.
func (rn *runner) beforeKill(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), after)
	go func() {
		defer stop()
		select {
		case <-rn.background.kill:
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// isRunBy reports whether executor runs t.
func isRunBy(t task.Task, executor string) bool {
	return t.State == task.Executing && t.Execution.Executor == executor
}

// readAgain reads a task after a pause, and retries while the store fails. It fails when ctx ends
// or the service must stop.
func (rn *runner) readAgain(ctx context.Context, ref task.Ref) (task.Task, error) {
	for pause := firstPause; ; pause = nextPause(pause) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return task.Task{}, ctx.Err()
		case <-rn.background.kill:
			return task.Task{}, closedError(ref.ID, action.Claim)
		}
		if t, err := rn.env.store.Get(ctx, ref); !storekit.MaybeChanged(err) {
			return t, err
		}
	}
}

// firstPause is the pause before the first retry after a store error.
const firstPause = 50 * time.Millisecond

// nextPause returns the pause after the given one.
func nextPause(pause time.Duration) time.Duration { return min(2*pause, time.Second) }

// recheck checks the digest of the call, the age of its approval and the policy. It returns the
// current verdict, if policy was asked, and the reason not to run the task, or nil.
func (rn *runner) recheck(held storedCall) (policy.Verdict, *task.Failure) {
	now, t := rn.env.now(), held.t
	switch {
	//mutate:false TestRecheckTamperedMessage a tampered message runs
	case !held.intact():
		return policy.Verdict{}, &task.Failure{Stage: lifecycle.StageArgumentDrift, Reason: "the call is not the one that was approved"}
	//mutate:false TestR(echeck|unValidity).* an approval never expires
	case rn.workflows.stale(t, now):
		return policy.Verdict{}, &task.Failure{Stage: lifecycle.StageUncollected, Reason: tooOld, Retriable: true}
	}
	var v policy.Verdict
	for _, call := range judged(t, held.packet.Messages, now) {
		v = rn.env.judge(call)
		//mutate:false TestRecheck a call runs although policy denies it now
		if drift := rn.drift(t, v); drift != nil {
			return v, drift
		}
	}
	return v, nil
}

// drift returns why the approved task t must not run under the current verdict v, or nil.
func (rn *runner) drift(t task.Task, v policy.Verdict) *task.Failure {
	switch v.Action {
	case policy.Forward:
		return nil
	case policy.Approve:
		if w, ok := rn.workflows.named(v.Workflow); ok && v.Workflow == t.Workflow && satisfied(w, t) {
			return nil
		}
		return &task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: "the policy now asks for another approval", Retriable: true}
	default:
		return &task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: "the policy now denies it"}
	}
}

const tooOld = "the approval is too old"

// A storedCall is the stored call of a task. It is parsed once, so the call that is checked is the
// call that is sent.
type storedCall struct {
	t      task.Task
	packet jsonrpc.Packet // has no messages if the stored text is not a call
	call   task.Call      // the call in packet
}

func readStored(t task.Task) (storedCall, error) {
	message := []byte(t.Call.Message)
	packet, err := jsonrpc.Parse(message, jsonrpc.Limits{})
	s := storedCall{t: t, packet: packet}
	if err == nil {
		s.call, err = callIn(t.Call.Upstream, packet, message)
	}
	return s, err
}

// intact reports whether the stored message is the call that the approvers saw.
func (s storedCall) intact() bool {
	call := s.call
	if heldByEarlyVersion(s.t, call) {
		call.Also = ""
	}
	digest, err := call.Digest()
	return err == nil && call == s.t.Call && digest == s.t.CallDigest()
}

// heldByEarlyVersion reports whether t was held by an early version of the gate, which did not
// show members besides the arguments. Such a task is sent without those members. Call is read from
// its message.
func heldByEarlyVersion(t task.Task, call task.Call) bool {
	return t.Call.Also == "" && call.Also != ""
}

// refuse ends an approved task that must not run. If another replica has started it in the
// meantime, it keeps running.
func (rn *runner) refuse(ctx context.Context, t task.Task, why task.Failure, v policy.Verdict) (task.Task, error) {
	fail := lifecycle.Fail{By: rn.env.name, From: task.Approved, Failure: why}
	t, err := rn.rechecker(v).AdvanceFrom(ctx, t, fail, rn.env.now())
	if lostRace(err) {
		return rn.tasks.get(ctx, task.OwnedBy(t.Owner).Ref(t.ID))
	}
	if err != nil {
		return t, err
	}
	rn.contacts.forget(t.ID)
	rn.env.log.WarnContext(LogContext(ctx, t), "approved call not run", "from", task.Approved, "to", t.State, "stage", why.Stage, "reason", why.Reason)
	rn.env.observe(ctx, Event{Step: NotRun, Task: t})
	return t, nil
}

// run makes the call of the claimed task t and stores the result. It ends one unit of background
// work.
func (rn *runner) run(ctx context.Context, t task.Task, m UpstreamRequest, send Sender) {
	defer rn.background.running.Done()
	sending, stop := rn.working(ctx, t)
	outcome, err := send.Call(sending, t, m)
	in := rn.newChunkWriter(t, outcome.Error)
	e := rn.endOf(sending, in, t, outcome, err)
	outcome.close()
	if fail, failed := e.(lifecycle.Fail); failed && fail.Failure.Stage == lifecycle.StageSessionGone {
		rn.grants.allowRetry(ctx, t) // before others see that t has ended and ask for approval again
	}
	interrupted := err != nil && sending.Err() != nil
	rn.leases.count(t.Execution.Executor, 1) // keeps the run alive here while its result is stored
	stop()
	// Clients that read the result must not wait forever for the store.
	late := time.AfterFunc(rn.env.lease, func() { rn.answers.end(t.ID, in.answer, e) })
	settled := rn.settle(ctx, t, e)
	late.Stop()
	rn.leases.count(t.Execution.Executor, -1)
	rn.answers.end(t.ID, in.answer, e)
	upstreamTask := ""
	if !settled && outcome.Report != nil {
		upstreamTask = outcome.Report.Task // known only to this run
	}
	switch {
	case interrupted || upstreamTask != "":
		rn.canceller.cancelRun(ctx, t, send, upstreamTask)
	case !settled && err == nil: // it was canceled, and answered anyway
		rn.canceller.logUnsettled(ctx, t, rn.canceller.settle(ctx, t.ID, gatetask.CancellationMoot))
	}
}

// working returns a context for the run of t and a function that ends it. The context ends when
// the call takes too long or the service must stop.
func (rn *runner) working(ctx context.Context, t task.Task) (context.Context, func()) {
	limited, stop := context.WithTimeout(LogContext(ctx, t), min(rn.env.settings().Execution, t.Remaining(rn.env.now())))
	working, end := rn.during(limited, t, rn.background.kill)
	return working, func() {
		end()
		stop()
	}
}

// during returns a context and a function that ends it. The context ends with ctx, when t ends or
// has another executor, or when over is closed. Meanwhile the lease of t is renewed.
func (rn *runner) during(ctx context.Context, t task.Task, over <-chan struct{}) (context.Context, func()) {
	working, stop := context.WithCancel(ctx)
	rn.leases.count(t.Execution.Executor, 1)
	var guard sync.WaitGroup
	guard.Go(func() {
		defer stop()
		rn.guard(working, t, over)
	})
	return working, func() {
		stop()
		guard.Wait()
		rn.leases.count(t.Execution.Executor, -1)
	}
}

// guard renews the lease of t until ctx or t ends, t has another executor, or over is closed.
func (rn *runner) guard(ctx context.Context, t task.Task, over <-chan struct{}) {
	ref := task.AnyOwner().Ref(t.ID)
	changes := storekit.WatchChanges(ctx, rn.env.store, min(guardPause, rn.env.lease/3), ref)
	defer changes.Close()
	ahead := rn.ahead(t)
	for looked, more := false, true; more; looked = true {
		reason, err := changes.Next(ctx, nil, over)
		switch {
		case err != nil || reason == storekit.Ended:
			return
		case reason == storekit.Polled && looked:
			more = rn.renew(LogContext(ctx, t), t, ahead)
		default:
			//mutate:swap "rn.mayContinue(ctx, t.ID, t.Execution.Executor)" "true" TestCancelExecuting a canceled call keeps running
			more = rn.mayContinue(ctx, t.ID, t.Execution.Executor)
		}
		if !looked {
			changes.PollIn(rn.env.lease / 3)
		}
	}
}

// guardPause is when the guard first checks t for changes between the claim and the start of the
// watch. Most calls are answered before.
const guardPause = 250 * time.Millisecond

// mayContinue reports whether a run should continue. After a cancellation it may finish a result
// that a client is reading, unless another run stores or has stored a result.
func (rn *runner) mayContinue(ctx context.Context, id task.ID, executor string) bool {
	now, err := rn.env.store.Get(ctx, task.AnyOwner().Ref(id))
	switch {
	case err == nil && (now.Result != nil || now.State == task.Executing):
		return isRunBy(now, executor)
	case err == nil || errors.Is(err, task.ErrNotFound):
		return rn.answers.of(id).beingRead()
	default:
		return true
	}
}

// ahead returns how far the claim time of t is ahead of this clock: another replica, or this
// machine before its clock was set back, changed t at a later time. The lease is renewed in t's
// time, so that it does not look expired to other replicas.
func (rn *runner) ahead(t task.Task) time.Duration {
	return max(0, t.Execution.LeaseUntil.Sub(rn.env.now().Add(rn.env.lease)))
}

// renew renews the lease of t, and reports whether the run may continue. A failing store does not
// end the run; other replicas can end it after the lease expires.
func (rn *runner) renew(ctx context.Context, t task.Task, ahead time.Duration) bool {
	now := rn.env.now().Add(ahead)
	e := lifecycle.RenewLease{By: t.Execution.Executor, Until: now.Add(rn.env.lease)}
	_, err := lifecycle.Advance(ctx, rn.env.store, task.AnyOwner().Ref(t.ID), e, now)
	if err != nil && ctx.Err() == nil {
		rn.env.log.WarnContext(ctx, "lease not renewed", "err", err)
	}
	return err == nil || rn.mayContinue(ctx, t.ID, t.Execution.Executor)
}

// settle stores the end of a run, or hands the call over to an upstream task, and reports whether
// it was stored. While the store is unavailable it retries until t expires, unless another replica
// takes over. It retries for one lease only if the store refuses, if the service is closed, or if
// the result can be fetched from an upstream task again.
func (rn *runner) settle(ctx context.Context, t task.Task, e lifecycle.Event) bool {
	tryUntil := rn.env.now().Add(rn.env.lease)
	for tries, pause := 1, firstPause; ; tries, pause = tries+1, nextPause(pause) {
		after, err := rn.attempt(ctx, t, e)
		if err == nil || endedWith(after, t, e) {
			rn.reportSettled(ctx, after)
			return true
		}
		if handedOver(after, t, e) {
			return true
		}
		if lostRace(err) || errors.Is(err, task.ErrNotFound) || errors.Is(err, lifecycle.ErrNotExecutor) {
			rn.env.log.WarnContext(LogContext(ctx, t), "answer dropped: the task has already ended, or another replica runs it", "state", after.State)
			return false
		}
		if tries&(tries-1) == 0 { // log the 1st, 2nd, 4th, … attempt: the store may be unavailable for hours
			rn.env.log.ErrorContext(LogContext(ctx, t), "answer not kept", "err", err, "tries", tries)
		}
		now := rn.env.now()
		if storekit.MaybeChanged(err) && rn.mayWait(t, now) {
			tryUntil = now.Add(rn.env.lease)
		}
		if !now.Before(tryUntil) {
			rn.env.log.ErrorContext(LogContext(ctx, t), "answer dropped: the store has not taken it in time", "err", err, "tries", tries)
			return false
		}
		time.Sleep(pause)
	}
}

// attempt stores the end e of the run.
func (rn *runner) attempt(ctx context.Context, t task.Task, e lifecycle.Event) (task.Task, error) {
	ctx, stop := context.WithTimeout(ctx, rn.env.lease)
	defer stop()
	return rn.env.updater.AdvanceFrom(ctx, t, e, rn.env.now())
}

// mayWait reports whether the end of t's run can be stored later.
func (rn *runner) mayWait(t task.Task, now time.Time) bool {
	return t.Execution.UpstreamTask == "" && now.Before(t.ExpiresAt) && !rn.background.isClosed()
}

// endedWith reports whether e was stored already, although its confirmation was lost. Now is the
// current task, claimed the task of this run.
func endedWith(now, claimed task.Task, e lifecycle.Event) bool {
	if now.Execution == nil || now.Execution.Executor != claimed.Execution.Executor {
		return false
	}
	switch e := e.(type) {
	case lifecycle.Complete:
		return now.State == task.Completed
	case lifecycle.Fail:
		return now.Failure != nil && *now.Failure == e.Failure
	default:
		return false
	}
}

// handedOver reports whether this run's hand-over e was stored already. Only the run itself can
// store it. The task may have changed since then, and may run again.
func handedOver(now, claimed task.Task, e lifecycle.Event) bool {
	_, handing := e.(lifecycle.Progress)
	return handing && claimed.Execution.UpstreamTask == "" &&
		now.Execution != nil && now.Execution.Executor != claimed.Execution.Executor
}

// reportSettled logs and reports the end of a run.
func (rn *runner) reportSettled(ctx context.Context, t task.Task) {
	if !t.State.Terminal() {
		rn.env.log.DebugContext(LogContext(ctx, t), "Created upstream task",
			"upstream_task_id", t.Execution.UpstreamTask, "asks", t.AwaitsInput())
		rn.env.observe(ctx, Event{Step: Reported, Task: t})
		return
	}
	from, to := lastMove(t)
	rn.env.log.InfoContext(LogContext(ctx, t), "call run", "from", from, "to", to)
	rn.env.observe(ctx, Event{Step: Finished, Task: t})
}

// toolDrift returns a failure if the definition of a tool has changed since the call was held, or
// nil. An unknown definition counts as unchanged.
func toolDrift(ctx context.Context, s storedCall, send Sender) *task.Failure {
	t := s.t
	held := heldDefinitions(t)
	definer, ok := send.(Definer)
	if !ok || t.Approval == nil || !slices.ContainsFunc(held, func(digest string) bool { return digest != "" }) {
		return nil
	}
	for i, now := range definer.Definitions(ctx, s.request()) {
		//mutate:swap "!review.Redefined" "review.Redefined" internal/mcphttp.TestToolDrift a call runs although its tool has changed
		if i >= len(held) || !review.Redefined(held[i], now) {
			continue
		}
		reason := "the tool has changed since the call was held"
		if t.Call.Method == MethodBatch {
			reason = fmt.Sprintf("the tool of message %d of the batch has changed since the batch was held", i+1)
		}
		return &task.Failure{Stage: lifecycle.StageToolDrift, Reason: reason, Retriable: true}
	}
	return nil
}

// heldDefinitions returns the digests of the tool definitions when t was held, in the order of
// [Definer].
func heldDefinitions(t task.Task) []string {
	if t.Call.Method == MethodBatch {
		return review.ReadFacts(t).DigestsInBatch
	}
	return []string{t.Verdict.ToolDigest}
}
