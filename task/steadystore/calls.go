package steadystore

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// request runs one call of the store with the time limit.
func request[T any](ctx context.Context, c call, run func(context.Context, gatestore.Store) (T, error)) (T, error) {
	var nothing T
	inner, err := c.begin(ctx)
	if err != nil {
		return nothing, err
	}
	bounded, done := context.WithTimeoutCause(ctx, c.store.o.Timeout, errNoAnswer)
	defer done()
	answer, err := run(bounded, inner)
	return answer, c.end(ctx, bounded, err)
}

// do is request for calls that only return an error.
func do(ctx context.Context, c call, run func(context.Context, gatestore.Store) error) error {
	_, err := request(ctx, c, func(ctx context.Context, s gatestore.Store) (struct{}, error) { return struct{}{}, run(ctx, s) })
	return err
}

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	return do(ctx, call{store: s, action: action.Create, id: t.ID, writes: true},
		func(ctx context.Context, s gatestore.Store) error { return s.Create(ctx, t, limits, notes...) })
}

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	return request(ctx, call{store: s, action: action.Get, id: ref.ID},
		func(ctx context.Context, s gatestore.Store) (task.Task, error) { return s.Get(ctx, ref) })
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	return do(ctx, call{store: s, action: action.Swap, id: t.ID, writes: true, whenFull: true},
		func(ctx context.Context, s gatestore.Store) error { return s.Swap(ctx, t, notes...) })
}

// List implements [task.Store].
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	return request(ctx, call{store: s, action: action.List},
		func(ctx context.Context, s gatestore.Store) (task.Page, error) { return s.List(ctx, q) })
}

// Overdue implements [task.Store].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	return request(ctx, call{store: s, action: action.List},
		func(ctx context.Context, s gatestore.Store) ([]task.Task, error) { return s.Overdue(ctx, at, limit) })
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return request(ctx, call{store: s, action: action.Sweep, writes: true, whenFull: true},
		func(ctx context.Context, s gatestore.Store) (int, error) { return s.Sweep(ctx, before, limit) })
}

// Reclaim implements [gatestore.Reclaimer].
func (s *Store) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	return request(ctx, call{store: s, action: action.Sweep, writes: true, whenFull: true},
		func(ctx context.Context, s gatestore.Store) (int, error) { return s.Reclaim(ctx, account, limit) })
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	return do(ctx, call{store: s, action: action.WriteChunk, id: ref.ID, writes: true, whenFull: true},
		func(ctx context.Context, s gatestore.Store) error { return s.WriteChunk(ctx, ref, n, data) })
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	return request(ctx, call{store: s, action: action.ReadChunk, id: ref.ID},
		func(ctx context.Context, s gatestore.Store) ([]byte, error) { return s.ReadChunk(ctx, ref, n) })
}

// Watch implements [task.Watcher]. The channel is also closed before the store is opened again.
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	c := call{store: s, action: action.Watch, id: ref.ID}
	inner, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	changed, err := inner.Watch(ctx, ref) // the watch lasts as long as the caller's context
	return changed, c.end(ctx, ctx, err)
}

// Append implements [auditlog.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	return do(ctx, call{store: s, action: action.Append, writes: true},
		func(ctx context.Context, s gatestore.Store) error { return s.Append(ctx, notes...) })
}

// Entries implements [auditlog.Journal].
func (s *Store) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	return request(ctx, call{store: s, action: action.Read},
		func(ctx context.Context, s gatestore.Store) ([]auditlog.Entry, error) { return s.Entries(ctx, q) })
}

// Ends implements [auditlog.Journal].
func (s *Store) Ends(ctx context.Context) (auditlog.Ends, error) {
	return request(ctx, call{store: s, action: action.Read}, func(ctx context.Context, s gatestore.Store) (auditlog.Ends, error) { return s.Ends(ctx) })
}

// Trim implements [auditlog.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	return request(ctx, call{store: s, action: action.Trim, writes: true, whenFull: true},
		func(ctx context.Context, s gatestore.Store) (int, error) { return s.Trim(ctx, before, limit) })
}

// PutRecord implements [gatestore.Records].
func (s *Store) PutRecord(ctx context.Context, r gatestore.Record) error {
	return do(ctx, call{store: s, action: action.PutRecord, writes: true},
		func(ctx context.Context, s gatestore.Store) error { return s.PutRecord(ctx, r) })
}

// GetRecord implements [gatestore.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	return request(ctx, call{store: s, action: action.GetRecord},
		func(ctx context.Context, s gatestore.Store) (gatestore.Record, error) { return s.GetRecord(ctx, name) })
}

// DeleteRecord implements [gatestore.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	return do(ctx, call{store: s, action: action.DeleteRecord, writes: true, whenFull: true},
		func(ctx context.Context, s gatestore.Store) error { return s.DeleteRecord(ctx, name) })
}

// ListRecords implements [gatestore.Records].
func (s *Store) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	return request(ctx, call{store: s, action: action.ListRecords},
		func(ctx context.Context, s gatestore.Store) ([]gatestore.Record, error) { return s.ListRecords(ctx, q) })
}

// SweepRecords implements [gatestore.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return request(ctx, call{store: s, action: action.SweepRecords, writes: true, whenFull: true},
		func(ctx context.Context, s gatestore.Store) (int, error) { return s.SweepRecords(ctx, before, limit) })
}

// SizeRecords implements [gatestore.Records].
func (s *Store) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	return request(ctx, call{store: s, action: action.SizeRecords},
		func(ctx context.Context, s gatestore.Store) (int64, error) { return s.SizeRecords(ctx, prefix) })
}
