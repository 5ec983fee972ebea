package approval

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// An env has what all parts of a service use: the store, the clock, the log, the settings, and
// functions of the program.
type env struct {
	store    gatestore.Store
	updater  lifecycle.Updater // changes tasks and records each change in the journal
	now      func() time.Time
	log      *slog.Logger
	name     string        // of this replica
	lease    time.Duration // an executor that is silent for longer counts as dead
	durable  bool
	judge    func(policy.Call) policy.Verdict
	send     func(task.Task) Sender // nil if the gate has no credentials of its own
	observer func(context.Context, Event)
	current  atomic.Pointer[Settings]
}

func newEnv(c Config, l *leases) *env {
	e := &env{
		store: c.Store, now: c.Now, log: c.Log, name: c.Name, lease: c.Lease, durable: c.Durable,
		judge: c.Judge, send: c.Send, observer: c.Observe,
	}
	e.updater = lifecycle.Updater{Store: c.Store, Notes: notesOf, Alive: l.alive}
	return e
}

func (e *env) settings() *Settings { return e.current.Load() }

func (e *env) observe(ctx context.Context, what Event) {
	if e.observer != nil {
		e.observer(ctx, what)
	}
}

// withInterval returns t with the poll interval for its owner: one that fits the remaining time,
// or the upstream's, within limits.
func (e *env) withInterval(t task.Task) task.Task {
	t.PollInterval = e.settings().Polling.Interval(t.Remaining(e.now()))
	if nested(t) && t.Execution.PollInterval > 0 {
		t.PollInterval = e.settings().Polling.Clamp(t.Execution.PollInterval)
	}
	return t
}

// runsWhen returns what starts an approved call.
func (e *env) runsWhen() review.RunsWhen {
	switch e.settings().Start {
	case StartOnApproval:
		return review.RunsAtOnce
	case StartOnResult:
		return review.RunsWhenFetched
	default:
		return review.RunsWhenPresent
	}
}

// report logs an error of housekeeping. Package steadystore logs that a store is unavailable.
func (e *env) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, task.ErrUnavailable) {
		e.log.ErrorContext(ctx, "housekeeping", "err", err)
	}
}

func (e *env) notReady(id task.ID, t task.Task, cause error) error {
	return &task.Error{
		Kind: task.ErrNotReady, ID: id, State: t.State, Action: action.Watch, Err: cause,
		RetryAfter: e.withInterval(t).PollInterval,
	}
}

// ttlRules returns the lifetimes of tasks that need no approval.
func (e *env) ttlRules() task.TTLRules {
	s := e.settings()
	return task.TTLRules{Execution: s.Execution, Retrieval: s.Retrieval, Max: s.MaxTTL}
}

// ttlLimited logs that a client asked for a longer lifetime than the maximum.
func (e *env) ttlLimited(ctx context.Context, asked, given time.Duration) {
	//mutate:swap "WarnContext" "DebugContext" internal/mcphttp.TestTTLLimits a limited time to live is not logged
	e.log.WarnContext(ctx, "time to live limited", "asked", asked, "given", given)
	e.observe(ctx, Event{Step: TTLLimited})
}

func closedError(id task.ID, a action.Name) error {
	return &task.Error{Kind: task.ErrClosed, ID: id, Action: a, Suggest: "try again in a moment"}
}

// lostRace reports whether err means that another change came first.
func lostRace(err error) bool {
	return errors.Is(err, task.ErrConcurrentModification) || errors.Is(err, task.ErrInvalidTransition) ||
		errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
}

// A background counts the goroutines of a service and ends them when the service closes.
type background struct {
	running sync.WaitGroup
	closing chan struct{} // closed when the service closes
	kill    chan struct{} // closed when running calls must end

	mu     sync.Mutex
	closed bool
}

func newBackground() *background {
	return &background{closing: make(chan struct{}), kill: make(chan struct{})}
}

// enter counts one more goroutine. It returns false if the service is closed.
func (w *background) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.running.Add(1)
	return true
}

func (w *background) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// close prevents new goroutines. It returns false if it was called before.
func (w *background) close() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.closed = true
	close(w.closing)
	return true
}

// recordTime is how long an interrupted run has to record its end.
const recordTime = time.Second

// drain waits for running calls.
func (w *background) drain(ctx context.Context, cancel time.Duration) error {
	done := make(chan struct{})
	go func() { // ends after the last run, which ends soon after it is interrupted
		w.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	close(w.kill)
	late := time.NewTimer(recordTime + cancel) // includes the time to cancel the call upstream
	defer late.Stop()
	select {
	case <-done:
		return ctx.Err()
	case <-late.C:
		return errors.Join(ctx.Err(), errors.New("approval: timed out waiting for running calls"))
	}
}

// Leases create executor names for the runs of this service, and count which runs are active in
// this process.
type leases struct {
	gate string // the name of this replica
	now  func() time.Time

	mu   sync.Mutex
	runs map[string]int // by executor
}

// count adds n to the number of active uses of an executor.
func (l *leases) count(executor string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = make(map[string]int)
	}
	if l.runs[executor] += n; l.runs[executor] == 0 {
		delete(l.runs, executor)
	}
}

// held reports whether an executor is active in this process.
func (l *leases) held(executor string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[executor] > 0
}

// busy reports whether the lease of t's executor has not expired.
func (l *leases) busy(t task.Task) bool {
	return !t.Execution.Detached() && !l.now().After(t.Execution.LeaseUntil)
}

// alive reports whether this process still runs t, whatever the lease says. A lease can look
// expired because the clock was set forward or the store was unreachable.
func (l *leases) alive(t task.Task) bool {
	return t.Execution != nil && l.held(t.Execution.Executor)
}

// newExecutor returns a unique executor name for one run. A late write of an earlier run is
// therefore never attributed to a later one.
//
//mutate:swap "Text()" "Text()[:0]" TestLostAnswerToQuestion two runs of a gate have the same executor name
func (l *leases) newExecutor() string { return l.gate + executorMark + rand.Text() }

// executorMark separates the name of the replica from the random part of an executor name.
const executorMark = "#"

// isOwn reports whether executor is a current or past run of this service.
func (l *leases) isOwn(executor string) bool {
	return strings.HasPrefix(executor, l.gate+executorMark)
}

// A clock never goes back. When the system clock is set back, the clock runs at half speed until
// the system clock has caught up. Leases, deadlines and the order of records therefore stay
// correct.
type clock struct {
	read func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	seen   time.Time // the last reading
	shown  time.Time // the last returned time
	behind bool      // the system clock is behind shown
}

// minLoggedStep is the smallest step back of the system clock that is logged. Time synchronization
// makes smaller ones all the time.
const minLoggedStep = time.Second

// now returns the current time.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	reading := c.read()
	passed := max(0, reading.Sub(c.seen)) // by the monotonic clock, if available
	c.seen = reading
	least := c.shown.Add(passed / 2)
	late := least.Sub(reading.Round(0)) // by the wall clock
	if late <= 0 {
		c.shown, c.behind = reading.Round(0), false
		return reading
	}
	c.shown = least
	if late > minLoggedStep && !c.behind {
		c.behind = true
		c.log.WarnContext(context.Background(), "the clock was set back: the gate uses a slower clock until it has caught up, or until a restart", "by", late.String())
	}
	return least
}
