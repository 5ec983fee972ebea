package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// newDesk returns the desk at which calls wait for approval.
func (a *App) newDesk() (*approval.Desk, error) {
	return approval.New(approval.Config{
		Store:    a.keep.GateStore,
		Durable:  a.keep.durable,
		Mixed:    a.mixed,
		Judge:    a.gate.Recheck,
		Workflow: a.workflow,
		Send:     a.sendAsGate,
		Lease:    a.cfg.Execution.Lease,
		Log:      a.log,
		Observe:  a.observe,
		Recorded: a.recorded,
		Settings: deskSettings(a.cfg),
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

// recorded counts what the audit log was told.
func (a *App) recorded(notes []task.Note, err error) {
	if err != nil {
		a.metrics.AuditFailed()
		return
	}
	for _, n := range notes {
		a.metrics.Audited(n.Step)
	}
}

// workflow returns a workflow of the configuration that is in force now.
func (a *App) workflow(name string) (approval.Workflow, bool) {
	w, ok := a.configured(name)
	if !ok {
		return approval.Workflow{}, false
	}
	others, _ := a.configured(w.Escalate.Workflow)
	return approval.Workflow{
		Approvers: w.Approvers, Quorum: w.Quorum, SelfApproval: w.SelfApproval,
		Timeout: w.Timeout, Validity: w.Validity, Redact: w.Redact, Grants: grantLimits(w.Grants),
		Escalation: approval.Escalation{After: w.Escalate.After, Approvers: others.Approvers},
	}, true
}

// askBy puts workflows in force.
func (a *App) askBy(workflows []config.Workflow) {
	for _, w := range workflows {
		a.metrics.CanAsk(w.Name)
	}
	a.workflows.Store(&workflows)
}

// configured returns what the configuration that is in force now says of a workflow.
func (a *App) configured(name string) (config.Workflow, bool) {
	all := *a.workflows.Load()
	i := slices.IndexFunc(all, func(w config.Workflow) bool { return w.Name == name })
	if i < 0 {
		return config.Workflow{}, false
	}
	return all[i], true
}

// grantLimits returns how far standing approvals of a workflow may go.
func grantLimits(g config.Grants) grantstore.Limits {
	if g.Longest == 0 {
		return grantstore.Limits{}
	}
	return grantstore.Limits{Longest: g.Longest, Uses: g.Uses}
}

// asksHost reports whether a workflow of the configuration that is in force now
// invites users of hosts to the approval page.
func (a *App) asksHost(workflow string) bool {
	return slices.ContainsFunc(*a.workflows.Load(), func(w config.Workflow) bool { return w.Name == workflow && w.AskHost })
}

// sendAsGate makes a call with the gate's own credentials alone.
func (a *App) sendAsGate(t task.Task) approval.Sender {
	if a.owner != "" && t.Owner != a.owner {
		return nil // it is of another server with this name
	}
	for _, u := range a.asks {
		if u.Name() == t.Call.Upstream {
			return u.Sender(t, a.gate)
		}
	}
	if a.mixed {
		return nil // another gate has that upstream
	}
	return approval.Unreachable{Err: fmt.Errorf("upstream %q is no longer configured", t.Call.Upstream)}
}

// grantEvents are what happens to standing approvals, as metrics call it.
var grantEvents = map[approval.Step]string{
	approval.Granted: metrics.GrantGiven, approval.UsedGrant: metrics.GrantUsed, approval.Revoked: metrics.GrantRevoked,
}

// observe counts what happens at the desk.
func (a *App) observe(ctx context.Context, e approval.Event) {
	switch e.Step {
	case approval.Held:
		a.metrics.TaskHeld(e.Task.Call.Name)
	case approval.Refused:
		if !errors.Is(e.Err, task.ErrUnavailable) {
			a.metrics.TaskRefused()
		}
	case approval.Granted, approval.UsedGrant, approval.Revoked:
		a.metrics.Granted(grantEvents[e.Step])
	case approval.Abandoned:
		a.metrics.ZombiePrevented()
	case approval.Counted:
		pending := make(map[string]int, len(e.Pending))
		for state, n := range e.Pending {
			pending[string(state)] = n
		}
		a.metrics.TasksCounted(pending, e.Oldest)
		a.metrics.QuestionsCounted(e.Asked)
	case approval.Looked:
		a.metrics.QuestionSeen(e.Task.Workflow, e.Task.UpdatedAt.Sub(e.Task.CreatedAt))
	default:
	}
	if moved(e) {
		a.measure(ctx, e.Task)
	}
}

// moved reports whether e tells of a change of state.
func moved(e approval.Event) bool {
	switch e.Step {
	case approval.Granted, approval.UsedGrant, approval.Revoked:
		return false
	case approval.Attached, approval.Refused, approval.Delivered, approval.Abandoned, approval.Reported, approval.Looked:
		return false
	case approval.Decided:
		return !e.Task.Approval.DecidedAt().IsZero() // one of several that are needed changes nothing
	default:
		return len(e.Task.Transitions) > 0
	}
}

// measure counts the last change of state of t, and how long what it ended took.
func (a *App) measure(ctx context.Context, t task.Task) {
	last := t.Transitions[len(t.Transitions)-1]
	a.metrics.TaskMoved(string(last.From), string(last.To))
	switch last.From {
	case task.InputRequired:
		a.metrics.QuestionEnded(t.Workflow, string(last.To), last.At.Sub(t.CreatedAt))
		if last.To == task.Approved || last.To == task.Rejected {
			a.metrics.TaskTook(metrics.StageApproval, last.At.Sub(t.CreatedAt))
			a.tracing.ApprovalWaited(ctx, tracing.Wait{
				From: t.CreatedAt, To: last.At, Request: approval.TraceOf(t), Task: string(t.ID), Outcome: string(last.To),
			})
		}
	case task.Executing:
		a.metrics.TaskTook(metrics.StageExecution, last.At.Sub(t.Execution.StartedAt))
		if t.Result != nil {
			a.metrics.ResultKept(t.Result.Size)
		}
	default:
	}
	if last.To.Terminal() {
		a.metrics.TaskEnded(t.Call.Name, string(last.To))
		a.metrics.TaskTook(metrics.StageTotal, last.At.Sub(t.CreatedAt))
	}
}

// waiting says how clients wait in their requests.
func (a *App) waiting(cfg config.Config) conversation.Waiting {
	w := waiting(cfg)
	w.Page, w.AskHost = a.page, a.asksHost
	return w
}

// waiting is [App.waiting] without the approval page.
func waiting(cfg config.Config) conversation.Waiting {
	return conversation.Waiting{
		Hold:     cfg.Waiting.Hold,
		Longest:  cfg.Waiting.Longest,
		Forever:  cfg.Tasks.MaxTTL,
		Hosts:    hostsOf(cfg.Waiting.Hosts),
		Beat:     cfg.Waiting.Keepalive,
		PerOwner: cfg.Tasks.MaxPendingPerOwner,
		Pending:  mcptask.Status(cfg.Tasks.PendingStatus),
		Drafts:   cfg.Drafts,
		Errors:   cfg.Waiting.Errors,
		NoError:  cfg.Waiting.PendingOK,

		WholeBatches: cfg.WholeBatches,
		Events: conversation.Events{
			Idle: cfg.Notifications.IdleTimeout, PerOwner: cfg.Notifications.MaxPerOwner,
			SkipUpstreams:  !cfg.Notifications.Forward,
			ReconnectDelay: cfg.Notifications.ReconnectDelay, ReconnectAttempts: cfg.Notifications.ReconnectAttempts,
		},
	}
}

// hostsOf returns how long hosts wait, as the configuration says.
func hostsOf(list []config.Host) []conversation.Host {
	var hosts []conversation.Host
	for _, h := range list {
		hosts = append(hosts, conversation.Host{Name: h.Name, Limit: h.Limit})
	}
	return hosts
}

// page returns where people decide about a held call.
func (a *App) page(id task.ID) string { return a.operatorsURL() + "/approvals/" + string(id) }
