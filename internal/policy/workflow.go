package policy

import (
	"slices"
	"strings"
	"time"
)

// RedactSecrets in the place of a path hides secrets wherever they are.
const RedactSecrets = "secrets"

// A Workflow has the settings of an approval. The first four fields order workflows by
// strictness; only they are a part of [Snapshot.ID].
type Workflow struct {
	Quorum       int           // the number of different people who must approve; 0 means 1, but not in a [Config]
	Timeout      time.Duration // for the decision; 0 means 10 minutes, but not in a [Config]
	SelfApproval bool          // whether the requester may be one of them
	Passkey      bool          `json:",omitzero"` // approvers must confirm with a passkey

	Name          string        `json:"-"`
	Approvers     []string      `json:"-"` // names, or group:NAME, or role:NAME; empty means any operator
	Validity      time.Duration `json:"-"` // of an approval; 0 means as long as the task lives
	Redact        []string      `json:"-"` // paths that are hidden from approvers, such as arguments.password or result.token, or RedactSecrets
	Channels      []string      `json:"-"` // that notify approvers
	AgentApproval bool          `json:"-"` // programs that the agent has started may approve with a token
	AskHost       bool          `json:"-"` // ask the agent's host to open the approval page for its user
	Remind        []float64     `json:"-"` // reminders, as shares of Timeout between 0 and 1
	Escalate      Escalation    `json:"-"`
	QuietHours    QuietHours    `json:"-"`
	Grants        Grants        `json:"-"` // zero means no standing approvals
}

// An Escalation lets the approvers of another workflow decide too, after a share of Timeout.
// The zero Escalation never happens.
type Escalation struct {
	After     float64 // the share, between 0 and 1
	Workflow  string
	Approvers []string // those of that workflow
	Channels  []string // those of that workflow
}

// QuietHours delay reminders and escalations. From and To count from midnight; From may be
// after To. If they are equal, there are no quiet hours.
type QuietHours struct {
	From, To time.Duration
	Timezone string
}

// Grants limits standing approvals.
type Grants struct {
	Longest time.Duration // the longest validity
	Uses    int           // the most calls of one grant
	Reach   string        // the widest reach of one grant: tool, read_only, server or agent; empty means tool
}

// DefaultWorkflow is the name of the workflow of rules without one.
const DefaultWorkflow = "default"

// Group returns the name of the group in an entry such as group:on-call. It returns other
// entries unchanged.
func Group(entry string) (name string, isGroup bool) { return strings.CutPrefix(entry, "group:") }

// Role is [Group] for an entry such as role:admin.
func Role(entry string) (name string, isRole bool) { return strings.CutPrefix(entry, "role:") }

// HasGroup reports whether the entries have the group.
func HasGroup(entries []string, group string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		name, isGroup := Group(entry)
		return isGroup && name == group
	})
}

// Admits reports whether a person is an approver. Entries for groups and roles never match
// the name of a person.
func (w Workflow) Admits(name string, groups, roles []string) bool {
	return len(w.Approvers) == 0 || slices.ContainsFunc(w.Approvers, func(entry string) bool {
		if group, ok := Group(entry); ok {
			return slices.Contains(groups, group)
		}
		if role, ok := Role(entry); ok {
			return slices.Contains(roles, role)
		}
		return entry == name
	})
}
