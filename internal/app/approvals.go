package app

import (
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// approvals are what judges calls and holds them for people.
type approvals struct {
	*base

	servers   *servers
	workflows workflows
	gate      *gate.Gate
	keep      keep
	desk      *approval.Desk
	mixed     bool   // gates with other upstreams may use the store too
	owner     string // of all tasks that this gate holds in a mixed store; empty if there may be several
	outdated  func() // is called when the store is too new for this gate; may be nil
}

// open puts the policy and the workflows of the configuration in force, and opens the
// store and the desk.
func (ap *approvals) open() error {
	settings, warnings, err := Settings(ap.cfg)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		ap.log.Warn("policy", "warning", w.String())
	}
	ap.setWorkflows(ap.cfg.Workflows)
	ap.gate = gate.New(settings, time.Now, ap.log, ap.metrics)
	if ap.keep, err = ap.openStore(); err != nil {
		return err
	}
	ap.desk, err = ap.newDesk()
	return err
}

// setWorkflows puts workflows in force.
func (ap *approvals) setWorkflows(list []config.Workflow) {
	for _, w := range list {
		ap.metrics.CanAsk(w.Name)
	}
	ap.workflows.current.Store(&list)
}

// newDesk returns the desk at which calls wait for approval.
func (ap *approvals) newDesk() (*approval.Desk, error) {
	return approval.New(approval.Config{
		Store:    ap.keep.GateStore,
		Durable:  ap.keep.durable,
		Mixed:    ap.mixed,
		Judge:    ap.gate.Recheck,
		Workflow: ap.workflows.workflow,
		Send:     ap.sendAsGate,
		Lease:    ap.cfg.Execution.Lease,
		Log:      ap.log,
		Observe:  ap.observe,
		Recorded: ap.recorded,
		Settings: deskSettings(ap.cfg),
	})
}

// deskSettings returns what cfg says of the desk and can change while it runs.
func deskSettings(cfg config.Config) approval.Settings {
	return approval.Settings{
		Start: approval.Start(cfg.Execution.Start),
		Limits: task.Limits{
			PerOwner: cfg.Tasks.MaxPendingPerOwner, Total: cfg.Tasks.MaxPending, RetryAfter: cfg.Tasks.MaxPollInterval,
		},
		Shares:    pendingShares(cfg),
		Retrieval: cfg.Tasks.DefaultTTL,
		MaxTTL:    cfg.Tasks.MaxTTL,
		Execution: cfg.Execution.Timeout,
		Poll:      cfg.Execution.PollTimeout,
		Cancel:    cfg.Execution.CancelTimeout,
		MaxResult: cfg.Limits.MaxResult,
		Polling:   task.Polling{Min: cfg.Tasks.MinPollInterval, Max: cfg.Tasks.MaxPollInterval},
		Sweep:     cfg.Tasks.CleanupInterval,
		Keep:      cfg.Storage.Retention,
		Retention: cfg.Audit.Retention,
		Variables: variableLimits(cfg.Tasks.Variables),

		RequestMeta: cfg.Waiting.RequestMeta,
	}
}

func variableLimits(v config.VariableLimits) task.VariableLimits {
	return task.VariableLimits{Count: v.MaxCount, Name: int(v.MaxName), Value: int(v.MaxValue), Total: int(v.MaxTotal)}
}

// pendingShares returns what agents without an identity may have of the held
// calls. If agents can be identified, a quarter is left to those that are. The
// agents at one address may have what one of them may.
func pendingShares(cfg config.Config) approval.Shares {
	all, one := cfg.Tasks.MaxPending, cfg.Tasks.MaxPendingPerOwner
	s := approval.Shares{
		PerRoom: max(one, int(quarter(cfg.Tasks.MaxPendingPerAddress, all))),
		Unknown: max(one, cfg.Tasks.MaxPendingUnknown),
		All:     all,
		Strange: max(1, all/2),
	}
	s.Unknown = min(s.Unknown, s.PerRoom)
	if cfg.Identity.Recognises() {
		s.All = max(1, all*3/4)
	}
	return s
}

// sendAsGate makes a call with the gate's own credentials alone.
func (ap *approvals) sendAsGate(t task.Task) approval.Sender {
	if ap.owner != "" && t.Owner != ap.owner {
		return nil // it is of another server with this name
	}
	if u := ap.servers.named(t.Call.Upstream); u != nil {
		return u.Sender(t, ap.gate)
	}
	if ap.mixed {
		return nil // another gate has that upstream
	}
	return approval.Unreachable{Err: fmt.Errorf("upstream %q is no longer configured", t.Call.Upstream)}
}

// asksAbout reports whether this gate is the one to ask people about t.
func (ap *approvals) asksAbout(t task.Task) bool {
	if ap.owner != "" {
		return t.Owner == ap.owner
	}
	return ap.servers.named(t.Call.Upstream) != nil && ap.desk.Holds(t)
}
