// Package steadystore lets a program run while its store fails: while it is unreachable, slow,
// full or damaged, at start or later.
//
// [Open] tries to open the store once. After a temporary error it retries in the background,
// and every method returns [task.ErrUnavailable] until an attempt has succeeded. Later, an
// error of the store that does not concern a particular task also becomes
// [task.ErrUnavailable], with the error as its cause. It starts an outage: calls fail at once,
// rather than waiting for the store, until a probe succeeds. If only a change failed, reads
// still reach the store. If the store is full, calls that end tasks or delete data also reach
// it, because they free storage.
//
// After an error, a change may or may not have been made.
package steadystore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Options tell how to open a store, and how to judge its errors. Open is required. Other zero
// fields mean their default.
type Options struct {
	// Open opens the store. It is called again after a failure.
	Open func(context.Context) (gatestore.Store, error)

	// Permanent reports whether an error of Open stays until a person acts, such as an error in
	// a setting. By default no error is permanent.
	Permanent func(error) bool

	// Probe returns nil if a store works again after an outage with the given cause. The
	// default reads from the store.
	Probe func(ctx context.Context, s gatestore.Store, cause error) error

	// Reopen reports whether the store must be opened again to end an outage with the given
	// cause. By default it is never opened again.
	Reopen func(cause error) bool

	// OnChange is called with the cause when an outage begins, and with nil when it ends.
	// It must not block.
	OnChange func(cause error)

	Timeout     time.Duration // the time limit of a call; 5 s
	OpenTimeout time.Duration // the time limit of an attempt to open or to probe; 10 s
	MinWait     time.Duration // the pause after the first probe; it doubles after each; 100 ms
	MaxWait     time.Duration // the longest pause between two probes; 5 s
}

// A Store is a [gatestore.Store] that may be unavailable.
type Store struct {
	o       Options
	inner   atomic.Pointer[gatestore.Store] // nil while none is open
	closed  atomic.Bool
	running sync.WaitGroup

	background context.Context // of background work; ends with the store
	stop       context.CancelFunc

	outageBegan chan struct{} // has a token when an outage has begun

	probing atomic.Bool // a probe after a slow read is running

	notifyMu sync.Mutex // held from a change until OnChange has returned, so that its calls are in order
	mu       sync.Mutex
	outage   *outage // nil while the store works
}

var _ gatestore.Store = (*Store)(nil)

// An outage is the reason for which a store cannot be used.
type outage struct {
	err       error
	readsFail bool // reads fail too, not only changes
}

// Open opens a store. After a temporary error it returns an unavailable store. It only returns
// permanent errors.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.defaults()
	s := &Store{o: o, outageBegan: make(chan struct{}, 1)}
	first, cancel := context.WithTimeout(ctx, o.OpenTimeout)
	defer cancel()
	if err := s.open(first); err != nil {
		if o.Permanent(err) || ctx.Err() != nil {
			return nil, err
		}
		s.beginOutage(outage{err: err, readsFail: true})
	}
	s.background, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.watch(s.background) })
	return s, nil
}

func (o *Options) defaults() {
	if o.Permanent == nil {
		o.Permanent = func(error) bool { return false }
	}
	if o.Probe == nil {
		o.Probe = canRead
	}
	if o.Reopen == nil {
		o.Reopen = func(error) bool { return false }
	}
	if o.OnChange == nil {
		o.OnChange = func(error) {}
	}
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.OpenTimeout = cmp.Or(o.OpenTimeout, 10*time.Second)
	o.MinWait = cmp.Or(o.MinWait, 100*time.Millisecond)
	o.MaxWait = cmp.Or(o.MaxWait, 5*time.Second)
}

func canRead(ctx context.Context, s gatestore.Store, _ error) error {
	_, err := s.List(ctx, task.Query{Scope: task.AnyOwner(), Limit: 1})
	return err
}

// Outage returns the cause of the present outage, or nil.
func (s *Store) Outage() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outage == nil {
		return nil
	}
	return s.outage.err
}

// Unwrap returns the inner store, or nil while none is open.
func (s *Store) Unwrap() gatestore.Store {
	if inner := s.inner.Load(); inner != nil {
		return *inner
	}
	return nil
}

// Close implements [gatestore.Store].
func (s *Store) Close() error {
	s.mu.Lock() // afterwards probeLater starts no goroutine
	closed := s.closed.Swap(true)
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.stop()
	s.running.Wait()
	return s.closeInner()
}

func (s *Store) closeInner() error {
	if inner := s.inner.Swap(nil); inner != nil {
		return (*inner).Close()
	}
	return nil
}

func (s *Store) open(ctx context.Context) error {
	inner, err := s.o.Open(ctx)
	if err != nil {
		return err
	}
	s.inner.Store(&inner)
	return nil
}

// beginOutage begins an outage, or extends a present one to reads.
func (s *Store) beginOutage(t outage) {
	s.notifyMu.Lock()
	defer s.notifyMu.Unlock()
	s.mu.Lock()
	begins := s.outage == nil
	if begins || t.readsFail && !s.outage.readsFail {
		s.outage = &t
	}
	s.mu.Unlock()
	if !begins {
		return
	}
	s.o.OnChange(t.err)
	select {
	case s.outageBegan <- struct{}{}:
	default: // already signalled
	}
}

// endOutage ends the outage.
func (s *Store) endOutage() {
	s.notifyMu.Lock()
	defer s.notifyMu.Unlock()
	s.mu.Lock()
	s.outage = nil
	s.mu.Unlock()
	s.o.OnChange(nil)
}

// watch ends outages, until ctx ends.
func (s *Store) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.outageBegan:
		}
		for wait := s.o.MinWait; ; wait = min(2*wait, s.o.MaxWait) {
			err := s.recover(ctx)
			if err == nil {
				s.endOutage()
				break
			}
			s.updateCause(err)
			if !pause.For(ctx, jittered(wait)) {
				return
			}
		}
	}
}

// updateCause updates the cause of the present outage.
func (s *Store) updateCause(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outage = &outage{err: err, readsFail: s.outage.readsFail}
}

// recover opens the store if necessary, and returns nil if it works.
func (s *Store) recover(ctx context.Context) error {
	why := s.Outage()
	if s.inner.Load() != nil && s.o.Reopen(why) {
		_ = s.closeInner() // the store is damaged; an error while closing it does not matter
	}
	if s.inner.Load() == nil {
		bounded, cancel := context.WithTimeout(ctx, s.o.OpenTimeout)
		defer cancel()
		if err := s.open(bounded); err != nil {
			return err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, s.o.OpenTimeout)
	defer cancel()
	return s.o.Probe(bounded, s.Unwrap(), why)
}

// jittered returns a random time between 0.5 and 1.5 of d, so that replicas do not retry
// at the same moment.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

var errNoAnswer = errors.New("no answer in time")

// A call is one call of the store.
type call struct {
	store    *Store
	action   action.Name
	id       task.ID
	writes   bool
	whenFull bool // it may end a task or free storage, so it reaches a full store
}

// begin returns the store to use.
func (c *call) begin(ctx context.Context) (gatestore.Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := c.store
	if s.closed.Load() {
		return nil, &task.Error{Kind: task.ErrClosed, ID: c.id, Action: c.action}
	}
	s.mu.Lock()
	t := s.outage
	s.mu.Unlock()
	inner := s.Unwrap()
	if inner == nil || t != nil && t.blocks(c) {
		refused := c.unavailable(cause(t))
		refused.NotAttempted = true
		return nil, refused
	}
	return inner, nil
}

// blocks reports whether the call c fails at once during the outage t. A full store answers
// reads, even if it did not answer when the outage began.
func (t *outage) blocks(c *call) bool {
	if errors.Is(t.err, task.ErrCapacityExceeded) {
		return c.writes && !c.whenFull
	}
	return t.readsFail || c.writes
}

// cause returns the cause of t. While the store is being reopened, t may be nil.
func cause(t *outage) error {
	if t == nil {
		return errors.New("the store is being opened")
	}
	return t.err
}

func (c *call) unavailable(err error) *task.Error {
	return &task.Error{
		Kind: task.ErrUnavailable, ID: c.id, Action: c.action, Err: err,
		Suggest: "try again in a moment", RetryAfter: c.store.o.MaxWait,
	}
}

// end converts the error of a call for the caller. The call ran with the bounded context, a
// child of the caller's context.
func (c *call) end(caller, bounded context.Context, err error) error {
	switch {
	case err == nil || aboutTask(err) || c.answerTooLarge(err):
		return err
	case caller.Err() != nil:
		return caller.Err()
	case c.store.closed.Load():
		return &task.Error{Kind: task.ErrClosed, ID: c.id, Action: c.action}
	case errors.Is(context.Cause(bounded), errNoAnswer):
		err = fmt.Errorf("%w: %v", errNoAnswer, c.store.o.Timeout)
		if !c.writes && storekit.IsSlowRead(caller) {
			c.store.probeLater() // the probe outlives the caller
			return c.unavailable(err)
		}
	}
	// Reading the journal may need a write first. If the store is full, that write fails, but
	// other reads still work.
	reading := !c.writes && !errors.Is(err, task.ErrCapacityExceeded) || errors.Is(err, errNoAnswer)
	c.store.beginOutage(outage{err: err, readsFail: reading})
	return c.unavailable(err)
}

// probeLater probes the store after a read of many tasks has reached the time limit. If the
// probe fails, an outage begins.
func (s *Store) probeLater() {
	if s.probing.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return
	}
	s.running.Go(func() {
		defer s.probing.Store(false)
		ctx, done := context.WithTimeout(s.background, s.o.Timeout)
		defer done()
		inner := s.Unwrap()
		if inner == nil {
			return
		}
		if err := s.o.Probe(ctx, inner, errNoAnswer); err != nil && s.background.Err() == nil {
			s.beginOutage(outage{err: err, readsFail: true})
		}
	})
}

// answerTooLarge reports whether err means that the store has no storage for an answer.
// Other data is far smaller.
func (c *call) answerTooLarge(err error) bool {
	return c.action == action.WriteChunk && errors.Is(err, task.ErrCapacityExceeded)
}

// aboutTask reports whether err concerns a task or a query, rather than the store. The error of
// a full store has a cause.
func aboutTask(err error) bool {
	e, ok := errors.AsType[*task.Error](err)
	if !ok {
		return false
	}
	switch e.Kind {
	case task.ErrUnavailable, task.ErrOutdated, task.ErrClosed:
		return false
	case task.ErrCapacityExceeded:
		return e.Err == nil
	default:
		return true
	}
}
