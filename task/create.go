package task

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

// ErrMaybeCreated is in the error of [Create] if it is not known whether the store has the
// task.
var ErrMaybeCreated = errors.New("it is not known whether the task was stored")

// How long, and how often at first, Create asks a store whether it has a task.
const (
	findingOut = 3 * time.Second
	firstLook  = 50 * time.Millisecond
)

// Create adds t to s, as [Store.Create] does. If the store does not say whether it has
// added t, Create finds out, also when ctx ends meanwhile: nobody may be told that
// there is no task while there is one that can be approved and run. The error contains
// [ErrMaybeCreated] if Create cannot find out.
func Create(ctx context.Context, s Store, t Task, limits Limits, notes ...Note) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.Create(ctx, t, limits, notes...)
	if !maybeCreated(err) {
		return err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), findingOut)
	defer stop()
	switch missing := look(ctx, s, t); {
	case missing == nil:
		return nil
	case !errors.Is(missing, ErrNotFound):
		return errors.Join(missing, err)
	}
	// The first attempt may still be under way. After the second one it cannot succeed.
	again := s.Create(ctx, t, limits, notes...)
	switch {
	case hasOwn(again, t.ID):
		return nil
	case !Unsure(again):
		return again
	case look(ctx, s, t) == nil:
		return nil
	default:
		return errors.Join(ErrMaybeCreated, err)
	}
}

// look returns nil if s has t, [ErrNotFound] if it has not, and [ErrMaybeCreated] if it
// does not say so before ctx ends.
func look(ctx context.Context, s Store, t Task) error {
	for wait := firstLook; ; wait = min(2*wait, time.Second) {
		if !pause.For(ctx, wait) {
			return ErrMaybeCreated
		}
		if _, err := s.Get(ctx, OwnedBy(t.Owner).Ref(t.ID)); err == nil || errors.Is(err, ErrNotFound) {
			return err
		}
	}
}

// maybeCreated reports whether the store may have added a task although it returned err.
func maybeCreated(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok && e.NotAsked {
		return false
	}
	return Unsure(err) && !errors.Is(err, ErrCapacityExceeded)
}

// hasOwn reports whether err, of an attempt to add the task once more, says that
// the store has it.
func hasOwn(err error, id ID) bool {
	e, ok := errors.AsType[*Error](err)
	return err == nil || ok && e.ID == id && (e.Kind == KindExists || e.Kind == KindDuplicate)
}
