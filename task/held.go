package task

import (
	"slices"
	"strings"
	"time"
)

// A HeldCall is the part of a [Task] that a gateway needs, which holds a call until people
// have approved it. Servers that run tasks of their own leave it empty. Its members are
// stored as members of the task.
type HeldCall struct {
	Room     string    `json:"room,omitzero"`  // where owners that nobody has identified are counted together; see [Limits]
	Whole    *Digest   `json:"whole,omitzero"` // see [Task.CallDigest]; nil if it is Digest
	Workflow string    `json:"workflow,omitzero"`
	Verdict  Verdict   `json:"verdict,omitzero"`
	Approval *Approval `json:"approval,omitzero"` // nil when nobody was asked

	// ContactAt is when the owner last made a request about the task. A request or
	// stream on which the owner waits counts as open until WaitsUntil. See
	// [Task.InContact] and [Task.Presence].
	ContactAt   time.Time `json:"contactAt"`
	WaitsUntil  time.Time `json:"waitsUntil,omitzero"`
	DeliveredAt time.Time `json:"deliveredAt,omitzero"` // when the outcome was first sent to the owner
}

// A Verdict holds the facts of the policy's decision to hold a call.
type Verdict struct {
	Reason     string `json:"reason,omitzero"`     // the rule or policy that held the call
	Snapshot   string `json:"snapshot,omitzero"`   // the policy snapshot that was asked
	ToolDigest string `json:"toolDigest,omitzero"` // the digest of the tool's definition at that time
	Facts      string `json:"facts,omitzero"`      // what else was known then, for the approvers and for asking again; never sent to a client
}

// An Approval is a request for approval and the decisions so far.
type Approval struct {
	Quorum       int        `json:"quorum"`                // how many different people must approve
	SelfApproval bool       `json:"selfApproval,omitzero"` // whether the owner may be one of them
	Deadline     time.Time  `json:"deadline"`
	Approvals    []Decision `json:"approvals,omitempty"` // by different people
	Rejection    *Decision  `json:"rejection,omitzero"`  // one is enough
}

// A Decision is the decision of one approver.
type Decision struct {
	By string `json:"by"`
	Authority
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitzero"`

	// UnreadBytes is how much of the call the approver did not read, as the approver
	// says.
	UnreadBytes int64 `json:"unreadBytes,omitzero"`

	Gives *GrantTerms `json:"gives,omitzero"` // the grant that the approver wants to give with it, if any
	Grant GrantID     `json:"grant,omitzero"` // the grant by which the call was approved, if nobody looked at it
}

// A GrantID names a standing approval, by which calls run without asking anybody.
type GrantID string

// GrantTerms are how far a standing approval goes, as an approver wants it.
type GrantTerms struct {
	Until time.Time `json:"until"`
	Uses  int       `json:"uses"`
	Free  []string  `json:"free,omitempty"` // the names of the arguments that may have any value of the same type
}

// An Authority holds the groups and roles that an approver had at the time of the decision.
type Authority struct {
	Groups []string `json:"groups,omitempty"`
	Roles  []string `json:"roles,omitempty"`
	Own    bool     `json:"own,omitzero"` // the call is their own, perhaps made under another name
	// Aliases are other names of the same person, under which they count no
	// second time.
	Aliases []string `json:"aliases,omitempty"`
}

// IsBy reports whether d might be a decision of the person who has any of the
// given names, in whatever case.
func (d Decision) IsBy(names ...string) bool {
	return slices.ContainsFunc(append([]string{d.By}, d.Aliases...), func(mine string) bool {
		return mine != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(mine, name) })
	})
}

// Grant returns the grant by which a call was approved, or "" if people looked at
// it. It is safe to call on nil.
func (a *Approval) Grant() GrantID {
	if a == nil || len(a.Approvals) == 0 {
		return ""
	}
	return a.Approvals[0].Grant
}

// DecidedAt returns when the decision became final, or the zero time while it
// is open. It is safe to call on nil.
func (a *Approval) DecidedAt() time.Time {
	switch {
	case a == nil:
		return time.Time{}
	case a.Rejection != nil:
		return a.Rejection.At
	case len(a.Approvals) >= a.Quorum:
		return a.Approvals[len(a.Approvals)-1].At
	default:
		return time.Time{}
	}
}

// InContact reports whether the owner counts as present: whether it made a request
// within the last two poll intervals.
func (t Task) InContact(now time.Time) bool {
	return !now.After(t.ContactAt.Add(2 * t.PollInterval))
}

// A Presence says whether the owner of a task is present.
type Presence string

// The kinds of presence.
const (
	OwnerWaits Presence = "waiting" // a request or stream of the owner is open
	OwnerPolls Presence = "polling" // the owner made a request within the last two poll intervals
	OwnerGone  Presence = "gone"
)

// Presence returns whether the owner of t is present.
func (t Task) Presence(now time.Time) Presence {
	switch {
	case !t.InContact(now):
		return OwnerGone
	case now.Before(t.WaitsUntil):
		return OwnerWaits
	default:
		return OwnerPolls
	}
}

func (a *Approval) clone() *Approval {
	if a == nil {
		return nil
	}
	c := *a
	c.Approvals = slices.Clone(a.Approvals)
	c.Rejection = copied(a.Rejection)
	return &c
}
