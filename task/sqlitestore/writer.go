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
)

const (
	groupChanges = 256     // the most changes that one transaction makes
	groupBytes   = 4 << 20 // the most that they write, unless one alone does
	ownersKept   = 1000    // the most owners whose tasks are counted in memory
)

// A change is one thing to write.
type change struct {
	ctx    context.Context //nolint:containedctx // it ends the caller's wait, not the transaction
	size   int             // about how many bytes are written
	spare  int64           // how much more room it may take than others, in parts; see overdraw
	do     func(context.Context, *session) (outcome, error)
	state  atomic.Int32
	result outcome
	err    error         // why nothing was written
	done   chan struct{} // closed when result and err are set
}

// An outcome is what became of a change in a transaction that was committed.
type outcome struct {
	refused error // why this one was not made
	changed []sqlcore.Touched
	trimmed int // entries of the journal
	records int // records that were changed
}

// A writer makes changes, in the order they come in and in groups.
type writer struct {
	ctx      context.Context //nolint:containedctx // that of the goroutine, which outlives every caller's
	db       *sql.DB
	maxBytes int64
	hub      *task.Hub
	check    func() error // returns an error if the file must not be written to
	queue    chan *change
	running  sync.WaitGroup

	mu     sync.RWMutex // held while a change is put into the queue
	closed bool

	tables  int           // the version of the tables that this program knows
	foreign chan struct{} // holds a token if another process may have changed the file
	ring    func()        // tells other processes of a change; nil if there are none

	last    int      // how many changes the last group had
	session *session // nil after a failure, until it is needed again
	pending ledger
	chain   chain
}

func newWriter(ctx context.Context, db *sql.DB, maxBytes int64, hub *task.Hub) *writer {
	w := &writer{ctx: ctx, db: db, maxBytes: maxBytes, hub: hub, queue: make(chan *change, groupChanges), foreign: make(chan struct{}, 1)}
	w.pending.forget()
	w.running.Go(w.run)
	return w
}

// close waits until all changes that have come in are made.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	close(w.queue)
	w.mu.Unlock()
	w.running.Wait()
	return w.db.Close()
}

// make has c made and returns when its outcome is on disk, or why there is
// none. Once the context has ended nothing is begun, but what has begun is
// waited for.
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
	late := time.NewTimer(sqlcore.Patience)
	defer late.Stop()
	select {
	case <-c.done:
		return c.err
	case <-late.C:
		return c.ctx.Err()
	}
}

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
		case <-w.foreign:
			w.look()
		}
	}
}

func (w *writer) makeGroup(group []*change) {
	err := w.commit(group)
	for _, c := range group {
		alone := err
		if len(group) > 1 && tooMuch(err) {
			alone = w.commit([]*change{c}) // there may be room for all but one
		}
		if c.spare > 0 && w.maxBytes > 0 && tooMuch(alone) {
			alone = w.overdraw(c)
		}
		w.settle(c, alone)
	}
}

// How many parts of the room, each as large as [headroom] says, are kept for changes in a
// full store. Its tasks must be able to end, or none could ever be deleted. What deletes
// has a part that nothing else can take, because SQLite may need a page for that.
const (
	spareToEnd    = 1
	spareToDelete = 2
)

// overdraw makes a change for which there is no room left, within a little more.
func (w *writer) overdraw(c *change) error {
	if err := w.connect(); err != nil {
		return err
	}
	defer w.reset() // the next change gets a session with the usual limit
	w.session.maxBytes += c.spare * (w.maxBytes / headroom)
	if err := w.session.limit(w.ctx); err != nil {
		return err
	}
	return w.commit([]*change{c})
}

// lookSoon has the writer look whether another process has changed the file.
func (w *writer) lookSoon() {
	select {
	case w.foreign <- struct{}{}:
	default: // it is about to
	}
}

// look wakes whoever watches if another process has changed the file. A file that
// cannot be read now is looked at again with the next change.
func (w *writer) look() {
	err := w.connect()
	if err == nil {
		err = w.session.catchUp(w.ctx, w.hub.NotifyAll)
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
	if w.session, err = newSession(w.ctx, w.db, w.maxBytes, &w.pending, &w.chain); err == nil {
		w.session.tables = w.tables
	}
	return err
}

// tooMuch reports whether err is about what was written, and not about the
// disk or the file.
func tooMuch(err error) bool { return errors.Is(err, sqlite3.FULL) || errors.Is(err, sqlite3.TOOBIG) }

// gather returns the changes to make next: all that have come in, up to a
// bound, that somebody still waits for. Callers whose last change has just been
// made get the chance to come with their next one first: a large group is far
// cheaper than several small ones.
func (w *writer) gather(first *change) []*change {
	g := group{}
	g.add(first)
	for more := true; more && !g.full(); {
		if len(g.changes) < w.last {
			runtime.Gosched()
		}
		more = g.drain(w.queue)
	}
	w.last = len(g.changes)
	return g.changes
}

// A group is the changes that one transaction makes.
type group struct {
	changes []*change
	size    int
}

func (g *group) full() bool { return len(g.changes) == groupChanges || g.size > groupBytes }

// add begins a change, unless its caller has given up.
func (g *group) add(c *change) {
	if c.state.CompareAndSwap(waiting, begun) {
		g.changes, g.size = append(g.changes, c), g.size+c.size
	}
}

// drain adds what waits in the queue, and reports whether there was anything.
func (g *group) drain(queue <-chan *change) (some bool) {
	for !g.full() {
		select {
		case next, open := <-queue:
			if !open {
				return false
			}
			g.add(next)
			some = true
		default:
			return some
		}
	}
	return some
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
	if err := w.session.catchUp(w.ctx, w.hub.NotifyAll); err != nil {
		return err
	}
	if err := w.session.apply(w.ctx, group); err != nil {
		return err
	}
	if _, err := w.session.exec(w.ctx, "COMMIT"); err != nil {
		return err
	}
	if w.ring != nil {
		w.ring()
	}
	return nil
}

// apply makes the changes of a group in the transaction that is open. They must not
// take more room if too much is taken already.
func (s *session) apply(ctx context.Context, group []*change) error {
	before, err := s.excess(ctx)
	if err != nil {
		return err
	}
	for _, c := range group {
		if c.result, err = c.do(ctx, s); err != nil {
			return err
		}
	}
	if err := s.closeJournal(ctx); err != nil {
		return err
	}
	after, err := s.excess(ctx)
	if err == nil && after > before {
		err = sqlite3.FULL
	}
	return err
}

// reset undoes what was not committed and forgets all that depends on it, the
// connection included, so that the next attempt starts afresh.
func (w *writer) reset() {
	w.pending.forget()
	w.chain.forget()
	if w.session == nil {
		return
	}
	w.session.close(w.ctx)
	w.session = nil
}

// settle tells the caller, and then whoever watches.
func (w *writer) settle(c *change, err error) {
	c.err = err
	close(c.done)
	if err != nil {
		return
	}
	for _, t := range c.result.changed {
		w.hub.Notify(t.ID, t.Owner)
	}
}

// A ledger counts pending tasks. It is right until a transaction fails, or another
// process writes to the file.
type ledger struct {
	total  int // -1 if it is not known
	owners map[string]int
}

func (l *ledger) forget() { l.total, l.owners = -1, make(map[string]int) }

// add notes that an owner has more pending tasks, or fewer.
func (l *ledger) add(owner string, n int) {
	if l.total >= 0 {
		l.total += n
	}
	if _, known := l.owners[owner]; known {
		l.owners[owner] += n
	}
}
