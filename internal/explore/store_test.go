package explore

import (
	"context"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/failpoint"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A sharedStore is the store of all gates, as one of them uses it. It records the state changes.
type sharedStore struct {
	gatestore.Store

	by *process
}

// reached returns the store for its gate: each call stops at a point.
func (s sharedStore) reached() gatestore.Store {
	return &failpoint.Store{Inner: s, At: func(ctx context.Context, method, about string, effect func(context.Context) error) error {
		_, err := do(ctx, s.by, "store."+method, about, func(ctx context.Context) (nothing, error) { return nothing{}, effect(ctx) })
		return err
	}}
}

type nothing = struct{}

// Swap implements [task.Store].
func (s sharedStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	before, _ := s.Get(ctx, task.AnyOwner().Ref(t.ID))
	err := s.Store.Swap(ctx, t, notes...)
	if err == nil {
		s.by.w.outcomes.changed(s.by, before, t)
	}
	return err
}

// Create implements [task.Store].
func (s sharedStore) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	s.by.w.outcomes.created(t)
	return s.Store.Create(ctx, t, limits, notes...)
}

// Close does nothing: the store outlives its gates.
func (s sharedStore) Close() error { return nil }

// kindOf returns the part of a record's name that names its kind.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return kind
}
