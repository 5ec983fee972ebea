// Package review shows held calls to operators: lists of pending and past calls, one call with
// everything that helps to decide, and changes as they happen. It redacts arguments and results,
// and escapes hidden characters in texts of agents and upstreams.
//
// The package only reads; package approval changes held calls and imports this package. An
// approval names the digest of what the approver saw, which [Viewer.CheckShown] compares. The
// [Facts] of a call are stored when it is held.
package review

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Config configures a [Viewer]. All fields are required.
type Config struct {
	Store Store

	// Get returns a task, after ending it if its deadline has passed.
	Get func(context.Context, task.Ref) (task.Task, error)

	// Workflow returns the current workflow of a task, as configured by the gate that holds it,
	// with the approvers who may decide now.
	Workflow func(task.Task) (policy.Workflow, bool)

	// RunsWhen returns what starts approved calls at present.
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
	auditlog.Journal
	gatestore.Records
}

// A Viewer shows held calls. It is safe for concurrent use.
type Viewer struct {
	cfg   Config
	reads *admission.Pool // see operatorReads
}

// New returns a viewer.
func New(c Config) *Viewer {
	return &Viewer{cfg: c, reads: admission.NewPool(operatorReads)}
}

// operatorReads limits parallel reads for operators: in total, so that agents' calls never wait
// for many of them, and per operator, so that one slow reader does not delay the others.
//
//mutate:swap ", Client: 2" "" internal/inbox.TestSlowPagesDelayOnlyTheirOperator slow pages of one operator block all operators
var operatorReads = admission.Limits{Total: 4, Client: 2}

// Begin waits until a read for an operator may start. It returns its context and the function that
// ends it.
func (v *Viewer) Begin(ctx context.Context) (context.Context, func(), error) {
	who := admission.ClientOf(ctx)
	if err := v.reads.Acquire(ctx, who, 1, math.MaxInt64); err != nil {
		return ctx, nil, err
	}
	return storekit.SlowRead(ctx), func() { v.reads.Release(who, 1) }, nil
}

// Audit returns a page of the journal.
func (v *Viewer) Audit(ctx context.Context, f audit.Filter) (audit.Page, error) {
	return audit.Find(ctx, v.cfg.Store, f)
}

// Recorded returns a page of the record of calls, newest first.
func (v *Viewer) Recorded(ctx context.Context, f callrecord.Filter) (callrecord.Past, error) {
	ctx, done, err := v.Begin(ctx)
	if err != nil {
		return callrecord.Past{}, err
	}
	defer done()
	return callrecord.Latest(ctx, v.cfg.Store, f)
}

// Records returns the store of the record of calls.
func (v *Viewer) Records() gatestore.Records { return v.cfg.Store }

// AuditEnds returns the two ends of the journal.
func (v *Viewer) AuditEnds(ctx context.Context) (auditlog.Ends, error) { return v.cfg.Store.Ends(ctx) }
