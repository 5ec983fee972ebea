package mcptask

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

const (
	defaultLease = 10 * time.Second
	leaseParts   = 3 // how often a lease is renewed in its time
	defaultGrace = 5 * time.Second

	housekeepEvery = time.Second
	housekeepBatch = 100
)

// A process is the part of a [Server] that runs tasks.
type process struct {
	once sync.Once
	name string

	mu      sync.Mutex
	closed  bool
	housed  bool        // Housekeep was called
	visited atomic.Bool // Tidy has looked for the runs of dead processes
	running map[task.ID]activeRun
	works   sync.WaitGroup
	asking  map[question]struct{} // questions that are being put to clients

	resuming sync.Mutex // one answer at a time to the questions of suspended tasks
}

// An activeRun is one in this process.
type activeRun struct {
	stop  context.CancelCauseFunc
	ended chan struct{}
}

// A question is one that a task asks of its client.
type question struct {
	id  task.ID
	key string
}

// runner returns the name under which this process runs tasks. It is
// unique, so that the tasks of an earlier process count as lost.
func (s *Server) runner() string {
	s.process.once.Do(func() { s.process.name = cmp.Or(s.Name, namePrefix+thisProcess+"-"+rand.Text()) })
	return s.process.name
}

// namePrefix is the beginning of names that servers generate. The name of the process follows.
const namePrefix = "mcptask-"

var thisProcess = rand.Text()

// dead reports whether t was run by a process that has died, although its lease holds: another
// process than this one, which alone can use the store.
func (s *Server) dead(t task.Task) bool {
	if t.State != task.Executing || t.Execution.Detached() || !storekit.IsExclusive(s.Store) {
		return false
	}
	name, generated := strings.CutPrefix(t.Execution.Executor, namePrefix)
	//mutate:swap "name, thisProcess" `name, "x"+thisProcess` TestDeadProcessIsReplacedAtOnce a process takes over the tasks of its other servers
	return generated && !strings.HasPrefix(name, thisProcess)
}

func (s *Server) lease() time.Duration { return cmp.Or(s.Lease, defaultLease) }

// enter registers a task as run by this process. The context has the values of
// ctx and ends with the server; end must be called when the run has ended.
func (s *Server) enter(ctx context.Context, id task.ID) (running context.Context, end func(), err error) {
	p := &s.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, &task.Error{Kind: task.ErrClosed, ID: id, Action: action.Claim}
	}
	if _, twice := p.running[id]; twice {
		return nil, nil, &task.Error{Kind: task.ErrNotReady, ID: id, Action: action.Claim, Detail: "this process runs it"}
	}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	if p.running == nil {
		p.running = make(map[task.ID]activeRun)
	}
	ended := make(chan struct{})
	p.running[id] = activeRun{stop, ended}
	p.works.Add(1)
	return running, func() {
		stop(nil)
		p.mu.Lock()
		delete(p.running, id)
		p.mu.Unlock()
		close(ended)
		p.works.Done()
	}, nil
}

// endOf returns a channel that is closed when the run of a task in this process has ended, or
// nil if there is none.
func (s *Server) endOf(id task.ID) <-chan struct{} {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	return s.process.running[id].ended
}

// interrupt interrupts a run.
func (s *Server) interrupt(id task.ID) {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	if r, ok := s.process.running[id]; ok {
		r.stop(ErrStopping)
	}
}

// runs reports whether this process runs t.
func (s *Server) runs(t task.Task) bool { return s.endOf(t.ID) != nil }

// again returns the work for a second run of a task, or nil if it must not run twice.
func (s *Server) again(t task.Task) Work {
	if s.Rerun == nil {
		return nil
	}
	return s.Rerun(t)
}

// updater ends tasks, except those that this process runs.
func (s *Server) updater() lifecycle.Updater { return lifecycle.Updater{Store: s.Store, Alive: s.runs} }

// Housekeep does background work until ctx ends: it expires tasks, restarts or fails tasks
// whose process has died, and deletes tasks whose TTL has passed. Several processes that share
// a store may run it.
//
// When ctx ends, Housekeep takes no more tasks. It gives the running work [Server.Grace] to
// end, then interrupts it, and returns when all work has ended. It may be called once. It ends
// early with an error if the store is closed, or if a newer program has changed the store.
func (s *Server) Housekeep(ctx context.Context) error {
	if !s.onlyOnce() {
		return errors.New("mcptask: this server does its housekeeping already, or has ended")
	}
	defer s.drain()
	tick := time.NewTicker(min(housekeepEvery, s.lease()/leaseParts))
	defer tick.Stop()
	for ctx.Err() == nil {
		err := s.Tidy(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, task.ErrClosed), errors.Is(err, task.ErrOutdated):
			return err
		default:
			s.log(ctx, "housekeep", "", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// onlyOnce reports whether it is called for the first time.
func (s *Server) onlyOnce() bool {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	first := !s.process.housed
	s.process.housed = true
	return first
}

// Tidy is one round of [Server.Housekeep], for programs with a loop of their own.
func (s *Server) Tidy(ctx context.Context) error {
	if err := s.replaceDead(ctx); err != nil {
		return err
	}
	overdue, err := s.Store.Overdue(ctx, s.Now(), housekeepBatch)
	if err != nil && !errors.Is(err, task.ErrUnreadable) {
		return err
	}
	for _, t := range overdue {
		if work := s.again(t); work != nil && t.Lost(s.Now()) && !s.runs(t) {
			err = errors.Join(err, s.takeOver(ctx, t, work, false))
			continue
		}
		if _, _, failed := s.updater().Settle(ctx, t, s.runner(), s.Now()); !errors.Is(failed, task.ErrNotFound) {
			err = errors.Join(err, failed)
		}
	}
	_, failed := s.Store.Sweep(ctx, s.Now(), housekeepBatch)
	return errors.Join(err, failed)
}

// replaceDead ends or repeats, once, the runs whose process is known to have died.
func (s *Server) replaceDead(ctx context.Context) error {
	if s.process.visited.Load() || !storekit.IsExclusive(s.Store) {
		return nil
	}
	for t, err := range storekit.Each(ctx, s.Store, task.Query{Scope: task.AnyOwner(), States: []task.State{task.Executing}, Limit: housekeepBatch}) {
		switch {
		case err != nil && !errors.Is(err, task.ErrUnreadable):
			return err
		case err != nil || !s.dead(t):
		case s.again(t) != nil:
			err = s.takeOver(ctx, t, s.again(t), true)
		default:
			_, err = lifecycle.Advance(ctx, s.Store, task.AnyOwner().Ref(t.ID), lifecycle.Lapse{By: s.runner(), Dead: true}, s.Now())
		}
		if err != nil {
			s.log(ctx, "replace a dead process", t.ID, err)
		}
	}
	s.process.visited.Store(true)
	return nil
}

// takeOver runs the task of a dead process again, from the beginning.
func (s *Server) takeOver(ctx context.Context, t task.Task, work Work, known bool) error {
	running, end, err := s.enter(ctx, t.ID)
	if err != nil {
		return err
	}
	now := s.Now()
	restart := lifecycle.Restart{By: s.runner(), LeaseUntil: now.Add(s.lease()), Dead: known}
	t, err = s.begin(ctx, task.AnyOwner().Ref(t.ID), restart, now)
	if err != nil {
		end()
		if errors.Is(err, task.ErrNotReady) || errors.Is(err, task.ErrExpired) {
			return nil // another process has taken over, or the next round expires the task
		}
		return unlessOver(err)
	}
	s.background(running, t, work, end)
	return nil
}

// drain ends all running work of this process.
func (s *Server) drain() {
	p := &s.process
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		p.works.Wait()
		close(ended)
	}()
	grace := time.NewTimer(cmp.Or(s.Grace, defaultGrace))
	defer grace.Stop()
	select {
	case <-ended:
		return
	case <-grace.C:
	}
	p.mu.Lock()
	for _, r := range p.running {
		r.stop(ErrStopping)
	}
	p.mu.Unlock()
	<-ended
}

// log logs an error of background work.
func (s *Server) log(ctx context.Context, doing string, id task.ID, err error) {
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelError, "tasks", slog.String("doing", doing), slog.String("task", string(id)), slog.Any("err", err))
	}
}
