package review

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// MethodBatch is the method of a held batch.
const MethodBatch = "batch"

// Facts are stored with a held call. They describe what was known when it was held. Stored names
// of fields must not change.
type Facts struct {
	Principal   policy.Principal
	Annotations policy.Annotations  `json:",omitzero"`
	Session     policy.Session      `json:",omitzero"`
	Description string              `json:",omitzero"` // of the tool
	Trace       string              `json:",omitzero"` // the W3C traceparent of the request
	Correlation string              `json:",omitzero"` // the correlation id of the request
	Peer        string              `json:",omitzero"` // identifies the client among those of the owner
	Request     string              `json:",omitzero"` // the id of the request, if it is short
	HeldBy      *HeldBy             `json:"Why,omitzero"`
	Preview     *Preview            `json:",omitzero"`
	HoldingGate *HoldingGate        `json:"Home,omitzero"`
	SharedOwner bool                `json:"Shared,omitzero"` // several clients share the owner
	OwnerByName bool                `json:"ByName,omitzero"` // all programs of a user with the same client name share the owner
	Change      *toolhistory.Change `json:",omitzero"`       // the unaccepted change of the tool

	NoOutputSchema bool `json:",omitzero"` // the tool is known not to have one

	// InBatch has the tool annotations of the messages of a batch.
	InBatch        []policy.Annotations  `json:",omitempty"`
	DigestsInBatch []string              `json:",omitempty"` // of the definitions
	ToolsInBatch   []ToolInBatch         `json:",omitempty"`
	ChangesInBatch []*toolhistory.Change `json:",omitempty"`

	// Trusted: the definition of the tool is the first known one, or one that an operator has accepted.
	// ReadOnly: it says that the tool is read-only. Secret: a rule that looks for secrets held the call.
	Trusted  bool `json:",omitzero"`
	ReadOnly bool `json:",omitzero"`
	Secret   bool `json:",omitzero"`

	// ReadOnlyTools are the read-only tools of the server, if a standing approval can cover them.
	ReadOnlyTools []gatetask.GrantTool `json:",omitempty"`

	// Accepted are the digests of definitions of the tools that are not those in the lock file, but
	// that operators have accepted.
	Accepted []string `json:",omitempty"`
}

// A ToolInBatch is the tool of a message in a batch. It is zero if policy does not judge the
// message.
type ToolInBatch struct {
	Method string `json:",omitzero"`
	Name   string `json:",omitzero"` // as the journal has it

	Description string `json:",omitzero"` // of the tool; only in the first message with this tool
}

// A HoldingGate describes the gate that holds a call, for other gates with other configurations on
// the same store, which also show the call and take decisions.
type HoldingGate struct {
	Gate          string   `json:"gate"` // the process
	Approvers     []string `json:"approvers,omitempty"`
	Redact        []string `json:"redact,omitempty"`
	SelfApproval  bool     `json:"self_approval,omitzero"`
	AgentApproval bool     `json:"agent_approval,omitzero"`
	Passkey       bool     `json:"passkey,omitzero"`
	ValidSeconds  float64  `json:"valid_seconds,omitzero"`
	GrantSeconds  float64  `json:"grant_seconds,omitzero"`
	GrantUses     int      `json:"grant_uses,omitzero"`
	GrantReach    string   `json:"grant_reach,omitzero"`

	EscalateAfter float64  `json:"escalate_after,omitzero"` // the share of the timeout after which EscalateTo may decide
	EscalateTo    []string `json:"escalate_to,omitempty"`
}

// NewHoldingGate returns the description of a gate for a call held for w.
func NewHoldingGate(gate string, w policy.Workflow) *HoldingGate {
	return &HoldingGate{
		Gate: gate, Approvers: w.Approvers, Redact: w.Redact, SelfApproval: w.SelfApproval, AgentApproval: w.AgentApproval, Passkey: w.Passkey, ValidSeconds: w.Validity.Seconds(),
		EscalateAfter: w.Escalate.After, EscalateTo: w.Escalate.Approvers,
		GrantSeconds: w.Grants.Longest.Seconds(), GrantUses: w.Grants.Uses, GrantReach: w.Grants.Reach,
	}
}

// Workflow returns the workflow as the holding gate had it.
func (h *HoldingGate) Workflow() policy.Workflow {
	return policy.Workflow{
		Approvers: h.Approvers, SelfApproval: h.SelfApproval, AgentApproval: h.AgentApproval, Passkey: h.Passkey, Redact: h.Redact,
		Validity: time.Duration(h.ValidSeconds * float64(time.Second)),
		Escalate: policy.Escalation{After: h.EscalateAfter, Approvers: h.EscalateTo},
		Grants:   policy.Grants{Longest: time.Duration(h.GrantSeconds * float64(time.Second)), Uses: h.GrantUses, Reach: h.GrantReach},
	}
}

// A HeldBy names the rule or the Cedar policies that held a call.
type HeldBy struct {
	Rule     int      `json:"rule,omitzero"`      // only stored by earlier versions: the number of the rule, from 1; approvers see Label
	Label    string   `json:"label,omitzero"`     // "rule NAME", or a position such as "rules[3]"; empty if no rule matched
	Match    string   `json:"match,omitzero"`     // what the rule matches
	Policies []string `json:"policies,omitempty"` // the Cedar policies that decided
	Reasons  []string `json:"says,omitempty"`     // given by the rule or the policies
}

// Text returns f as stored in [gatetask.Verdict].
func (f Facts) Text() (string, error) {
	b, err := json.Marshal(f, json.OmitZeroStructFields(true))
	return string(b), err
}

// ReadFacts returns the facts of t. Unreadable facts have no principal, and policy denies calls
// without a principal.
func ReadFacts(t task.Task) Facts {
	var f Facts
	if err := json.Unmarshal([]byte(t.Verdict.Facts), &f); err != nil {
		return Facts{}
	}
	return f
}

// HoldingGateOf returns the holding gate of t, or nil. It is called for every decision and view,
// so it parses only facts that have one.
func HoldingGateOf(t task.Task) *HoldingGate {
	if !strings.Contains(t.Verdict.Facts, `"Home":`) {
		return nil
	}
	return ReadFacts(t).HoldingGate
}

// Requester returns the name of the agent that made the call of t. If only a session or a
// credential is known, the name does not reveal it.
func Requester(t task.Task) string { return ReadFacts(t).Requester(t.Owner) }

// Requester returns the name of the agent for a task of the given owner.
func (f Facts) Requester(owner string) string {
	if f.Principal.ID != "" {
		return safetext.Name(f.Principal.ID, maxName)
	}
	sum := sha256.Sum256([]byte("requester " + owner))
	return "anonymous:" + hex.EncodeToString(sum[:8])
}

// ToolName returns the name of t's tool in the journal.
func ToolName(t task.Task) string { return JournalName(t.Call.Name) }

// JournalName returns the name of a tool in the journal.
func JournalName(name string) string { return safetext.Name(name, maxListed) }

// ValidUntil returns when the approval of t becomes invalid, at the latest when t expires.
func ValidUntil(t task.Task, validity time.Duration) time.Time {
	decided := t.Approval.DecidedAt()
	if validity <= 0 || decided.IsZero() || decided.Add(validity).After(t.ExpiresAt) {
		return t.ExpiresAt
	}
	return decided.Add(validity)
}

// heldBy returns HeldBy with a label for the rule.
func (f Facts) heldBy() *HeldBy {
	if f.HeldBy == nil {
		return nil
	}
	w := *f.HeldBy
	if w.Rule > 0 && w.Label == "" {
		w.Label = fmt.Sprintf("rules[%d]", w.Rule-1)
	}
	w.Rule = 0
	return &w
}

// description returns the upstream's description of the tool, or of each tool in a batch.
func (f Facts) description() string {
	var tools []string
	seen, described := map[string]bool{}, false
	for _, m := range f.ToolsInBatch {
		if m.Name == "" || seen[m.Method+" "+m.Name] {
			continue
		}
		seen[m.Method+" "+m.Name] = true
		described = described || m.Description != ""
		tools = append(tools, m.Name+": "+cmp.Or(m.Description, "the server gives no description."))
	}
	if !described {
		return f.Description
	}
	return strings.Join(tools, "\n\n")
}

// hints returns the upstream's hints about the tool, or the worst hints of the tools in a batch.
func (f Facts) hints() *Hints {
	a := f.Annotations
	if len(f.InBatch) > 0 {
		a = f.worst()
	}
	if a == (policy.Annotations{}) {
		return nil
	}
	return &Hints{
		Title: safetext.Text(a.Title, maxName), ReadOnly: a.ReadOnly, Destructive: a.Destructive,
		Idempotent: a.Idempotent, OpenWorld: a.OpenWorld,
	}
}

// worst combines the annotations of a batch. If one tool may do something, the batch may. If
// something is unknown of one tool, it is unknown of the batch, unless another tool is worse.
func (f Facts) worst() policy.Annotations {
	var readOnly, idempotent, destructive, openWorld []*bool
	for i, one := range f.InBatch {
		if i < len(f.ToolsInBatch) && f.ToolsInBatch[i].Name == "" {
			continue // policy does not judge this message
		}
		if one.Destructive == nil && one.ReadOnly != nil && *one.ReadOnly {
			one.Destructive = new(bool)
		}
		readOnly, idempotent = append(readOnly, one.ReadOnly), append(idempotent, one.Idempotent)
		destructive, openWorld = append(destructive, one.Destructive), append(openWorld, one.OpenWorld)
	}
	return policy.Annotations{
		ReadOnly: weakest(readOnly, false), Idempotent: weakest(idempotent, false),
		Destructive: weakest(destructive, true), OpenWorld: weakest(openWorld, true),
	}
}

// weakest returns a flag with the bad value if there is one, or else an unset one, or else the
// last.
func weakest(flags []*bool, bad bool) *bool {
	var last *bool
	unset := false
	for _, flag := range flags {
		switch {
		case flag == nil:
			//mutate:swap "true" "false" internal/approval.TestBatchRisk unknown effects of a call in a batch count as harmless
			unset = true
		case *flag == bad:
			return flag
		default:
			last = flag
		}
	}
	if unset {
		return nil
	}
	return last
}

// Redefined reports whether two digests show that a tool definition has changed.
func Redefined(one, other string) bool { return toolhistory.Comparable(one, other) && one != other }
