package approval

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Workflow says who may approve a call, and how.
type Workflow struct {
	Approvers    []string      // names of people, or of groups after "group:"; none means any operator
	Quorum       int           // how many different people must approve; 0 means 1
	SelfApproval bool          // whether the requester may be one of them
	Timeout      time.Duration // how long they have; 0 means 10 minutes
	Validity     time.Duration // how long an approval can be used; 0 means as long as the task lives
	Redact       []string      // paths of arguments that approvers do not see, such as arguments.password
}

const defaultTimeout = 10 * time.Minute

func (w Workflow) timeout() time.Duration {
	if w.Timeout <= 0 {
		return defaultTimeout
	}
	return w.Timeout
}

// An Approver is somebody who decides. It is for the caller to know that it is
// really them.
type Approver struct {
	Name   string
	Groups []string
}

// ErrForbidden reports a decision by somebody who may not make it.
var ErrForbidden = errors.New("approval: not an approver of this workflow")

const groupPrefix = "group:"

// admits reports whether a is one of the approvers. What names a group is never
// compared with a name.
func (w Workflow) admits(a Approver) bool {
	if a.Name == "" {
		return false
	}
	return len(w.Approvers) == 0 || slices.ContainsFunc(w.Approvers, func(entry string) bool {
		if group, ok := strings.CutPrefix(entry, groupPrefix); ok {
			return slices.Contains(a.Groups, group)
		}
		return entry == a.Name
	})
}

// satisfied reports whether the approvals of t are enough for w as it is now.
func (w Workflow) satisfied(t task.Task) bool {
	if t.Approval == nil {
		return false
	}
	count := 0
	for _, a := range t.Approval.Approvals {
		if !w.SelfApproval && isRequester(t, a.By) {
			return false
		}
		if w.mayAdmit(a.By) {
			count++
		}
	}
	return count >= max(1, w.Quorum)
}

// mayAdmit is admits for somebody of whom only the name is known: they may be
// in any group.
func (w Workflow) mayAdmit(name string) bool {
	return w.admits(Approver{Name: name}) || slices.ContainsFunc(w.Approvers, func(entry string) bool {
		return strings.HasPrefix(entry, groupPrefix)
	})
}

// isRequester reports whether name is who made the call of t.
func isRequester(t task.Task, name string) bool {
	return name == t.Owner || name == readFacts(t).Principal.ID
}
