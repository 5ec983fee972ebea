package approval

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Workflow says who may approve a call, and how.
type Workflow struct {
	Approvers    []string      // names of people, of groups after "group:", or of roles after "role:"; none means any operator
	Quorum       int           // how many different people must approve; 0 means 1
	SelfApproval bool          // whether the requester may be one of them
	Timeout      time.Duration // how long they have; 0 means 10 minutes
	Validity     time.Duration // how long an approval can be used; 0 means as long as the task lives
	Redact       []string      // paths that approvers do not see, such as arguments.password or result.token
	Escalation   Escalation
	Grants       grantstore.Limits // how far standing approvals may go; zero means that none can be given
}

// An Escalation lets others decide too when a share of the time is over. The zero
// Escalation is never.
type Escalation struct {
	After     float64  // the share, between 0 and 1
	Approvers []string // as in a [Workflow]
}

// escalated returns w with those who may decide at a given time.
func (w Workflow) escalated(t task.Task, at time.Time) Workflow {
	if w.Escalation.After <= 0 || t.Approval == nil || len(w.Approvers) == 0 {
		return w
	}
	patience := time.Duration(w.Escalation.After * float64(t.Approval.Deadline.Sub(t.CreatedAt)))
	if at.Before(t.CreatedAt.Add(patience)) {
		return w
	}
	if len(w.Escalation.Approvers) == 0 {
		return w // never everybody
	}
	w.Approvers = slices.Concat(w.Approvers, w.Escalation.Approvers)
	return w
}

const defaultTimeout = 10 * time.Minute

func (w Workflow) timeout() time.Duration {
	if w.Timeout <= 0 {
		return defaultTimeout
	}
	return w.Timeout
}

// TimeToDecide returns how long the approvers of a workflow have. It is 0 for a
// workflow that does not exist.
func (c *core) TimeToDecide(workflow string) time.Duration {
	w, known := c.cfg.Workflow(workflow)
	if !known {
		return 0
	}
	return w.timeout()
}

// An Approver is somebody who decides. It is for the caller to know that it is
// really them.
type Approver struct {
	Name    string
	Groups  []string
	Roles   []string
	Aliases []string // other names that the same person has, above all as a requester
}

// ErrForbidden reports a decision by somebody who may not make it.
var ErrForbidden = errors.New("approval: not an approver of this workflow")

const (
	groupPrefix = "group:"
	rolePrefix  = "role:"
)

// admits reports whether a is one of the approvers. An entry that names a group or a
// role is never compared with a person's name.
func (w Workflow) admits(a Approver) bool {
	if a.Name == "" {
		return false
	}
	return len(w.Approvers) == 0 || slices.ContainsFunc(w.Approvers, func(entry string) bool {
		if group, ok := strings.CutPrefix(entry, groupPrefix); ok {
			return slices.Contains(a.Groups, group)
		}
		if role, ok := strings.CutPrefix(entry, rolePrefix); ok {
			return slices.Contains(a.Roles, role)
		}
		return entry == a.Name
	})
}

// satisfied reports whether the approvals of t are enough for w as it is now.
// People count as what they were when they approved, and so do those to whom it had
// been escalated by then.
func (w Workflow) satisfied(t task.Task) bool {
	if t.Approval == nil {
		return false
	}
	count := 0
	for _, a := range t.Approval.Approvals {
		who := Approver{Name: a.By, Groups: a.Groups, Roles: a.Roles}
		if !w.SelfApproval && (a.Own || isRequester(t, who)) {
			return false
		}
		if w.escalated(t, a.At).admits(who) {
			count++
		}
	}
	return count >= max(1, w.Quorum)
}

// isRequester reports whether a made the call of t. Names differ in more than
// their case before they are taken for those of different people.
func isRequester(t task.Task, a Approver) bool {
	p := casefile.ReadFacts(t).Principal
	requester := append([]string{t.Owner, p.ID}, p.Aliases...)
	return slices.ContainsFunc(append([]string{a.Name}, a.Aliases...), func(name string) bool {
		return name != "" && slices.ContainsFunc(requester, func(other string) bool { return strings.EqualFold(name, other) })
	})
}
