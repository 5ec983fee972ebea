package memstore

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A shard holds the tasks of some of the owners. Pending ones are kept apart,
// so that they are found among any number of terminal ones.
type shard struct {
	seed     maphash.Seed
	mu       sync.RWMutex
	owners   map[string]*book
	pending  index // newest first
	terminal index // newest first
	calls    index // pending tasks by owner and digest
	answered index // terminal tasks by owner and digest
	late     index // pending tasks by when they are due
	old      index // terminal tasks by when they may be deleted
}

// A book holds the tasks of one owner.
type book struct {
	tasks   index // newest first
	pending int   // how many of them are
}

// A gone is a task that was deleted, and what it leaves behind.
type gone struct {
	entry *entry
	id    task.ID
	owner string
	bytes int64 // of its call and answer
}

// load returns what is pending of t's owner.
func (s *shard) load(t *task.Task) task.Load {
	b := s.owners[t.Owner]
	if b == nil {
		return task.Load{}
	}
	load := task.Load{Owner: b.pending}
	for i := range s.calls.alike(first(s.call(t.Owner, t.Digest))) {
		same := i.entry.task.Load()
		if same.Owner == t.Owner && same.Digest == t.Digest {
			load.Same = same.ID
			break
		}
	}
	return load
}

func (s *shard) add(e *entry, t *task.Task) {
	if e.book = s.owners[t.Owner]; e.book == nil {
		e.book = new(book)
		s.owners[t.Owner] = e.book
	}
	e.book.tasks.insert(age(t), e)
	s.enter(e, t)
}

func (s *shard) remove(e *entry, t *task.Task) {
	s.strike(e, t)
	e.book.tasks.remove(age(t), e)
	if e.book.tasks.size == 0 {
		delete(s.owners, t.Owner)
	}
}

// replace puts t in the place of old. Most changes move a task in one list,
// if any.
func (s *shard) replace(e *entry, old, t *task.Task) {
	ends := old.State.Terminal() != t.State.Terminal()
	moves := !ends && due(old) != due(t)
	switch {
	case ends:
		s.strike(e, old)
	case moves:
		s.clock(old).remove(due(old), e)
	}
	e.task.Store(t)
	switch {
	case ends:
		s.enter(e, t)
	case moves:
		s.clock(t).insert(due(t), e)
	}
}

// enter adds e to every list of the shard that t, its task, belongs to.
func (s *shard) enter(e *entry, t *task.Task) {
	s.list(t).insert(age(t), e)
	s.clock(t).insert(due(t), e)
	s.ledger(t).insert(s.call(t.Owner, t.Digest), e)
	if !t.State.Terminal() {
		e.book.pending++
	}
}

// strike takes e from every list of the shard that t, its task, belongs to.
func (s *shard) strike(e *entry, t *task.Task) {
	s.list(t).remove(age(t), e)
	s.clock(t).remove(due(t), e)
	s.ledger(t).remove(s.call(t.Owner, t.Digest), e)
	if !t.State.Terminal() {
		e.book.pending--
	}
}

// list returns where t is listed among the tasks of all owners.
func (s *shard) list(t *task.Task) *index {
	if t.State.Terminal() {
		return &s.terminal
	}
	return &s.pending
}

// clock returns where t is listed by the time at which it is due.
func (s *shard) clock(t *task.Task) *index {
	if t.State.Terminal() {
		return &s.old
	}
	return &s.late
}

// ledger returns where t is listed by what is asked for.
func (s *shard) ledger(t *task.Task) *index {
	if t.State.Terminal() {
		return &s.answered
	}
	return &s.calls
}

// page returns the first tasks after the given position, or the very first if
// that is zero, that q selects.
func (s *shard) page(q task.Query, after task.Position, limit int) []*task.Task {
	s.mu.RLock()
	defer s.mu.RUnlock()
	from := first(math.MinInt64)
	if !after.CreatedAt.IsZero() {
		at := -after.CreatedAt.UnixMicro()
		from = place{at, at, after.ID}
	}
	var found []*task.Task
	owner, limited := q.Scope.Owner()
	switch b := s.owners[owner]; {
	case limited && b == nil:
	case limited && q.Digest != task.Digest{}:
		from.key = s.call(owner, q.Digest)
		found = collect(found, s.calls.alike(from), q, after, limit)
		found = collect(found, s.answered.alike(from), q, after, limit)
	case limited:
		found = collect(found, b.tasks.from(from), q, after, limit)
	default:
		if len(q.States) == 0 || slices.ContainsFunc(q.States, isPending) {
			found = collect(found, s.pending.from(from), q, after, limit)
		}
		if len(q.States) == 0 || slices.ContainsFunc(q.States, task.State.Terminal) {
			found = collect(found, s.terminal.from(from), q, after, limit)
		}
	}
	return found
}

// collect appends up to limit tasks that q selects and that do not stand at
// after.
func collect(found []*task.Task, items iter.Seq[item], q task.Query, after task.Position, limit int) []*task.Task {
	for i := range items {
		if limit == 0 {
			break
		}
		t := i.entry.task.Load()
		if position(t) != after && q.Matches(t) && (!q.Owing || t.Owes()) {
			found = append(found, t)
			limit--
		}
	}
	return found
}

func isPending(s task.State) bool { return !s.Terminal() }

// overdue returns the first pending tasks that are due before at.
func (s *shard) overdue(at time.Time, limit int) []*task.Task {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []*task.Task
	for i := range s.late.from(first(math.MinInt64)) {
		t := i.entry.task.Load()
		if len(found) == limit || !t.Due().Before(at) {
			break
		}
		found = append(found, t)
	}
	return found
}

// sweep deletes the first terminal tasks that are due before the given time.
func (s *shard) sweep(before time.Time, limit int) []gone {
	s.mu.Lock()
	defer s.mu.Unlock()
	var swept []gone
	for i := range s.old.from(first(math.MinInt64)) {
		t := i.entry.task.Load()
		if len(swept) >= limit || !t.Due().Before(before) {
			break
		}
		swept = append(swept, gone{entry: i.entry, id: t.ID, owner: t.Owner})
	}
	for i := range swept {
		e := swept[i].entry
		t := e.task.Load()
		s.remove(e, t)
		e.task.Store(nil)
		swept[i].bytes = weight(t)
		for _, chunk := range e.chunks {
			swept[i].bytes += int64(len(chunk))
		}
		e.chunks = nil
	}
	return swept
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

// position is [task.Task.Position] without a copy of the task.
func position(t *task.Task) task.Position { return task.Position{CreatedAt: t.CreatedAt, ID: t.ID} }

// The keys of the indexes.

func age(t *task.Task) int64 { return -t.CreatedAt.UnixMicro() }

func due(t *task.Task) int64 { return t.Due().UnixMicro() }

// call tells apart what owners ask for, nearly always.
func (s *shard) call(owner string, d task.Digest) int64 {
	return int64(binary.BigEndian.Uint64(d[:8]) ^ maphash.String(s.seed, owner)) //nolint:gosec // only the bits matter
}
