package approval

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// nested reports whether t runs as a task of the upstream's.
func nested(t task.Task) bool {
	return t.State == task.Executing && t.Execution.UpstreamTask != ""
}

// polled returns t, which runs, as it is once the upstream has been asked how
// it stands, in the name of an owner that is there. The error is a [*SendError]
// if the upstream could not be asked; that changes nothing for t.
func (rn *runner) polled(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	switch {
	case send == nil || t.State != task.Executing:
		return t, nil
	case t.Execution.Answered():
		return rn.resume(ctx, t, send)
	case !nested(t) || t.Execution.Upstream.Ended():
		return t, nil // there is nobody to ask, or nothing new to learn
	}
	rn.contacts.remember(t, send) // in case that it has to be cancelled
	asking, stop := context.WithCancelCause(About(ctx, t))
	defer stop(nil)
	late := time.AfterFunc(rn.settings().Poll, func() { stop(context.DeadlineExceeded) })
	report, err := send.Poll(asking, t)
	late.Stop() // what is still to be read of the report may take longer
	if err == nil {
		return rn.noted(ctx, t, report)
	}
	if ctx.Err() != nil {
		return t, ctx.Err()
	}
	failed := sendError(asking, err)
	if failed.Stage == task.StageUpstreamGone {
		return rn.gone(ctx, t, err, "")
	}
	rn.cfg.Log.WarnContext(About(ctx, t), "upstream not asked", "error", err)
	return t, failed
}

// sendError returns err with the stage at which it happened.
func sendError(ctx context.Context, err error) *SendError {
	late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	known, ok := errors.AsType[*SendError](err)
	switch {
	case ok && late && known.Stage == task.StageUpstreamInvalid: // its answer broke off because the time was over
		return &SendError{Stage: task.StageUpstreamTimeout, Ran: known.Ran, Err: err}
	case ok && known.Stage != "":
		return known
	case late:
		return &SendError{Stage: task.StageUpstreamTimeout, Ran: task.RanUnknown, Err: err}
	default:
		return &SendError{Stage: task.StageUpstreamUnreachable, Ran: task.RanUnknown, Err: err}
	}
}

// gone ends a task that the upstream no longer knows. It will not know it later
// either, and what became of the call cannot be known. Executor is the run that was
// told so, or empty if none was.
func (rn *runner) gone(ctx context.Context, t task.Task, cause error, executor string) (task.Task, error) {
	rn.cfg.Log.WarnContext(About(ctx, t), "the upstream no longer knows its task", "error", cause)
	return rn.fail(ctx, t, task.Fail{
		Executor: executor,
		Failure:  task.Failure{Stage: task.StageUpstreamGone, Reason: "the upstream no longer knows its task"},
	})
}

// fail ends a task that runs. Unless end is by its executor, it ends no run that an executor
// is at work on: that one may have the whole outcome already.
func (rn *runner) fail(ctx context.Context, t task.Task, end task.Fail) (task.Task, error) {
	ref := task.AnyOwner().Ref(t.ID)
	end.By, end.From, end.Detached = rn.cfg.Name, task.Executing, end.Executor == ""
	after, err := rn.updater().Advance(ctx, ref, end, rn.cfg.Now())
	if overtaken(err) || errors.Is(err, task.ErrNotExecutor) {
		return rn.tasks.get(ctx, ref)
	}
	if err == nil {
		rn.contacts.forget(t.ID)
		rn.settledAs(ctx, after)
	}
	return after, err
}

// Report takes note of what the upstream says of its task of t, whoever heard
// it, and returns t as it is then. An upstream that reports more than how far it
// is ends t.
func (d *Desk) Report(ctx context.Context, ref task.Ref, r Report) (task.Task, error) {
	t, err := d.tasks.get(ctx, ref)
	if err != nil || !nested(t) || t.Execution.UpstreamTask != r.Task {
		return d.withInterval(t), err
	}
	t, err = d.runner.noted(ctx, t, r)
	return d.withInterval(t), err
}

// concluded returns t, whose owner asks no more than how it stands, as ended if
// its upstream has failed: such an owner does not come for the outcome, and has
// with the upstream's words all that it will look at.
func (rn *runner) concluded(ctx context.Context, t task.Task) (task.Task, error) {
	if !nested(t) || t.Execution.Upstream != task.UpstreamFailed || rn.busy(t) {
		return t, nil
	}
	return rn.fail(ctx, t, task.Fail{Failure: task.Failure{Stage: task.StageUpstreamError, Reason: taskFailed, Ran: task.RanYes}})
}

// What approvers and the audit log are told of the end of an upstream's task. The words
// of the upstream are for the owner alone: they may repeat what is redacted.
const (
	taskFailed    = "the upstream's task failed"
	taskCancelled = "the upstream cancelled its task"
)

func (rn *runner) noted(ctx context.Context, t task.Task, r Report) (task.Task, error) {
	switch {
	case r.Outcome != nil:
		return rn.take(ctx, t, *r.Outcome)
	case r.Cancelled:
		return rn.fail(ctx, t, task.Fail{
			Failure: task.Failure{Stage: task.StageUpstreamError, Reason: taskCancelled, Ran: task.RanUnknown},
			Message: plain.Text(r.Message, casefile.MaxReason),
		})
	case t.Execution.Upstream.Ended() && !r.State.Ended(), !r.news(t.Execution):
		return t, nil // what has ended does not begin again
	case rn.busy(t):
		t = t.Clone()
		t.Execution.Upstream, t.Execution.Message, t.Execution.InputRequests = r.State, plain.Text(r.Message, casefile.MaxReason), r.InputRequests
		return t, nil
	}
	ref := task.AnyOwner().Ref(t.ID)
	after, err := rn.updater().Advance(ctx, ref, r.note("", false), rn.cfg.Now())
	if overtaken(err) || errors.Is(err, task.ErrNotExecutor) {
		return rn.tasks.get(ctx, ref)
	}
	if err == nil {
		rn.settledAs(ctx, after)
	}
	return after, err
}

// news reports whether r says anything that x does not.
func (r Report) news(x *task.Execution) bool {
	e := r.note("", false)
	asked, err := jsontext.AppendFormat(nil, e.InputRequests)
	return r.State != x.Upstream && len(asked) <= len("{}") || e.Message != x.Message || r.PollInterval != x.PollInterval ||
		r.InputRequests != nil && (err != nil || string(asked) != string(x.InputRequests)) ||
		r.InputRequests == nil && x.InputRequests != nil
}

// note returns r as what happens to a task.
func (r Report) note(by string, release bool) task.Progress {
	return task.Progress{
		By: by, UpstreamTask: r.Task, Upstream: r.State, Message: plain.Text(r.Message, casefile.MaxReason), PollInterval: r.PollInterval,
		InputRequests: r.InputRequests, RequestState: r.RequestState, Release: release,
	}
}

// claim makes this desk the executor of t, whose run needed none. It reports
// false, and how t stands, if somebody else was faster.
//
// If the claim takes long, still reports whether the run may still go on.
func (rn *runner) claim(ctx context.Context, t task.Task, still func(context.Context) bool) (task.Task, bool, error) {
	if !rn.work.enter() {
		return t, false, closedError(t.ID, task.ActionResume)
	}
	ref := task.AnyOwner().Ref(t.ID)
	claimed, err := rn.begin(ctx, beginning{
		updater: rn.updater(), ref: ref, still: still,
		event: func(executor string, until time.Time) task.Event { return task.Resume{By: executor, LeaseUntil: until} },
	})
	if err == nil {
		return claimed, true, nil
	}
	rn.work.running.Done()
	if overtaken(err) || errors.Is(err, task.ErrNotReady) {
		t, err = rn.tasks.get(ctx, ref)
	}
	return t, false, err
}

// always is for runs that fetch what a call came to, which nothing forbids.
func always(context.Context) bool { return true }

// resume calls the upstream again with the client's answers. It is the same
// call, which the upstream interrupted to ask; policy may have changed since.
func (rn *runner) resume(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	if _, drift := rn.recheck(t); drift != nil {
		drift.Ran, drift.Retriable = task.RanUnknown, false
		return rn.fail(ctx, t, task.Fail{Failure: *drift})
	}
	claimed, ok, err := rn.claim(ctx, t, func(context.Context) bool {
		_, drift := rn.recheck(t)
		return drift == nil
	})
	if !ok {
		return claimed, err
	}
	go rn.run(context.WithoutCancel(ctx), claimed, send)
	return claimed, nil
}

// take keeps an outcome that the upstream reported unasked. If somebody else is
// keeping it, this one is dropped.
func (rn *runner) take(ctx context.Context, t task.Task, o Outcome) (task.Task, error) {
	defer o.close()
	claimed, ok, err := rn.claim(ctx, t, always)
	if !ok {
		return claimed, err
	}
	defer rn.work.running.Done()
	own := context.WithoutCancel(ctx)
	working, stop := rn.working(own, claimed)
	defer context.AfterFunc(working, o.close)()
	rn.keep(own, working, claimed, o)
	stop()
	return rn.tasks.get(ctx, task.AnyOwner().Ref(t.ID))
}

// fetch has the outcome of the upstream's task kept, as work of the desk's own:
// it goes on when ctx ends, so that others who wait for it get it too.
func (rn *runner) fetch(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	claimed, ok, err := rn.claim(ctx, t, always)
	if !ok {
		return claimed, err
	}
	go func() {
		defer rn.work.running.Done()
		own := context.WithoutCancel(ctx)
		working, stop := rn.working(own, claimed)
		rn.collect(own, working, claimed, send)
		stop()
	}()
	return claimed, nil
}

// attend has the outcome of the upstream's task kept while the owner is there
// to answer what the upstream asks before that, which ends with ctx.
func (rn *runner) attend(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	claimed, ok, err := rn.claim(ctx, t, always)
	if !ok {
		return claimed, err
	}
	defer rn.work.running.Done()
	attending, stop := rn.during(About(ctx, claimed), claimed, rn.work.closing)
	rn.collect(context.WithoutCancel(ctx), attending, claimed, send)
	stop()
	return rn.tasks.get(ctx, task.AnyOwner().Ref(t.ID))
}

// collect fetches the outcome of the upstream's task, within working, and keeps
// it. If it cannot be had now, the upstream still has it for the next one.
func (rn *runner) collect(ctx, working context.Context, t task.Task, send Sender) {
	outcome, err := send.Fetch(working, t)
	defer outcome.close()
	if err != nil {
		rn.release(ctx, t, sendError(working, err))
		return
	}
	rn.keep(ctx, working, t, outcome)
}

// keep keeps the outcome of the upstream's task, or leaves it to the next one
// if it breaks off or the store fails.
func (rn *runner) keep(ctx, working context.Context, t task.Task, o Outcome) {
	in := rn.spooled(t, o.Error)
	e := rn.ending(working, in, t, o, nil)
	defer rn.spools.end(t.ID, in.spool, e)
	if fail, failed := e.(task.Fail); failed && mayFetchAgain(fail) {
		rn.release(ctx, t, &SendError{Stage: fail.Failure.Stage, Err: errors.New(fail.Failure.Reason)})
		return
	}
	rn.settle(ctx, t, e)
}

// mayFetchAgain reports whether the outcome of the upstream's task may be had by
// fetching it again: it broke off, or the store failed while it was kept.
func mayFetchAgain(fail task.Fail) bool {
	return fail.Result == nil && (fail.Failure.Ran == task.RanUnknown || fail.Failure.Stage == task.StageExecutorLost)
}

// release gives up being at work on t, for another to try.
func (rn *runner) release(ctx context.Context, t task.Task, why *SendError) {
	if why.Stage == task.StageUpstreamGone {
		if _, err := rn.gone(ctx, t, why, t.Execution.Executor); err != nil {
			rn.cfg.Log.ErrorContext(About(ctx, t), "task not ended", "error", err)
		}
		return
	}
	rn.cfg.Log.WarnContext(About(ctx, t), "outcome not fetched", "error", why)
	x := t.Execution
	rn.settle(ctx, t, task.Progress{
		By: x.Executor, UpstreamTask: x.UpstreamTask, Upstream: x.Upstream, Message: x.Message, PollInterval: x.PollInterval,
		InputRequests: x.InputRequests, RequestState: x.RequestState, Release: true,
	})
}

// Respond takes the owner's answers, a JSON object, to what the upstream asks.
// Those to a task of the upstream's are handed on. Others are kept until all
// questions are answered; then the upstream is called again. Answers to what
// nobody asks are dropped.
func (d *Desk) Respond(ctx context.Context, ref task.Ref, responses json.RawMessage, send Sender) (task.Task, error) {
	t, err := d.tasks.get(ctx, ref)
	if err != nil || !t.Asks() {
		return d.withInterval(t), err
	}
	answers := make(map[string]json.RawMessage)
	if err := jsonv2.Unmarshal(responses, &answers); err != nil {
		return d.withInterval(t), &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: task.ActionAnswer, Err: err}
	}
	if nested(t) {
		asking, stop := context.WithTimeout(About(ctx, t), d.settings().Poll)
		defer stop()
		if err := send.Answer(asking, t, responses); err != nil {
			return d.withInterval(t), sendError(asking, err)
		}
		t, err = d.runner.noted(ctx, t, stillAsked(t, answers))
		return d.withInterval(t), err
	}
	t, err = d.updater().Advance(ctx, ref, task.Answer{Responses: answers}, d.cfg.Now())
	if errors.Is(err, task.ErrInvalidTransition) {
		t, err = d.tasks.get(ctx, ref) // others have answered
	}
	if err == nil {
		t, err = d.runner.polled(ctx, t, send)
	}
	return d.withInterval(t), err
}

// stillAsked returns what the upstream of t asks, as far as is known, once it
// has been given the answers.
func stillAsked(t task.Task, answers map[string]json.RawMessage) Report {
	x := t.Execution
	r := Report{Task: x.UpstreamTask, Message: x.Message, PollInterval: x.PollInterval}
	open := make(map[string]json.RawMessage)
	if jsonv2.Unmarshal(x.InputRequests, &open) != nil {
		return r
	}
	for key := range answers {
		delete(open, key)
	}
	if rest, err := jsonv2.Marshal(open, jsonv2.Deterministic(true)); err == nil && len(open) > 0 {
		r.State, r.InputRequests = task.UpstreamAsks, rest
	}
	return r
}

// MadeOf returns the owner's task of whose held call the upstream made a task,
// also if that has ended: the upstream's id is not for the owner to see. Maybe
// says that there is none, but that a call is being made, or was a moment ago
// when it was cancelled, whose task is not known yet.
func (d *Desk) MadeOf(ctx context.Context, owner, upstreamTask string) (id task.ID, maybe bool, err error) {
	q := task.Query{Scope: task.OwnedBy(owner), Limit: sweepBatch, Outlines: true}
	for t, err := range task.Each(ctx, d.cfg.Store, q) {
		switch {
		case err != nil:
			return "", false, err
		case t.Execution == nil:
		case t.Execution.UpstreamTask != "" && t.Execution.UpstreamTask == upstreamTask:
			return t.ID, false, nil
		case t.Execution.UpstreamTask == "" && t.Result == nil && d.busy(t):
			maybe = true
		}
	}
	return "", maybe, nil
}
