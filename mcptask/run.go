package mcptask

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Start makes a task for a call. It gives it an id, if it has none, and keeps
// it, so that when Start returns every task method finds it. The task then
// waits to be approved, see [task.Submit], or to be run.
func (s *Server) Start(ctx context.Context, d task.Draft) (task.Task, error) {
	if d.ID == "" {
		// Not task.NewID: a gate in front of this server would take such an id
		// for one of its own.
		d.ID = task.ID(rand.Text())
	}
	d.PollInterval = s.Polling.Interval(d.TTL)
	t, err := task.New(d, s.Now())
	if err != nil {
		return task.Task{}, err
	}
	return t, s.Store.Create(ctx, t, s.Limits)
}

// A Work does what a task is for. It returns the result of the call, or an
// error, which is the call's JSON-RPC error if it is a [*jsonrpc.Error]. Its
// context ends when the task is cancelled.
type Work func(ctx context.Context) (jsontext.Value, error)

// runner is who runs the tasks of [Server.Run].
const runner = "mcptask.Server"

// Run runs a task from [Server.Start] that needs no approval, or that was
// approved, and keeps what work returns until the task's time is over. It
// returns once work has, and the answer is kept.
//
// The error is that of a task that could not be run or of a store that failed,
// or it is work's own, unless that is a [*jsonrpc.Error]: the client is told no
// more than that there was an error.
func (s *Server) Run(ctx context.Context, ref task.Ref, work Work) (task.Task, error) {
	t, err := s.claim(ctx, ref)
	if err != nil {
		return t, err
	}
	result, failed := s.untilOver(ctx, ref, work)
	if failed == nil && !(jsonrpc.Value{Bytes: result}).IsObject() {
		failed = errors.New("the work's result is no JSON object")
	}
	// The answer is kept even if whoever started the work has gone.
	t, err = s.keep(context.WithoutCancel(ctx), ref, result, failed)
	if _, own := errors.AsType[*jsonrpc.Error](failed); own {
		failed = nil
	}
	return t, errors.Join(failed, err)
}

// keep ends a run with its result, or with what made it fail.
func (s *Server) keep(ctx context.Context, ref task.Ref, result jsontext.Value, failed error) (task.Task, error) {
	kind := KindOf(result)
	if failed != nil {
		kind, result = task.ResultRPCError, errorObject(Dialect{}.Error(failed))
	}
	kept, err := task.WriteResult(ctx, s.Store, ref, bytes.NewReader(result))
	if err != nil {
		return task.Task{}, err
	}
	kept.Kind = kind
	t, err := task.CompleteWithResult(ctx, s.Store, ref, task.Complete{By: runner, Result: kept}, s.Now())
	if errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrConcurrentModification) {
		err = nil // it was cancelled or has expired meanwhile, and that stands
	}
	return t, err
}

func (s *Server) claim(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := s.Store.Get(ctx, ref)
	if err != nil {
		return t, err
	}
	if t.State == task.Working {
		if t, err = task.Advance(ctx, s.Store, ref, task.Admit{By: runner}, s.Now()); err != nil {
			return t, err
		}
	}
	return task.Advance(ctx, s.Store, ref, task.Claim{By: runner, LeaseUntil: t.ExpiresAt}, s.Now())
}

// untilOver does the work and ends its context when the task ends first.
func (s *Server) untilOver(ctx context.Context, ref task.Ref, work Work) (jsontext.Value, error) {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() {
		_, err := task.Wait(ctx, s.Store, ref, func(t task.Task) bool {
			s.keepLease(ctx, t)
			return t.State.Terminal()
		})
		if err == nil {
			stop()
		}
	})
	return work(ctx)
}

// KindOf returns what kind of answer a tool result is.
func KindOf(result []byte) task.ResultKind {
	if isTrue(jsonrpc.Value{Bytes: result}.Member("isError")) {
		return task.ResultToolError
	}
	return task.ResultOK
}
