package gatetask

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A HeldCall is the part of a [task.Task] that only a gateway needs. Servers that run their own
// tasks leave it empty. Its members are stored as members of the task.
type HeldCall struct {
	Group    string    `json:"room,omitzero"` // unauthenticated owners of one group share a limit; see [task.Limits]
	Workflow string    `json:"workflow,omitzero"`
	Verdict  Verdict   `json:"verdict,omitzero"`
	Approval *Approval `json:"approval,omitzero"` // nil if no approval was requested

	// ContactAt is the time of the owner's last request about the task. A request or stream on
	// which the owner waits counts as open until WaitsUntil. See [task.Task.InContact] and
	// [task.Task.Presence].
	ContactAt   time.Time `json:"contactAt"`
	WaitsUntil  time.Time `json:"waitsUntil,omitzero"`
	DeliveredAt time.Time `json:"deliveredAt,omitzero"` // the time when the outcome was first sent to the owner
}

// A Verdict holds the facts of the policy's decision to hold a call.
type Verdict struct {
	Reason     string `json:"reason,omitzero"`     // the rule or policy that held the call
	Snapshot   string `json:"snapshot,omitzero"`   // the policy snapshot of the decision
	ToolDigest string `json:"toolDigest,omitzero"` // the digest of the tool's definition at that time
	Facts      string `json:"facts,omitzero"`      // other facts at that time, for the approvers and for a new policy check; not sent to clients
}

// An Approval is a request for approval and the decisions so far.
type Approval struct {
	Quorum       int        `json:"quorum"`                // the number of different people who must approve
	SelfApproval bool       `json:"selfApproval,omitzero"` // whether the owner may be one of them
	Passkey      bool       `json:"passkey,omitzero"`      // whether approvals need the signature of a passkey
	Deadline     time.Time  `json:"deadline"`
	Approvals    []Decision `json:"approvals,omitempty"` // by different people
	Rejection    *Decision  `json:"rejection,omitzero"`  // final
}

// A Decision is the decision of one approver.
type Decision struct {
	By string `json:"by"`
	Authority
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitzero"`

	// UnreadBytes is the part of the call that the approver reported as not read, in bytes.
	UnreadBytes int64 `json:"unreadBytes,omitzero"`

	Via      Via         `json:"via,omitzero"` // empty in tasks of earlier versions
	Passkey  *Signature  `json:"passkey,omitzero"`
	NewGrant *GrantTerms `json:"gives,omitzero"` // the grant that the approver gives with the decision, or nil
	Grant    GrantID     `json:"grant,omitzero"` // the grant that approved the call without an approver

	Correction *Correction `json:"correction,omitzero"` // of a rejection; NewGrant has its terms
}

// A Correction says with which arguments the approver would have approved a call that they
// rejected. It is the approval of that call: a grant lets it run once.
type Correction struct {
	Arguments json.RawMessage `json:"arguments,omitzero"` // an object; absent in an outline of the task
	Grant     GrantID         `json:"grant"`

	// Structured means that the agent gets the arguments as structured content too. Clients check
	// it against the output schema of the tool, so the tool must not have one.
	Structured bool `json:"structured,omitzero"`
}

// ByText returns the name of the approver, whether a passkey confirmed the decision, and how one with
// a token came, because programs make such decisions too.
func (d Decision) ByText() string {
	switch {
	case d.Passkey != nil:
		return d.By + " with a passkey"
	case !d.Via.IsToken():
		return d.By
	}
	return d.By + " via " + d.Via.Details()
}

// A Via is the way in which a decision was made.
type Via struct {
	Kind    ViaKind `json:"kind"`
	Login   string  `json:"login,omitzero"`   // how the approver was authenticated: token, session or oidc
	Channel string  `json:"channel,omitzero"` // the name of the channel
	Account string  `json:"account,omitzero"` // the approver's account there

	// The program on the gate's own machine that sent the decision, as far as the system tells.
	PID      int    `json:"pid,omitzero"`
	Program  string `json:"program,omitzero"`  // its file
	Terminal string `json:"terminal,omitzero"` // such as pts/3
	User     string `json:"user,omitzero"`

	FromAgent FromAgent `json:"fromAgent,omitzero"` // empty if the decision came from elsewhere
}

// FromAgent says whether an agent started the program that sent a decision.
type FromAgent string

// The values of [FromAgent].
const (
	FromAgentYes     FromAgent = "yes"
	FromAgentNo      FromAgent = "no"
	FromAgentUnknown FromAgent = "unknown"
)

// IsToken reports whether the decision came with a token, not from a page in a browser.
func (v Via) IsToken() bool { return v.Login == "token" }

// String returns v in words, such as "channel ops (U024BE7LH)", without the program.
func (v Via) String() string {
	text := strings.ReplaceAll(string(v.Kind), "_", " ")
	if v.Channel != "" {
		text += " " + v.Channel
	}
	if v.Account != "" {
		text += " (" + v.Account + ")"
	}
	if v.FromAgent == FromAgentYes {
		text += ", by an agent"
	}
	return text
}

// Details is [Via.String] with the program that sent the decision, such as "command line
// (thoughtgate, process 4711, user ann, terminal pts/3)".
func (v Via) Details() string {
	var about []string
	if v.FromAgent == FromAgentUnknown {
		about = append(about, "origin unknown")
	}
	if v.Program != "" {
		about = append(about, path.Base(v.Program))
	}
	if v.PID != 0 {
		about = append(about, "process "+strconv.Itoa(v.PID))
	}
	if v.User != "" {
		about = append(about, "user "+v.User)
	}
	if v.Terminal != "" {
		about = append(about, "terminal "+v.Terminal)
	}
	if len(about) == 0 {
		return v.String()
	}
	return v.String() + " (" + strings.Join(about, ", ") + ")"
}

// A ViaKind is the kind of a [Via].
type ViaKind string

// The kinds of a [Via].
const (
	ViaInbox       ViaKind = "inbox"        // a page of the inbox
	ViaAPI         ViaKind = "api"          // the operators' API
	ViaCommandLine ViaKind = "command_line" // the operators' API, called by a client that calls itself the command line
	ViaChannel     ViaKind = "channel"      // a channel, such as Slack
)

// A GrantID names a standing approval, which lets calls run without an approver.
type GrantID string

// GrantTerms are the limits of a standing approval, as the approver has set them.
type GrantTerms struct {
	Until time.Time `json:"until"`
	Uses  int       `json:"uses"`
	GrantShape
}

// A GrantShape says how calls that a standing approval covers may differ from the one that its
// approvers saw. Calls in the zero shape have the same tool and the same arguments.
type GrantShape struct {
	Free  []string     `json:"free,omitempty"`  // the names of the arguments that may have any value of the same type
	Below []GrantBelow `json:"below,omitempty"` // the arguments that may have any path below a directory
	Reach GrantReach   `json:"reach,omitzero"`
	Tools string       `json:"tools,omitzero"` // of [ReachReadOnly]: the digest of the list of tools, in hexadecimal
}

// A GrantBelow is an argument that may have any path below a directory.
type GrantBelow struct {
	Argument  string `json:"argument"`
	Directory string `json:"directory"` // absolute
}

// A GrantReach says which tools an agent may call with a standing approval. A call of another tool
// than the one that the approvers saw may have any arguments.
type GrantReach string

// The reaches, the narrowest one first.
const (
	ReachTool     GrantReach = ""          // the tool that the approvers saw
	ReachReadOnly GrantReach = "read_only" // the tools of its server that were read-only, as they were defined then
	ReachServer   GrantReach = "server"    // all tools of its server
	ReachAgent    GrantReach = "agent"     // all tools of all servers
)

// Reaches returns all reaches, the narrowest one first.
func Reaches() []GrantReach {
	return []GrantReach{ReachTool, ReachReadOnly, ReachServer, ReachAgent}
}

// Within reports whether r is one of the reaches and no wider than other. An unknown other counts
// as the narrowest one.
func (r GrantReach) Within(other GrantReach) bool {
	all := Reaches()
	at := slices.Index(all, r)
	return at >= 0 && at <= max(0, slices.Index(all, other))
}

// A GrantTool is a tool with the digest of its definition.
type GrantTool struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// An Authority holds the groups and roles of an approver at the time of the decision.
type Authority struct {
	Groups []string `json:"groups,omitempty"`
	Roles  []string `json:"roles,omitempty"`
	Own    bool     `json:"own,omitzero"` // the approver made the call, perhaps under another name
	// Aliases are other names of the same person. They do not count as different approvers.
	Aliases []string `json:"aliases,omitempty"`
}

// IsBy reports whether d may be a decision of the person with any of the given names.
// Names are compared case-insensitively.
func (d Decision) IsBy(names ...string) bool {
	return slices.ContainsFunc(append([]string{d.By}, d.Aliases...), func(mine string) bool {
		return mine != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(mine, name) })
	})
}

// Grant returns the grant that approved the call, or "" if approvers did. It accepts a nil
// receiver.
func (a *Approval) Grant() GrantID {
	if a == nil || len(a.Approvals) == 0 {
		return ""
	}
	return a.Approvals[0].Grant
}

// DecidedAt returns the time when the decision became final, or the zero time while it is open.
// It accepts a nil receiver.
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

// A Presence tells whether the owner of a task is present.
type Presence string

// The kinds of presence.
const (
	OwnerWaits Presence = "waiting" // a request or stream of the owner is open
	OwnerPolls Presence = "polling" // the owner made a request within the last two poll intervals
	OwnerGone  Presence = "gone"
)

// Clone returns a copy of a that shares no mutable memory with it. It accepts a nil receiver.
func (a *Approval) Clone() *Approval {
	if a == nil {
		return nil
	}
	c := *a
	c.Approvals = slices.Clone(a.Approvals)
	if c.Rejection = copied(a.Rejection); c.Rejection != nil {
		c.Rejection.Correction = copied(c.Rejection.Correction)
	}
	return &c
}
