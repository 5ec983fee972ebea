package approval

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

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
	own := context.WithoutCancel(ctx)
	go func() {
		defer d.running.Done()
		d.run(own, claimed, send)
	}()
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
	if err != nil || call != t.Call {
		return false
	}
	digest, err := call.Digest()
	return err == nil && digest == t.Digest
}

// stale reports whether t was approved too long ago.
func (d *Desk) stale(t task.Task, now time.Time) bool {
	w, ok := d.cfg.Workflow(t.Workflow)
	decided := t.Approval.DecidedAt()
	return ok && w.Validity > 0 && !decided.IsZero() && now.After(decided.Add(w.Validity))
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
	d.cfg.Log.WarnContext(ctx, "approved call not run", "task", t.ID, "tool", t.Call.Name, "stage", why.Stage, "reason", why.Reason)
	d.tell(ctx, Event{Step: NotRun, Task: t})
	return t, nil
}

// run makes the call of t, which this desk has claimed, and keeps the answer.
func (d *Desk) run(ctx context.Context, t task.Task, send Sender) {
	limit := min(d.cfg.Execution, t.Remaining(d.cfg.Now()))
	sending, stop := context.WithTimeout(ctx, limit)
	var guard sync.WaitGroup
	defer guard.Wait()
	defer stop()
	guard.Go(func() { d.guard(sending, stop, t) })

	outcome, err := send(sending, []byte(t.Call.Message))
	if c, ok := outcome.Body.(io.Closer); ok {
		defer func() { _ = c.Close() }() // what could be read has been
	}
	e := d.ending(sending, t, outcome, err)
	d.settle(ctx, t, e)
}

// guard keeps the lease of t while it runs, and stops the run when t has ended
// otherwise or the desk cannot wait any longer.
func (d *Desk) guard(ctx context.Context, stop context.CancelFunc, t task.Task) {
	defer stop()
	ref := task.AnyOwner().Ref(t.ID)
	changed, err := d.cfg.Store.Watch(ctx, ref)
	if err != nil {
		changed = nil // the ticker finds out, later
	}
	renew := time.NewTicker(d.cfg.Lease / 3)
	defer renew.Stop()
	for over := d.isOver(ctx, ref); !over; {
		select {
		case <-ctx.Done():
			return
		case <-d.kill:
			return
		case _, open := <-changed:
			if !open {
				changed = nil
			}
			over = d.isOver(ctx, ref)
		case <-renew.C:
			over = !d.renew(ctx, ref)
		}
	}
}

// isOver reports whether a task is known to have ended.
func (d *Desk) isOver(ctx context.Context, ref task.Ref) bool {
	t, err := d.cfg.Store.Get(ctx, ref)
	return err == nil && t.State.Terminal() || errors.Is(err, task.ErrNotFound)
}

// renew prolongs the lease of a task, and reports whether it is still to run. A
// store that fails does not end a run: others may, once the lease has lapsed.
func (d *Desk) renew(ctx context.Context, ref task.Ref) bool {
	now := d.cfg.Now()
	_, err := task.Advance(ctx, d.cfg.Store, ref, task.RenewLease{By: d.cfg.Name, Until: now.Add(d.cfg.Lease)}, now)
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.WarnContext(ctx, "lease not renewed", "task", ref.ID, "error", err)
	}
	return !overtaken(err) && !errors.Is(err, task.ErrNotFound)
}

// settle ends the run of t. A store that fails is tried again as long as the
// lease can hold: what is not recorded by then counts as unknown.
func (d *Desk) settle(ctx context.Context, t task.Task, e task.Event) {
	ref := task.AnyOwner().Ref(t.ID)
	ctx, stop := context.WithTimeout(ctx, d.cfg.Lease)
	defer stop()
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		after, err := d.clerk().Advance(ctx, ref, e, d.cfg.Now())
		if err == nil {
			d.cfg.Log.InfoContext(ctx, "call run", "task", t.ID, "tool", t.Call.Name, "state", after.State)
			d.tell(ctx, Event{Step: Finished, Task: after})
			return
		}
		if overtaken(err) || errors.Is(err, task.ErrNotFound) {
			d.cfg.Log.WarnContext(ctx, "answer dropped: the task has ended before", "task", t.ID, "state", after.State)
			return
		}
		d.cfg.Log.ErrorContext(ctx, "answer not kept", "task", t.ID, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
