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
	verdict, drift := rn.recheck(t)
	if drift == nil {
		drift = toolDrift(ctx, t, send)
	}
	if drift == nil {
		if drift, err = rn.grants.drift(ctx, t); err != nil {
			return t, err
		}
	}
	if drift != nil {
		return rn.refuse(ctx, ref, *drift, verdict)
	}
	if !rn.work.enter() {
		return t, closedError(t.ID, task.ActionClaim)
	}
	now := rn.cfg.Now()
	claim := task.Claim{By: rn.cfg.Name, LeaseUntil: now.Add(rn.cfg.Lease)}
	claimed, err := rn.rechecker(verdict).Advance(ctx, ref, claim, now)
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

// recheck asks everything again that was asked when t was held, and returns
// what the policy says now, if it was asked, and why t must not run, or nil if
// it may.
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
	e := rn.ending(sending, t, outcome, err)
	outcome.close()
	interrupted := err != nil && sending.Err() != nil
	stop()
	settled := rn.settle(ctx, t, e)
	rn.spools.end(t.ID, e)
	upstreamTask := ""
	if !settled && outcome.Report != nil {
		upstreamTask = outcome.Report.Task // which nobody else knows of
	}
	switch {
	case interrupted || upstreamTask != "":
		rn.canceller.cancelRun(ctx, t, send, upstreamTask)
	case !settled && err == nil: // it was cancelled, and answered all the same
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

// during returns a context that ends with ctx, when t has ended, or when over
// is closed, and what ends it. Meanwhile this desk's lease of t is kept.
func (rn *runner) during(ctx context.Context, t task.Task, over <-chan struct{}) (context.Context, func()) {
	working, stop := context.WithCancel(ctx)
	rn.leases.count(t.ID, 1)
	var guard sync.WaitGroup
	guard.Go(func() {
		defer stop()
		rn.guard(working, t, over)
	})
	return working, func() {
		stop()
		guard.Wait()
		rn.leases.count(t.ID, -1)
	}
}

// guard keeps the lease of t until ctx or t has ended, or over is closed. An
// answer that somebody reads is let finish, though t was cancelled.
func (rn *runner) guard(ctx context.Context, t task.Task, over <-chan struct{}) {
	ref := task.AnyOwner().Ref(t.ID)
	changes := task.WatchChanges(ctx, rn.cfg.Store, rn.cfg.Lease/3, ref)
	defer changes.Close()
	ahead := rn.ahead(t)
	for ended := rn.isOver(ctx, ref); !ended; {
		reason, err := changes.Next(ctx, nil, over)
		switch {
		case err != nil || reason == task.Ended:
			return
		case reason == task.Polled:
			ended = !rn.renew(About(ctx, t), ref, ahead) && !rn.spools.of(t.ID).beingRead()
		default:
			ended = rn.isOver(ctx, ref) && !rn.spools.of(t.ID).beingRead()
		}
	}
}

// isOver reports whether a task is known to have ended.
func (rn *runner) isOver(ctx context.Context, ref task.Ref) bool {
	t, err := rn.cfg.Store.Get(ctx, ref)
	return err == nil && t.State.Terminal() || errors.Is(err, task.ErrNotFound)
}

// ahead returns by how much the time of t, which this desk has just claimed, is
// ahead of the desk's clock: another replica, or this machine before its clock
// was set back, has changed t at a later time. A lease is renewed in t's time,
// or other replicas would see it lapse.
func (rn *runner) ahead(t task.Task) time.Duration {
	return max(0, t.Execution.LeaseUntil.Sub(rn.cfg.Now().Add(rn.cfg.Lease)))
}

// renew prolongs the lease of a task whose time is ahead of the desk's clock, and
// reports whether it is still to run. A store that fails does not end a run:
// others may, once the lease has lapsed.
func (rn *runner) renew(ctx context.Context, ref task.Ref, ahead time.Duration) bool {
	now := rn.cfg.Now().Add(ahead)
	_, err := task.Advance(ctx, rn.cfg.Store, ref, task.RenewLease{By: rn.cfg.Name, Until: now.Add(rn.cfg.Lease)}, now)
	if err != nil && ctx.Err() == nil {
		rn.cfg.Log.WarnContext(ctx, "lease not renewed", "error", err)
	}
	return !overtaken(err) && !errors.Is(err, task.ErrNotFound)
}

// settle ends the run of t, or hands it over, and reports whether t heard of
// it. A store that fails is tried again as long as the lease can hold: what is
// not recorded by then counts as unknown.
func (rn *runner) settle(ctx context.Context, t task.Task, e task.Event) bool {
	ref := task.AnyOwner().Ref(t.ID)
	ctx, stop := context.WithTimeout(ctx, rn.cfg.Lease)
	defer stop()
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		after, err := rn.updater().Advance(ctx, ref, e, rn.cfg.Now())
		if err == nil {
			rn.settledAs(ctx, after)
			return true
		}
		if overtaken(err) || errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrNotExecutor) {
			rn.cfg.Log.WarnContext(About(ctx, t), "answer dropped: the task has already ended, or another replica runs it", "state", after.State)
			return false
		}
		rn.cfg.Log.ErrorContext(About(ctx, t), "answer not kept", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
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
