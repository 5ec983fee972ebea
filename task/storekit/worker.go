package storekit

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

// A Worker does work in the background after [Worker.Schedule]. One run covers all calls before
// it. [Worker.Close] does one last run.
type Worker struct {
	Before, After time.Duration // the pauses before and after the work, in which calls are merged
	Timeout       time.Duration // the time limit of the work

	// Work does all pending work. Failed work stays pending until the next run.
	Work func(context.Context) error

	scheduled chan struct{} // has a token if work is pending
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// Start starts the worker. The caller must close it.
func (w *Worker) Start(ctx context.Context) {
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.scheduled = make(chan struct{}, 1)
	w.running.Go(func() { w.run(ctx) })
}

func (w *Worker) run(ctx context.Context) {
	for over := false; !over; {
		select {
		case <-w.scheduled:
			pause.For(ctx, w.Before)
		case <-ctx.Done():
			over = true
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.Timeout)
		_ = w.Work(bounded)
		cancel()
		pause.For(ctx, w.After)
	}
}

// Schedule requests a run soon.
func (w *Worker) Schedule() {
	select {
	case w.scheduled <- struct{}{}:
	default: // already scheduled
	}
}

// Close waits until all work is done. It does nothing if the worker was not started.
func (w *Worker) Close() {
	if w.stop != nil {
		w.stop()
		w.running.Wait()
	}
}
