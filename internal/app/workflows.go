package app

import (
	"slices"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
)

// workflows are those of the configuration that is in force now.
type workflows struct {
	current atomic.Pointer[[]config.Workflow]
}

// workflow returns a workflow as the desk knows it.
func (ws *workflows) workflow(name string) (approval.Workflow, bool) {
	w, ok := ws.named(name)
	if !ok {
		return approval.Workflow{}, false
	}
	others, _ := ws.named(w.Escalate.Workflow)
	return approval.Workflow{
		Approvers: w.Approvers, Quorum: w.Quorum, SelfApproval: w.SelfApproval,
		Timeout: w.Timeout, Validity: w.Validity, Redact: w.Redact, Grants: grantLimits(w.Grants),
		Escalation: approval.Escalation{After: w.Escalate.After, Approvers: others.Approvers},
	}, true
}

// named returns what the configuration says of a workflow.
func (ws *workflows) named(name string) (config.Workflow, bool) {
	all := *ws.current.Load()
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

// asksHost reports whether a workflow invites users of hosts to the approval page.
func (ws *workflows) asksHost(workflow string) bool {
	return slices.ContainsFunc(*ws.current.Load(), func(w config.Workflow) bool { return w.Name == workflow && w.AskHost })
}

// haveGroup reports whether a group may approve calls of a workflow.
func (ws *workflows) haveGroup(group string) bool {
	return slices.ContainsFunc(*ws.current.Load(), func(w config.Workflow) bool { return slices.Contains(w.Approvers, "group:"+group) })
}
