package storage

import (
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// reclaimBatch is how many tasks are deleted at a time when the store is full.
const reclaimBatch = 100

// A reclaimingStore deletes ended tasks when the store is full, before it refuses a call or
// a result. It deletes only tasks whose outcome was delivered and tasks that never ran.
type reclaimingStore struct{ gatestore.Store }

// Unwrap returns the wrapped store.
func (r reclaimingStore) Unwrap() gatestore.Store { return r.Store }

// Create implements [task.Store].
func (r reclaimingStore) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	return r.retryAfterReclaim(ctx, task.OwnedBy(t.Owner), func() error { return r.Store.Create(ctx, t, limits, notes...) })
}

// WriteChunk implements [task.Blobs].
func (r reclaimingStore) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	return r.retryAfterReclaim(ctx, task.AnyOwner(), func() error { return r.Store.WriteChunk(ctx, ref, n, data) })
}

// retryAfterReclaim calls write until it succeeds or nothing is left to delete. It deletes
// tasks of the first scope, and then of all owners, unless only the owner's limit is reached.
func (r reclaimingStore) retryAfterReclaim(ctx context.Context, first task.Scope, write func() error) error {
	for _, scope := range []task.Scope{first, task.AnyOwner()} {
		for {
			err := write()
			refused, ok := errors.AsType[*task.Error](err)
			if !ok || !refused.StoreFull || refused.Kind == task.ErrOwnerFull && scope != first {
				return err
			}
			n, failed := r.Reclaim(ctx, scope, reclaimBatch)
			if failed != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	return write() // another replica may have deleted tasks
}
