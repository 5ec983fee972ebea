// Package sealedstore keeps what tasks hold from those who get to see the
// database, a disk or a backup: the request with its arguments, variables, what
// people gave as reasons, and the answer.
//
// A task is sealed as a whole, with AES-256-GCM, under a key that is derived
// for it alone. Each sealed text is bound to its place: to the task, its
// owner and version, and to its number for a chunk of a blob. Beside it stands
// in the clear what a database has to know: ID, owner, state, times, the names
// of upstream, method and tool, and the digest.
//
// The digest is a plain hash of the call. That of a call is the same whatever
// the key, so that identical calls are found while keys change and on every
// replica, and so that an auditor can tell without a key what was approved.
// A reader of the database can confirm a guess of all the arguments with it. Notes in the journal are not sealed either: they hold no arguments
// and no answers, but who decided, and the reason that was given.
//
// Keys have names, which are stored with what they seal. To change the key, put
// a new one before the old one, and take that away when nothing needs it any
// more; [Store.Rekey] sees to it at once. A task that is not sealed is read as it
// is, and sealed with its next change. A record that is not sealed is not read.
package sealedstore

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Store is a [task.GateStore] that seals what it gives to another.
type Store struct {
	inner task.GateStore // not embedded: what it learns to keep must be sealed first
	keys  Keys

	// Unreadable is told of tasks that are left out of lists because they
	// cannot be read or opened. It must not block, and may be nil.
	Unreadable func(err error)
}

var _ task.GateStore = (*Store)(nil)

// New returns a store that keeps tasks sealed in inner, which is closed with
// it. Without keys it seals nothing, and refuses what is sealed.
func New(inner task.GateStore, keys Keys) *Store { return &Store{inner: inner, keys: keys} }

// Unwrap returns the store that keeps what is sealed.
func (s *Store) Unwrap() task.GateStore { return s.inner }

// Keys returns the keys of the store.
func (s *Store) Keys() Keys { return s.keys }

// verified is how many pending tasks are tried before a store is used.
const verified = 1000

// Verify returns [ErrKey] if the keys are not those of this store: if among the
// last thousand pending tasks there are some that are sealed with a key which is
// not at hand, or which opens none of them. A task that is damaged is for
// whoever asks for it to find.
func (s *Store) Verify(ctx context.Context) error {
	opened, failed := make(map[string]bool), make(map[string]error)
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: 100}
	seen := 0
	for t, err := range task.Each(ctx, s.inner, q) {
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
		if seen++; seen == verified {
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

func (s *Store) seal(t task.Task, a task.Action) (task.Task, error) {
	sealed, err := s.keys.Seal(t)
	if err != nil {
		return task.Task{}, &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: a, Err: err}
	}
	return sealed, nil
}

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	sealed, err := s.seal(t, task.ActionCreate)
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
	sealed, err := s.seal(t, task.ActionSwap)
	if err != nil {
		return err
	}
	return s.inner.Swap(ctx, sealed, notes...)
}

// List implements [task.Store]. Tasks that cannot be read or opened are left
// out: one of them must not hide all others.
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := s.inner.List(ctx, q)
	if err != nil && !errors.Is(err, task.ErrUnreadable) {
		return task.Page{}, err
	}
	if q.Heads {
		return page, nil // nothing of them is sealed
	}
	open := s.keys.Open
	if q.Outlines {
		open = func(t task.Task) (task.Task, error) { return s.outline(ctx, t) }
	}
	opened, unopened := openAll(page.Tasks, open)
	page.Tasks = opened
	s.leftOut(errors.Join(err, unopened))
	return page, nil
}

// outline returns the outline that t, as it is stored, stands for. Of a task that
// an earlier version sealed it opens the whole.
func (s *Store) outline(ctx context.Context, t task.Task) (task.Task, error) {
	outline, sealed, err := s.keys.openOutline(&t)
	if sealed || err != nil {
		return outline, err
	}
	if t.Verdict.Facts != "" {
		return t, nil // it was never sealed
	}
	whole, err := s.Get(ctx, task.AnyOwner().Ref(t.ID))
	return whole.Outline(), err
}

// openAll returns those tasks that can be opened, in the place of all, and why
// the others cannot.
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

func (s *Store) leftOut(err error) {
	if err != nil && s.Unreadable != nil {
		s.Unreadable(err)
	}
}

// maxOverdue is how many overdue tasks are looked at in search of some that
// can be opened.
const maxOverdue = 10_000

// Overdue implements [task.Store]. Tasks that cannot be read or opened are left
// out, and do not take the place of others.
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
			s.leftOut(errors.Join(err, unopened))
			return opened[:min(limit, len(opened))], nil
		}
	}
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.inner.Sweep(ctx, before, limit)
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	switch {
	case len(data) > task.ChunkSize:
		return &task.Error{
			Kind: task.KindInvalid, ID: ref.ID, Action: task.ActionWriteChunk, Limit: task.ChunkSize, Size: int64(len(data)),
		}
	case n < 0 || len(data) == 0:
		return s.inner.WriteChunk(ctx, ref, n, nil) // which says what is wrong
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

// Append implements [task.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	return s.inner.Append(ctx, notes...)
}

// Entries implements [task.Journal].
func (s *Store) Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	return s.inner.Entries(ctx, q)
}

// Ends implements [task.Journal].
func (s *Store) Ends(ctx context.Context) (task.Ends, error) { return s.inner.Ends(ctx) }

// Trim implements [task.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.inner.Trim(ctx, before, limit)
}

// Close implements [task.GateStore].
func (s *Store) Close() error { return s.inner.Close() }

// Rekey seals everything anew that is not sealed with the first key, whether
// it was sealed before or not, and reports how many tasks that were.
// Replicas that change a task meanwhile seal it themselves. A task that cannot be
// opened stays as it is; the error names such tasks.
func (s *Store) Rekey(ctx context.Context) (int, error) {
	if s.keys.Empty() {
		return 0, errors.New("there is no key to encrypt with")
	}
	unreadable := s.ClaimRecords(ctx)
	if unreadable != nil && !errors.Is(unreadable, task.ErrUnreadable) {
		return 0, unreadable
	}
	n, err := s.rekeyTasks(ctx)
	return n, errors.Join(unreadable, err)
}

// rekeyTasks is Rekey for tasks.
func (s *Store) rekeyTasks(ctx context.Context) (int, error) {
	resealed := 0
	var unreadable error
	q := task.Query{Scope: task.AnyOwner(), Limit: 20}
	for t, err := range task.Each(ctx, s.inner, q) {
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

// rekey seals one task anew, and its blob before it: if that is interrupted,
// the task shows that it is not done. It reports whether there was anything to
// do. The blob may need it though the task does not: every change seals the
// task, and leaves the blob alone.
func (s *Store) rekey(ctx context.Context, stored task.Task) (bool, error) {
	done, err := s.rekeyBlob(ctx, &stored)
	if err != nil || KeyOf(stored) == s.keys.First() {
		return done, err
	}
	t, err := s.keys.Open(stored)
	if err != nil {
		return false, err
	}
	t.Version++
	err = s.Swap(ctx, t)
	return err == nil, err
}

// rekeyBlob seals the chunks of a task anew that need it, and reports whether
// any did.
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
		if data, err = s.keys.OpenChunk(stored.ID, n, data); err == nil {
			err = s.WriteChunk(ctx, ref, n, data)
		}
		if err != nil {
			return done, err
		}
		done = true
	}
	return done, nil
}
