package approval

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// endOf returns the event that ends the run of t: a stored result, a failure, or an upstream task.
func (rn *runner) endOf(ctx context.Context, in *chunkWriter, t task.Task, o Outcome, failed error) lifecycle.Event {
	if failed == nil && o.Report != nil {
		return o.Report.note(t.Execution.Executor, true)
	}
	if failed == nil && o.Body == nil {
		failed = &SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanUnknown, Err: errors.New("no answer")}
	}
	if failed != nil {
		return rn.failure(ctx, t, failed)
	}
	return rn.storeAnswer(ctx, in, t, o)
}

// storeAnswer stores the answer to t and returns the event that ends the run.
func (rn *runner) storeAnswer(ctx context.Context, chunks *chunkWriter, t task.Task, o Outcome) lifecycle.Event {
	object := objectIn(o.Body)
	answer := &source{Reader: object, left: rn.env.settings().MaxResult}
	kept, err := storekit.WriteResult(ctx, chunks, task.AnyOwner().Ref(t.ID), answer)
	if err != nil {
		chunks.discard(ctx)
	}
	switch {
	case answer.err != nil:
		return rn.failure(ctx, t, unusable(answer.err))
	case errors.Is(err, task.ErrCapacityExceeded):
		return rn.failure(ctx, t, &SendError{Stage: lifecycle.StageResultTooLarge, Ran: task.RanYes, Err: err})
	case err != nil:
		return rn.failure(ctx, t, &SendError{Stage: lifecycle.StageExecutorLost, Ran: task.RanYes, Err: err})
	case o.Error:
		kept.Kind = task.ResultRPCError
		const reason = "the upstream answered with an error"
		return lifecycle.Fail{
			By: rn.env.name, Executor: t.Execution.Executor, Result: &kept,
			Failure: task.Failure{Stage: lifecycle.StageUpstreamError, Reason: reason, Ran: task.RanYes},
		}
	case object.Member(MemberIsError).IsTrue():
		kept.Kind = task.ResultToolError
	default:
		kept.Kind = task.ResultOK
	}
	return lifecycle.Complete{By: rn.env.name, Executor: t.Execution.Executor, Result: kept}
}

// MemberIsError is the member of a tool result that marks a tool error.
const MemberIsError = "isError"

// A Checked body is exactly one JSON object. It is validated while it is read, as by
// [jsonrpc.ObjectReader].
type Checked interface {
	io.Reader

	// Member returns the member [MemberIsError] after the object was read to its end, or an absent
	// value.
	Member(name string) jsonrpc.Value
}

// objectIn returns a body that is validated once: a validation costs as much as storing the body.
func objectIn(body io.Reader) Checked {
	if checked, ok := body.(Checked); ok {
		return checked
	}
	return jsonrpc.NewObjectReader(body, MemberIsError)
}

// unusable classifies the error of an answer that could not be read. A malformed answer still
// proves that the call ran.
func unusable(err error) error {
	if errors.Is(err, errTooLarge) {
		return &SendError{Stage: lifecycle.StageResultTooLarge, Ran: task.RanYes, Err: err}
	}
	_, malformed := errors.AsType[*jsonrpc.ParseError](err)
	_, judged := errors.AsType[*SendError](err)
	if !judged && (malformed || errors.Is(err, jsonrpc.ErrTooLarge)) {
		return &SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes, Err: err}
	}
	return err
}

// failure returns the end of a call without an answer. The error goes to the log; the task gets a
// fixed sentence.
func (rn *runner) failure(ctx context.Context, t task.Task, err error) lifecycle.Event {
	rn.env.log.WarnContext(LogContext(ctx, t), "call without an answer", "err", err)
	f := task.Failure{Stage: lifecycle.StageUpstreamUnreachable, Reason: "the call could not be finished", Ran: task.RanUnknown}
	known, ok := errors.AsType[*SendError](err)
	switch {
	case ok && known.Stage != "":
		f.Stage = known.Stage
		if known.Ran != "" {
			f.Ran = known.Ran
		}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.Stage = lifecycle.StageUpstreamTimeout
	case ctx.Err() != nil:
		f.Stage = lifecycle.StageExecutorLost // only a shutdown interrupts a run whose task has not ended
	}
	if f.Ran == task.RanNo && begun(t) {
		f.Ran = task.RanUnknown
	}
	switch {
	case f.Stage != lifecycle.StageSessionGone:
	case f.Ran == task.RanNo:
		f.Reason = known.reason()
	default:
		//mutate:swap "StageUpstreamError" "StageSessionGone" internal/mcphttp.TestRefusedAfterQuestionMayHaveRun an approval stays good although the call had begun
		f.Stage = lifecycle.StageUpstreamError
	}
	f.Retriable = f.Ran == task.RanNo
	return lifecycle.Fail{By: rn.env.name, Executor: t.Execution.Executor, Failure: f}
}

// begun reports whether the upstream has started the call before: it asked the client for input,
// or made a task of it. What it has done since is unknown.
func begun(t task.Task) bool { return t.Execution.Answers != nil || t.Execution.UpstreamTask != "" }

// errTooLarge is the error for an answer larger than [Settings.MaxResult].
var errTooLarge = errors.New("the answer is too large to be kept")

// A source limits the size of an answer. It keeps the error of its reader, to distinguish it from
// an error of the store.
type source struct {
	io.Reader

	left int64 // remaining bytes
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

// newChunkWriter returns a writer for the chunks of the answer to t. Waiting clients can read the
// answer from its first chunk on.
func (rn *runner) newChunkWriter(t task.Task, failed bool) *chunkWriter {
	return &chunkWriter{
		Blobs: rn.env.store, runner: rn, id: t.ID, executor: t.Execution.Executor,
		answer: &partialAnswer{failed: failed, moved: make(chan struct{})},
	}
}

// A chunkWriter stores the chunks of an answer and wakes its readers.
type chunkWriter struct {
	task.Blobs

	runner   *runner
	id       task.ID
	executor string
	answer   *partialAnswer
}

// WriteChunk implements [task.Blobs].
func (s *chunkWriter) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.write(ctx, ref, n, data); err != nil {
		return err
	}
	if s.answer.kept(n) {
		s.runner.answers.begin(s.id, s.answer)
	}
	return nil
}

// write stores a chunk, which is safe to repeat. It retries for one lease while the store fails,
// and reads no more of the answer meanwhile.
func (s *chunkWriter) write(ctx context.Context, ref task.Ref, n int, data []byte) error {
	limited, stop := context.WithTimeout(ctx, s.runner.env.lease)
	defer stop()
	for pause := firstPause; ; pause = nextPause(pause) {
		err := s.Blobs.WriteChunk(ctx, ref, n, data)
		if !storekit.MaybeChanged(err) {
			return err
		}
		s.runner.env.log.WarnContext(ctx, "part of an answer not kept", "err", err)
		select {
		case <-time.After(pause):
		case <-limited.Done():
			return err
		}
		if !s.runner.mayContinue(ctx, s.id, s.executor) {
			return err // another run may have stored an answer meanwhile
		}
	}
}

// discard frees the space of an incomplete answer, which the end of the task may need. It
// overwrites the chunks; they are deleted with the task.
func (s *chunkWriter) discard(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), s.runner.env.lease)
	defer stop()
	ref := task.AnyOwner().Ref(s.id)
	s.answer.change(func() { s.answer.discarded = true }) // first, because a client may be reading it
	if !s.runner.isOnlyRun(ctx, ref, s.executor) {
		return
	}
	for n := s.answer.written - 1; n >= 0; n-- { // no other run writes them
		if err := s.Blobs.WriteChunk(ctx, ref, n, []byte{0}); err != nil {
			s.runner.env.log.WarnContext(ctx, "part of an answer not discarded", "err", err)
			return
		}
	}
}

// isOnlyRun reports whether no other run can be storing, or have stored, an answer to a task.
// Another replica may have taken over while this one was silent, or another run here after the
// clock was set forward.
func (rn *runner) isOnlyRun(ctx context.Context, ref task.Ref, executor string) bool {
	t, err := rn.env.store.Get(ctx, ref)
	if err != nil || t.Result != nil || t.Execution == nil {
		return false
	}
	return t.State.Terminal() || t.Execution.Executor == executor && rn.leases.busy(t)
}

// openArriving returns a reader of an answer that is still being stored.
func (rn *runner) openArriving(ctx context.Context, t task.Task) io.Reader {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	s := rn.answers.of(t.ID)
	if s == nil { // it is complete by now, or was discarded
		after, err := rn.tasks.get(ctx, ref)
		if err != nil || after.Result == nil {
			return storekit.ReadChunks(func() ([]byte, error) { return nil, errors.Join(ErrTruncated, err) })
		}
		return storekit.OpenResult(ctx, rn.env.store, after)
	}
	s.change(func() { s.readers++ })
	context.AfterFunc(ctx, func() { s.change(func() { s.readers-- }) })
	n := 0
	return storekit.ReadChunks(func() ([]byte, error) {
		if err := s.await(ctx, n); err != nil {
			return nil, err
		}
		chunk, err := rn.env.store.ReadChunk(ctx, ref, n)
		if again := s.await(ctx, n); again != nil {
			return nil, again // the chunk may have been overwritten while it was read
		}
		n++
		return chunk, err
	})
}

// A partialAnswer is an answer that is being stored chunk by chunk. Waiting clients at this
// replica read its chunks before it is complete.
type partialAnswer struct {
	failed bool // the answer is an error object

	mu      sync.Mutex
	chunks  int              // the number of stored chunks without a gap
	written int              // one more than the number of the last stored chunk
	early   map[int]struct{} // stored chunks behind a gap
	readers int
	over    bool          // no more chunks follow
	err     error         // why the answer is incomplete
	moved   chan struct{} // closed and replaced on every change

	discarded bool // the chunks were overwritten
}

// ErrTruncated reports an answer that broke off while it was read.
var ErrTruncated = errors.New("the answer broke off")

// change makes a change and wakes the readers.
func (s *partialAnswer) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.moved)
	s.moved = make(chan struct{})
}

// kept records chunk n, and reports whether it is the first chunk. Chunks may be written in any
// order.
func (s *partialAnswer) kept(n int) (first bool) {
	s.change(func() {
		if s.early == nil {
			s.early = make(map[int]struct{})
		}
		s.early[n] = struct{}{}
		s.written = max(s.written, n+1)
		first = n == 0
		for {
			if _, next := s.early[s.chunks]; !next {
				return
			}
			delete(s.early, s.chunks)
			s.chunks++
		}
	})
	return first
}

// beingRead reports whether a client reads the answer while it is being stored.
func (s *partialAnswer) beingRead() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers > 0
}

// await waits for chunk n. It returns io.EOF after the last chunk.
func (s *partialAnswer) await(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		there, over, err, moved := s.chunks > n && !s.discarded, s.over, s.err, s.moved
		s.mu.Unlock()
		switch {
		case there:
			return nil
		case over && err != nil:
			return err
		case over:
			return io.EOF
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// PartialAnswers are the answers that are being stored by this replica.
type partialAnswers struct {
	mu      sync.Mutex
	open    map[task.ID]*partialAnswer
	started chan struct{} // closed and replaced when an answer begins
}

func newPartialAnswers() *partialAnswers {
	return &partialAnswers{open: make(map[task.ID]*partialAnswer), started: make(chan struct{})}
}

// begin makes the first chunks of an answer readable.
func (s *partialAnswers) begin(id task.ID, one *partialAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = one
	close(s.started)
	s.started = make(chan struct{})
}

// begun returns a channel that is closed when the next answer begins.
func (s *partialAnswers) begun() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// of returns the partial answer to a task, or nil.
func (s *partialAnswers) of(id task.ID) *partialAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// end ends one answer to a task. Event e tells whether it is complete. Another run may be storing
// another answer to the same task.
func (s *partialAnswers) end(id task.ID, one *partialAnswer, e lifecycle.Event) {
	s.mu.Lock()
	if s.open[id] == one {
		delete(s.open, id)
	}
	s.mu.Unlock()
	_, whole := e.(lifecycle.Complete)
	if fail, failed := e.(lifecycle.Fail); failed {
		whole = fail.Result != nil
	}
	one.change(func() {
		if one.over = true; !whole {
			one.err = ErrTruncated
		}
	})
}

// arriving is the size of a result that is still being stored.
const arriving = -1

func isArriving(t task.Task) bool { return t.Result != nil && t.Result.Size == arriving }

// withAnswer returns t in its expected final state if its answer is being stored.
func (s *partialAnswers) withAnswer(t task.Task) task.Task {
	one := s.of(t.ID)
	if one == nil || t.State != task.Executing {
		return t
	}
	t = t.Clone()
	t.State, t.Result = task.Completed, &task.Result{Kind: task.ResultOK, Size: arriving}
	if one.failed {
		t.State, t.Result.Kind = task.Failed, task.ResultRPCError
	}
	return t
}
