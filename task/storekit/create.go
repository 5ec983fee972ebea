package storekit

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// ErrMaybeCreated is part of the error of [Create] if it is unknown whether the store has the
// task.
var ErrMaybeCreated = errors.New("it is not known whether the task was stored")

// How long, and at first how often, Create polls a store for a task.
const (
	findTimeout  = 3 * time.Second
	findInterval = 50 * time.Millisecond
)

// Create adds t to s, as [task.Store.Create] does. If the store's error leaves open
// whether it has added t, Create finds out, even if ctx has ended: the caller must not
// believe that there is no task if one exists that can be approved and run. The error
// contains [ErrMaybeCreated] if Create cannot find out.
func Create(ctx context.Context, s task.Store, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.Create(ctx, t, limits, notes...)
	if !maybeCreated(err) {
		return err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
	defer stop()
	switch missing := findCreated(ctx, s, t); {
	case missing == nil:
		return nil
	case !errors.Is(missing, task.ErrNotFound):
		return errors.Join(missing, err)
	}
	// The first attempt may still be under way. After the second one it cannot succeed.
	again := s.Create(ctx, t, limits, notes...)
	switch {
	case saysCreated(again, t.ID):
		return nil
	case !MaybeChanged(again):
		return again
	case findCreated(ctx, s, t) == nil:
		return nil
	default:
		return errors.Join(ErrMaybeCreated, err)
	}
}

// findCreated returns nil if s has t, [task.ErrNotFound] if not, and [ErrMaybeCreated] if
// the store has not answered when ctx ends.
func findCreated(ctx context.Context, s task.Store, t task.Task) error {
	for wait := findInterval; ; wait = min(2*wait, time.Second) {
		if !pause.For(ctx, wait) {
			return ErrMaybeCreated
		}
		if _, err := s.Get(ctx, task.OwnedBy(t.Owner).Ref(t.ID)); err == nil || errors.Is(err, task.ErrNotFound) {
			return err
		}
	}
}

// maybeCreated reports whether the store may have added a task although it returned err.
func maybeCreated(err error) bool {
	if e, ok := errors.AsType[*task.Error](err); ok && e.NotAttempted {
		return false
	}
	return MaybeChanged(err) && !errors.Is(err, task.ErrCapacityExceeded)
}

// saysCreated reports whether err, the result of a second attempt to add the task, means that
// the store has the task.
func saysCreated(err error, id task.ID) bool {
	e, ok := errors.AsType[*task.Error](err)
	return err == nil || ok && e.ID == id && (e.Kind == task.ErrExists || e.Kind == task.ErrDuplicate)
}
