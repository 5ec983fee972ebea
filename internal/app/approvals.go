package app

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// approvals judges calls and holds those that need approval.
type approvals struct {
	base *base

	servers     *servers
	workflows   workflows
	current     atomic.Pointer[config.Config]
	catalog     *catalog.Catalog
	store       openStore
	record      *callrecord.Log
	service     *approval.Service
	sharedStore bool     // gates with other upstreams may use the store too
	owners      []string // the owners of this gate's tasks in a shared store; nil if there may be others
	outdated    func()   // is called when the store is too new for this gate; may be nil
}

// open applies the policy and the workflows of the configuration, and opens the store.
func (ap *approvals) open() error {
	settings, warnings, err := Settings(ap.base.cfg)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		ap.base.log.Warn("policy", "warning", w.String())
	}
	ap.setWorkflows(ap.base.cfg.Workflows)
	ap.current.Store(&ap.base.cfg)
	ap.catalog = catalog.New(settings, time.Now, ap.base.log, ap.base.metrics)
	if ap.store, err = ap.openStore(); err != nil {
		return err
	}
	ap.catalog.UseHistory(toolhistory.Store{Records: ap.store.Store, Journal: ap.store.Store})
	ap.record = ap.newRecord()
	ap.service, err = ap.newService()
	return err
}

// setWorkflows replaces the workflows.
func (ap *approvals) setWorkflows(list []policy.Workflow) {
	for _, w := range list {
		ap.base.metrics.AddWorkflow(w.Name)
	}
	ap.workflows.current.Store(&list)
}

// newService returns the service that holds calls.
func (ap *approvals) newService() (*approval.Service, error) {
	return approval.New(approval.Config{
		Store:    ap.store.Store,
		Durable:  ap.store.durable,
		Mixed:    ap.sharedStore,
		Judge:    ap.catalog.Recheck,
		Workflow: ap.workflows.find,
		Send:     ap.sendAsGate,
		Lease:    ap.base.cfg.Execution.Lease,
		Log:      ap.base.log,
		Observe:  ap.base.observe,
		Recorded: ap.base.recorded,
		Ended:    ap.recordEnd,
		Settings: approvalSettings(ap.base.cfg),
	})
}

// approvalSettings returns the settings of held calls that can change while the gate runs.
func approvalSettings(cfg config.Config) approval.Settings {
	return approval.Settings{
		Start: approval.Start(cfg.Execution.Start),
		Limits: task.Limits{
			PerOwner: cfg.Tasks.MaxPendingPerOwner, Total: cfg.Tasks.MaxPending, RetryAfter: cfg.Tasks.MaxPollInterval,
			AccountBytes: accountBytes(cfg),
		},
		Shares:    pendingShares(cfg),
		Retrieval: cfg.Tasks.DefaultTTL,
		MaxTTL:    cfg.Tasks.MaxTTL,
		Execution: cfg.Limits.CallTimeout,
		Poll:      cfg.Execution.PollTimeout,
		Cancel:    cfg.Execution.CancelTimeout,
		MaxResult: cfg.Limits.MaxResult,
		Polling:   task.Polling{Min: cfg.Tasks.MinPollInterval, Max: cfg.Tasks.MaxPollInterval},
		Sweep:     cfg.Tasks.CleanupInterval,
		Keep:      cfg.Storage.Retention,
		Retention: cfg.Audit.Retention,
		Variables: variableLimits(int(cfg.Tasks.MaxVariables)),
	}
}

// accountBytes returns how many bytes the calls and results of one agent may use in the
// store, or those of all agents without identity at one address. That is twice the size of
// the pending calls of an agent, since a stored call is larger than its message, and one
// result. In a store with a size limit, it is at most a quarter.
func accountBytes(cfg config.Config) int64 {
	bytes := 2*int64(cfg.Tasks.MaxPendingPerOwner)*cfg.Limits.MaxRequestBody + cfg.Limits.MaxResult
	if most, bounded := Storage(cfg).SizeLimit(); bounded {
		bytes = min(bytes, most/4)
	}
	return max(bytes, 1)
}

// variableLimits returns the limits of a task's variables, given their total size in bytes.
func variableLimits(total int) task.VariableLimits {
	return task.VariableLimits{Count: 64, Name: 128, Value: max(1, total/4), Total: total}
}

// pendingShares returns how many held calls agents without an identity may have. If the
// configuration identifies agents, a quarter stays reserved for identified ones. All agents
// at one address share the limit of one.
func pendingShares(cfg config.Config) approval.Shares {
	all, one := cfg.Tasks.MaxPending, cfg.Tasks.MaxPendingPerOwner
	s := approval.Shares{
		PerNetwork:        max(one, int(quarter(all))),
		UnknownPerNetwork: max(one, all/50),
		Total:             all,
		UnprovenTotal:     max(1, all/2),
	}
	s.UnknownPerNetwork = min(s.UnknownPerNetwork, s.PerNetwork)
	if cfg.Identity.Recognises() {
		s.Total = max(1, all*3/4)
	}
	return s
}

// sendAsGate returns a sender for t that uses only the configured credentials, or nil if
// another gate has the upstream.
func (ap *approvals) sendAsGate(t task.Task) approval.Sender {
	if ap.owners != nil && !slices.Contains(ap.owners, t.Owner) {
		return nil // for another server with this name
	}
	if u := ap.servers.find(t.Call.Upstream); u != nil {
		return u.Sender(t, ap.catalog)
	}
	if ap.sharedStore {
		return nil // another gate has that upstream
	}
	return approval.Unreachable{Err: fmt.Errorf("upstream %q is no longer configured", t.Call.Upstream)}
}

// notifiesAbout reports whether this gate notifies approvers about t.
func (ap *approvals) notifiesAbout(t task.Task) bool {
	if ap.owners != nil {
		//mutate:swap "slices.Contains(ap.owners, t.Owner)" "true" TestWrapsNotifyAboutTheirOwnCalls a wrap notifies about the calls of other servers
		return slices.Contains(ap.owners, t.Owner)
	}
	//mutate:swap " && ap.service.HeldHere(t)" "" TestGatesNotifyAboutTheirOwnCalls a gate notifies about the calls of other gates
	return ap.servers.find(t.Call.Upstream) != nil && ap.service.HeldHere(t)
}
