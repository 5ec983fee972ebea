// Package sealedstore encrypts tasks before another store keeps them, so that a reader of the
// database, a disk or a backup does not see requests, arguments, variables, reasons and
// answers.
//
// A task is sealed as a whole, with AES-256-GCM and a key that is derived for it. Each sealed
// text is bound to its task, owner and version, and a chunk of a blob to its task and number.
// It cannot be opened in another position. The fields that a database needs are stored in the
// clear: ID, owner, state, times, the names of upstream, method and tool, and the digest.
//
// The digest is a plain hash of the call. It does not depend on the key. So every replica finds
// identical calls, even while keys change, and an auditor without a key can verify which call
// was approved. A reader of the database who guesses all the arguments can use it to confirm
// the guess. Notes in the journal are not sealed either: they contain the names of approvers
// and their reasons, but no arguments and answers.
//
// Keys have names, which are stored with the sealed text. To change the key, put a new one
// before the old one. Remove the old one when no stored text needs it; [Store.Rekey] reseals
// all stored texts at once. If there are keys, unsealed tasks, answers and records are not
// read. [Store.Rekey] seals the tasks and answers that were stored before there were keys.
package sealedstore

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Store is a [gatestore.Store] that seals the data for an inner store.
type Store struct {
	inner gatestore.Store // not embedded: new methods must seal their data
	keys  Keys

	// Unreadable is called with the error of tasks that lists omit because they cannot be read
	// or opened. It must not block, and may be nil.
	Unreadable func(err error)

	// Bulk is the prefix of the names of many records that give no rights, such as a log. Only
	// [Store.Rekey] reseals them, and it does not delete unsealed ones. Empty means none.
	Bulk string
}

var _ gatestore.Store = (*Store)(nil)

// New returns a store that keeps sealed tasks in inner. Close also closes inner. Without keys
// it does not seal, and does not read sealed tasks.
func New(inner gatestore.Store, keys Keys) *Store { return &Store{inner: inner, keys: keys} }

// Unwrap returns the inner store.
func (s *Store) Unwrap() gatestore.Store { return s.inner }

// Keys returns the keys of the store.
func (s *Store) Keys() Keys { return s.keys }

// maxVerified is the number of pending tasks that Verify opens.
const maxVerified = 1000

// Verify returns [ErrKey] if the keys do not belong to this store: if a key is missing that
// sealed one of the newest thousand pending tasks, or if a key opens none of its tasks. It
// ignores damaged tasks.
func (s *Store) Verify(ctx context.Context) error {
	opened, failed := make(map[string]bool), make(map[string]error)
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: 100}
	seen := 0
	for t, err := range storekit.Each(ctx, s.inner, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := s.keys.Open(t); errors.Is(err, ErrKey) {
			failed[KeyOf(t)] = err
		} else {
			opened[KeyOf(t)] = true
		}
		if seen++; seen == maxVerified {
			break
		}
	}
	for name, err := range failed {
		if !opened[name] {
			return err
		}
	}
	return nil
}

// maxCounted is the number of tasks that Unsealed checks, the newest first.
const maxCounted = 10_000

// Unsealed returns the number of the newest tasks that are not sealed although there are keys.
func (s *Store) Unsealed(ctx context.Context) (int, error) {
	if s.keys.Empty() {
		return 0, nil
	}
	n, seen := 0, 0
	for t, err := range storekit.Each(ctx, s.inner, task.Query{Scope: task.AnyOwner(), Limit: 100, Outlines: true}) {
		if err != nil && !errors.Is(err, task.ErrUnreadable) {
			return n, err
		}
		if err == nil && keyOfOutline(&t) == "" {
			t, err = s.inner.Get(ctx, task.AnyOwner().Ref(t.ID)) // earlier versions did not seal outlines
		}
		if err == nil && KeyOf(t) == "" && keyOfOutline(&t) == "" {
			n++
		}
		if seen++; seen == maxCounted {
			break
		}
	}
	return n, nil
}

func (s *Store) seal(t task.Task, a action.Name) (task.Task, error) {
	sealed, err := s.keys.Seal(t)
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.ErrInvalid, ID: t.ID, Action: a, Err: err}
	}
	return sealed, nil
}

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	sealed, err := s.seal(t, action.Create)
	if err != nil {
		return err
	}
	return s.inner.Create(ctx, sealed, limits, notes...)
}

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := s.inner.Get(ctx, ref)
	if err != nil {
		return task.Task{}, err
	}
	return s.keys.Open(t)
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	sealed, err := s.seal(t, action.Swap)
	if err != nil {
		return err
	}
	return s.inner.Swap(ctx, sealed, notes...)
}

// List implements [task.Store]. It omits tasks that cannot be read or opened: one of them
// must not hide the others.
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := s.inner.List(ctx, q)
	if err != nil && !errors.Is(err, task.ErrUnreadable) {
		return task.Page{}, err
	}
	if q.Heads {
		return page, nil // heads are not sealed
	}
	open := s.keys.Open
	if q.Outlines {
		open = func(t task.Task) (task.Task, error) { return s.outline(ctx, t) }
	}
	opened, unopened := openAll(page.Tasks, open)
	page.Tasks = opened
	s.reportUnreadable(errors.Join(err, unopened))
	return page, nil
}

// outline opens the outline of t, a stored task. Earlier versions did not seal outlines;
// then it opens the whole task.
func (s *Store) outline(ctx context.Context, t task.Task) (task.Task, error) {
	if keyOfOutline(&t) != "" {
		return s.keys.openTask(&t, t.Verdict.Facts, taskBinding("outline", &t))
	}
	if t.Verdict.Facts != "" {
		//mutate:swap "s.keys.Open(t)" "t, nil" TestKeyChangeTrustsOnlySealedTexts an unsealed outline is shown
		return s.keys.Open(t) // the whole task is not sealed
	}
	whole, err := s.Get(ctx, task.AnyOwner().Ref(t.ID))
	return whole.Outline(), err
}

// openAll returns the tasks that can be opened, in the memory of stored, and the errors of
// the others.
func openAll(stored []task.Task, open func(task.Task) (task.Task, error)) (opened []task.Task, unopened error) {
	opened = stored[:0]
	for _, t := range stored {
		t, err := open(t)
		if err != nil {
			unopened = errors.Join(unopened, err)
			continue
		}
		opened = append(opened, t)
	}
	return opened, unopened
}

func (s *Store) reportUnreadable(err error) {
	if err != nil && s.Unreadable != nil {
		s.Unreadable(err)
	}
}

// maxOverdue is the number of overdue tasks that are read to find some that can be opened.
const maxOverdue = 10_000

// Overdue implements [task.Store]. Tasks that cannot be read or opened are omitted, and do
// not count against the limit.
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	limit = max(0, limit)
	for ask := limit; ; ask *= 2 {
		stored, err := s.inner.Overdue(ctx, at, ask)
		if err != nil && !errors.Is(err, task.ErrUnreadable) {
			return nil, err
		}
		all := err == nil && len(stored) < ask
		opened, unopened := openAll(stored, s.keys.Open)
		if all || len(opened) >= limit || ask >= maxOverdue {
			s.reportUnreadable(errors.Join(err, unopened))
			return opened[:min(limit, len(opened))], nil
		}
	}
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.inner.Sweep(ctx, before, limit)
}

// Reclaim implements [gatestore.Reclaimer].
func (s *Store) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	return s.inner.Reclaim(ctx, account, limit)
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	switch {
	case len(data) > task.ChunkSize:
		return &task.Error{
			Kind: task.ErrInvalid, ID: ref.ID, Action: action.WriteChunk, Limit: task.ChunkSize, Size: int64(len(data)),
		}
	case n < 0 || n >= task.MaxChunks || len(data) == 0:
		return s.inner.WriteChunk(ctx, ref, n, nil) // it returns the error
	}
	sealed, err := s.keys.SealChunk(ref.ID, n, data)
	if err != nil {
		return err
	}
	return s.inner.WriteChunk(ctx, ref, n, sealed)
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	data, err := s.inner.ReadChunk(ctx, ref, n)
	if err != nil {
		return nil, err
	}
	return s.keys.OpenChunk(ref.ID, n, data)
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.inner.Watch(ctx, ref)
}

// Append implements [auditlog.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	return s.inner.Append(ctx, notes...)
}

// Entries implements [auditlog.Journal].
func (s *Store) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	return s.inner.Entries(ctx, q)
}

// Ends implements [auditlog.Journal].
func (s *Store) Ends(ctx context.Context) (auditlog.Ends, error) { return s.inner.Ends(ctx) }

// Trim implements [auditlog.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.inner.Trim(ctx, before, limit)
}

// Exclusive reports whether no other process can use the inner store; see [storekit.IsExclusive].
func (s *Store) Exclusive() bool { return storekit.IsExclusive(s.inner) }

// Close implements [gatestore.Store].
func (s *Store) Close() error { return s.inner.Close() }

// Rekey reseals all texts that are not sealed with the first key, and returns the number of
// resealed tasks. If there is only one key, it also seals tasks and records of the bulk that were
// never sealed: the caller asserts that they are authentic. With several keys, an unsealed one may
// come from a writer without a key, and stays unchanged. Replicas that change a task meanwhile seal it with
// their first key. A task that cannot be opened stays unchanged, and the error names it.
func (s *Store) Rekey(ctx context.Context) (int, error) {
	if s.keys.Empty() {
		return 0, errors.New("no key to encrypt with")
	}
	unreadable := s.RekeyRecords(ctx)
	if unreadable != nil && !errors.Is(unreadable, task.ErrUnreadable) {
		return 0, unreadable
	}
	if err := s.rekeyBulk(ctx); errors.Is(err, task.ErrUnreadable) {
		unreadable = errors.Join(unreadable, err)
	} else if err != nil {
		return 0, err
	}
	n, err := s.rekeyTasks(ctx)
	return n, errors.Join(unreadable, err)
}

// rekeyTasks is Rekey for tasks.
func (s *Store) rekeyTasks(ctx context.Context) (int, error) {
	resealed := 0
	var unreadable error
	q := task.Query{Scope: task.AnyOwner(), Limit: 20}
	for t, err := range storekit.Each(ctx, s.inner, q) {
		done := false
		if err == nil {
			done, err = s.rekey(ctx, t)
		}
		switch {
		case errors.Is(err, task.ErrUnreadable):
			unreadable = errors.Join(unreadable, err)
		case err != nil && !errors.Is(err, task.ErrConcurrentModification) && !errors.Is(err, task.ErrNotFound):
			return resealed, err
		case done:
			resealed++
		}
	}
	return resealed, unreadable
}

// rekey reseals a task, after its blob: if rekey is interrupted, the key of the task shows that
// it must be repeated. It reports whether it has resealed any text. The blob may need it
// although the task does not, because a change of a task only seals the task.
func (s *Store) rekey(ctx context.Context, stored task.Task) (bool, error) {
	done, err := s.rekeyBlob(ctx, &stored)
	if err != nil || KeyOf(stored) == s.keys.First() {
		return done, err
	}
	open := s.keys.Open
	if s.sealsUnsealed() {
		open = s.keys.OpenAny
	}
	t, err := open(stored)
	if err != nil {
		return false, err
	}
	t.Version++
	err = s.Swap(ctx, t)
	return err == nil, err
}

// sealsUnsealed reports whether Rekey seals tasks that were never sealed.
//
//mutate:swap "len(s.keys.all) == 1" "true" TestKeyChangeTrustsOnlySealedTexts a change of keys seals an unsealed task
func (s *Store) sealsUnsealed() bool { return len(s.keys.all) == 1 }

// rekeyBlob reseals the chunks of a task that need it, and reports whether there were any.
func (s *Store) rekeyBlob(ctx context.Context, stored *task.Task) (done bool, err error) {
	ref := task.AnyOwner().Ref(stored.ID)
	for n := 0; stored.Result != nil && n < stored.Result.Chunks; n++ {
		data, err := s.inner.ReadChunk(ctx, ref, n)
		if errors.Is(err, task.ErrChunkMissing) || err == nil && KeyOfChunk(data) == s.keys.First() {
			continue
		}
		if err != nil {
			return done, err
		}
		open := s.keys.OpenChunk
		if s.sealsUnsealed() {
			open = s.keys.OpenAnyChunk
		}
		if data, err = open(stored.ID, n, data); err == nil {
			err = s.WriteChunk(ctx, ref, n, data)
		}
		if err != nil {
			return done, err
		}
		done = true
	}
	return done, nil
}
