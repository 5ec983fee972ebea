// Package memstore keeps tasks in memory: for tests, and for gates whose tasks
// need not outlive the process.
//
// Everything about one owner is in one shard, behind one lock, so that limits
// are exact without a lock for all. A task is an immutable value behind an
// atomic pointer: reading one takes no shard's lock.
package memstore

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Options bound what a store may take. A zero field means its default.
type Options struct {
	MaxTasks int   // tasks, terminal ones included; 200,000
	MaxBytes int64 // bytes of all calls and of the answers to them, blobs included; 256 MiB

	// MaxEntries is how many entries of the journal are kept; 20,000. Older
	// ones are trimmed: a journal that outlives its use needs another store.
	MaxEntries int
}

// A Store is a [task.Store] in memory.
type Store struct {
	options Options
	seed    maphash.Seed
	hub     task.Hub
	closed  atomic.Bool
	pending atomic.Int64
	rooms   rooms
	stored  atomic.Int64 // tasks, terminal ones included
	bytes   atomic.Int64 // of calls and answers
	journal journal
	records records
	ids     [shardCount]directory
	shards  [shardCount]shard
}

const shardCount = 16

// A directory finds tasks by their IDs. Its lock is taken before a shard's.
type directory struct {
	mu      sync.RWMutex
	entries map[task.ID]*entry
}

// An entry is the place of one task.
type entry struct {
	shard  *shard
	book   *book                     // its owner's
	task   atomic.Pointer[task.Task] // never changed, only replaced; nil once it is deleted
	chunks map[int][]byte            // guarded by the shard's lock
}

var _ task.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxTasks == 0 {
		o.MaxTasks = 200_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = 20_000
	}
	s := &Store{options: o, seed: maphash.MakeSeed()}
	for i := range shardCount {
		s.ids[i].entries = make(map[task.ID]*entry)
		s.shards[i].seed = s.seed
		s.shards[i].owners = make(map[string]*book)
	}
	return s
}

// Close implements [task.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	s.hub.Close()
	return nil
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.hub.Watch(ctx, ref)
}

// Create implements [task.Tasks].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionCreate); err != nil {
		return err
	}
	notes, err := task.PrepareNotes(notes, task.ActionCreate)
	if err != nil {
		return err
	}
	t = t.Clone()
	e := &entry{shard: s.shardOf(t.Owner)}
	e.task.Store(&t)

	d := s.directoryOf(t.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.entries[t.ID]; old != nil && old.task.Load() != nil {
		return &task.Error{Kind: task.KindExists, ID: t.ID, Action: task.ActionCreate}
	}
	if err := s.admit(e, &t, limits); err != nil {
		return err
	}
	d.entries[t.ID] = e
	s.journal.add(notes, s.options.MaxEntries)
	s.hub.Notify(t.ID, t.Owner)
	return nil
}

// admit adds t to its shard, if limits and the store's own bounds allow.
func (s *Store) admit(e *entry, t *task.Task, limits task.Limits) error {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	load := e.shard.load(t)
	if t.Room != "" {
		s.rooms.mu.Lock()
		defer s.rooms.mu.Unlock()
		load.Room, load.Rooms = s.rooms.pending[t.Room], s.rooms.total
	}
	for {
		pending := s.pending.Load()
		load.Total = int(pending)
		if err := limits.Check(*t, load); err != nil {
			return err
		}
		// Other shards count too: start over if one was faster.
		if t.State.Terminal() || s.pending.CompareAndSwap(pending, pending+1) {
			break
		}
	}
	if full := s.reserve(t); full != nil {
		s.countPending(t, -1)
		full.ID, full.Action, full.RetryAfter = t.ID, task.ActionCreate, limits.RetryAfter
		return full
	}
	if t.Room != "" && !t.State.Terminal() {
		s.rooms.add(t.Room, 1)
	}
	e.shard.add(e, t)
	return nil
}

// reserve counts t, unless that would be too much.
func (s *Store) reserve(t *task.Task) *task.Error {
	if n := s.stored.Add(1); n > int64(s.options.MaxTasks) {
		s.stored.Add(-1)
		return full(n, int64(s.options.MaxTasks))
	}
	if refused := s.grow(weight(t)); refused != nil {
		s.stored.Add(-1)
		return refused
	}
	return nil
}

// grow makes room for more bytes, or for fewer.
func (s *Store) grow(by int64) *task.Error {
	size := s.bytes.Add(by)
	if by <= 0 || size <= s.options.MaxBytes {
		return nil
	}
	s.bytes.Add(-by)
	return full(size, s.options.MaxBytes)
}

func full(size, limit int64) *task.Error {
	return &task.Error{Kind: task.KindCapacityExceeded, Limit: limit, Size: size}
}

// countPending changes the number of pending tasks if t is one.
func (s *Store) countPending(t *task.Task, by int64) {
	if !t.State.Terminal() {
		s.pending.Add(by)
	}
}

// Get implements [task.Tasks].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	_, t, err := s.find(ctx, ref, task.ActionGet)
	if err != nil {
		return task.Task{}, err
	}
	return t.Clone(), nil
}

// find returns the place and the present value of the task that ref names.
func (s *Store) find(ctx context.Context, ref task.Ref, a task.Action) (*entry, *task.Task, error) {
	if err := s.usable(ctx, a); err != nil {
		return nil, nil, err
	}
	d := s.directoryOf(ref.ID)
	d.mu.RLock()
	e := d.entries[ref.ID]
	d.mu.RUnlock()
	if e == nil {
		return nil, nil, ref.NotFound(a)
	}
	t := e.task.Load()
	if t == nil {
		return nil, nil, ref.NotFound(a)
	}
	return e, t, ref.Check(t.Owner, a)
}

// Swap implements [task.Tasks].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	ref := task.AnyOwner().Ref(t.ID)
	e, _, err := s.find(ctx, ref, task.ActionSwap)
	if err != nil {
		return err
	}
	notes, err = task.PrepareNotes(notes, task.ActionSwap)
	if err != nil {
		return err
	}
	t = t.Clone()

	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	old := e.task.Load()
	switch {
	case old == nil:
		return ref.NotFound(task.ActionSwap)
	case old.Version != t.Version-1:
		return &task.Error{
			Kind: task.KindConcurrentModification, ID: t.ID, State: old.State, Actual: old.State, Action: task.ActionSwap,
		}
	}
	s.journal.add(notes, s.options.MaxEntries)
	e.shard.replace(e, old, &t)
	s.bytes.Add(weight(&t) - weight(old)) // even if it is too much: a call that has run must get its answer
	s.countPending(old, -1)
	s.countPending(&t, +1)
	if t.Room != "" && t.State.Terminal() && !old.State.Terminal() {
		s.rooms.mu.Lock()
		s.rooms.add(t.Room, -1)
		s.rooms.mu.Unlock()
	}
	s.hub.Notify(t.ID, t.Owner)
	return nil
}

// List implements [task.Tasks].
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	if err := s.usable(ctx, task.ActionList); err != nil {
		return task.Page{}, err
	}
	after, err := q.Position()
	if err != nil {
		return task.Page{}, err
	}

	size := q.PageSize()
	var found []*task.Task
	if owner, limited := q.Scope.Owner(); limited {
		found = s.shardOf(owner).page(q, after, size+1)
	} else {
		for i := range s.shards {
			found = append(found, s.shards[i].page(q, after, size+1)...)
		}
	}
	slices.SortFunc(found, func(a, b *task.Task) int { return task.Compare(position(a), position(b)) })

	page := task.Page{Tasks: make([]task.Task, 0, min(size, len(found)))}
	if len(found) > size {
		found = found[:size]
		page.Next = q.CursorAfter(position(found[size-1]))
	}
	for _, t := range found {
		if q.Heads {
			page.Tasks = append(page.Tasks, t.Head())
		} else {
			page.Tasks = append(page.Tasks, t.Clone())
		}
	}
	return page, nil
}

// Overdue implements [task.Tasks].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	if err := s.usable(ctx, task.ActionList); err != nil {
		return nil, err
	}
	var found []*task.Task
	for i := range s.shards {
		found = append(found, s.shards[i].overdue(at, limit)...)
	}
	slices.SortFunc(found, func(a, b *task.Task) int { return a.Due().Compare(b.Due()) })
	overdue := make([]task.Task, 0, min(limit, len(found)))
	for _, t := range found[:min(limit, len(found))] {
		overdue = append(overdue, t.Clone())
	}
	return overdue, nil
}

// Sweep implements [task.Tasks].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	swept := 0
	for i := range s.shards {
		if err := s.usable(ctx, task.ActionSweep); err != nil {
			return swept, err
		}
		for _, g := range s.shards[i].sweep(before, limit-swept) {
			s.forget(g)
			swept++
		}
	}
	return swept, nil
}

// forget removes what is left of a task that its shard has given up.
func (s *Store) forget(g gone) {
	s.stored.Add(-1)
	s.bytes.Add(-g.bytes)
	d := s.directoryOf(g.id)
	d.mu.Lock()
	if d.entries[g.id] == g.entry {
		delete(d.entries, g.id)
	}
	d.mu.Unlock()
	s.hub.Notify(g.id, g.owner)
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	e, _, err := s.find(ctx, ref, task.ActionWriteChunk)
	if err != nil {
		return err
	}
	if err := ref.CheckChunk(n, data); err != nil {
		return err
	}
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if e.task.Load() == nil {
		return ref.NotFound(task.ActionWriteChunk)
	}
	if full := s.grow(int64(len(data) - len(e.chunks[n]))); full != nil {
		full.ID, full.Action = ref.ID, task.ActionWriteChunk
		return full
	}
	if e.chunks == nil {
		e.chunks = make(map[int][]byte)
	}
	e.chunks[n] = slices.Clone(data)
	return nil
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	e, _, err := s.find(ctx, ref, task.ActionReadChunk)
	if err != nil {
		return nil, err
	}
	e.shard.mu.RLock()
	defer e.shard.mu.RUnlock()
	if e.task.Load() == nil {
		return nil, ref.NotFound(task.ActionReadChunk)
	}
	chunk, ok := e.chunks[n]
	if !ok {
		return nil, ref.ChunkMissing(n)
	}
	return slices.Clone(chunk), nil
}

func (s *Store) usable(ctx context.Context, a task.Action) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return &task.Error{Kind: task.KindClosed, Action: a}
	}
	return nil
}

func (s *Store) directoryOf(id task.ID) *directory {
	return &s.ids[maphash.String(s.seed, string(id))%shardCount]
}

func (s *Store) shardOf(owner string) *shard {
	return &s.shards[maphash.String(s.seed, owner)%shardCount]
}
