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
	return r.retryAfterReclaim(ctx, t.Account(), func() error { return r.Store.Create(ctx, t, limits, notes...) })
}

// WriteChunk implements [task.Blobs].
func (r reclaimingStore) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	return r.retryAfterReclaim(ctx, "", func() error { return r.Store.WriteChunk(ctx, ref, n, data) })
}

// retryAfterReclaim calls write until it succeeds or nothing is left to delete. It deletes
// tasks of the first account, and then of all, unless only the account's limit is reached.
// An empty account means all.
func (r reclaimingStore) retryAfterReclaim(ctx context.Context, first string, write func() error) error {
	for _, account := range []string{first, ""} {
		for {
			err := write()
			refused, ok := errors.AsType[*task.Error](err)
			if !ok || !refused.StoreFull || refused.Kind == task.ErrOwnerFull && account != first {
				return err
			}
			n, failed := r.Reclaim(ctx, account, reclaimBatch)
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
