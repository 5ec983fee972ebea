// Package memstore keeps tasks in memory: for tests, and for gates whose tasks
// need not outlive the process.
//
// Everything is behind one lock, in maps and sorted slices. A task is an
// immutable value: readers take a pointer to it under the lock, and copy it
// afterwards.
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

// A Store is a [task.GateStore] in memory.
type Store struct {
	options Options
	seed    maphash.Seed
	hub     task.Hub
	closed  atomic.Bool

	mu      sync.RWMutex // guards everything below
	bytes   int64        // of calls, answers and records
	tasks   map[task.ID]*entry
	owners  map[string]*owner
	pending group
	ended   group
	rooms   map[string]int // how many pending tasks each room has
	inRooms int            // how many pending tasks have a room
	journal journal
	records map[string]task.Record
}

var _ task.GateStore = (*Store)(nil)

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
	return &Store{
		options: o, seed: maphash.MakeSeed(),
		tasks: map[task.ID]*entry{}, owners: map[string]*owner{}, rooms: map[string]int{},
		pending: group{calls: map[uint64]*list{}}, ended: group{calls: map[uint64]*list{}},
		records: map[string]task.Record{},
	}
}

// Close implements [task.GateStore].
func (s *Store) Close() error {
	s.closed.Store(true)
	s.hub.Close()
	return nil
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.hub.Watch(ctx, ref)
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

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionCreate); err != nil {
		return err
	}
	notes, err := task.PrepareNotes(notes, task.ActionCreate)
	if err != nil {
		return err
	}
	t = t.Clone()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[t.ID] != nil {
		return &task.Error{Kind: task.KindExists, ID: t.ID, Action: task.ActionCreate}
	}
	if err := limits.Check(t, s.load(&t)); err != nil {
		return err
	}
	full := s.grow(weight(&t))
	if n := len(s.tasks) + 1; full == nil && n > s.options.MaxTasks {
		s.bytes -= weight(&t)
		full = exceeded(int64(n), int64(s.options.MaxTasks))
	}
	if full != nil {
		full.ID, full.Action, full.RetryAfter = t.ID, task.ActionCreate, limits.RetryAfter
		return full
	}
	s.add(&t)
	s.journal.add(notes, s.options.MaxEntries)
	s.hub.Notify(t.ID, t.Owner)
	return nil
}

// load returns what is pending, as far as it matters to t.
func (s *Store) load(t *task.Task) task.Load {
	load := task.Load{Total: len(s.pending.byAge)}
	if o := s.owners[t.Owner]; o != nil {
		load.Owner = o.pending
	}
	if t.Room != "" {
		load.Room, load.Rooms = s.rooms[t.Room], s.inRooms
	}
	for _, e := range s.pending.alike(s.callKey(t.Owner, t.Digest)) {
		if e.task.Owner == t.Owner && e.task.Digest == t.Digest {
			load.Same = e.task.ID
		}
	}
	return load
}

// grow makes room for more bytes, or for fewer.
func (s *Store) grow(by int64) *task.Error {
	if size := s.bytes + by; by > 0 && size > s.options.MaxBytes {
		return exceeded(size, s.options.MaxBytes)
	}
	s.bytes += by
	return nil
}

func exceeded(size, limit int64) *task.Error {
	return &task.Error{Kind: task.KindCapacityExceeded, Limit: limit, Size: size}
}

// weight returns how many bytes of t are of a size that others choose. The
// arguments are a part of the message.
func weight(t *task.Task) int64 {
	size := len(t.Call.Message) + len(t.Call.Also) + len(t.Verdict.Facts)
	for name, value := range t.Variables {
		size += len(name) + len(value)
	}
	if t.Result != nil {
		size += len(t.Result.Inline)
	}
	return int64(size)
}

func (s *Store) add(t *task.Task) {
	e := new(entry)
	e.set(t)
	s.tasks[t.ID] = e
	o := s.owners[t.Owner]
	if o == nil {
		o = new(owner)
		s.owners[t.Owner] = o
	}
	o.tasks.add(e, byAge)
	s.group(t).add(e, s.callKey(t.Owner, t.Digest))
	s.count(t, 1)
}

// group returns the group that t belongs to.
func (s *Store) group(t *task.Task) *group {
	if t.State.Terminal() {
		return &s.ended
	}
	return &s.pending
}

// count changes how many tasks of t's owner and room are pending, if t is.
func (s *Store) count(t *task.Task, by int) {
	if t.State.Terminal() {
		return
	}
	s.owners[t.Owner].pending += by
	if t.Room == "" {
		return
	}
	s.inRooms += by
	if s.rooms[t.Room] += by; s.rooms[t.Room] == 0 {
		delete(s.rooms, t.Room)
	}
}

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if err := s.usable(ctx, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	s.mu.RLock()
	e, err := s.find(ref, task.ActionGet)
	if err != nil {
		s.mu.RUnlock()
		return task.Task{}, err
	}
	t := e.task
	s.mu.RUnlock()
	return t.Clone(), nil
}

// find returns the entry of the task that ref names.
func (s *Store) find(ref task.Ref, a task.Action) (*entry, error) {
	e := s.tasks[ref.ID]
	if e == nil {
		return nil, ref.NotFound(a)
	}
	return e, ref.Check(e.task.Owner, a)
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionSwap); err != nil {
		return err
	}
	notes, err := task.PrepareNotes(notes, task.ActionSwap)
	if err != nil {
		return err
	}
	t = t.Clone()

	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(task.AnyOwner().Ref(t.ID), task.ActionSwap)
	if err != nil {
		return err
	}
	old := e.task
	if old.Version != t.Version-1 { // another change came first
		return &task.Error{
			Kind: task.KindConcurrentModification, ID: t.ID, State: old.State, Actual: old.State, Action: task.ActionSwap,
		}
	}
	s.journal.add(notes, s.options.MaxEntries)
	s.replace(e, &t)
	s.bytes += weight(&t) - weight(old) // even if it is too much: a call that has run must get its answer
	s.hub.Notify(t.ID, t.Owner)
	return nil
}

// replace puts t into e. Most changes move a task in one list, if any.
func (s *Store) replace(e *entry, t *task.Task) {
	from, to := s.group(e.task), s.group(t)
	switch {
	case from != to:
		key := s.callKey(t.Owner, t.Digest)
		from.remove(e, key)
		s.count(e.task, -1)
		e.set(t)
		to.add(e, key)
		s.count(t, 1)
	case e.due != t.Due().UnixMicro():
		to.byDue.remove(e, byDue)
		e.set(t)
		to.byDue.add(e, byDue)
	default:
		e.task = t
	}
}

// List implements [task.Store].
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	if err := s.usable(ctx, task.ActionList); err != nil {
		return task.Page{}, err
	}
	after, err := q.Position()
	if err != nil {
		return task.Page{}, err
	}
	size := q.PageSize()
	p := page{query: q, limit: size + 1}
	if q.Cursor != "" {
		p.after = &entry{task: &task.Task{ID: after.ID}, created: after.CreatedAt.UnixMicro()}
	}
	found := s.search(p)
	listed := task.Page{Tasks: make([]task.Task, 0, min(size, len(found)))}
	if len(found) > size {
		found = found[:size]
		listed.Next = q.CursorAfter(position(found[size-1]))
	}
	for _, t := range found {
		listed.Tasks = append(listed.Tasks, q.Part(*t))
	}
	return listed, nil
}

// search returns the tasks of a page, and one more if there are more.
func (s *Store) search(p page) []*task.Task {
	s.mu.RLock()
	defer s.mu.RUnlock()
	states := p.query.States
	wanted := func(of func(task.State) bool) bool { return len(states) == 0 || slices.ContainsFunc(states, of) }
	name, limited := p.query.Scope.Owner()
	switch o := s.owners[name]; {
	case limited && o == nil:
	case limited && p.query.Digest != task.Digest{}:
		key := s.callKey(name, p.query.Digest)
		p.collect(s.pending.alike(key))
		p.collect(s.ended.alike(key))
	case limited:
		p.collect(o.tasks)
	default:
		if wanted(func(s task.State) bool { return !s.Terminal() }) {
			p.collect(s.pending.byAge)
		}
		if wanted(task.State.Terminal) {
			p.collect(s.ended.byAge)
		}
	}
	slices.SortFunc(p.found, func(a, b *task.Task) int { return task.Compare(position(a), position(b)) })
	return p.found
}

// position is [task.Task.Position] without a copy of the task.
func position(t *task.Task) task.Position { return task.Position{CreatedAt: t.CreatedAt, ID: t.ID} }

// Overdue implements [task.Store].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	if err := s.usable(ctx, task.ActionList); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	due := s.pending.dueBefore(at, limit)
	overdue := make([]task.Task, len(due))
	for i, e := range due {
		overdue[i] = e.task.Clone()
	}
	return overdue, nil
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.usable(ctx, task.ActionSweep); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	swept := slices.Clone(s.ended.dueBefore(before, limit))
	for _, e := range swept {
		s.remove(e)
		s.hub.Notify(e.task.ID, e.task.Owner)
	}
	return len(swept), nil
}

// remove deletes a task that has ended.
func (s *Store) remove(e *entry) {
	t := e.task
	s.ended.remove(e, s.callKey(t.Owner, t.Digest))
	o := s.owners[t.Owner]
	if o.tasks.remove(e, byAge); len(o.tasks) == 0 {
		delete(s.owners, t.Owner)
	}
	delete(s.tasks, t.ID)
	s.bytes -= weight(t)
	for _, chunk := range e.chunks {
		s.bytes -= int64(len(chunk))
	}
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.usable(ctx, task.ActionWriteChunk); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(ref, task.ActionWriteChunk)
	if err != nil {
		return err
	}
	if err := ref.CheckChunk(n, data); err != nil {
		return err
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
	if err := s.usable(ctx, task.ActionReadChunk); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, err := s.find(ref, task.ActionReadChunk)
	if err != nil {
		return nil, err
	}
	chunk, ok := e.chunks[n]
	if !ok {
		return nil, ref.ChunkMissing(n)
	}
	return slices.Clone(chunk), nil
}
