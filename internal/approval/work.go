package approval

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Work counts what a desk does in the background, and has it end when the desk is
// closed.
type work struct {
	running sync.WaitGroup
	closing chan struct{} // closed when the desk is
	kill    chan struct{} // closed when what runs must end

	mu     sync.Mutex
	closed bool
}

// enter counts one more run, unless the desk is closed.
func (w *work) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.running.Add(1)
	return true
}

func (w *work) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// close lets nothing new begin. It reports false if it was called before.
func (w *work) close() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.closed = true
	close(w.closing)
	return true
}

// recordTime is how long a run that is interrupted has to record its end.
const recordTime = time.Second

// drain waits for the calls that run.
func (w *work) drain(ctx context.Context, cancel time.Duration) error {
	done := make(chan struct{})
	go func() { // ends with the last run, each of which ends soon after it is interrupted
		w.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	close(w.kill)
	late := time.NewTimer(recordTime + cancel) // with the time to cancel the call at the upstream
	defer late.Stop()
	select {
	case <-done:
		return ctx.Err()
	case <-late.C:
		return errors.Join(ctx.Err(), errors.New("approval: a call does not end"))
	}
}

// Leases count the work that is under way here for each executor that this desk is.
type leases struct {
	mu    sync.Mutex
	under map[string]int
}

// count notes that work of an executor begins or ends here.
func (l *leases) count(executor string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.under == nil {
		l.under = make(map[string]int)
	}
	if l.under[executor] += n; l.under[executor] == 0 {
		delete(l.under, executor)
	}
}

// held reports whether work of an executor is under way here.
func (l *leases) held(executor string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.under[executor] > 0
}
