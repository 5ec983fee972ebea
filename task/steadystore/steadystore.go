// Package steadystore lets a program go on while its store is in trouble: down
// when the program starts, gone for a while, slow, full or damaged.
//
// [Open] tries once. If that fails for a reason that may pass, it goes on
// trying behind the scenes, and every method returns [task.ErrUnavailable]
// until it has succeeded. From then on an error of the store that is about no
// task in particular is [task.ErrUnavailable] too, with the error as its cause.
// It begins a time of trouble, in which calls are refused at once rather than
// left to wait for a store that does not answer, until a probe finds it well
// again. If only a change failed, reading goes on. If the store is full, so does
// everything that ends tasks or deletes something, since that makes room.
//
// After an error nobody knows whether a change was made: it may have been.
package steadystore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Options say how to open a store, and what its errors mean. Open must be
// given; other zero fields mean their default.
type Options struct {
	// Open opens the store. It is called again after it has failed.
	Open func(context.Context) (task.GateStore, error)

	// Hopeless reports whether an error of Open is one that waiting does not
	// mend, because something is set up wrongly; no error is.
	Hopeless func(error) bool

	// Probe returns nil if a store that had trouble is well again. By default
	// that is so if it can be read.
	Probe func(ctx context.Context, s task.GateStore, trouble error) error

	// Reopen reports whether a store must be opened again after some trouble,
	// before it can be well; never.
	Reopen func(trouble error) bool

	// Changed is told when the store gets into trouble, and why, and with nil
	// when it is out of it. It must not block.
	Changed func(trouble error)

	Timeout   time.Duration // how long a call may take; 5 s
	FirstTry  time.Duration // how long the first attempt to open may take; 10 s
	FirstWait time.Duration // between the first two probes, twice as long each time; 100 ms
	MostWait  time.Duration // the most between two probes; 5 s
}

// A Store is a [task.GateStore] that may be in trouble.
type Store struct {
	o       Options
	inner   atomic.Pointer[task.GateStore] // nil while none is open
	closed  atomic.Bool
	running sync.WaitGroup

	background context.Context //nolint:containedctx // of what the store does by itself until it is closed
	stop       context.CancelFunc

	alarm chan struct{} // holds a token when trouble has begun

	doubted atomic.Bool // a read that was slow, and need not have been, is being looked into

	telling sync.Mutex // held from a change to the end of telling of it, so that they are told in order
	mu      sync.Mutex
	trouble *trouble // nil while the store is well
}

var _ task.GateStore = (*Store)(nil)

// A trouble is why a store cannot be used.
type trouble struct {
	err     error
	reading bool // not even for reading
}

// Open opens a store, or returns one that is in trouble. It returns an error
// only if waiting would not help.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.defaults()
	s := &Store{o: o, alarm: make(chan struct{}, 1)}
	first, cancel := context.WithTimeout(ctx, o.FirstTry)
	defer cancel()
	if err := s.open(first); err != nil {
		if o.Hopeless(err) || ctx.Err() != nil {
			return nil, err
		}
		s.enter(trouble{err: err, reading: true})
	}
	s.background, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.watchOver(s.background) })
	return s, nil
}

func (o *Options) defaults() {
	if o.Hopeless == nil {
		o.Hopeless = func(error) bool { return false }
	}
	if o.Probe == nil {
		o.Probe = canRead
	}
	if o.Reopen == nil {
		o.Reopen = func(error) bool { return false }
	}
	if o.Changed == nil {
		o.Changed = func(error) {}
	}
	for _, d := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&o.Timeout, 5 * time.Second},
		{&o.FirstTry, 10 * time.Second},
		{&o.FirstWait, 100 * time.Millisecond},
		{&o.MostWait, 5 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.fallback
		}
	}
}

func canRead(ctx context.Context, s task.GateStore, _ error) error {
	_, err := s.List(ctx, task.Query{Scope: task.AnyOwner(), Limit: 1})
	return err
}

// Trouble returns why the store cannot be used, or nil if it can.
func (s *Store) Trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == nil {
		return nil
	}
	return s.trouble.err
}

// Unwrap returns the store itself, or nil while there is none.
func (s *Store) Unwrap() task.GateStore {
	if inner := s.inner.Load(); inner != nil {
		return *inner
	}
	return nil
}

// Close implements [task.GateStore].
func (s *Store) Close() error {
	s.mu.Lock() // what is begun in doubt is begun before, or not at all
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

// enter begins a time of trouble, or makes one worse.
func (s *Store) enter(t trouble) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	begins := s.trouble == nil
	if begins || t.reading && !s.trouble.reading {
		s.trouble = &t
	}
	s.mu.Unlock()
	if !begins {
		return
	}
	s.o.Changed(t.err)
	select {
	case s.alarm <- struct{}{}:
	default: // it rings already
	}
}

// leave ends the time of trouble.
func (s *Store) leave() {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	s.trouble = nil
	s.mu.Unlock()
	s.o.Changed(nil)
}

// watchOver sees to the store whenever it is in trouble, until ctx ends.
func (s *Store) watchOver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.alarm:
		}
		for wait := s.o.FirstWait; ; wait = min(2*wait, s.o.MostWait) {
			err := s.mend(ctx)
			if err == nil {
				s.leave()
				break
			}
			s.still(err)
			if !pause.For(ctx, jittered(wait)) {
				return
			}
		}
	}
}

// still notes why the store is in trouble now, which may be another reason
// than the one it began with.
func (s *Store) still(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = &trouble{err: err, reading: s.trouble.reading}
}

// mend opens the store if it must be, and returns nil if it is well.
func (s *Store) mend(ctx context.Context) error {
	why := s.Trouble()
	if s.inner.Load() != nil && s.o.Reopen(why) {
		_ = s.closeInner() // it is in trouble: what matters is that it opens again
	}
	if s.inner.Load() == nil {
		bounded, cancel := context.WithTimeout(ctx, s.o.FirstTry)
		defer cancel()
		if err := s.open(bounded); err != nil {
			return err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, s.o.FirstTry)
	defer cancel()
	return s.o.Probe(bounded, s.Unwrap(), why)
}

// jittered returns between half and one and a half of d, so that many replicas
// do not come back all at once.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d) //nolint:gosec // jitter only; not security-sensitive
}

var errNoAnswer = errors.New("no answer in time")

// A use is one call of the store.
type use struct {
	store    *Store
	action   task.Action
	id       task.ID
	writes   bool
	whenFull bool // it may end a task or make room, so a full store is asked too
}

// begin returns the store to use.
func (u *use) begin(ctx context.Context) (task.GateStore, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := u.store
	if s.closed.Load() {
		return nil, &task.Error{Kind: task.KindClosed, ID: u.id, Action: u.action}
	}
	s.mu.Lock()
	t := s.trouble
	s.mu.Unlock()
	inner := s.Unwrap()
	if inner == nil || t != nil && t.prevents(u) {
		refused := u.unavailable(cause(t))
		refused.NotAsked = true
		return nil, refused
	}
	return inner, nil
}

// prevents reports whether u must wait for the end of t. A full store answers, even
// if it did not when the trouble began.
func (t *trouble) prevents(u *use) bool {
	if errors.Is(t.err, task.ErrCapacityExceeded) {
		return u.writes && !u.whenFull
	}
	return t.reading || u.writes
}

// cause returns why the store is in trouble, if somebody is quick enough to
// find out.
func cause(t *trouble) error {
	if t == nil {
		return errors.New("it is being opened")
	}
	return t.err
}

func (u *use) unavailable(err error) *task.Error {
	return &task.Error{
		Kind: task.KindUnavailable, ID: u.id, Action: u.action, Err: err,
		Suggest: "try again in a moment", RetryAfter: u.store.o.MostWait,
	}
}

// end returns what to tell of the outcome of a call that was made within a
// bounded part of the caller's context.
func (u *use) end(caller, bounded context.Context, err error) error {
	switch {
	case err == nil || aboutTask(err) || u.tooMuch(err):
		return err
	case caller.Err() != nil:
		return caller.Err()
	case u.store.closed.Load():
		return &task.Error{Kind: task.KindClosed, ID: u.id, Action: u.action}
	case errors.Is(context.Cause(bounded), errNoAnswer):
		err = fmt.Errorf("%w: %v", errNoAnswer, u.store.o.Timeout)
		if !u.writes && task.IsSlowRead(caller) {
			u.store.doubt() //nolint:contextcheck // it goes on when the caller does not
			return u.unavailable(err)
		}
	}
	// Reading the journal may need a write first. If there is no room for that
	// write, callers can still read everything else.
	reading := !u.writes && !errors.Is(err, task.ErrCapacityExceeded) || errors.Is(err, errNoAnswer)
	u.store.enter(trouble{err: err, reading: reading})
	return u.unavailable(err)
}

// doubt has the store probed after a read that may have been slow for reasons of
// its own. If the probe fails, the store is in trouble.
func (s *Store) doubt() {
	if s.doubted.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return
	}
	s.running.Go(func() {
		defer s.doubted.Store(false)
		ctx, done := context.WithTimeout(s.background, s.o.Timeout)
		defer done()
		inner := s.Unwrap()
		if inner == nil {
			return
		}
		if err := s.o.Probe(ctx, inner, errNoAnswer); err != nil && s.background.Err() == nil {
			s.enter(trouble{err: err, reading: true})
		}
	})
}

// tooMuch reports whether err is about an answer for which the store has no
// room. All else that it stores is far smaller.
func (u *use) tooMuch(err error) bool {
	return u.action == task.ActionWriteChunk && errors.Is(err, task.ErrCapacityExceeded)
}

// aboutTask reports whether err is about a task or what was asked of it, and
// not about the store. A store that has no room says so with a cause.
func aboutTask(err error) bool {
	e, ok := errors.AsType[*task.Error](err)
	if !ok {
		return false
	}
	switch e.Kind {
	case task.KindUnavailable, task.KindOutdated, task.KindClosed:
		return false
	case task.KindCapacityExceeded:
		return e.Err == nil
	default:
		return true
	}
}
