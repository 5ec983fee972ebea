package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A runner makes approved calls, once each, and keeps their outcomes.
type runner struct {
	*core

	contacts  *contacts
	canceller *canceller
	tasks     *tasks
	spools    *spools
	grants    *grants
}

// launch has an approved task run with send, if it may still run and nobody
// else runs it, and returns the task as it is then. The run itself belongs to
// the desk: it goes on when ctx ends.
func (rn *runner) launch(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	t, err := rn.tasks.get(ctx, ref)
	if err != nil || t.State != task.Approved {
		return t, err
	}
	verdict, drift, err := rn.recheckAll(ctx, t, send)
	if err != nil {
		return t, err
	}
	if drift != nil {
		return rn.refuse(ctx, ref, *drift, verdict)
	}
	if !rn.work.enter() {
		return t, closedError(t.ID, task.ActionClaim)
	}
	claimed, err := rn.begin(ctx, beginning{
		updater: rn.rechecker(verdict), ref: ref,
		event: func(executor string, until time.Time) task.Event {
			return task.Claim{By: rn.cfg.Name, Executor: executor, LeaseUntil: until}
		},
		still: func(ctx context.Context) bool {
			_, drift, err := rn.recheckAll(ctx, t, send)
			return err == nil && drift == nil
		},
	})
	if err != nil {
		rn.work.running.Done()
		if overtaken(err) {
			return rn.tasks.get(ctx, ref)
		}
		return claimed, err
	}
	rn.contacts.forget(ref.ID)
	rn.observe(ctx, Event{Step: Started, Task: claimed})
	go rn.run(context.WithoutCancel(ctx), claimed, send)
	return claimed, nil
}

// recheckAll makes every check before a run: those of recheck, of the tool's definition and
// of the grant. It returns what the policy says now, and why t must not run, or nil if it may.
func (rn *runner) recheckAll(ctx context.Context, t task.Task, send Sender) (policy.Verdict, *task.Failure, error) {
	verdict, drift := rn.recheck(t)
	if drift == nil {
		drift = toolDrift(ctx, t, send)
	}
	if drift != nil {
		return verdict, drift, nil
	}
	drift, err := rn.grants.drift(ctx, t)
	return verdict, drift, err
}

// claimTries is how often a store is asked to make a claim if it does not say whether
// it has. A second claim that is made also keeps the first from being made later,
// because it changes the version of the task.
const claimTries = 2

// A beginning is how a run of a task begins.
type beginning struct {
	updater task.Updater
	ref     task.Ref
	event   func(executor string, until time.Time) task.Event
	still   func(context.Context) bool // whether the run may still begin if the claim has taken long
}

// begin makes a new run of this desk the executor of a task, and returns the task as it is
// then. If the store does not say whether it
// has made the change, begin finds out: a claim whose call is never made would count as
// one that may have run. So begin does not end with ctx, but long before the lease does.
func (rn *runner) begin(ctx context.Context, b beginning) (task.Task, error) {
	if err := ctx.Err(); err != nil {
		return task.Task{}, err
	}
	ctx, stop := rn.beforeKill(ctx, rn.cfg.Lease/2)
	defer stop()
	executor := rn.newExecutor()
	for tries := 1; ; tries++ {
		now := rn.cfg.Now()
		t, err := b.updater.Advance(ctx, b.ref, b.event(executor, now.Add(rn.cfg.Lease)), now)
		unread := t.ID == "" // so there was nothing to change
		switch {
		case err == nil || isRunBy(t, executor):
			return t, nil
		case !task.Unsure(err) || unread && tries == 1:
			return t, err
		}
		stored, failed := rn.readAgain(ctx, b.ref)
		switch {
		case failed != nil:
			return t, &task.Error{Kind: task.KindUnavailable, ID: b.ref.ID, Action: task.ActionClaim, Suggest: "try again in a moment", Err: failed}
		case isRunBy(stored, executor):
			return stored, nil
		case tries == claimTries || !b.still(ctx):
			return t, err
		}
	}
}

// beforeKill returns a context that does not end with ctx, but after the given time or when
// the desk cannot wait any longer, and what ends it.
func (rn *runner) beforeKill(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), after)
	go func() {
		defer stop()
		select {
		case <-rn.work.kill:
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// isRunBy reports whether executor is the one that runs t.
func isRunBy(t task.Task, executor string) bool {
	return t.State == task.Executing && t.Execution.Executor == executor
}

// readAgain returns a task as the store has it, once the store can be read, after a
// moment. It fails if that is not before ctx or the desk ends.
func (rn *runner) readAgain(ctx context.Context, ref task.Ref) (task.Task, error) {
	for pause := firstPause; ; pause = nextPause(pause) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return task.Task{}, ctx.Err()
		case <-rn.work.kill:
			return task.Task{}, closedError(ref.ID, task.ActionClaim)
		}
		if t, err := rn.cfg.Store.Get(ctx, ref); !task.Unsure(err) {
			return t, err
		}
	}
}

// firstPause is how long to wait before a store that failed is tried again.
const firstPause = 50 * time.Millisecond

// nextPause returns how long to wait the next time.
func nextPause(pause time.Duration) time.Duration { return min(2*pause, time.Second) }

// recheck checks the digest of the call, the age of its approval and the policy.
// It returns what the policy says now, if it was asked, and why t must not run, or
// nil if it may.
func (rn *runner) recheck(t task.Task) (policy.Verdict, *task.Failure) {
	now := rn.cfg.Now()
	switch {
	case !intact(t):
		return policy.Verdict{}, &task.Failure{Stage: task.StageArgumentDrift, Reason: "the call is not the one that was approved"}
	case rn.stale(t, now):
		return policy.Verdict{}, &task.Failure{Stage: task.StageUncollected, Reason: tooOld, Retriable: true}
	}
	var v policy.Verdict
	for _, call := range judged(t, now) {
		v = rn.cfg.Judge(call)
		if drift := rn.drift(t, v); drift != nil {
			return v, drift
		}
	}
	return v, nil
}

// drift returns why t must not run although it was approved, if the policy that
// is in force now says v; or nil.
func (rn *runner) drift(t task.Task, v policy.Verdict) *task.Failure {
	switch v.Action {
	case policy.Forward:
		return nil
	case policy.Approve:
		if w, ok := rn.cfg.Workflow(v.Workflow); ok && v.Workflow == t.Workflow && w.satisfied(t) {
			return nil
		}
		return &task.Failure{Stage: task.StagePolicyDrift, Reason: "the policy now asks for another approval", Retriable: true}
	default:
		return &task.Failure{Stage: task.StagePolicyDrift, Reason: "the policy now denies it"}
	}
}

const tooOld = "the approval is too old"

// intact reports whether the message that would be sent is the call that t was
// made for, and that its approvers saw.
func intact(t task.Task) bool {
	call, err := readCall(t.Call.Upstream, []byte(t.Call.Message))
	if err != nil {
		return false
	}
	if early(t, call) {
		call.Also = ""
	}
	digest, err := call.Digest()
	return err == nil && call == t.Call && digest == t.CallDigest()
}

// early reports whether t was made by a version of the gate that did not show
// what is sent with a call besides its arguments, where call is what its message
// says. Such a task is sent without that.
func early(t task.Task, call task.Call) bool { return t.Call.Also == "" && call.Also != "" }

// refuse ends an approved task that must not run. One that runs by now, because
// somebody else found that it may, runs on.
func (rn *runner) refuse(ctx context.Context, ref task.Ref, why task.Failure, v policy.Verdict) (task.Task, error) {
	fail := task.Fail{By: rn.cfg.Name, From: task.Approved, Failure: why}
	t, err := rn.rechecker(v).Advance(ctx, ref, fail, rn.cfg.Now())
	if overtaken(err) {
		return rn.tasks.get(ctx, ref)
	}
	if err != nil {
		return t, err
	}
	rn.contacts.forget(t.ID)
	rn.cfg.Log.WarnContext(About(ctx, t), "approved call not run", "from", task.Approved, "to", t.State, "stage", why.Stage, "reason", why.Reason)
	rn.observe(ctx, Event{Step: NotRun, Task: t})
	return t, nil
}

// run makes the call of t, which this desk has claimed, and keeps the answer.
// It ends a run that was entered.
func (rn *runner) run(ctx context.Context, t task.Task, send Sender) {
	defer rn.work.running.Done()
	sending, stop := rn.working(ctx, t)
	outcome, err := send.Call(sending, t)
	in := rn.spooled(t, outcome.Error)
	e := rn.ending(sending, in, t, outcome, err)
	outcome.close()
	interrupted := err != nil && sending.Err() != nil
	rn.leases.count(t.Execution.Executor, 1) // this desk does not take the run for lost while it keeps the answer
	stop()
	// Those who read the answer do not wait for the store for ever.
	late := time.AfterFunc(rn.cfg.Lease, func() { rn.spools.end(t.ID, in.spool, e) })
	settled := rn.settle(ctx, t, e)
	late.Stop()
	rn.leases.count(t.Execution.Executor, -1)
	rn.spools.end(t.ID, in.spool, e)
	upstreamTask := ""
	if !settled && outcome.Report != nil {
		upstreamTask = outcome.Report.Task // which nobody else knows of
	}
	switch {
	case interrupted || upstreamTask != "":
		rn.canceller.cancelRun(ctx, t, send, upstreamTask)
	case !settled && err == nil: // it was cancelled, and answered anyway
		rn.canceller.logUnsettled(ctx, t, rn.canceller.settle(ctx, t.ID, task.CancellationMoot))
	}
}

// working returns a context for work on t, of which this desk is the executor,
// and what ends it: the work may take as long as a call, and is interrupted if
// the desk cannot wait for it any longer.
func (rn *runner) working(ctx context.Context, t task.Task) (context.Context, func()) {
	limited, stop := context.WithTimeout(About(ctx, t), min(rn.settings().Execution, t.Remaining(rn.cfg.Now())))
	working, end := rn.during(limited, t, rn.work.kill)
	return working, func() {
		end()
		stop()
	}
}

// during returns a context that ends with ctx, when t has ended or has another
// executor, or when over is closed, and what ends it. Meanwhile this desk's lease of
// t is kept, and this desk does not take the run for lost.
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

// guard keeps the lease of t until ctx or t has ended, t has another executor, or
// over is closed.
func (rn *runner) guard(ctx context.Context, t task.Task, over <-chan struct{}) {
	ref := task.AnyOwner().Ref(t.ID)
	changes := task.WatchChanges(ctx, rn.cfg.Store, rn.cfg.Lease/3, ref)
	defer changes.Close()
	ahead := rn.ahead(t)
	for more := rn.goesOn(ctx, t.ID, t.Execution.Executor); more; {
		reason, err := changes.Next(ctx, nil, over)
		switch {
		case err != nil || reason == task.Ended:
			return
		case reason == task.Polled:
			more = rn.renew(About(ctx, t), t, ahead)
		default:
			more = rn.goesOn(ctx, t.ID, t.Execution.Executor)
		}
	}
}

// goesOn reports whether the run of a task by an executor is still to go on, as far as
// is known. An answer that somebody reads is let finish, though the task was cancelled;
// but not if another run keeps an answer by now, or has kept one.
func (rn *runner) goesOn(ctx context.Context, id task.ID, executor string) bool {
	now, err := rn.cfg.Store.Get(ctx, task.AnyOwner().Ref(id))
	switch {
	case err == nil && (now.Result != nil || now.State == task.Executing):
		return isRunBy(now, executor)
	case err == nil || errors.Is(err, task.ErrNotFound):
		return rn.spools.of(id).beingRead()
	default:
		return true
	}
}

// ahead returns by how much the time of t, which this desk has just claimed, is
// ahead of the desk's clock: another replica, or this machine before its clock
// was set back, has changed t at a later time. A lease is renewed in t's time,
// or other replicas would see it lapse.
func (rn *runner) ahead(t task.Task) time.Duration {
	return max(0, t.Execution.LeaseUntil.Sub(rn.cfg.Now().Add(rn.cfg.Lease)))
}

// renew prolongs the lease of t, whose time is ahead of the desk's clock, and
// reports whether the run is still to go on. A store that fails does not end it:
// others may, once the lease has lapsed.
func (rn *runner) renew(ctx context.Context, t task.Task, ahead time.Duration) bool {
	now := rn.cfg.Now().Add(ahead)
	e := task.RenewLease{By: t.Execution.Executor, Until: now.Add(rn.cfg.Lease)}
	_, err := task.Advance(ctx, rn.cfg.Store, task.AnyOwner().Ref(t.ID), e, now)
	if err != nil && ctx.Err() == nil {
		rn.cfg.Log.WarnContext(ctx, "lease not renewed", "error", err)
	}
	return err == nil || rn.goesOn(ctx, t.ID, t.Execution.Executor)
}

// settle ends the run for which this desk has claimed t, or hands it over, and
// reports whether t heard of it. While the store does not answer, it is tried again for
// as long as t lives, unless another replica takes the run for lost: an answer is worth
// it. It is tried for one lease only if the store refuses, if the desk is closed, and if
// the answer is the outcome of an upstream's task: the upstream has it for the next one.
func (rn *runner) settle(ctx context.Context, t task.Task, e task.Event) bool {
	tryUntil := rn.cfg.Now().Add(rn.cfg.Lease)
	for tries, pause := 1, firstPause; ; tries, pause = tries+1, nextPause(pause) {
		after, err := rn.attempt(ctx, t, e)
		if err == nil || endedWith(after, t, e) {
			rn.settledAs(ctx, after)
			return true
		}
		if handedOver(after, t, e) {
			return true
		}
		if overtaken(err) || errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrNotExecutor) {
			rn.cfg.Log.WarnContext(About(ctx, t), "answer dropped: the task has already ended, or another replica runs it", "state", after.State)
			return false
		}
		if tries&(tries-1) == 0 { // the 1st, the 2nd, the 4th time, and so on: it may last for hours
			rn.cfg.Log.ErrorContext(About(ctx, t), "answer not kept", "error", err, "tries", tries)
		}
		now := rn.cfg.Now()
		if task.Unsure(err) && rn.mayWait(t, now) {
			tryUntil = now.Add(rn.cfg.Lease)
		}
		if !now.Before(tryUntil) {
			rn.cfg.Log.ErrorContext(About(ctx, t), "answer dropped: the store has not taken it in time", "error", err, "tries", tries)
			return false
		}
		time.Sleep(pause)
	}
}

// attempt stores e, which is what became of the run for which t was claimed.
func (rn *runner) attempt(ctx context.Context, t task.Task, e task.Event) (task.Task, error) {
	ctx, stop := context.WithTimeout(ctx, rn.cfg.Lease)
	defer stop()
	return rn.updater().Advance(ctx, task.AnyOwner().Ref(t.ID), e, rn.cfg.Now())
}

// mayWait reports whether the outcome of t's run may wait for a store that cannot be
// reached.
func (rn *runner) mayWait(t task.Task, now time.Time) bool {
	return t.Execution.UpstreamTask == "" && now.Before(t.ExpiresAt) && !rn.work.isClosed()
}

// endedWith reports whether the run for which claimed was claimed has ended with e,
// if the task is now as given: an attempt to store that has succeeded, and its answer
// was lost.
func endedWith(now, claimed task.Task, e task.Event) bool {
	if now.Execution == nil || now.Execution.Executor != claimed.Execution.Executor {
		return false
	}
	switch e := e.(type) {
	case task.Complete:
		return now.State == task.Completed
	case task.Fail:
		return now.Failure != nil && *now.Failure == e.Failure
	default:
		return false
	}
}

// handedOver reports whether the call of a run, for which claimed was claimed, has
// been handed over with e, if the task is now as given. Only the run itself can do
// that. The task may have changed since then, and may run again.
func handedOver(now, claimed task.Task, e task.Event) bool {
	_, handing := e.(task.Progress)
	return handing && claimed.Execution.UpstreamTask == "" &&
		now.Execution != nil && now.Execution.Executor != claimed.Execution.Executor
}

// settledAs reports what became of a run.
func (rn *runner) settledAs(ctx context.Context, t task.Task) {
	if !t.State.Terminal() {
		rn.cfg.Log.DebugContext(About(ctx, t), "Created upstream task",
			"upstream_task_id", t.Execution.UpstreamTask, "asks", t.Asks())
		rn.observe(ctx, Event{Step: Reported, Task: t})
		return
	}
	from, to := lastMove(t)
	rn.cfg.Log.InfoContext(About(ctx, t), "call run", "from", from, "to", to)
	rn.observe(ctx, Event{Step: Finished, Task: t})
}
