package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Workflow says who may approve a call, and how.
type Workflow = policy.Workflow

// escalated returns w with the approvers who may decide about t at a given time.
func escalated(w Workflow, t task.Task, at time.Time) Workflow {
	if w.Escalate.After <= 0 || t.Approval == nil || len(w.Approvers) == 0 {
		return w
	}
	patience := time.Duration(w.Escalate.After * float64(t.Approval.Deadline.Sub(t.CreatedAt)))
	//mutate:swap "patience" "patience * 0" TestEscalation a call is escalated at once
	if at.Before(t.CreatedAt.Add(patience)) {
		return w
	}
	if len(w.Escalate.Approvers) == 0 {
		return w // an empty list would allow everybody
	}
	w.Approvers = slices.Concat(w.Approvers, w.Escalate.Approvers)
	return w
}

const defaultTimeout = 10 * time.Minute

func timeout(w Workflow) time.Duration {
	if w.Timeout <= 0 {
		return defaultTimeout
	}
	return w.Timeout
}

// An Approver is a person who decides. The caller must have authenticated them.
type Approver struct {
	Name    string
	Groups  []string
	Roles   []string
	Aliases []string // other names of the same person, such as the one of their agent
}

// ErrForbidden is the error of a decision by a person who is not an approver.
var ErrForbidden = errors.New("approval: not an approver of this workflow")

// ErrOnlyRejects is the [ErrForbidden] of an approval by a person whose role only lets them reject.
var ErrOnlyRejects = fmt.Errorf("%w: the role only lets them reject", ErrForbidden)

// onlyRejects reports whether the role of a lets them reject, but not approve.
func (a Approver) onlyRejects() bool {
	return slices.Contains(a.Roles, "rejecter") && !slices.Contains(a.Roles, "approver")
}

// admits reports whether a is an approver of w.
func admits(w Workflow, a Approver) bool { return a.Name != "" && w.Admits(a.Name, a.Groups, a.Roles) }

// satisfied reports whether the approvals of t are enough for w as it is now. Approvers count with
// the groups and roles they had when they approved, and escalation counts as of then.
func satisfied(w Workflow, t task.Task) bool {
	if t.Approval == nil {
		return false
	}
	count := 0
	for _, a := range t.Approval.Approvals {
		who := Approver{Name: a.By, Groups: a.Groups, Roles: a.Roles}
		if !w.SelfApproval && (a.Own || isRequester(t, who)) {
			return false
		}
		//mutate:swap "a.At" "t.ExpiresAt" TestRecheckEscalation an approval counts although the call was not escalated then
		if admits(escalated(w, t, a.At), who) {
			count++
		}
	}
	//mutate:true TestRecheck.* approvals that no longer count are enough
	return count >= max(1, w.Quorum)
}

// isRequester reports whether a made the call of t. Names are compared case-insensitively.
func isRequester(t task.Task, a Approver) bool {
	p := review.ReadFacts(t).Principal
	requester := append([]string{t.Owner, p.ID}, p.Aliases...)
	return slices.ContainsFunc(append([]string{a.Name}, a.Aliases...), func(name string) bool {
		//mutate:swap "strings.EqualFold(name, other)" "name == other" TestDecideWho names that differ only in case count as different people
		return name != "" && slices.ContainsFunc(requester, func(other string) bool { return strings.EqualFold(name, other) })
	})
}

// Workflows find the workflow of each task.
type workflows struct {
	named func(name string) (Workflow, bool) // the current configuration
	gate  string                             // the name of this replica
	mixed bool                               // gates with other configurations share the store
	now   func() time.Time
}

// of returns the workflow of t: the current one, or, if a gate with another configuration holds t,
// the one stored with t.
func (ws *workflows) of(t task.Task) (Workflow, bool) {
	gate := review.HoldingGateOf(t)
	if ws.isHeldHere(gate) {
		return ws.named(t.Workflow)
	}
	return gate.Workflow(), true
}

func (ws *workflows) isHeldHere(h *review.HoldingGate) bool { return h == nil || h.Gate == ws.gate }

// holdingGate returns the description of this gate for a call held for w, or nil if all gates of
// the store have the same configuration.
func (ws *workflows) holdingGate(w Workflow) *review.HoldingGate {
	if !ws.mixed {
		return nil
	}
	return review.NewHoldingGate(ws.gate, w)
}

// stale reports whether the approval of t is too old. A task past its deadline expires instead.
func (ws *workflows) stale(t task.Task, now time.Time) bool {
	w, _ := ws.of(t)
	until := review.ValidUntil(t, w.Validity)
	return until.Before(t.ExpiresAt) && now.After(until)
}

// shown returns the workflow of t with the approvers who may decide now.
func (ws *workflows) shown(t task.Task) (Workflow, bool) {
	w, known := ws.of(t)
	return escalated(w, t, ws.now()), known
}

// HeldHere reports whether t was held by this gate or by one with the same configuration. An
// outline of t is enough.
func (s *Service) HeldHere(t task.Task) bool { return s.workflows.isHeldHere(review.HoldingGateOf(t)) }

// TimeToDecide returns the timeout of a workflow, or 0 if the workflow does not exist.
func (s *Service) TimeToDecide(workflow string) time.Duration {
	w, known := s.workflows.named(workflow)
	if !known {
		return 0
	}
	return timeout(w)
}
