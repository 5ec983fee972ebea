// Package casefile is what people are shown of a held call: lists of pending
// and past calls, one call with everything that helps to decide on it, and the
// changes as they happen. It redacts arguments and results, and makes everything
// that agents and upstreams wrote harmless to look at.
//
// The package reads; package approval changes held calls. It imports this
// package, because a decision names the digest of what the approver was shown
// ([Viewer.CheckShown]), and because the [Facts] of a held call are written when
// it is held and read by both.
package casefile

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Config is what a [Viewer] is made of. All fields must be given.
type Config struct {
	Store Store

	// Get returns a task as it is now: one whose time is over has ended.
	Get func(context.Context, task.Ref) (task.Task, error)

	// Terms returns the terms of the workflow of a task as they are configured now,
	// by the gate that held it.
	Terms func(task.Task) (Terms, bool)

	// RunsWhen returns what approved calls need in order to run, as it is configured
	// now.
	RunsWhen func() RunsWhen

	Now     func() time.Time
	Closing <-chan struct{} // closed when the gate shuts down
	Log     *slog.Logger
}

// A Store is what a [Viewer] reads.
type Store interface {
	task.Store
	task.Blobs
	task.Watcher
	task.Journal
	task.Records
}

// Terms are what a workflow says about showing a call.
type Terms struct {
	Approvers []string      // the people, groups and roles that may decide; none means any operator
	Redact    []string      // paths that nobody is shown, such as arguments.password or result.token
	Validity  time.Duration // how long an approval can be used; 0 means as long as the task lives

	Grants grantstore.Limits // how far standing approvals may go; zero means that none can be given
}

// A Viewer shows held calls. It is safe for concurrent use.
type Viewer struct {
	cfg   Config
	reads *semaphore.Weighted // see operatorReads
}

// New returns a viewer.
func New(c Config) *Viewer {
	return &Viewer{cfg: c, reads: semaphore.NewWeighted(operatorReads)}
}

// operatorReads is how many reads on behalf of operators are made at a time.
// Others wait for their turn, so that agents' calls never wait for many of them.
const operatorReads = 4

// begin waits until a read on behalf of an operator may start, and returns its
// context and the function that ends it.
func (v *Viewer) begin(ctx context.Context) (context.Context, func(), error) {
	if err := v.reads.Acquire(ctx, 1); err != nil {
		return ctx, nil, err
	}
	return task.SlowRead(ctx), func() { v.reads.Release(1) }, nil
}

// Audit returns a part of the journal.
func (v *Viewer) Audit(ctx context.Context, f audit.Filter) (audit.Page, error) {
	return audit.Find(ctx, v.cfg.Store, f)
}

// AuditEnds returns where the journal begins and ends.
func (v *Viewer) AuditEnds(ctx context.Context) (task.Ends, error) { return v.cfg.Store.Ends(ctx) }
