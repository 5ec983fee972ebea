package app

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Explain explains how p judges the recorded calls with a reference or an id, as
// [callrecord.Lookup] finds them. Arguments that are not in the record are those of the held call,
// if the store has it.
func Explain(ctx context.Context, store gatestore.Store, text string, p *policy.Snapshot) ([]replay.Explanation, error) {
	find := func(ctx context.Context, f callrecord.Filter) (callrecord.Page, error) {
		return callrecord.Find(ctx, store, f)
	}
	entries, err := callrecord.Lookup(ctx, find, text)
	if err != nil {
		return nil, err
	}
	all := make([]replay.Explanation, len(entries))
	for i := range entries {
		e := &entries[i]
		if len(entries) == 1 && e.ID != "" && !e.HasArguments() {
			if err := complete(ctx, store, e); err != nil {
				return nil, err
			}
		}
		all[i] = replay.Explain(e, p)
	}
	return all, nil
}

// complete adds the arguments of a held call to its entry.
func complete(ctx context.Context, store gatestore.Store, e *callrecord.Entry) error {
	t, err := store.Get(ctx, task.AnyOwner().Ref(task.ID(e.ID)))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return nil // it was deleted
	case err != nil:
		return err
	case t.Abridged():
		return nil // its arguments are no longer kept
	case t.Call.Name == e.Name && t.Call.Method == e.Method:
		e.Arguments, e.Redacted = jsontext.Value(t.Call.Arguments), false
		if t.Call.Arguments == "" {
			e.Arguments = jsontext.Value("{}")
		}
	}
	return nil
}

// explain explains recorded calls under the running policy.
func (ap *approvals) explain(ctx context.Context, text string) ([]replay.Explanation, error) {
	p := ap.catalog.Policy()
	if p == nil {
		return nil, replay.ErrNoPolicy
	}
	return Explain(ctx, ap.store.Store, text, p)
}
