// Package memstore keeps tasks in memory: for tests, and for gates whose tasks may end with the
// process.
//
// One lock guards maps and sorted slices. A task is an immutable value: readers take a pointer
// to it under the lock, and copy it after that.
package memstore

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// DefaultMaxBytes is the default of [Options.MaxBytes].
const DefaultMaxBytes = 256 << 20

// Options limit the size of a store. A zero field means its default.
type Options struct {
	MaxTasks int   // tasks, including terminal ones; 200,000
	MaxBytes int64 // bytes of all calls and their answers, including blobs; 256 MiB

	// MaxEntries is the number of journal entries to keep; 20,000. Older entries are trimmed.
	// Use another store for a permanent journal.
	MaxEntries int
}

// A Store is a [gatestore.Store] in memory.
type Store struct {
	options  Options
	seed     maphash.Seed
	notifier storekit.Notifier
	closed   atomic.Bool

	mu      sync.RWMutex // guards all fields below
	bytes   int64        // of calls, answers and records
	tasks   map[task.ID]*entry
	owners  map[string]*owner
	pending index
	ended   index
	groups  map[string]*load // of tasks with a group
	grouped int              // the number of pending tasks with a group
	journal journal
	records map[string]gatestore.Record
}

var _ gatestore.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxTasks == 0 {
		o.MaxTasks = 200_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = 20_000
	}
	return &Store{
		options: o, seed: maphash.MakeSeed(),
		tasks: map[task.ID]*entry{}, owners: map[string]*owner{}, groups: map[string]*load{},
		pending: index{calls: map[uint64]*list{}}, ended: index{calls: map[uint64]*list{}},
		records: map[string]gatestore.Record{},
	}
}

// Close implements [gatestore.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	s.notifier.Close()
	return nil
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.notifier.Watch(ctx, ref)
}

func (s *Store) check(ctx context.Context, a action.Name) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return &task.Error{Kind: task.ErrClosed, Action: a}
	}
	return nil
}

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := s.check(ctx, action.Create); err != nil {
		return err
	}
	notes, err := auditlog.Prepare(notes, action.Create)
	if err != nil {
		return err
	}
	t = t.Clone()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[t.ID] != nil {
		return task.AnyOwner().Ref(t.ID).Exists()
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
		full.ID, full.Action, full.RetryAfter = t.ID, action.Create, limits.RetryAfter
		return full
	}
	s.add(&t)
	s.journal.add(notes, s.options.MaxEntries)
	s.notifier.Notify(t.ID, t.Owner)
	return nil
}

// load returns the counts that the limits for t need.
func (s *Store) load(t *task.Task) task.Load {
	load := task.Load{Total: len(s.pending.byAge)}
	if o := s.owners[t.Owner]; o != nil {
		load.Owner = o.pending
	}
	if t.Group != "" {
		load.Grouped = s.grouped
		if g := s.groups[t.Group]; g != nil {
			load.Group = g.pending
		}
	}
	if a := s.account(t); a != nil {
		load.AccountBytes = a.bytes
	}
	for _, e := range s.pending.sameCall(s.callKey(t.Owner, t.Digest)) {
		if e.task.Owner == t.Owner && e.task.Digest == t.Digest {
			load.Duplicate = e.task.ID
		}
	}
	return load
}

// account returns the load of t's account, or nil if it has no tasks.
func (s *Store) account(t *task.Task) *load {
	if t.Group != "" {
		return s.groups[t.Group]
	}
	if o := s.owners[t.Owner]; o != nil {
		return &o.load
	}
	return nil
}

// grow adds by to the number of bytes, unless that exceeds the limit.
func (s *Store) grow(by int64) *task.Error {
	if size := s.bytes + by; by > 0 && size > s.options.MaxBytes {
		return exceeded(size, s.options.MaxBytes)
	}
	s.bytes += by
	return nil
}

func exceeded(size, limit int64) *task.Error {
	return &task.Error{Kind: task.ErrCapacityExceeded, StoreFull: true, Limit: limit, Size: size}
}

// weight returns the bytes of t without its blob, whose chunks are counted when they are
// written.
func weight(t *task.Task) int64 {
	if t.Result == nil || t.Result.Chunks == 0 {
		return t.Weight()
	}
	return t.Weight() - t.Result.Size
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
	if t.Group != "" && s.groups[t.Group] == nil {
		s.groups[t.Group] = new(load)
	}
	s.account(t).bytes += t.Weight()
	s.indexFor(t).add(e, s.callKey(t.Owner, t.Digest))
	s.count(t, 1)
}

// indexFor returns the index that has t.
func (s *Store) indexFor(t *task.Task) *index {
	if t.State.Terminal() {
		return &s.ended
	}
	return &s.pending
}

// count adds to the numbers of pending tasks of t's owner and group, if t is pending.
func (s *Store) count(t *task.Task, by int) {
	if t.State.Terminal() {
		return
	}
	s.owners[t.Owner].pending += by
	if t.Group == "" {
		return
	}
	s.grouped += by
	s.groups[t.Group].pending += by
}

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if err := s.check(ctx, action.Get); err != nil {
		return task.Task{}, err
	}
	s.mu.RLock()
	e, err := s.find(ref, action.Get)
	if err != nil {
		s.mu.RUnlock()
		return task.Task{}, err
	}
	t := e.task
	s.mu.RUnlock()
	return t.Clone(), nil
}

// find returns the entry of the task that ref names.
func (s *Store) find(ref task.Ref, a action.Name) (*entry, error) {
	e := s.tasks[ref.ID]
	if e == nil {
		return nil, ref.NotFound(a)
	}
	return e, ref.Check(e.task.Owner, a)
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := s.check(ctx, action.Swap); err != nil {
		return err
	}
	notes, err := auditlog.Prepare(notes, action.Swap)
	if err != nil {
		return err
	}
	t = t.Clone()

	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(task.AnyOwner().Ref(t.ID), action.Swap)
	if err != nil {
		return err
	}
	old := e.task
	//mutate:false TestStore a swap ignores the version
	if old.Version != t.Version-1 { // a concurrent change came first
		return task.AnyOwner().Ref(t.ID).VersionConflict(old.State)
	}
	s.journal.add(notes, s.options.MaxEntries)
	s.replace(e, &t)
	s.account(&t).bytes += t.Weight() - old.Weight()
	s.bytes += weight(&t) - weight(old) // may exceed the limit: the answer of a call that has run must be stored
	s.notifier.Notify(t.ID, t.Owner)
	return nil
}

// replace puts t into e. Most changes move a task in at most one list.
func (s *Store) replace(e *entry, t *task.Task) {
	from, to := s.indexFor(e.task), s.indexFor(t)
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
	if err := s.check(ctx, action.List); err != nil {
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
		p.collect(s.pending.sameCall(key))
		p.collect(s.ended.sameCall(key))
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
	if err := s.check(ctx, action.List); err != nil {
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
	if err := s.check(ctx, action.Sweep); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeAll(slices.Clone(s.ended.dueBefore(before, limit))), nil
}

// Reclaim implements [gatestore.Reclaimer].
func (s *Store) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	if err := s.check(ctx, action.Sweep); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found list
	for _, e := range s.ended.byDue {
		if len(found) >= limit {
			break
		}
		if (account == "" || e.task.Account() == account) && e.task.Disposable() {
			found = append(found, e)
		}
	}
	return s.removeAll(found), nil
}

// removeAll deletes ended tasks, and returns their number.
func (s *Store) removeAll(ended list) int {
	for _, e := range ended {
		s.remove(e)
		s.notifier.Notify(e.task.ID, e.task.Owner)
	}
	return len(ended)
}

// remove deletes an ended task.
func (s *Store) remove(e *entry) {
	t := e.task
	s.ended.remove(e, s.callKey(t.Owner, t.Digest))
	a := s.account(t)
	if a.bytes -= t.Weight(); a.bytes == 0 {
		delete(s.groups, t.Group)
	}
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
	if err := s.check(ctx, action.WriteChunk); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(ref, action.WriteChunk)
	if err != nil {
		return err
	}
	if err := ref.CheckChunk(n, data); err != nil {
		return err
	}
	if full := s.grow(int64(len(data) - len(e.chunks[n]))); full != nil {
		full.ID, full.Action = ref.ID, action.WriteChunk
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
	if err := s.check(ctx, action.ReadChunk); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, err := s.find(ref, action.ReadChunk)
	if err != nil {
		return nil, err
	}
	chunk, ok := e.chunks[n]
	if !ok {
		return nil, ref.ChunkMissing(n)
	}
	return slices.Clone(chunk), nil
}
