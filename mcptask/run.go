package mcptask

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Work runs the call of a task. It returns the result of the call, a JSON object, or an
// error. A [*jsonrpc.Error] becomes the JSON-RPC error of the call; see also [Suspend]. The
// context ends with the task, and carries the [Run]; see [From]. [context.Cause] returns
// why it has ended: [ErrStopping], [ErrCancelled] or [ErrExpired]. A panic fails the task.
type Work func(ctx context.Context) ([]byte, error)

// Start makes a task for a call and stores it, with a new id if it has none. The task then
// waits for an approval, see [lifecycle.Submit], or for [Server.Run]. Programs without
// approvals use [Server.Launch].
func (s *Server) Start(ctx context.Context, d task.Draft) (task.Task, error) {
	t, err := s.draft(d)
	if err != nil {
		return task.Task{}, err
	}
	return t, storekit.Create(ctx, s.Store, t, s.Limits)
}

// draft returns the task that d makes, with an id.
func (s *Server) draft(d task.Draft) (task.Task, error) {
	if d.ID == "" {
		// Not task.NewID: a gate in front of this server would mistake such an id for one of
		// its tasks.
		d.ID = task.ID(rand.Text())
	}
	if d.PollInterval == 0 {
		d.PollInterval = s.Polling.ByAge(0)
	}
	return task.New(d, s.Now())
}

// Launch makes a task for a call and runs it in the background. When Launch returns, the task
// is stored in state executing, so that housekeeping finds it if the process dies. The work
// gets the values of ctx, but continues after its end. See [Server.Housekeep] for the end of
// the process.
func (s *Server) Launch(ctx context.Context, d task.Draft, work Work) (task.Task, error) {
	t, err := s.draft(d)
	if err != nil {
		return task.Task{}, err
	}
	now := s.Now()
	for _, e := range []lifecycle.Event{lifecycle.Admit{By: s.runner()}, lifecycle.Claim{By: s.runner(), LeaseUntil: now.Add(s.lease())}} {
		if t, err = lifecycle.Apply(t, e, now); err != nil {
			return task.Task{}, err
		}
	}
	running, end, err := s.enter(ctx, t.ID)
	if err != nil {
		return task.Task{}, err
	}
	if err := storekit.Create(ctx, s.Store, t, s.Limits); err != nil {
		end()
		return task.Task{}, err
	}
	s.background(running, t, work, end)
	return t, nil
}

// background runs a claimed task until its end.
func (s *Server) background(ctx context.Context, t task.Task, work Work, end func()) {
	go func() {
		defer end()
		if _, err := s.run(ctx, t, work); err != nil {
			s.log(ctx, "running", t.ID, err)
		}
	}()
}

// Run runs a task from [Server.Start] that is approved or needs no approval, and stores the
// result of work. It returns after the result was stored. If ctx ends before the task, the task
// fails as interrupted, so use a context that outlives the request.
//
// Run returns an error if the task could not be run, if the store failed, or if work failed. It
// returns nil if the error of work is a [*jsonrpc.Error], or if the task was cancelled. The
// client does not see the text of other errors.
func (s *Server) Run(ctx context.Context, ref task.Ref, work Work) (task.Task, error) {
	running, end, err := s.enter(ctx, ref.ID)
	if err != nil {
		return task.Task{}, err
	}
	defer end()
	stop := context.AfterFunc(ctx, func() { s.interrupt(ref.ID) })
	defer stop()
	t, err := s.claim(ctx, ref)
	if err != nil {
		return t, err
	}
	return s.run(running, t, work)
}

func (s *Server) claim(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := s.Store.Get(ctx, ref)
	if err != nil {
		return t, err
	}
	if t.State == task.Working {
		if t, err = lifecycle.Advance(ctx, s.Store, ref, lifecycle.Admit{By: s.runner()}, s.Now()); err != nil {
			return t, err
		}
	}
	now := s.Now()
	return s.begin(ctx, ref, lifecycle.Claim{By: s.runner(), LeaseUntil: now.Add(s.lease())}, now)
}

// begin makes this process the executor of a task. If the store's error leaves open whether
// the change was made, begin reads the task, so that no task waits for a run that never
// begins. The caller has called enter for the task.
func (s *Server) begin(ctx context.Context, ref task.Ref, e lifecycle.Event, now time.Time) (task.Task, error) {
	t, err := lifecycle.Advance(ctx, s.Store, ref, e, now)
	if !storekit.MaybeChanged(err) {
		return t, err
	}
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), s.lease()/leaseParts)
	defer stop()
	stored, failed := s.Store.Get(asking, ref)
	if failed == nil && stored.State == task.Executing && stored.Execution.Executor == s.runner() && stored.Execution.LeaseUntil.After(now) {
		return stored, nil // the lease of an earlier run of this process has lapsed
	}
	return t, err
}

// The causes of the end of the context of a running work.
var (
	ErrStopping  = errors.New("mcptask: the server is stopping")
	ErrCancelled = errors.New("mcptask: the task was cancelled")
	ErrExpired   = errors.New("mcptask: the time to live of the task has passed")

	errOver = errors.New("mcptask: another process runs the task, or has ended it")
)

// endedBy returns the cause of the end of a task.
func endedBy(t task.Task) error {
	switch t.State {
	case task.Cancelled:
		return ErrCancelled
	case task.Expired:
		return ErrExpired
	default:
		return errOver
	}
}

// run does the work of a task that this process has claimed, and ends the task with its
// outcome. The context is one from enter.
func (s *Server) run(ctx context.Context, t task.Task, work Work) (task.Task, error) {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	changes := &writer{server: s, task: t}
	working, release := s.guard(ctx, ref, changes)
	defer release() // after the answer is stored
	result, failed := protected(context.WithValue(working, runKey{}, &Run{server: s, ref: ref, writer: changes}), work)
	broken := errors.Is(context.Cause(ctx), ErrStopping) // an error that comes now is due to the stop
	if failed == nil && !(jsonrpc.Value{Bytes: result}).IsObject() {
		failed = errors.New("the result of the work is not a JSON object")
	}
	if asks, ok := errors.AsType[*suspension](failed); ok {
		if failed = s.canSuspend(t, asks); failed == nil {
			changes.end(ctx)
			return s.store(ctx, t, func(ctx context.Context) (task.Task, error) { return s.suspend(ctx, ref, asks) })
		}
	}
	//mutate:swap " || KindOf(result) == task.ResultToolError" "" TestStopBreaksWorkOff a stop completes the tasks of tools that report it as their own error
	if broken && (failed != nil || KindOf(result) == task.ResultToolError) {
		changes.end(ctx)
		return s.leave(context.WithoutCancel(ctx), t)
	}
	changes.dropStatus() // the client would not see it
	t = changes.end(ctx)
	t, err := s.store(ctx, t, func(ctx context.Context) (task.Task, error) { return s.keep(ctx, t, result, failed) })
	if _, own := errors.AsType[*jsonrpc.Error](failed); own || t.State != task.Failed {
		failed = nil // the client gets the error, or the task has ended otherwise
	}
	return t, errors.Join(failed, err)
}

// leave ends an interrupted run. If the work may be done twice, another process restarts
// it; otherwise the task fails.
func (s *Server) leave(ctx context.Context, t task.Task) (task.Task, error) {
	if s.again(t) != nil {
		return t, nil
	}
	failure := task.Failure{Stage: lifecycle.StageShutdown, Reason: "the server was stopped"}
	return s.fail(ctx, task.OwnedBy(t.Owner).Ref(t.ID), failure)
}

// fail ends a run of this process, unless another has taken over.
func (s *Server) fail(ctx context.Context, ref task.Ref, why task.Failure) (task.Task, error) {
	t, err := lifecycle.Advance(ctx, s.Store, ref, lifecycle.Fail{By: s.runner(), Executor: s.runner(), Failure: why}, s.Now())
	return t, unlessOver(err)
}

// The shortest and the longest pause before a store that has failed is tried again.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// store makes the last change of a run of t. It tries again while the store fails, until the TTL
// of t has passed. If ctx has ended, because the process is about to end, it tries only once
// more.
func (s *Server) store(ctx context.Context, t task.Task, change func(context.Context) (task.Task, error)) (task.Task, error) {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		stopping := ctx.Err() != nil
		after, err := change(context.WithoutCancel(ctx))
		if !storekit.MaybeChanged(err) || stopping || !s.Now().Before(t.ExpiresAt) {
			return after, err
		}
		if after.ID != "" {
			t = after // its TTL may have been extended
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
	}
}

// keep ends a run with its result or its error. If the task has already ended, or another
// process has taken it over, it returns the task.
func (s *Server) keep(ctx context.Context, t task.Task, result json.RawMessage, failed error) (task.Task, error) {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	kind := KindOf(result)
	if failed != nil {
		kind, result = task.ResultRPCError, errorObject(Dialect{}.Error(failed))
	}
	if len(result) > task.ChunkSize { // the result of another run must not be overwritten
		var err error
		if t, err = s.Store.Get(ctx, ref); err != nil || t.State != task.Executing || t.Execution.Executor != s.runner() {
			return t, err
		}
	}
	kept, err := storekit.WriteResult(ctx, storekit.BlobsOf(s.Store), ref, bytes.NewReader(result))
	if errors.Is(err, task.ErrCapacityExceeded) {
		t, failed := s.fail(ctx, ref, task.Failure{Stage: lifecycle.StageResultTooLarge, Reason: err.Error(), Ran: task.RanYes})
		if storekit.MaybeChanged(failed) {
			return t, failed
		}
		return t, errors.Join(err, failed)
	}
	if err != nil {
		return t, err
	}
	kept.Kind = kind
	t, err = lifecycle.CompleteFrom(ctx, s.Store, t, lifecycle.Complete{By: s.runner(), Result: kept}, s.Now())
	return t, unlessOver(err)
}

// unlessOver returns nil if err means that the task was cancelled, has expired, or was taken
// over meanwhile. Otherwise it returns err.
func unlessOver(err error) error {
	if errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrConcurrentModification) || errors.Is(err, lifecycle.ErrNotExecutor) {
		return nil
	}
	return err
}

// guard keeps the lease of a task that this process runs, until release is called. The
// context is for the work: it ends with ctx, and when the task ends first.
func (s *Server) guard(ctx context.Context, ref task.Ref, changes *writer) (working context.Context, release func()) {
	working, stop := context.WithCancelCause(ctx)
	keeping, end := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() {
		t, err := storekit.Wait(working, s.Store, ref, func(t task.Task) bool { return t.State.Terminal() })
		if err == nil {
			stop(endedBy(t))
		}
	})
	watching.Go(func() { s.keepLease(keeping, changes, stop) })
	return working, func() {
		stop(nil)
		end()
		watching.Wait()
	}
}

// protected does the work in a goroutine of its own. If the work panics or ends its goroutine,
// protected returns an error.
func protected(ctx context.Context, work Work) (result []byte, err error) {
	err = errors.New("the work has ended its goroutine")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if cause := recover(); cause != nil {
				result, err = nil, fmt.Errorf("the work panicked: %v\n%s", cause, debug.Stack())
			}
		}()
		result, err = work(ctx)
	}()
	<-ended
	return result, err
}

// keepLease renews the lease of a task that this process runs, unless a change has renewed it. It
// ends the task when its TTL has passed. It ends the work if the task has ended, or if another
// process has taken it over.
func (s *Server) keepLease(ctx context.Context, changes *writer, stop context.CancelCauseFunc) {
	every := s.lease() / leaseParts
	pause := time.NewTimer(every)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		now := s.Now()
		t := changes.last()
		if left := min(every-now.Add(s.lease()).Sub(t.Execution.LeaseUntil), t.Remaining(now)); left > 0 {
			pause.Reset(left)
			continue
		}
		t, err := changes.make(ctx, lifecycle.RenewLease{By: s.runner(), Until: now.Add(s.lease())})
		next := every
		switch {
		case errors.Is(err, lifecycle.ErrNotExecutor), errors.Is(err, task.ErrAlreadyTerminal):
			stop(endedBy(t))
			return
		case errors.Is(err, task.ErrExpired):
			_, _, _ = lifecycle.Updater{Store: s.Store}.Settle(ctx, t, s.runner(), now) // an error is left to the next round
		case err == nil:
			next = min(next, t.Remaining(now)+time.Millisecond)
		}
		pause.Reset(next)
	}
}

// KindOf returns the kind of a tool result.
func KindOf(result []byte) task.ResultKind {
	if (jsonrpc.Value{Bytes: result}).Member("isError").IsTrue() {
		return task.ResultToolError
	}
	return task.ResultOK
}
