package approval

import (
	"context"
	"errors"
	"io"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// ending returns how the run of t ends: with the answer, which it keeps, with
// what is known of a call without one, or with the upstream having taken it.
func (d *Desk) ending(ctx context.Context, t task.Task, o Outcome, failed error) task.Event {
	if failed == nil && o.Report != nil {
		return o.Report.note(d.cfg.Name, true)
	}
	if failed == nil && o.Body == nil {
		failed = &SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: errors.New("no answer")}
	}
	if failed != nil {
		return d.failure(ctx, t, failed)
	}
	return d.answered(ctx, t, o)
}

// answered keeps the answer to t, and returns how the run ends with it.
func (d *Desk) answered(ctx context.Context, t task.Task, o Outcome) task.Event {
	object := jsonrpc.NewObjectReader(o.Body, memberIsError)
	answer := &source{Reader: object, left: d.settings().MaxResult}
	spooler := d.spooled(t, o.Error)
	kept, err := task.WriteResult(ctx, spooler, task.AnyOwner().Ref(t.ID), answer)
	if err != nil {
		spooler.discard(ctx)
	}
	switch {
	case answer.err != nil:
		return d.failure(ctx, t, unusable(answer.err))
	case errors.Is(err, task.ErrCapacityExceeded):
		return d.failure(ctx, t, &SendError{Stage: task.StageResultTooLarge, Ran: task.RanYes, Err: err})
	case err != nil:
		return d.failure(ctx, t, &SendError{Stage: task.StageExecutorLost, Ran: task.RanYes, Err: err})
	case o.Error:
		kept.Kind = task.ResultRPCError
		const reason = "the upstream answered with an error"
		return task.Fail{
			By: d.cfg.Name, Result: &kept,
			Failure: task.Failure{Stage: task.StageUpstreamError, Reason: reason, Ran: task.RanYes},
		}
	case object.Member(memberIsError).IsTrue():
		kept.Kind = task.ResultToolError
	default:
		kept.Kind = task.ResultOK
	}
	return task.Complete{By: d.cfg.Name, Result: kept}
}

// memberIsError is the member of a tool's result that tells whether the tool has
// failed.
const memberIsError = "isError"

// unusable says what an answer that could not be read to its end means for the
// call: one that is no object at least is an answer.
func unusable(err error) error {
	if errors.Is(err, errTooLarge) {
		return &SendError{Stage: task.StageResultTooLarge, Ran: task.RanYes, Err: err}
	}
	_, malformed := errors.AsType[*jsonrpc.ParseError](err)
	_, judged := errors.AsType[*SendError](err)
	if !judged && (malformed || errors.Is(err, jsonrpc.ErrTooLarge)) {
		return &SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanYes, Err: err}
	}
	return err
}

// failure returns the end of a call that has no answer. What went wrong is for
// the log; the trail has a fixed sentence.
func (d *Desk) failure(ctx context.Context, t task.Task, err error) task.Event {
	d.cfg.Log.WarnContext(About(ctx, t), "call without an answer", "error", err)
	f := task.Failure{Stage: task.StageUpstreamUnreachable, Reason: "the call could not be finished", Ran: task.RanUnknown}
	known, ok := errors.AsType[*SendError](err)
	switch {
	case ok && known.Stage != "":
		f.Stage = known.Stage
		if known.Ran != "" {
			f.Ran = known.Ran
		}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.Stage = task.StageUpstreamTimeout
	case ctx.Err() != nil:
		f.Stage = task.StageExecutorLost // only a shutdown interrupts a run that others have not ended
	}
	f.Retriable = f.Ran == task.RanNo
	return task.Fail{By: d.cfg.Name, Failure: f}
}

// errTooLarge reports an answer that is larger than what is kept.
var errTooLarge = errors.New("the answer is too large to be kept")

// A source lets an answer pass that is not too large. It remembers why its
// reader failed, to tell that from a store's failure.
type source struct {
	io.Reader

	left int64 // how much more may pass
	err  error
}

// Read implements [io.Reader].
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.left -= int64(n); s.left < 0 {
		err = errTooLarge
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
