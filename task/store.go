package task

import (
	"context"
	"io"
	"strconv"
	"time"
)

// A Store keeps tasks. A program that runs tasks of its own needs no more than that. It
// uses further parts if the store has them: [Blobs] for answers of more than ChunkSize
// bytes, [Watcher] so that a process that waits is woken instead of looking a few times
// in a second, and [Journal] for an audit log. A store without Journal is given no notes.
//
// A store must be safe for concurrent use by any number of replicas, must share no
// memory with its callers, and must pass the suite in package storetest. It has no clock
// and no rules: every time it sees is an argument, and what a task may become is decided
// by [Task.Apply].
//
// Every method returns the context's error, and does nothing, if the context has ended,
// and [ErrClosed] once the store is closed. A method that takes a [Ref] returns
// [ErrNotFound] if there is no such task, and [ErrOwnerMismatch] if there is but the
// scope does not admit it.
type Store interface {
	// Create adds t as it is. It returns [ErrExists] if the store has a task
	// with its ID, and otherwise what [Limits.Check] returns for the [Load] of
	// pending tasks at this moment: creations and ends of tasks by anyone else
	// happen before or after, never in between. When it returns nil, t is as
	// durable as the store can make it and every replica finds it. The notes
	// are added to the [Journal] together with t, or not at all.
	Create(ctx context.Context, t Task, limits Limits, notes ...Note) error

	// Get returns the task that ref names.
	Get(ctx context.Context, ref Ref) (Task, error)

	// Swap replaces the task with t's ID by t if its version is t.Version-1.
	// Otherwise it returns [ErrConcurrentModification], with the state that
	// the task has, and changes nothing. It returns [ErrNotFound] if there is
	// no such task. t must come from [Task.Apply] on what Get returned. The
	// notes are added to the [Journal] together with the change, or not at all.
	Swap(ctx context.Context, t Task, notes ...Note) error

	// List returns one page of the tasks that q selects, in the order of
	// [Compare]: newest first. Following Page.Next from page to page visits
	// every task that was there all the while exactly once, whatever is
	// created or deleted in between. It returns [ErrInvalidCursor] for a
	// cursor that did not come from the same query. If some of the tasks cannot
	// be read, it returns a page of the others together with [ErrUnreadable].
	List(ctx context.Context, q Query) (Page, error)

	// Overdue returns up to limit pending tasks with a [Task.Due] before at,
	// the most overdue first. If some of them cannot be read, it returns the
	// others together with [ErrUnreadable].
	Overdue(ctx context.Context, at time.Time, limit int) ([]Task, error)

	// Sweep deletes up to limit terminal tasks with a [Task.Due] before the
	// given time, and their blobs, and reports how many. If several sweep at
	// once, each deletion is reported to one of them.
	Sweep(ctx context.Context, before time.Time, limit int) (int, error)

	// Close frees what the store holds and ends every watch. A second call
	// does nothing.
	io.Closer
}

// A GateStore is a [Store] with all parts that a gateway needs. The stores of this
// repository are such stores.
type GateStore interface {
	Store
	Blobs
	Watcher
	Journal
	Records
}

// ChunkSize is the size of the largest chunk of a blob, and of the largest
// answer that is kept in its task.
const ChunkSize = 64 << 10

// ChunkFrame is how much a store that wraps another may add to a chunk, for
// itself: stores take so much more than ChunkSize.
const ChunkFrame = 256

// Blobs is the part of a store that keeps answers too large for their task.
// A blob belongs to a task, and is deleted with it.
type Blobs interface {
	// WriteChunk keeps chunk n of the blob that belongs to the task. Chunks
	// are numbered from zero and may be written in any order; writing one
	// again replaces it. It returns [ErrInvalid] if n is negative or data is
	// empty or longer than ChunkSize (and what a wrapper may add to it, see
	// [ChunkFrame]), and [ErrCapacityExceeded] if the store
	// has no room.
	WriteChunk(ctx context.Context, ref Ref, n int, data []byte) error

	// ReadChunk returns chunk n, or [ErrChunkMissing] if it was never written.
	ReadChunk(ctx context.Context, ref Ref, n int) ([]byte, error)
}

// Watcher is the part of a store that wakes those who wait for changes.
type Watcher interface {
	// Watch returns a channel that receives soon, within a tenth of a second,
	// after the task was created, swapped or deleted by any replica. If ref
	// has no ID, that goes for every task that its scope admits. The task need
	// not exist.
	//
	// Several changes in quick succession may cause one notification. Notifications
	// may be lost while the store's connection is down, so the caller must also look
	// from time to time; see [WatchChanges]. The channel is closed when ctx ends or
	// the store is closed.
	Watch(ctx context.Context, ref Ref) (<-chan struct{}, error)
}

// BlobsOf returns the part of a store that keeps large answers. If s has none, it is
// one that has no room.
func BlobsOf(s Store) Blobs {
	if b, ok := s.(Blobs); ok {
		return b
	}
	return noBlobs{}
}

type noBlobs struct{}

// WriteChunk implements [Blobs].
func (noBlobs) WriteChunk(_ context.Context, ref Ref, _ int, _ []byte) error {
	return &Error{Kind: KindCapacityExceeded, ID: ref.ID, Action: ActionWriteChunk, Limit: ChunkSize, Detail: "the store keeps small answers only"}
}

// ReadChunk implements [Blobs].
func (noBlobs) ReadChunk(_ context.Context, ref Ref, n int) ([]byte, error) {
	return nil, ref.ChunkMissing(n)
}

// A Scope says whose tasks may be seen. The zero Scope sees nothing.
type Scope struct {
	owner string
	any   bool
}

// OwnedBy returns the scope of one owner: what a client may see.
func OwnedBy(owner string) Scope { return Scope{owner: owner} }

// AnyOwner returns the scope of all owners: what housekeeping, and the operators of a
// gateway, may see.
func AnyOwner() Scope { return Scope{any: true} }

// Admits reports whether s includes the tasks of owner.
func (s Scope) Admits(owner string) bool {
	return s.any || s.owner == owner && owner != ""
}

// Owner returns the one owner that s is limited to, if it is.
func (s Scope) Owner() (owner string, limited bool) { return s.owner, !s.any }

// Ref returns a reference to the task with the given ID, seen through s.
func (s Scope) Ref(id ID) Ref { return Ref{ID: id, Scope: s} }

// A Ref names a task, and says on whose behalf. See [Scope.Ref].
type Ref struct {
	ID    ID
	Scope Scope
}

// Check returns nil if r admits a task of owner. Stores call it once they know
// who owns the task that r names.
func (r Ref) Check(owner string, a Action) error {
	if r.Scope.Admits(owner) {
		return nil
	}
	return &Error{Kind: KindOwnerMismatch, ID: r.ID, Action: a, Suggest: suggestions[KindOwnerMismatch]}
}

// NotFound returns the error of a store that has no task with r's ID.
func (r Ref) NotFound(a Action) error {
	return &Error{Kind: KindNotFound, ID: r.ID, Action: a, Suggest: suggestions[KindNotFound]}
}

// ChunkMissing returns the error of a store that does not have chunk n of the
// blob that belongs to r's task.
func (r Ref) ChunkMissing(n int) error {
	return &Error{
		Kind: KindChunkMissing, ID: r.ID, Action: ActionReadChunk, Suggest: suggestions[KindChunkMissing],
		Detail: "no chunk " + strconv.Itoa(n),
	}
}

// CheckChunk returns nil if data can be chunk n of a blob.
func (r Ref) CheckChunk(n int, data []byte) error {
	if n >= 0 && 0 < len(data) && len(data) <= ChunkSize+ChunkFrame {
		return nil
	}
	return &Error{
		Kind: KindInvalid, ID: r.ID, Action: ActionWriteChunk, Limit: ChunkSize, Size: int64(len(data)),
		Detail: "chunk " + strconv.Itoa(n) + " of " + strconv.Itoa(len(data)) + " bytes",
	}
}

// Limits bound the tasks that are pending at the same time. Zero fields limit
// nothing.
type Limits struct {
	PerOwner   int           // how many tasks one owner may have pending
	PerRoom    int           // how many tasks with the same Room may be
	Rooms      int           // how many tasks with any Room may be
	Total      int           // how many all owners together may
	Unique     bool          // an owner may have the same call pending only once
	RetryAfter time.Duration // when an owner with too many tasks may try again
}

// A Load is what is pending when a task is to be created.
type Load struct {
	Owner int // tasks of the same owner
	Room  int // tasks with the same Room, if the task has one
	Rooms int // tasks with any Room, if the task has one
	Total int // tasks of all owners
	Same  ID  // a task of the same owner with the same digest, if there is one
}

// Add counts one of the tasks that a store has when t is to be created. It is for
// stores that count when they are asked.
func (l *Load) Add(one, t Task) {
	if one.State.Terminal() {
		return
	}
	l.Total++
	if one.Owner == t.Owner {
		l.Owner++
		if one.Digest == t.Digest {
			l.Same = one.ID
		}
	}
	if t.Room != "" && one.Room != "" {
		l.Rooms++
		if one.Room == t.Room {
			l.Room++
		}
	}
}

// CountsRooms reports whether the rooms of pending tasks matter to t.
func (l Limits) CountsRooms(t Task) bool { return t.Room != "" && (l.PerRoom > 0 || l.Rooms > 0) }

// Check returns nil if t may be added to load. It returns [ErrDuplicate], with
// the ID of the task that is there already, [ErrRateLimited] or
// [ErrCapacityExceeded].
func (l Limits) Check(t Task, load Load) error {
	if l.Unique && load.Same != "" {
		return &Error{Kind: KindDuplicate, ID: load.Same, Action: ActionCreate, Suggest: suggestions[KindDuplicate]}
	}
	if t.Room == "" {
		l.PerRoom, l.Rooms = 0, 0
	}
	for _, bound := range []struct {
		limit, pending int
		kind           Kind
	}{
		{l.PerOwner, load.Owner, KindRateLimited},
		{l.PerRoom, load.Room, KindRateLimited},
		{l.Rooms, load.Rooms, KindCapacityExceeded},
		{l.Total, load.Total, KindCapacityExceeded},
	} {
		if bound.limit > 0 && bound.pending >= bound.limit {
			return &Error{
				Kind: bound.kind, ID: t.ID, Action: ActionCreate, Suggest: suggestions[bound.kind],
				Limit: int64(bound.limit), Size: int64(bound.pending), RetryAfter: l.RetryAfter,
			}
		}
	}
	return nil
}
