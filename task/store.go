package task

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// A Store keeps tasks. A program that runs its own tasks needs only this interface. It
// uses more interfaces if the store implements them: [Blobs] for answers of more than
// ChunkSize bytes, [Watcher] to learn of changes without polling several times a second,
// and [auditlog.Journal] for an audit log. A store without Journal gets no notes.
//
// A store must be safe for concurrent use by any number of replicas, must share no
// memory with its callers, and must pass the suite in package storetest. It has no clock
// and no rules: times are arguments, and [lifecycle.Apply] decides which changes are
// legal.
//
// Every method returns the context's error, and does nothing, if the context has ended,
// and [ErrClosed] once the store is closed. A method that takes a [Ref] returns
// [ErrNotFound] if there is no such task, and [ErrOwnerMismatch] if the scope does not
// admit the task.
type Store interface {
	// Create adds t as it is. It returns [Ref.Exists] if the store has a task
	// with its ID, and otherwise what [Limits.Check] returns for the [Load] of
	// pending tasks at this moment: concurrent creations and ends of tasks
	// happen before or after, not in between. When it returns nil, t is as
	// durable as the store can make it and every replica finds it. The notes
	// are added to the [auditlog.Journal] together with t, or not at all.
	Create(ctx context.Context, t Task, limits Limits, notes ...Note) error

	// Get returns the task that ref names.
	Get(ctx context.Context, ref Ref) (Task, error)

	// Swap replaces the task with t's ID by t if its version is t.Version-1.
	// Otherwise it returns [Ref.VersionConflict] and changes nothing. It returns [ErrNotFound] if there is
	// no such task. t must come from [lifecycle.Apply] on what Get returned. The
	// notes are added to the [auditlog.Journal] together with the change, or not at all.
	Swap(ctx context.Context, t Task, notes ...Note) error

	// List returns one page of the tasks that q selects, in the order of
	// [Compare]: newest first. Following Page.Next from page to page visits
	// every task that existed all the time exactly once, even if other tasks
	// are created or deleted meanwhile. It returns [ErrInvalidCursor] for a
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

// ChunkSize is the size of the largest chunk of a blob, and of the largest
// answer that is kept in its task.
const ChunkSize = 64 << 10

// ChunkFrame is the number of bytes that a wrapping store may add to a chunk. Stores
// accept chunks of up to ChunkSize + ChunkFrame bytes.
const ChunkFrame = 256

// MaxChunks is how many chunks a blob has at most: a tebibyte.
const MaxChunks = 1 << 24

// Blobs is the part of a store that keeps answers too large for their task.
// A blob belongs to a task, and is deleted with it.
type Blobs interface {
	// WriteChunk keeps chunk n of the blob that belongs to the task. Chunks
	// are numbered from zero and may be written in any order; writing one
	// again replaces it. It returns the error of [Ref.CheckChunk] for an invalid chunk,
	// and [ErrCapacityExceeded] if the store is full.
	WriteChunk(ctx context.Context, ref Ref, n int, data []byte) error

	// ReadChunk returns chunk n, or [ErrChunkMissing] if it was never written.
	ReadChunk(ctx context.Context, ref Ref, n int) ([]byte, error)
}

// Watcher is the part of a store that notifies of changes.
type Watcher interface {
	// Watch returns a channel that receives soon, within a tenth of a second,
	// after the task was created, swapped or deleted by any replica. If ref
	// has no ID, the channel receives for every task that its scope admits. The task need
	// not exist.
	//
	// Several changes in quick succession may cause one notification. Notifications
	// may be lost while the store's connection is down, so the caller must also poll; see [storekit.WatchChanges]. The channel is closed when ctx ends or
	// the store is closed.
	Watch(ctx context.Context, ref Ref) (<-chan struct{}, error)
}

// A Scope is a set of owners whose tasks may be read. The zero Scope is empty.
type Scope struct {
	owner string
	any   bool
}

// OwnedBy returns the scope of one owner, which a client uses.
func OwnedBy(owner string) Scope { return Scope{owner: owner} }

// AnyOwner returns the scope of all owners, which housekeeping and the operators of a
// gateway use.
func AnyOwner() Scope { return Scope{any: true} }

// Admits reports whether s includes the tasks of owner.
func (s Scope) Admits(owner string) bool {
	//mutate:true task/memstore.TestStore every scope admits every owner
	return s.any || s.owner == owner && owner != ""
}

// Owner returns the owner that s is limited to, and whether it is limited.
func (s Scope) Owner() (owner string, limited bool) { return s.owner, !s.any }

// Ref returns a reference to the task with the given ID, if s admits its owner.
func (s Scope) Ref(id ID) Ref { return Ref{ID: id, Scope: s} }

// A Ref names a task and the owners it may belong to. See [Scope.Ref].
type Ref struct {
	ID    ID
	Scope Scope
}

// Check returns nil if r admits a task of owner. Stores call it when they have read
// the owner of the task.
func (r Ref) Check(owner string, a action.Name) error {
	if r.Scope.Admits(owner) {
		return nil
	}
	return &Error{Kind: ErrOwnerMismatch, ID: r.ID, Action: a, Suggest: suggestions[ErrOwnerMismatch]}
}

// Exists returns the error of [Store.Create] if the store has a task with r's ID.
func (r Ref) Exists() error { return &Error{Kind: ErrExists, ID: r.ID, Action: action.Create} }

// VersionConflict returns the error of [Store.Swap] if the task has another version than expected. State
// is the one that it has.
func (r Ref) VersionConflict(state State) error {
	return &Error{Kind: ErrConcurrentModification, ID: r.ID, State: state, Actual: state, Action: action.Swap}
}

// NotFound returns the error of a store that has no task with r's ID.
func (r Ref) NotFound(a action.Name) error {
	return &Error{Kind: ErrNotFound, ID: r.ID, Action: a, Suggest: suggestions[ErrNotFound]}
}

// ChunkMissing returns the error of a store that does not have chunk n of the
// blob that belongs to r's task.
func (r Ref) ChunkMissing(n int) error {
	return &Error{
		Kind: ErrChunkMissing, ID: r.ID, Action: action.ReadChunk, Suggest: suggestions[ErrChunkMissing],
		Detail: "no chunk " + strconv.Itoa(n),
	}
}

// CheckChunk returns nil if data can be chunk n of a blob.
func (r Ref) CheckChunk(n int, data []byte) error {
	if n >= 0 && n < MaxChunks && 0 < len(data) && len(data) <= ChunkSize+ChunkFrame {
		return nil
	}
	return &Error{
		Kind: ErrInvalid, ID: r.ID, Action: action.WriteChunk, Limit: ChunkSize, Size: int64(len(data)),
		Detail: "chunk " + strconv.Itoa(n) + " of " + strconv.Itoa(len(data)) + " bytes",
	}
}

// Limits bound the tasks that are pending at the same time, and the bytes of all tasks of
// an account. Zero fields limit nothing.
type Limits struct {
	PerOwner     int           // how many tasks one owner may have pending
	PerGroup     int           // how many tasks of one group may be pending; see [Draft]
	Grouped      int           // how many tasks of all groups together may be pending
	Total        int           // how many tasks may be pending in all
	AccountBytes int64         // how many bytes all tasks of one account may take, those that have ended included; see [Task.Account] and [Task.Weight]
	Unique       bool          // an owner may have the same call pending only once
	RetryAfter   time.Duration // when an owner with too many tasks may try again
}

// A Load counts the tasks in a store when a task is to be created.
type Load struct {
	Owner     int // pending tasks of the same owner
	Group     int // pending tasks of the same group, if the task has one
	Grouped   int // pending tasks of all groups, if the task has one
	Total     int // pending tasks of all owners
	Duplicate ID  // a pending task of the same owner with the same digest, or empty

	AccountBytes int64 // the weight of all tasks of the same account, those that have ended included
}

// Add counts one, a task in the store, when t is to be created. It is for stores that
// count all their tasks at every creation.
func (l *Load) Add(one, t Task) {
	if one.Account() == t.Account() {
		l.AccountBytes += one.Weight()
	}
	if one.State.Terminal() {
		return
	}
	l.Total++
	if one.Owner == t.Owner {
		l.Owner++
		if one.Digest == t.Digest {
			l.Duplicate = one.ID
		}
	}
	if t.Group != "" && one.Group != "" {
		l.Grouped++
		if one.Group == t.Group {
			l.Group++
		}
	}
}

// CountsGroups reports whether pending tasks of groups count for t.
func (l Limits) CountsGroups(t Task) bool { return t.Group != "" && (l.PerGroup > 0 || l.Grouped > 0) }

// Check returns nil if t may be added to load. It returns [ErrDuplicate], with
// the ID of the task that is pending, [ErrRateLimited],
// [ErrCapacityExceeded] or [ErrOwnerFull].
func (l Limits) Check(t Task, load Load) error {
	if l.Unique && load.Duplicate != "" {
		return &Error{Kind: ErrDuplicate, ID: load.Duplicate, Action: action.Create, Suggest: suggestions[ErrDuplicate]}
	}
	if t.Group == "" {
		l.PerGroup, l.Grouped = 0, 0
	}
	for _, bound := range []struct {
		limit, pending int
		kind           Kind
		whose          string
	}{
		{l.PerOwner, load.Owner, ErrRateLimited, "of its owner"},
		{l.PerGroup, load.Group, ErrRateLimited, "of its group"},
		{l.Grouped, load.Grouped, ErrCapacityExceeded, "of all groups"},
		{l.Total, load.Total, ErrCapacityExceeded, "in all"},
	} {
		if bound.limit > 0 && bound.pending >= bound.limit {
			return &Error{
				Kind: bound.kind, ID: t.ID, Action: action.Create, Suggest: suggestions[bound.kind],
				Detail: fmt.Sprintf("%d tasks %s are pending, and the limit is %d", bound.pending, bound.whose, bound.limit),
				Limit:  int64(bound.limit), Size: int64(bound.pending), RetryAfter: l.RetryAfter,
			}
		}
	}
	//mutate:false task/memstore.TestStore an account takes any number of bytes
	if size := load.AccountBytes + t.Weight(); l.AccountBytes > 0 && size > l.AccountBytes {
		return &Error{
			Kind: ErrOwnerFull, StoreFull: true, ID: t.ID, Action: action.Create, Suggest: suggestions[ErrOwnerFull],
			Limit: l.AccountBytes, Size: size, RetryAfter: l.RetryAfter,
		}
	}
	return nil
}
