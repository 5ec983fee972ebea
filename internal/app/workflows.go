package app

import (
	"slices"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// workflows are the workflows of the current configuration.
type workflows struct {
	current atomic.Pointer[[]policy.Workflow]
}

// find returns the named workflow.
func (ws *workflows) find(name string) (policy.Workflow, bool) {
	all := *ws.current.Load()
	i := slices.IndexFunc(all, func(w policy.Workflow) bool { return w.Name == name })
	if i < 0 {
		return policy.Workflow{}, false
	}
	return all[i], true
}

// asksHost reports whether a workflow asks agent hosts to open the approval page.
func (ws *workflows) asksHost(workflow string) bool {
	w, _ := ws.find(workflow)
	return w.AskHost
}

// usesGroup reports whether a group may approve calls of a workflow.
func (ws *workflows) usesGroup(group string) bool {
	return slices.ContainsFunc(*ws.current.Load(), func(w policy.Workflow) bool { return policy.HasGroup(w.Approvers, group) })
}
