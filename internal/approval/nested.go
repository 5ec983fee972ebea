package approval

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// nested reports whether t runs as an upstream task.
func nested(t task.Task) bool {
	return t.State == task.Executing && t.Execution.UpstreamTask != ""
}

// pollUpstream asks the upstream about the running task t in the name of its owner, and returns
// the updated task. The error is a [*SendError] if the upstream could not be asked; t is then
// unchanged.
func (rn *runner) pollUpstream(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	switch {
	case send == nil || t.State != task.Executing:
		return t, nil
	case t.Execution.Answered():
		return rn.resume(ctx, t, send)
	case !nested(t) || t.Execution.Upstream.Ended():
		return t, nil // there is no upstream task to ask about, or it has ended
	}
	rn.contacts.remember(t, send) // needed if the task is canceled
	asking, stop := context.WithCancelCause(LogContext(ctx, t))
	defer stop(nil)
	late := time.AfterFunc(rn.env.settings().Poll, func() { stop(context.DeadlineExceeded) })
	report, err := send.Poll(asking, t)
	late.Stop() // reading the rest of the report may take longer
	if err == nil {
		return rn.applyReport(ctx, t, report)
	}
	if ctx.Err() != nil {
		return t, ctx.Err()
	}
	failed := sendError(asking, err)
	if failed.Stage == lifecycle.StageUpstreamGone {
		return rn.endUnknown(ctx, t, err, "")
	}
	rn.env.log.WarnContext(LogContext(ctx, t), "upstream not asked", "err", err)
	return t, failed
}

// sendError returns err with a stage.
func sendError(ctx context.Context, err error) *SendError {
	late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	known, ok := errors.AsType[*SendError](err)
	switch {
	case ok && late && known.Stage == lifecycle.StageUpstreamInvalid: // the timeout cut the answer off
		return &SendError{Stage: lifecycle.StageUpstreamTimeout, Ran: known.Ran, Err: err}
	case ok && known.Stage != "":
		return known
	case late:
		return &SendError{Stage: lifecycle.StageUpstreamTimeout, Ran: task.RanUnknown, Err: err}
	default:
		return &SendError{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanUnknown, Err: err}
	}
}

// endUnknown ends a task that the upstream no longer knows: the outcome of the call is unknown.
// Executor is the run that learned this, or empty.
func (rn *runner) endUnknown(ctx context.Context, t task.Task, cause error, executor string) (task.Task, error) {
	rn.env.log.WarnContext(LogContext(ctx, t), "the upstream no longer knows its task", "err", cause)
	return rn.fail(ctx, t, lifecycle.Fail{
		Executor: executor,
		Failure:  task.Failure{Stage: lifecycle.StageUpstreamGone, Reason: "the upstream no longer knows its task"},
	})
}

// fail ends a running task. If end is not by the executor, it does not end a task with an active
// executor, which may have the complete result.
func (rn *runner) fail(ctx context.Context, t task.Task, end lifecycle.Fail) (task.Task, error) {
	ref := task.AnyOwner().Ref(t.ID)
	end.By, end.From, end.Detached = rn.env.name, task.Executing, end.Executor == ""
	after, err := rn.env.updater.Advance(ctx, ref, end, rn.env.now())
	if lostRace(err) || errors.Is(err, lifecycle.ErrNotExecutor) {
		return rn.tasks.get(ctx, ref)
	}
	if err == nil {
		rn.contacts.forget(t.ID)
		rn.reportSettled(ctx, after)
	}
	return after, err
}

// Report records what the upstream reported about its task, and returns the updated task. A report
// with an outcome ends the task.
func (s *Service) Report(ctx context.Context, ref task.Ref, r Report) (task.Task, error) {
	t, err := s.tasks.get(ctx, ref)
	if err != nil || !nested(t) || t.Execution.UpstreamTask != r.Task {
		return s.env.withInterval(t), err
	}
	t, err = s.runner.applyReport(ctx, t, r)
	return s.env.withInterval(t), err
}

// endIfFailed ends t if its upstream task has failed. An owner that only asks for the status does
// not fetch the result of such a task.
func (rn *runner) endIfFailed(ctx context.Context, t task.Task) (task.Task, error) {
	if !nested(t) || t.Execution.Upstream != gatetask.UpstreamFailed || rn.leases.busy(t) {
		return t, nil
	}
	return rn.fail(ctx, t, lifecycle.Fail{Failure: task.Failure{Stage: lifecycle.StageUpstreamError, Reason: taskFailed, Ran: task.RanYes}})
}

// The reasons that approvers and the journal get for the end of an upstream task. The upstream's
// own message goes to the owner only: it may repeat redacted values.
const (
	taskFailed    = "the upstream's task failed"
	taskCancelled = "the upstream cancelled its task"
)

func (rn *runner) applyReport(ctx context.Context, t task.Task, r Report) (task.Task, error) {
	switch {
	case r.Outcome != nil:
		return rn.keepReported(ctx, t, *r.Outcome)
	case r.Cancelled:
		return rn.fail(ctx, t, lifecycle.Fail{
			Failure: task.Failure{Stage: lifecycle.StageUpstreamError, Reason: taskCancelled, Ran: task.RanUnknown},
			Message: safetext.Text(r.Message, review.MaxReason),
		})
	case t.Execution.Upstream.Ended() && !r.State.Ended(), !r.news(t.Execution):
		return t, nil // a task that has ended does not run again
	case rn.leases.busy(t):
		t = t.Clone()
		t.Execution.Upstream, t.Execution.Message, t.Execution.InputRequests = r.State, safetext.Text(r.Message, review.MaxReason), r.InputRequests
		return t, nil
	}
	ref := task.AnyOwner().Ref(t.ID)
	after, err := rn.env.updater.Advance(ctx, ref, r.note("", false), rn.env.now())
	if lostRace(err) || errors.Is(err, lifecycle.ErrNotExecutor) {
		return rn.tasks.get(ctx, ref)
	}
	if err == nil {
		rn.reportSettled(ctx, after)
	}
	return after, err
}

// news reports whether r differs from x.
func (r Report) news(x *task.Execution) bool {
	e := r.note("", false)
	asked, err := jsontext.AppendFormat(nil, e.InputRequests)
	return r.State != x.Upstream && len(asked) <= len("{}") || e.Message != x.Message || r.PollInterval != x.PollInterval ||
		r.InputRequests != nil && (err != nil || string(asked) != string(x.InputRequests)) ||
		r.InputRequests == nil && x.InputRequests != nil
}

// note returns r as an event of a task.
func (r Report) note(by string, release bool) lifecycle.Progress {
	return lifecycle.Progress{
		By: by, UpstreamTask: r.Task, Upstream: r.State, Message: safetext.Text(r.Message, review.MaxReason), PollInterval: r.PollInterval,
		InputRequests: r.InputRequests, RequestState: r.RequestState, Release: release,
	}
}

// claim makes this service the executor of t, which runs upstream. It returns false and the
// current task if another replica came first. Still is called again after a slow claim.
func (rn *runner) claim(ctx context.Context, t task.Task, still func(context.Context) bool) (task.Task, bool, error) {
	if !rn.background.enter() {
		return t, false, closedError(t.ID, action.Resume)
	}
	ref := task.AnyOwner().Ref(t.ID)
	claimed, err := rn.claimRun(ctx, claimAttempt{
		updater: rn.env.updater, ref: ref, mayStillRun: still,
		event: func(executor string, until time.Time) lifecycle.Event {
			return lifecycle.Resume{By: executor, LeaseUntil: until}
		},
	})
	if err == nil {
		return claimed, true, nil
	}
	rn.background.running.Done()
	if lostRace(err) || errors.Is(err, task.ErrNotReady) {
		t, err = rn.tasks.get(ctx, ref)
	}
	return t, false, err
}

// alwaysAllowed is for runs that fetch a result, which needs no check.
func alwaysAllowed(context.Context) bool { return true }

// resume calls the upstream again with the client's answers. Policy is checked again.
func (rn *runner) resume(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	held, _ := readStored(t) // recheck refuses a call that cannot be parsed
	if _, drift := rn.recheck(held); drift != nil {
		drift.Ran, drift.Retriable = task.RanUnknown, false
		return rn.fail(ctx, t, lifecycle.Fail{Failure: *drift})
	}
	claimed, ok, err := rn.claim(ctx, t, func(context.Context) bool {
		_, drift := rn.recheck(held)
		return drift == nil
	})
	if !ok {
		return claimed, err
	}
	go rn.run(context.WithoutCancel(ctx), claimed, held.request(), send)
	return claimed, nil
}

// keepReported stores a result that the upstream reported with its status. If another replica is
// storing one, it is dropped.
func (rn *runner) keepReported(ctx context.Context, t task.Task, o Outcome) (task.Task, error) {
	defer o.close()
	claimed, ok, err := rn.claim(ctx, t, alwaysAllowed)
	if !ok {
		return claimed, err
	}
	defer rn.background.running.Done()
	own := context.WithoutCancel(ctx)
	working, stop := rn.working(own, claimed)
	defer context.AfterFunc(working, o.close)()
	rn.keepFetched(own, working, claimed, o)
	stop()
	return rn.tasks.get(ctx, task.AnyOwner().Ref(t.ID))
}

// fetch fetches and stores the result of the upstream task in the background. It continues when
// ctx ends.
func (rn *runner) fetch(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	claimed, ok, err := rn.claim(ctx, t, alwaysAllowed)
	if !ok {
		return claimed, err
	}
	go func() {
		defer rn.background.running.Done()
		own := context.WithoutCancel(ctx)
		working, stop := rn.working(own, claimed)
		rn.collect(own, working, claimed, send)
		stop()
	}()
	return claimed, nil
}

// attend fetches the result of the upstream task while the owner is present to answer the
// upstream's questions. It ends with ctx.
func (rn *runner) attend(ctx context.Context, t task.Task, send Sender) (task.Task, error) {
	claimed, ok, err := rn.claim(ctx, t, alwaysAllowed)
	if !ok {
		return claimed, err
	}
	defer rn.background.running.Done()
	attending, stop := rn.during(LogContext(ctx, claimed), claimed, rn.background.closing)
	rn.collect(context.WithoutCancel(ctx), attending, claimed, send)
	stop()
	return rn.tasks.get(ctx, task.AnyOwner().Ref(t.ID))
}

// collect fetches and stores the result of the upstream task. If that fails, the result can be
// fetched again.
func (rn *runner) collect(ctx, working context.Context, t task.Task, send Sender) {
	outcome, err := send.Fetch(working, t)
	defer outcome.close()
	if err != nil {
		rn.release(ctx, t, sendError(working, err))
		return
	}
	rn.keepFetched(ctx, working, t, outcome)
}

// keepFetched stores the result of the upstream task. If it breaks off or the store fails, it can
// be fetched again.
func (rn *runner) keepFetched(ctx, working context.Context, t task.Task, o Outcome) {
	in := rn.newChunkWriter(t, o.Error)
	e := rn.endOf(working, in, t, o, nil)
	defer rn.answers.end(t.ID, in.answer, e)
	if fail, failed := e.(lifecycle.Fail); failed && mayFetchAgain(fail) {
		rn.release(ctx, t, &SendError{Stage: fail.Failure.Stage, Err: errors.New(fail.Failure.Reason)})
		return
	}
	rn.settle(ctx, t, e)
}

// mayFetchAgain reports whether a failed fetch can be repeated: the result broke off, or the store
// failed.
func mayFetchAgain(fail lifecycle.Fail) bool {
	return fail.Result == nil && (fail.Failure.Ran == task.RanUnknown || fail.Failure.Stage == lifecycle.StageExecutorLost)
}

// release ends the work on t, so that another replica can continue.
func (rn *runner) release(ctx context.Context, t task.Task, why *SendError) {
	if why.Stage == lifecycle.StageUpstreamGone {
		if _, err := rn.endUnknown(ctx, t, why, t.Execution.Executor); err != nil {
			rn.env.log.ErrorContext(LogContext(ctx, t), "task not ended", "err", err)
		}
		return
	}
	rn.env.log.WarnContext(LogContext(ctx, t), "outcome not fetched", "err", why)
	x := t.Execution
	rn.settle(ctx, t, lifecycle.Progress{
		By: x.Executor, UpstreamTask: x.UpstreamTask, Upstream: x.Upstream, Message: x.Message, PollInterval: x.PollInterval,
		InputRequests: x.InputRequests, RequestState: x.RequestState, Release: true,
	})
}

// Respond takes the owner's answers, a JSON object, to the upstream's questions. Answers for an
// upstream task are forwarded. Others are kept until all questions are answered; then the upstream
// is called again. Answers without a question are dropped.
func (s *Service) Respond(ctx context.Context, ref task.Ref, responses json.RawMessage, send Sender) (task.Task, error) {
	t, err := s.tasks.get(ctx, ref)
	if err != nil || !t.AwaitsInput() {
		return s.env.withInterval(t), err
	}
	answers := make(map[string]json.RawMessage)
	if err := jsonv2.Unmarshal(responses, &answers); err != nil {
		return s.env.withInterval(t), &task.Error{Kind: task.ErrInvalid, ID: t.ID, Action: action.Answer, Err: err}
	}
	if nested(t) {
		asking, stop := context.WithTimeout(LogContext(ctx, t), s.env.settings().Poll)
		defer stop()
		if err := send.Answer(asking, t, responses); err != nil {
			return s.env.withInterval(t), sendError(asking, err)
		}
		t, err = s.runner.applyReport(ctx, t, stillAsked(t, answers))
		return s.env.withInterval(t), err
	}
	t, err = s.env.updater.Advance(ctx, ref, lifecycle.Answer{Responses: answers}, s.env.now())
	if errors.Is(err, task.ErrInvalidTransition) {
		t, err = s.tasks.get(ctx, ref) // other requests have answered
	}
	if err == nil {
		t, err = s.runner.pollUpstream(ctx, t, send)
	}
	return s.env.withInterval(t), err
}

// stillAsked returns a report with the questions that remain open after the answers.
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
		r.State, r.InputRequests = gatetask.UpstreamAsks, rest
	}
	return r
}

// FindByUpstreamTask returns the owner's task whose call the upstream runs as upstreamTask. Owners
// must not see ids of upstream tasks, so this includes ended tasks. Maybe is true if there is
// none, but a call is running, or was canceled recently, whose upstream task is not known yet.
func (s *Service) FindByUpstreamTask(ctx context.Context, owner, upstreamTask string) (id task.ID, maybe bool, err error) {
	q := task.Query{Scope: task.OwnedBy(owner), Limit: sweepBatch, Outlines: true}
	for t, err := range storekit.Each(ctx, s.env.store, q) {
		switch {
		case err != nil:
			return "", false, err
		case t.Execution == nil:
		case t.Execution.UpstreamTask != "" && t.Execution.UpstreamTask == upstreamTask:
			return t.ID, false, nil
		case t.Execution.UpstreamTask == "" && t.Result == nil && s.leases.busy(t):
			maybe = true
		}
	}
	return "", maybe, nil
}
