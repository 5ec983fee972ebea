package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

const (
	groupChanges = 256     // the most changes in one transaction
	groupBytes   = 4 << 20 // their largest total size, unless one change alone is larger
	loadsKept    = 1000    // the most owners, and the most accounts, in the cache
)

// A change is one write. If do returns a [*task.Error], it must not have written anything; the
// other changes of the transaction are then still made. Other errors abort the transaction. If
// there is not enough space for a group of changes, do is called again for each change alone.
type change struct {
	ctx     context.Context //nolint:containedctx // it ends the caller's wait, not the transaction
	size    int             // the approximate number of bytes to write
	reserve int64           // the parts of the reserved space that it may use; see makeWithReserve
	do      func(context.Context, *session) error
	state   atomic.Int32
	err     error         // the reason why the change was not made
	done    chan struct{} // closed when err and the results of do can be read
}

// A writer makes changes in groups, in their order.
type writer struct {
	ctx      context.Context // the context of the goroutine, which outlives those of the callers
	db       *sql.DB
	maxBytes int64
	notifier *storekit.Notifier
	check    func() error // returns an error if the file must not be written to
	queue    chan *change
	running  sync.WaitGroup

	mu     sync.RWMutex // guards closed; read-locked while a change is put into the queue
	closed bool

	tables      int           // the version of the tables that this program knows
	otherWrites chan struct{} // has a token if another process may have changed the file
	signal      func()        // notifies other processes; nil if the file is not shared

	last    int      // the number of changes in the last group
	session *session // nil after a failure, until the next change
}

// start starts the goroutine.
func (w *writer) start() {
	w.queue, w.otherWrites = make(chan *change, groupChanges), make(chan struct{}, 1)
	w.running.Go(w.run)
}

// close waits until all queued changes are made.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	close(w.queue)
	w.mu.Unlock()
	w.running.Wait()
	return w.db.Close()
}

// make queues c and returns when it is on disk, or its error. If its context has ended, the
// change does not begin. If the change has begun, make waits for its outcome.
func (w *writer) make(c *change) error {
	c.done = make(chan struct{})
	if err := w.enqueue(c); err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-c.ctx.Done():
	}
	if c.state.CompareAndSwap(waiting, givenUp) {
		return c.ctx.Err()
	}
	late := time.NewTimer(sqlcore.OutcomeTimeout)
	defer late.Stop()
	select {
	case <-c.done:
		return c.err
	case <-late.C:
		return c.ctx.Err()
	}
}

// enqueue puts c into the queue, and waits while the queue is full. Until it returns, the read lock
// keeps close from closing the queue.
func (w *writer) enqueue(c *change) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return task.ErrClosed
	}
	select {
	case w.queue <- c:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// The states of a change.
const (
	waiting = int32(iota)
	begun
	givenUp
)

func (w *writer) run() {
	defer w.reset()
	for {
		select {
		case first, open := <-w.queue:
			if !open {
				return
			}
			w.makeGroup(w.gather(first))
		case <-w.otherWrites:
			w.checkOtherWrites()
		}
	}
}

func (w *writer) makeGroup(group []*change) {
	err := w.commit(group)
	for _, c := range group {
		alone := err
		if len(group) > 1 && isFull(err) {
			alone = w.commit([]*change{c}) // some of them may fit
		}
		if c.reserve > 0 && w.maxBytes > 0 && isFull(alone) {
			alone = w.makeWithReserve(c)
		}
		if alone != nil {
			c.err = alone
		}
		close(c.done)
	}
}

// The parts of the reserved space, each maxBytes / headroom, that changes may use in a full
// store. Tasks must be able to be decided and to run, whoever has filled the store. They must be
// able to end, because only ended tasks can be deleted. Deletions have a separate part, because
// SQLite may need a page for them.
const (
	reserveToRun = 1
	reserveToEnd = 2
	//mutate:swap "reserveToDelete = 3" "reserveToDelete = 2" TestTasksInFullStoreCanEnd a full store cannot delete
	reserveToDelete = 3
)

// makeWithReserve makes a change with the reserved space.
func (w *writer) makeWithReserve(c *change) error {
	if err := w.connect(); err != nil {
		return err
	}
	defer w.reset() // the next change gets a session with the usual limit
	w.session.maxBytes += c.reserve * (w.maxBytes / headroom)
	if err := w.session.setLimit(w.ctx); err != nil {
		return err
	}
	return w.commit([]*change{c})
}

// scheduleCheck makes the writer check for changes of other processes.
func (w *writer) scheduleCheck() {
	select {
	case w.otherWrites <- struct{}{}:
	default: // already scheduled
	}
}

// checkOtherWrites notifies all watchers if another process has changed the file. After an
// error, the next change checks again.
func (w *writer) checkOtherWrites() {
	err := w.connect()
	if err == nil {
		err = w.session.catchUp(w.ctx, w.notifier.NotifyAll)
	}
	if err != nil {
		w.reset()
	}
}

// connect makes sure that there is a session.
func (w *writer) connect() (err error) {
	if w.session != nil {
		return nil
	}
	w.session, err = newSession(w.ctx, w.db, w.maxBytes, w.tables)
	return err
}

// isFull reports whether err means that the limit of the file is reached, or that a value
// is too large.
func isFull(err error) bool { return errors.Is(err, sqlite3.FULL) || errors.Is(err, sqlite3.TOOBIG) }

// gather returns the next changes to make: all queued changes with a waiting caller, up to a
// limit. It first waits a moment for the next changes of the callers of the last group, because
// a large group is far cheaper than several small ones.
func (w *writer) gather(first *change) (group []*change) {
	size := 0
	for next := first; next != nil; {
		if next.state.CompareAndSwap(waiting, begun) {
			group, size = append(group, next), size+next.size
		}
		if len(group) == groupChanges || size > groupBytes {
			break
		}
		if len(group) < w.last && len(w.queue) == 0 {
			runtime.Gosched()
		}
		select {
		case next = <-w.queue: // nil if the queue is closed
		default:
			next = nil
		}
	}
	w.last = len(group)
	return group
}

// commit makes the changes in one transaction.
func (w *writer) commit(group []*change) error {
	if len(group) == 0 {
		return nil
	}
	err := w.attempt(group)
	if err != nil {
		w.reset()
	}
	return err
}

func (w *writer) attempt(group []*change) error {
	if err := w.check(); err != nil {
		return err
	}
	if err := w.connect(); err != nil {
		return err
	}
	if _, err := w.session.exec(w.ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := w.session.catchUp(w.ctx, w.notifier.NotifyAll); err != nil {
		return err
	}
	if err := w.session.apply(w.ctx, group); err != nil {
		return err
	}
	if _, err := w.session.exec(w.ctx, "COMMIT"); err != nil {
		return err
	}
	for _, t := range w.session.changed {
		w.notifier.Notify(t.ID, t.Owner)
	}
	if w.signal != nil {
		w.signal()
	}
	return nil
}

// apply makes the changes of a group in the open transaction. If the limit is already exceeded,
// the changes must not take more space.
func (s *session) apply(ctx context.Context, group []*change) error {
	before, err := s.excess(ctx)
	if err != nil {
		return err
	}
	s.changed = s.changed[:0]
	for _, c := range group {
		c.err = c.do(ctx, s)
		if _, refused := errors.AsType[*task.Error](c.err); c.err != nil && !refused {
			return c.err
		}
	}
	if err := s.writeJournal(ctx); err != nil {
		return err
	}
	after, err := s.excess(ctx)
	if err == nil && after > before {
		err = sqlite3.FULL
	}
	return err
}

// reset discards the session with its uncommitted changes and its cache.
func (w *writer) reset() {
	if w.session != nil {
		w.session.close(w.ctx)
		w.session = nil
	}
}

// A loadCache caches what limits need. It is valid until a transaction fails or another
// process writes to the file.
type loadCache struct {
	total   int              // of pending tasks; -1 if unknown
	pending map[string]int   // pending tasks of owners
	bytes   map[string]int64 // of all tasks of accounts, including ended ones
}

func (l *loadCache) forget() {
	l.total, l.pending, l.bytes = -1, make(map[string]int), make(map[string]int64)
}

// addPending adds to the number of pending tasks of an owner.
func (l *loadCache) addPending(owner string, more int) {
	if l.total >= 0 {
		l.total += more
	}
	if _, known := l.pending[owner]; known {
		l.pending[owner] += more
	}
}

// addBytes adds to the bytes of an account.
func (l *loadCache) addBytes(account string, more int64) {
	if _, known := l.bytes[account]; known {
		l.bytes[account] += more
	}
}
