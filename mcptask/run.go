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
)

// A Work does what a task is for. It returns the result of the call, a JSON
// object, or an error, which is the call's JSON-RPC error if it is a
// [*jsonrpc.Error]. Its context ends when the task does, and gives it the [Call];
// see [CallFrom]. A panic fails the task.
type Work func(ctx context.Context) ([]byte, error)

// Start makes a task for a call. It gives it an id, if it has none, and keeps
// it, so that when Start returns every task method finds it. The task then
// waits to be approved, see [task.Submit], or to be run with [Server.Run].
// Programs that ask nobody use [Server.Launch].
func (s *Server) Start(ctx context.Context, d task.Draft) (task.Task, error) {
	t, err := s.draft(d)
	if err != nil {
		return task.Task{}, err
	}
	return t, task.Create(ctx, s.Store, t, s.Limits)
}

// draft returns the task that d makes, with an id.
func (s *Server) draft(d task.Draft) (task.Task, error) {
	if d.ID == "" {
		// Not task.NewID: a gate in front of this server would take such an id
		// for one of its own.
		d.ID = task.ID(rand.Text())
	}
	if d.PollInterval == 0 {
		d.PollInterval = s.Polling.ByAge(0)
	}
	return task.New(d, s.Now())
}

// Launch makes a task for a call and runs it in the background. The task is kept
// before Launch returns, and is running from its beginning: a process that dies
// at any moment leaves no task that nobody runs. The work has the values of ctx,
// but outlives it. See [Server.Housekeep] for the end of the process.
func (s *Server) Launch(ctx context.Context, d task.Draft, work Work) (task.Task, error) {
	t, err := s.draft(d)
	if err != nil {
		return task.Task{}, err
	}
	now := s.Now()
	for _, e := range []task.Event{task.Admit{By: s.runner()}, task.Claim{By: s.runner(), LeaseUntil: now.Add(s.lease())}} {
		if t, err = t.Apply(e, now); err != nil {
			return task.Task{}, err
		}
	}
	running, end, err := s.enter(ctx, t.ID)
	if err != nil {
		return task.Task{}, err
	}
	if err := task.Create(ctx, s.Store, t, s.Limits); err != nil {
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

// Run runs a task from [Server.Start] that needs no approval, or that was
// approved, and keeps what work returns until the task's time is over. It
// returns once work has, and the answer is kept. If ctx ends before the task, the
// task fails as interrupted: give it a context that outlives the request.
//
// The error is that of a task that could not be run or of a store that failed,
// or it is work's own, unless that is a [*jsonrpc.Error]: the client learns no
// more than that there was an error. A task that was cancelled is no error.
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
		if t, err = task.Advance(ctx, s.Store, ref, task.Admit{By: s.runner()}, s.Now()); err != nil {
			return t, err
		}
	}
	now := s.Now()
	return s.begin(ctx, ref, task.Claim{By: s.runner(), LeaseUntil: now.Add(s.lease())}, now)
}

// begin makes this process the executor of a task. A store that did not say whether it
// has made the change is asked, so that no task waits for a work that never begins. The
// task is one from enter: nothing else in this process runs it.
func (s *Server) begin(ctx context.Context, ref task.Ref, e task.Event, now time.Time) (task.Task, error) {
	t, err := task.Advance(ctx, s.Store, ref, e, now)
	if !task.Unsure(err) {
		return t, err
	}
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), s.lease()/leaseParts)
	defer stop()
	stored, failed := s.Store.Get(asking, ref)
	if failed == nil && stored.State == task.Executing && stored.Execution.Executor == s.runner() && stored.Execution.LeaseUntil.After(now) {
		return stored, nil // an earlier run of this process has no lease any more
	}
	return t, err
}

// Why the context of a work ends before the work has.
var (
	errOver     = errors.New("mcptask: the task has ended")
	errStopping = errors.New("mcptask: the server is stopping")
)

// run does the work of a task that this process has claimed, and ends the task
// with what comes of it. The context is one from enter.
func (s *Server) run(ctx context.Context, t task.Task, work Work) (task.Task, error) {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	working, release := s.guard(ctx, ref)
	defer release() // the lease is kept until the answer is
	result, failed := protected(context.WithValue(working, callKey{}, &Call{server: s, ref: ref}), work)
	if failed == nil && !(jsonrpc.Value{Bytes: result}).IsObject() {
		failed = errors.New("the work's result is no JSON object")
	}
	if failed != nil && errors.Is(context.Cause(ctx), errStopping) && errors.Is(failed, context.Canceled) {
		return s.leave(context.WithoutCancel(ctx), t)
	}
	t, err := s.keep(ctx, t, result, failed)
	if _, own := errors.AsType[*jsonrpc.Error](failed); own || t.State != task.Failed {
		failed = nil // the client was told, or does not care any more
	}
	return t, errors.Join(failed, err)
}

// leave ends the part of this process in a run that it had to break off: another
// does the work again if it may be done twice, and the task fails if not.
func (s *Server) leave(ctx context.Context, t task.Task) (task.Task, error) {
	if s.again(t) != nil {
		return t, nil
	}
	failure := task.Failure{Stage: task.StageShutdown, Reason: "the server was stopped"}
	return s.fail(ctx, task.OwnedBy(t.Owner).Ref(t.ID), failure)
}

// fail ends a run of this process, unless another has taken over.
func (s *Server) fail(ctx context.Context, ref task.Ref, why task.Failure) (task.Task, error) {
	t, err := task.Advance(ctx, s.Store, ref, task.Fail{By: s.runner(), Executor: s.runner(), Failure: why}, s.Now())
	return t, unlessOver(err)
}

// The shortest and the longest pause before a store that has failed is tried again.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// keep ends the run of t with its result, or with what made it fail. A store that
// fails is tried again until the time of t is over. The answer is kept even if ctx has
// ended, because the process is about to, but then the store is tried only once more.
func (s *Server) keep(ctx context.Context, t task.Task, result json.RawMessage, failed error) (task.Task, error) {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		stopping := ctx.Err() != nil
		after, err := s.tryToKeep(context.WithoutCancel(ctx), task.OwnedBy(t.Owner).Ref(t.ID), result, failed)
		if !task.Unsure(err) || stopping || !s.Now().Before(t.ExpiresAt) {
			return after, err
		}
		if after.ID != "" {
			t = after // it may have got more time
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
	}
}

// tryToKeep is keep with one attempt. If the task has ended already, or another process
// has taken over, it returns the task as it is.
func (s *Server) tryToKeep(ctx context.Context, ref task.Ref, result json.RawMessage, failed error) (task.Task, error) {
	t, err := s.Store.Get(ctx, ref)
	if err != nil || t.State != task.Executing || t.Execution.Executor != s.runner() {
		return t, err
	}
	kind := KindOf(result)
	if failed != nil {
		kind, result = task.ResultRPCError, errorObject(Dialect{}.Error(failed))
	}
	kept, err := task.WriteResult(ctx, task.BlobsOf(s.Store), ref, bytes.NewReader(result))
	if errors.Is(err, task.ErrCapacityExceeded) {
		t, failed := s.fail(ctx, ref, task.Failure{Stage: task.StageResultTooLarge, Reason: err.Error(), Ran: task.RanYes})
		if task.Unsure(failed) {
			return t, failed
		}
		return t, errors.Join(err, failed)
	}
	if err != nil {
		return t, err
	}
	kept.Kind = kind
	t, err = task.CompleteWithResult(ctx, s.Store, ref, task.Complete{By: s.runner(), Result: kept}, s.Now())
	return t, unlessOver(err)
}

// unlessOver returns err unless it means that the task was cancelled, has
// expired, or was taken over meanwhile, all of which stands.
func unlessOver(err error) error {
	if errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrConcurrentModification) || errors.Is(err, task.ErrNotExecutor) {
		return nil
	}
	return err
}

// guard keeps the lease of a task that this process runs, until release is called. The
// context is for the work: it ends with ctx, and when the task ends first.
func (s *Server) guard(ctx context.Context, ref task.Ref) (working context.Context, release func()) {
	working, stop := context.WithCancelCause(ctx)
	keeping, end := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() {
		_, err := task.Wait(working, s.Store, ref, func(t task.Task) bool { return t.State.Terminal() })
		if err == nil {
			stop(errOver)
		}
	})
	watching.Go(func() { s.keepLease(keeping, ref, stop) })
	return working, func() {
		stop(nil)
		end()
		watching.Wait()
	}
}

// protected does the work, and turns a panic into an error.
func protected(ctx context.Context, work Work) (result []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			result, err = nil, fmt.Errorf("the work panicked: %v\n%s", cause, debug.Stack())
		}
	}()
	return work(ctx)
}

// keepLease renews the lease of a task that this process runs, and ends the task
// when its time is over. It ends the work if the task has ended, or if another process
// has taken over.
func (s *Server) keepLease(ctx context.Context, ref task.Ref, stop context.CancelCauseFunc) {
	pause := time.NewTimer(s.lease() / leaseParts)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		now := s.Now()
		t, err := task.Advance(ctx, s.Store, ref, task.RenewLease{By: s.runner(), Until: now.Add(s.lease())}, now)
		next := s.lease() / leaseParts
		switch {
		case errors.Is(err, task.ErrNotExecutor), errors.Is(err, task.ErrAlreadyTerminal):
			stop(errOver)
			return
		case errors.Is(err, task.ErrExpired):
			_, _, _ = task.Updater{Store: s.Store}.Settle(ctx, t, s.runner(), now) // or the next round does
		case err == nil:
			next = min(next, t.Remaining(now)+time.Millisecond)
		}
		pause.Reset(next)
	}
}

// KindOf returns what kind of answer a tool result is.
func KindOf(result []byte) task.ResultKind {
	if isTrue(jsonrpc.Value{Bytes: result}.Member("isError")) {
		return task.ResultToolError
	}
	return task.ResultOK
}
