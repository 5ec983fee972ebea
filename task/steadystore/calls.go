package steadystore

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// ask makes one call of the store.
func ask[T any](ctx context.Context, u use, call func(context.Context, task.GateStore) (T, error)) (T, error) {
	var nothing T
	inner, err := u.begin(ctx)
	if err != nil {
		return nothing, err
	}
	bounded, done := context.WithTimeoutCause(ctx, u.store.o.Timeout, errNoAnswer)
	defer done()
	answer, err := call(bounded, inner)
	return answer, u.end(ctx, bounded, err)
}

// do is ask for calls that return nothing.
func do(ctx context.Context, u use, call func(context.Context, task.GateStore) error) error {
	_, err := ask(ctx, u, func(ctx context.Context, s task.GateStore) (struct{}, error) { return struct{}{}, call(ctx, s) })
	return err
}

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	return do(ctx, use{store: s, action: task.ActionCreate, id: t.ID, writes: true},
		func(ctx context.Context, s task.GateStore) error { return s.Create(ctx, t, limits, notes...) })
}

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	return ask(ctx, use{store: s, action: task.ActionGet, id: ref.ID},
		func(ctx context.Context, s task.GateStore) (task.Task, error) { return s.Get(ctx, ref) })
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	return do(ctx, use{store: s, action: task.ActionSwap, id: t.ID, writes: true, whenFull: true},
		func(ctx context.Context, s task.GateStore) error { return s.Swap(ctx, t, notes...) })
}

// List implements [task.Store].
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	return ask(ctx, use{store: s, action: task.ActionList},
		func(ctx context.Context, s task.GateStore) (task.Page, error) { return s.List(ctx, q) })
}

// Overdue implements [task.Store].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	return ask(ctx, use{store: s, action: task.ActionList},
		func(ctx context.Context, s task.GateStore) ([]task.Task, error) { return s.Overdue(ctx, at, limit) })
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return ask(ctx, use{store: s, action: task.ActionSweep, writes: true, whenFull: true},
		func(ctx context.Context, s task.GateStore) (int, error) { return s.Sweep(ctx, before, limit) })
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	return do(ctx, use{store: s, action: task.ActionWriteChunk, id: ref.ID, writes: true, whenFull: true},
		func(ctx context.Context, s task.GateStore) error { return s.WriteChunk(ctx, ref, n, data) })
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	return ask(ctx, use{store: s, action: task.ActionReadChunk, id: ref.ID},
		func(ctx context.Context, s task.GateStore) ([]byte, error) { return s.ReadChunk(ctx, ref, n) })
}

// Watch implements [task.Watcher]. The channel is also closed if the store has
// to be opened again.
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	u := use{store: s, action: task.ActionWatch, id: ref.ID}
	inner, err := u.begin(ctx)
	if err != nil {
		return nil, err
	}
	changed, err := inner.Watch(ctx, ref) // for as long as the caller's context goes on
	return changed, u.end(ctx, ctx, err)
}

// Append implements [task.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	return do(ctx, use{store: s, action: task.ActionAppend, writes: true},
		func(ctx context.Context, s task.GateStore) error { return s.Append(ctx, notes...) })
}

// Entries implements [task.Journal].
func (s *Store) Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	return ask(ctx, use{store: s, action: task.ActionRead},
		func(ctx context.Context, s task.GateStore) ([]task.Entry, error) { return s.Entries(ctx, q) })
}

// Ends implements [task.Journal].
func (s *Store) Ends(ctx context.Context) (task.Ends, error) {
	return ask(ctx, use{store: s, action: task.ActionRead}, func(ctx context.Context, s task.GateStore) (task.Ends, error) { return s.Ends(ctx) })
}

// Trim implements [task.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	return ask(ctx, use{store: s, action: task.ActionTrim, writes: true, whenFull: true},
		func(ctx context.Context, s task.GateStore) (int, error) { return s.Trim(ctx, before, limit) })
}

// PutRecord implements [task.Records].
func (s *Store) PutRecord(ctx context.Context, r task.Record) error {
	return do(ctx, use{store: s, action: task.ActionPutRecord, writes: true},
		func(ctx context.Context, s task.GateStore) error { return s.PutRecord(ctx, r) })
}

// GetRecord implements [task.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (task.Record, error) {
	return ask(ctx, use{store: s, action: task.ActionGetRecord},
		func(ctx context.Context, s task.GateStore) (task.Record, error) { return s.GetRecord(ctx, name) })
}

// DeleteRecord implements [task.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	return do(ctx, use{store: s, action: task.ActionDeleteRecord, writes: true, whenFull: true},
		func(ctx context.Context, s task.GateStore) error { return s.DeleteRecord(ctx, name) })
}

// ListRecords implements [task.Records].
func (s *Store) ListRecords(ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
	return ask(ctx, use{store: s, action: task.ActionListRecords},
		func(ctx context.Context, s task.GateStore) ([]task.Record, error) { return s.ListRecords(ctx, q) })
}

// SweepRecords implements [task.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return ask(ctx, use{store: s, action: task.ActionSweepRecords, writes: true, whenFull: true},
		func(ctx context.Context, s task.GateStore) (int, error) { return s.SweepRecords(ctx, before, limit) })
}
