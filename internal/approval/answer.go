package approval

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// ending returns how the run of t ends: with the answer, which the spooler keeps, with
// what is known of a call without one, or with the upstream having taken it.
func (rn *runner) ending(ctx context.Context, in *spooler, t task.Task, o Outcome, failed error) task.Event {
	if failed == nil && o.Report != nil {
		return o.Report.note(t.Execution.Executor, true)
	}
	if failed == nil && o.Body == nil {
		failed = &SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: errors.New("no answer")}
	}
	if failed != nil {
		return rn.failure(ctx, t, failed)
	}
	return rn.answered(ctx, in, t, o)
}

// answered keeps the answer to t, and returns how the run ends with it.
func (rn *runner) answered(ctx context.Context, spooler *spooler, t task.Task, o Outcome) task.Event {
	object := objectIn(o.Body)
	answer := &source{Reader: object, left: rn.settings().MaxResult}
	kept, err := task.WriteResult(ctx, spooler, task.AnyOwner().Ref(t.ID), answer)
	if err != nil {
		spooler.discard(ctx)
	}
	switch {
	case answer.err != nil:
		return rn.failure(ctx, t, unusable(answer.err))
	case errors.Is(err, task.ErrCapacityExceeded):
		return rn.failure(ctx, t, &SendError{Stage: task.StageResultTooLarge, Ran: task.RanYes, Err: err})
	case err != nil:
		return rn.failure(ctx, t, &SendError{Stage: task.StageExecutorLost, Ran: task.RanYes, Err: err})
	case o.Error:
		kept.Kind = task.ResultRPCError
		const reason = "the upstream answered with an error"
		return task.Fail{
			By: rn.cfg.Name, Executor: t.Execution.Executor, Result: &kept,
			Failure: task.Failure{Stage: task.StageUpstreamError, Reason: reason, Ran: task.RanYes},
		}
	case object.Member(MemberIsError).IsTrue():
		kept.Kind = task.ResultToolError
	default:
		kept.Kind = task.ResultOK
	}
	return task.Complete{By: rn.cfg.Name, Executor: t.Execution.Executor, Result: kept}
}

// MemberIsError is the member of a tool's result that says whether the tool has
// failed.
const MemberIsError = "isError"

// A Checked body is one JSON object, and nothing else, that is checked while it is
// read, as a [jsonrpc.ObjectReader] does it.
type Checked interface {
	io.Reader

	// Member returns the member [MemberIsError] of the object, once that was read
	// to its end. It is absent if there is none.
	Member(name string) jsonrpc.Value
}

// objectIn returns the object in a body. A body is checked once: a walk over all of
// it costs as much as to keep it.
func objectIn(body io.Reader) Checked {
	if checked, ok := body.(Checked); ok {
		return checked
	}
	return jsonrpc.NewObjectReader(body, MemberIsError)
}

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

// failure returns the end of a call that has no answer. The log has the error; the
// trail has a fixed sentence.
func (rn *runner) failure(ctx context.Context, t task.Task, err error) task.Event {
	rn.cfg.Log.WarnContext(About(ctx, t), "call without an answer", "error", err)
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
	if f.Ran == task.RanNo && begun(t) {
		f.Ran = task.RanUnknown
	}
	f.Retriable = f.Ran == task.RanNo
	return task.Fail{By: rn.cfg.Name, Executor: t.Execution.Executor, Failure: f}
}

// begun reports whether the upstream began with the call of t before: it asked the
// client something, or made a task of the call. Nobody knows what it has done since.
func begun(t task.Task) bool { return t.Execution.Answers != nil || t.Execution.UpstreamTask != "" }

// errTooLarge reports an answer that is larger than what is kept.
var errTooLarge = errors.New("the answer is too large to be kept")

// A source lets an answer pass that is not too large. It remembers why its
// reader failed, to distinguish that from a store's failure.
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

// spooled returns where the chunks of the answer to t are kept, so that those
// who wait for it hear of them. The first one lets them begin.
func (rn *runner) spooled(t task.Task, failed bool) *spooler {
	return &spooler{
		Blobs: rn.cfg.Store, runner: rn, id: t.ID, executor: t.Execution.Executor,
		spool: &spool{failed: failed, moved: make(chan struct{})},
	}
}

// A spooler keeps the chunks of an answer, and wakes those who read it.
type spooler struct {
	task.Blobs

	runner   *runner
	id       task.ID
	executor string
	spool    *spool
}

// WriteChunk implements [task.Blobs].
func (s *spooler) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.write(ctx, ref, n, data); err != nil {
		return err
	}
	if s.spool.kept(n) {
		s.runner.spools.begin(s.id, s.spool)
	}
	return nil
}

// write writes a chunk, which is safe to repeat. A store that fails is tried again
// until a lease is over. Meanwhile no more of the answer is read than before.
func (s *spooler) write(ctx context.Context, ref task.Ref, n int, data []byte) error {
	limited, stop := context.WithTimeout(ctx, s.runner.cfg.Lease)
	defer stop()
	for pause := firstPause; ; pause = nextPause(pause) {
		err := s.Blobs.WriteChunk(ctx, ref, n, data)
		if !task.Unsure(err) {
			return err
		}
		s.runner.cfg.Log.WarnContext(ctx, "part of an answer not kept", "error", err)
		select {
		case <-time.After(pause):
		case <-limited.Done():
			return err
		}
		if !s.runner.goesOn(ctx, s.id, s.executor) {
			return err // another run may have kept an answer meanwhile
		}
	}
}

// discard frees the room of an answer that will not be whole, which may be all
// the room there is: how the task ended must be kept as well. The remaining
// chunks are deleted with the task.
func (s *spooler) discard(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), s.runner.cfg.Lease)
	defer stop()
	ref := task.AnyOwner().Ref(s.id)
	s.spool.change(func() { s.spool.discarded = true }) // first: somebody may be reading it
	if !s.runner.aloneAt(ctx, ref, s.executor) {
		return
	}
	for n := s.spool.written - 1; n >= 0; n-- { // nobody else writes it
		if err := s.Blobs.WriteChunk(ctx, ref, n, []byte{0}); err != nil {
			s.runner.cfg.Log.WarnContext(ctx, "part of an answer not discarded", "error", err)
			return
		}
	}
}

// aloneAt reports whether no other run can be keeping an answer to a task, or have kept
// one: that of another replica, because this one was silent for too long, or another one
// here, because the clock was set forward.
func (rn *runner) aloneAt(ctx context.Context, ref task.Ref, executor string) bool {
	t, err := rn.cfg.Store.Get(ctx, ref)
	if err != nil || t.Result != nil || t.Execution == nil {
		return false
	}
	return t.State.Terminal() || t.Execution.Executor == executor && rn.busy(t)
}

// openArriving returns a reader of an answer that is being kept.
func (rn *runner) openArriving(ctx context.Context, t task.Task) io.Reader {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	s := rn.spools.of(t.ID)
	if s == nil { // all of it has been kept by now, or none will be
		after, err := rn.tasks.get(ctx, ref)
		if err != nil || after.Result == nil {
			return task.ReadChunks(func() ([]byte, error) { return nil, errors.Join(ErrBrokenOff, err) })
		}
		return task.OpenResult(ctx, rn.cfg.Store, after)
	}
	s.change(func() { s.readers++ })
	context.AfterFunc(ctx, func() { s.change(func() { s.readers-- }) })
	n := 0
	return task.ReadChunks(func() ([]byte, error) {
		if err := s.await(ctx, n); err != nil {
			return nil, err
		}
		chunk, err := rn.cfg.Store.ReadChunk(ctx, ref, n)
		if again := s.await(ctx, n); again != nil {
			return nil, again // what was read may be what was left of it when it was discarded
		}
		n++
		return chunk, err
	})
}
