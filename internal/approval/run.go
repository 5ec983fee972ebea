package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// launch has an approved task run with send, if it may still run and nobody
// else runs it, and returns the task as it is then. The run itself belongs to
// the desk: it goes on when ctx ends.
func (d *Desk) launch(ctx context.Context, ref task.Ref, send Sender) (task.Task, error) {
	t, err := d.get(ctx, ref)
	if err != nil || t.State != task.Approved {
		return t, err
	}
	verdict, drift := d.recheck(t)
	if drift == nil {
		drift = toolDrift(ctx, t, send)
	}
	if drift != nil {
		return d.refuse(ctx, ref, *drift, verdict)
	}
	if !d.enter() {
		return t, closedError(t.ID, task.ActionClaim)
	}
	now := d.cfg.Now()
	claim := task.Claim{By: d.cfg.Name, LeaseUntil: now.Add(d.cfg.Lease)}
	claimed, err := d.rechecker(verdict).Advance(ctx, ref, claim, now)
	if err != nil {
		d.running.Done()
		if overtaken(err) {
			return d.get(ctx, ref)
		}
		return claimed, err
	}
	d.forget(ref.ID)
	d.tell(ctx, Event{Step: Started, Task: claimed})
	go d.run(context.WithoutCancel(ctx), claimed, send)
	return claimed, nil
}

// overtaken reports whether err means that somebody else was faster.
func overtaken(err error) bool {
	return errors.Is(err, task.ErrConcurrentModification) || errors.Is(err, task.ErrInvalidTransition) ||
		errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
}

// enter counts one more run, unless the desk is closed.
func (d *Desk) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.running.Add(1)
	return true
}

// recheck asks everything again that was asked when t was held, and returns
// what the policy says now, if it was asked, and why t must not run, or nil if
// it may.
func (d *Desk) recheck(t task.Task) (policy.Verdict, *task.Failure) {
	now := d.cfg.Now()
	switch {
	case !intact(t):
		return policy.Verdict{}, &task.Failure{Stage: task.StageArgumentDrift, Reason: "the call is not the one that was approved"}
	case d.stale(t, now):
		return policy.Verdict{}, &task.Failure{Stage: task.StageUncollected, Reason: tooOld, Retriable: true}
	}
	var v policy.Verdict
	for _, call := range judged(t, now) {
		v = d.cfg.Judge(call)
		if drift := d.drift(t, v); drift != nil {
			return v, drift
		}
	}
	return v, nil
}

// drift returns why t must not run although it was approved, if the policy that
// is in force now says v; or nil.
func (d *Desk) drift(t task.Task, v policy.Verdict) *task.Failure {
	switch v.Action {
	case policy.Forward:
		return nil
	case policy.Approve:
		if w, ok := d.cfg.Workflow(v.Workflow); ok && v.Workflow == t.Workflow && w.satisfied(t) {
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
	return err == nil && call == t.Call && digest == t.Digest
}

// early reports whether t was made by a version of the gate that did not show
// what is sent with a call besides its arguments, where call is what its message
// says. Such a task is sent without that.
func early(t task.Task, call task.Call) bool { return t.Call.Also == "" && call.Also != "" }

// SameCall reports whether a message, to the upstream of t, is the call that t
// was made for.
func SameCall(t task.Task, message []byte) bool {
	held, err := readCall(t.Call.Upstream, []byte(t.Call.Message))
	if err != nil {
		return false
	}
	call, err := readCall(t.Call.Upstream, message)
	if err != nil {
		return false
	}
	if early(t, held) {
		call.Also = ""
	}
	digest, err := call.Digest()
	return err == nil && digest == t.Digest
}

// stale reports whether t was approved too long ago. A task past its own time
// expires instead.
func (d *Desk) stale(t task.Task, now time.Time) bool {
	w, _ := d.cfg.Workflow(t.Workflow)
	until := casefile.ValidUntil(t, w.Validity)
	return until.Before(t.ExpiresAt) && now.After(until)
}

// refuse ends an approved task that must not run. One that runs by now, because
// somebody else found that it may, runs on.
func (d *Desk) refuse(ctx context.Context, ref task.Ref, why task.Failure, v policy.Verdict) (task.Task, error) {
	fail := task.Fail{By: d.cfg.Name, From: task.Approved, Failure: why}
	t, err := d.rechecker(v).Advance(ctx, ref, fail, d.cfg.Now())
	if overtaken(err) {
		return d.get(ctx, ref)
	}
	if err != nil {
		return t, err
	}
	d.forget(t.ID)
	d.cfg.Log.WarnContext(About(ctx, t), "approved call not run", "from", task.Approved, "to", t.State, "stage", why.Stage, "reason", why.Reason)
	d.tell(ctx, Event{Step: NotRun, Task: t})
	return t, nil
}

// run makes the call of t, which this desk has claimed, and keeps the answer.
// It ends a run that was entered.
func (d *Desk) run(ctx context.Context, t task.Task, send Sender) {
	defer d.running.Done()
	sending, stop := d.working(ctx, t)
	outcome, err := send.Call(sending, t)
	e := d.ending(sending, t, outcome, err)
	outcome.close()
	interrupted := err != nil && sending.Err() != nil
	stop()
	settled := d.settle(ctx, t, e)
	d.spoolEnds(t.ID, e)
	upstreamTask := ""
	if !settled && outcome.Report != nil {
		upstreamTask = outcome.Report.Task // which nobody else knows of
	}
	switch {
	case interrupted || upstreamTask != "":
		d.stopRun(ctx, t, send, upstreamTask)
	case !settled && err == nil: // it was cancelled, and answered all the same
		d.logDebt(ctx, t, d.settleUpstream(ctx, t.ID, task.CancellationMoot))
	}
}

// working returns a context for work on t, of which this desk is the executor,
// and what ends it: the work may take as long as a call, and is interrupted if
// the desk cannot wait for it any longer.
func (d *Desk) working(ctx context.Context, t task.Task) (context.Context, func()) {
	limited, stop := context.WithTimeout(About(ctx, t), min(d.settings().Execution, t.Remaining(d.cfg.Now())))
	working, end := d.during(limited, t, d.kill)
	return working, func() {
		end()
		stop()
	}
}

// during returns a context that ends with ctx, when t has ended, or when over
// is closed, and what ends it. Meanwhile this desk's lease of t is kept.
func (d *Desk) during(ctx context.Context, t task.Task, over <-chan struct{}) (context.Context, func()) {
	working, stop := context.WithCancel(ctx)
	d.countLease(t.ID, 1)
	var guard sync.WaitGroup
	guard.Go(func() {
		defer stop()
		d.guard(working, t, over)
	})
	return working, func() {
		stop()
		guard.Wait()
		d.countLease(t.ID, -1)
	}
}

// countLease notes that work on a task begins or ends here.
func (d *Desk) countLease(id task.ID, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leases[id] += n; d.leases[id] == 0 {
		delete(d.leases, id)
	}
}

// alive reports whether this desk is at work on t, so that its executor is not
// dead, even if a clock that was set forward makes it seem so.
func (d *Desk) alive(t task.Task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.Execution != nil && t.Execution.Executor == d.cfg.Name && d.leases[t.ID] > 0
}

// guard keeps the lease of t until ctx or t has ended, or over is closed. An
// answer that somebody reads is let finish, though t was cancelled.
func (d *Desk) guard(ctx context.Context, t task.Task, over <-chan struct{}) {
	ref := task.AnyOwner().Ref(t.ID)
	changes := task.WatchChanges(ctx, d.cfg.Store, d.cfg.Lease/3, ref)
	defer changes.Close()
	ahead := d.ahead(t)
	for ended := d.isOver(ctx, ref); !ended; {
		reason, err := changes.Next(ctx, nil, over)
		switch {
		case err != nil || reason == task.Ended:
			return
		case reason == task.Polled:
			ended = !d.renew(About(ctx, t), ref, ahead) && !d.beingRead(t.ID)
		default:
			ended = d.isOver(ctx, ref) && !d.beingRead(t.ID)
		}
	}
}

// isOver reports whether a task is known to have ended.
func (d *Desk) isOver(ctx context.Context, ref task.Ref) bool {
	t, err := d.cfg.Store.Get(ctx, ref)
	return err == nil && t.State.Terminal() || errors.Is(err, task.ErrNotFound)
}

// ahead returns by how much the time of t, which this desk has just claimed, is
// ahead of the desk's clock: another replica, or this machine before its clock
// was set back, has changed t at a later time. A lease is renewed in t's time,
// or other replicas would see it lapse.
func (d *Desk) ahead(t task.Task) time.Duration {
	return max(0, t.Execution.LeaseUntil.Sub(d.cfg.Now().Add(d.cfg.Lease)))
}

// renew prolongs the lease of a task whose time is ahead of the desk's clock, and
// reports whether it is still to run. A store that fails does not end a run:
// others may, once the lease has lapsed.
func (d *Desk) renew(ctx context.Context, ref task.Ref, ahead time.Duration) bool {
	now := d.cfg.Now().Add(ahead)
	_, err := task.Advance(ctx, d.cfg.Store, ref, task.RenewLease{By: d.cfg.Name, Until: now.Add(d.cfg.Lease)}, now)
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.WarnContext(ctx, "lease not renewed", "error", err)
	}
	return !overtaken(err) && !errors.Is(err, task.ErrNotFound)
}

// settle ends the run of t, or hands it over, and reports whether t heard of
// it. A store that fails is tried again as long as the lease can hold: what is
// not recorded by then counts as unknown.
func (d *Desk) settle(ctx context.Context, t task.Task, e task.Event) bool {
	ref := task.AnyOwner().Ref(t.ID)
	ctx, stop := context.WithTimeout(ctx, d.cfg.Lease)
	defer stop()
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		after, err := d.clerk().Advance(ctx, ref, e, d.cfg.Now())
		if err == nil {
			d.settledAs(ctx, after)
			return true
		}
		if overtaken(err) || errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrNotExecutor) {
			d.cfg.Log.WarnContext(About(ctx, t), "answer dropped: the task has already ended, or another replica runs it", "state", after.State)
			return false
		}
		d.cfg.Log.ErrorContext(About(ctx, t), "answer not kept", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// settledAs tells what became of a run.
func (d *Desk) settledAs(ctx context.Context, t task.Task) {
	if !t.State.Terminal() {
		d.cfg.Log.DebugContext(About(ctx, t), "Created upstream task",
			"upstream_task_id", t.Execution.UpstreamTask, "asks", t.Asks())
		d.tell(ctx, Event{Step: Reported, Task: t})
		return
	}
	from, to := lastMove(t)
	d.cfg.Log.InfoContext(About(ctx, t), "call run", "from", from, "to", to)
	d.tell(ctx, Event{Step: Finished, Task: t})
}
