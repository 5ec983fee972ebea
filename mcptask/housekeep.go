package mcptask

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
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
	running map[task.ID]context.CancelCauseFunc
	works   sync.WaitGroup
	asking  map[question]struct{} // of clients, at the moment
}

// A question is one that a task asks of its client.
type question struct {
	id  task.ID
	key string
}

// runner returns the name under which this process runs tasks. No other process
// has it, so that a task whose process was restarted is known to be lost.
func (s *Server) runner() string {
	s.process.once.Do(func() { s.process.name = cmp.Or(s.Name, "mcptask-"+rand.Text()) })
	return s.process.name
}

func (s *Server) lease() time.Duration { return cmp.Or(s.Lease, defaultLease) }

// enter notes that a task is run by this process. The context has the values of
// ctx and ends with the server; end must be called when the run has ended.
func (s *Server) enter(ctx context.Context, id task.ID) (running context.Context, end func(), err error) {
	p := &s.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, &task.Error{Kind: task.KindClosed, ID: id, Action: task.ActionClaim}
	}
	if _, twice := p.running[id]; twice {
		return nil, nil, &task.Error{Kind: task.KindNotReady, ID: id, Action: task.ActionClaim, Detail: "this process runs it"}
	}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	if p.running == nil {
		p.running = make(map[task.ID]context.CancelCauseFunc)
	}
	p.running[id] = stop
	p.works.Add(1)
	return running, func() {
		stop(nil)
		p.mu.Lock()
		delete(p.running, id)
		p.mu.Unlock()
		p.works.Done()
	}, nil
}

// interrupt breaks off a run.
func (s *Server) interrupt(id task.ID) {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	if stop := s.process.running[id]; stop != nil {
		stop(errStopping)
	}
}

// runs reports whether this process runs t.
func (s *Server) runs(t task.Task) bool {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	return s.process.running[t.ID] != nil
}

// again returns the work of a task whose process has died, or nil if it must not
// be done twice.
func (s *Server) again(t task.Task) Work {
	if s.Rerun == nil {
		return nil
	}
	return s.Rerun(t)
}

// updater ends tasks, but none that this process runs.
func (s *Server) updater() task.Updater { return task.Updater{Store: s.Store, Alive: s.runs} }

// Housekeep does what has to be done besides answering requests, until ctx ends:
// it ends tasks whose time is over, takes up or fails those whose process has
// died, and deletes what nobody can ask for any more. Any number of processes
// that share a store may do it.
//
// When ctx ends, Housekeep takes no more tasks, gives the work that runs
// [Server.Grace] to end, interrupts the rest, and returns when all of it has
// ended.
func (s *Server) Housekeep(ctx context.Context) {
	tick := time.NewTicker(min(housekeepEvery, s.lease()/leaseParts))
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.Tidy(ctx); err != nil && ctx.Err() == nil {
			s.log(ctx, "housekeeping", "", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	s.drain()
}

// Tidy is one round of [Server.Housekeep], for programs with a loop of their own.
func (s *Server) Tidy(ctx context.Context) error {
	overdue, err := s.Store.Overdue(ctx, s.Now(), housekeepBatch)
	if err != nil && !errors.Is(err, task.ErrUnreadable) {
		return err
	}
	for _, t := range overdue {
		if work := s.again(t); work != nil && t.Lost(s.Now()) && !s.runs(t) {
			err = errors.Join(err, s.takeOver(ctx, t, work))
			continue
		}
		_, _, failed := s.updater().Settle(ctx, t, s.runner(), s.Now())
		err = errors.Join(err, failed)
	}
	_, failed := s.Store.Sweep(ctx, s.Now(), housekeepBatch)
	return errors.Join(err, failed)
}

// takeOver does the work of a task whose process has died from the beginning.
func (s *Server) takeOver(ctx context.Context, t task.Task, work Work) error {
	running, end, err := s.enter(ctx, t.ID)
	if err != nil {
		return err
	}
	now := s.Now()
	restart := task.Restart{By: s.runner(), LeaseUntil: now.Add(s.lease())}
	t, err = s.begin(ctx, task.AnyOwner().Ref(t.ID), restart, now)
	if err != nil {
		end()
		if errors.Is(err, task.ErrNotReady) || errors.Is(err, task.ErrExpired) {
			return nil // another process was first, or the next round ends it
		}
		return unlessOver(err)
	}
	s.background(running, t, work, end)
	return nil
}

// drain ends what this process runs.
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
	for _, stop := range p.running {
		stop(errStopping)
	}
	p.mu.Unlock()
	<-ended
}

// log says what went wrong in the background.
func (s *Server) log(ctx context.Context, doing string, id task.ID, err error) {
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelError, "tasks", slog.String("doing", doing), slog.String("task", string(id)), slog.Any("error", err))
	}
}
