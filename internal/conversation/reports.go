package conversation

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// ReportInterval is how often the gate acts on what an upstream says, unasked,
// of one of its tasks: by a write to the store, or by a question to the upstream.
const ReportInterval = 500 * time.Millisecond

// reportTimeout is how long acting on one report may take.
const reportTimeout = 30 * time.Second

// reports coalesces what upstreams say unasked of their tasks, so that an
// upstream which says it a thousand times a second costs no more than any other.
// The gate acts on the first report of a task at once, and on the latest of those
// that follow once per interval. A final report gives way to no other.
type reports struct {
	mu      sync.Mutex
	tasks   map[task.ID]*reportQueue // those that had a report within the interval
	closing chan struct{}
	closed  bool
	running sync.WaitGroup
}

// A reportQueue is the report that waits for the end of the interval, if any.
type reportQueue struct{ latest *report }

// A report is one thing that an upstream says of a task.
type report struct {
	final bool // the upstream says that its task has ended
	act   func(context.Context)
}

func newReports() *reports {
	return &reports{tasks: make(map[task.ID]*reportQueue), closing: make(chan struct{})}
}

// take acts on a report of a task now, or leaves that for the end of the
// interval.
func (r *reports) take(ctx context.Context, id task.ID, one report) {
	if !r.begin(id, one) {
		return
	}
	one.act(ctx)
	go func() {
		defer r.running.Done()
		r.rest(context.WithoutCancel(ctx), id)
	}()
}

// begin reports whether the interval of the task begins with this report, which
// otherwise is queued.
func (r *reports) begin(id task.ID, one report) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.tasks[id]; q != nil {
		if q.latest == nil || one.final || !q.latest.final {
			q.latest = &one
		}
		return false
	}
	if r.closed {
		return false // the gate ends; the next poll finds out what was said
	}
	r.tasks[id] = &reportQueue{}
	r.running.Add(1)
	return true
}

// rest acts on what is queued for a task at the end of each interval, until
// nothing is.
func (r *reports) rest(ctx context.Context, id task.ID) {
	for {
		pause := time.NewTimer(ReportInterval)
		select {
		case <-pause.C:
		case <-r.closing:
		}
		pause.Stop()
		one := r.next(id)
		if one == nil {
			return
		}
		bounded, done := context.WithTimeout(ctx, reportTimeout)
		one.act(bounded)
		done()
	}
}

// next returns the report that is queued for a task. If there is none, the next
// report begins anew.
func (r *reports) next(id task.ID) *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.tasks[id]
	one := q.latest
	if q.latest = nil; one == nil {
		delete(r.tasks, id)
	}
	return one
}

// close acts on all that is queued, and waits for that.
func (r *reports) close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.closing)
	}
	r.mu.Unlock()
	r.running.Wait()
}
