package casefile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/precedent"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// MethodBatch is the method of a held call that is a whole batch of requests.
const MethodBatch = "batch"

// Facts are what was known when a call was held, beyond the call itself.
type Facts struct {
	Principal   policy.Principal
	Annotations policy.Annotations `json:",omitzero"`
	Session     policy.Session     `json:",omitzero"`
	Description string             `json:",omitzero"` // of the tool
	Trace       string             `json:",omitzero"` // the W3C traceparent of the request
	Correlation string             `json:",omitzero"` // the correlation id of the request
	Peer        string             `json:",omitzero"` // which of the owner's clients made the call
	Request     string             `json:",omitzero"` // the id of the request, if it is short
	Why         *Why               `json:",omitzero"`
	Preview     *Preview           `json:",omitzero"`
	Home        *Home              `json:",omitzero"`
	Shared      bool               `json:",omitzero"` // other clients have the same owner

	// InBatch describes the tools of a batch, in the places of its messages.
	InBatch        []policy.Annotations `json:",omitempty"`
	DigestsInBatch []string             `json:",omitempty"` // of the definitions
	ToolsInBatch   []ToolInBatch        `json:",omitempty"`
}

// A ToolInBatch is what a message of a batch is about. It is zero if policy does
// not judge such messages.
type ToolInBatch struct {
	Method string `json:",omitzero"`
	Name   string `json:",omitzero"` // as the journal has it

	Description string `json:",omitzero"` // of the tool; only with the first message about it
}

// A Home is what a gate says of itself in the calls that it holds, if gates with
// other configurations share the store: they show the call, and take decisions.
type Home struct {
	Gate         string   `json:"gate"` // the process
	Approvers    []string `json:"approvers,omitempty"`
	Redact       []string `json:"redact,omitempty"`
	SelfApproval bool     `json:"self_approval,omitzero"`
	ValidSeconds float64  `json:"valid_seconds,omitzero"`
	GrantSeconds float64  `json:"grant_seconds,omitzero"`
	GrantUses    int      `json:"grant_uses,omitzero"`

	EscalateAfter float64  `json:"escalate_after,omitzero"` // the share of the time after which these may decide too
	EscalateTo    []string `json:"escalate_to,omitempty"`
}

// A Why names what held a call.
type Why struct {
	Rule     int      `json:"rule,omitzero"`      // of a call that an earlier version held: the place of the rule, counted from 1; approvers see Label
	Label    string   `json:"label,omitzero"`     // what the rule is called: "rule NAME", or its place such as "rules[3]"; empty if none matched
	Match    string   `json:"match,omitzero"`     // what the rule matches
	Policies []string `json:"policies,omitempty"` // the Cedar policies, if they decided
	Says     []string `json:"says,omitempty"`     // the reasons that the rule or the policies give
}

// Text returns f as it is kept in [task.Verdict].
func (f Facts) Text() (string, error) {
	b, err := json.Marshal(f, json.OmitZeroStructFields(true))
	return string(b), err
}

// ReadFacts returns the facts of t. If they cannot be read there is no
// principal, and the policy denies a call without one.
func ReadFacts(t task.Task) Facts {
	var f Facts
	if err := json.Unmarshal([]byte(t.Verdict.Facts), &f); err != nil {
		return Facts{}
	}
	return f
}

// Requester returns the name of the agent that made the call of t. An agent of
// which only the session or a credential is known gets a name that reveals
// neither.
func Requester(t task.Task) string {
	if id := ReadFacts(t).Principal.ID; id != "" {
		return plain.Name(id, maxName)
	}
	sum := sha256.Sum256([]byte("requester " + t.Owner))
	return "anonymous:" + hex.EncodeToString(sum[:8])
}

// ToolName returns the name of the tool that t calls, as the journal has it.
func ToolName(t task.Task) string { return JournalName(t.Call.Name) }

// JournalName returns the name of a tool as the journal has it.
func JournalName(name string) string { return plain.Name(name, maxListed) }

// ValidUntil returns until when the approval of t can be used: as long as its
// workflow says, and never longer than t lives.
func ValidUntil(t task.Task, validity time.Duration) time.Time {
	decided := t.Approval.DecidedAt()
	if validity <= 0 || decided.IsZero() || decided.Add(validity).After(t.ExpiresAt) {
		return t.ExpiresAt
	}
	return decided.Add(validity)
}

// why returns what held the call, with one name for the rule.
func (f Facts) why() *Why {
	if f.Why == nil {
		return nil
	}
	w := *f.Why
	if w.Rule > 0 && w.Label == "" {
		w.Label = fmt.Sprintf("rules[%d]", w.Rule-1)
	}
	w.Rule = 0
	return &w
}

// description returns what the upstream says of the tool; for a batch, of each tool
// in it.
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

// hints returns the upstream's hints about the tool; for a batch, the worst
// hints about any tool in it.
func (f Facts) hints() *Hints {
	a := f.Annotations
	if len(f.InBatch) > 0 {
		a = f.worst()
	}
	if a == (policy.Annotations{}) {
		return nil
	}
	return &Hints{
		Title: plain.Text(a.Title, maxName), ReadOnly: a.ReadOnly, Destructive: a.Destructive,
		Idempotent: a.Idempotent, OpenWorld: a.OpenWorld,
	}
}

// worst returns annotations that say of a batch what is true of all tools in it. What
// one of them may do, the batch may do; what is not known of one is not known of the
// batch, unless another is worse.
func (f Facts) worst() policy.Annotations {
	var readOnly, idempotent, destructive, openWorld []*bool
	for i, one := range f.InBatch {
		if i < len(f.ToolsInBatch) && f.ToolsInBatch[i].Name == "" {
			continue // policy does not judge such a message
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

// weakest returns the flag that says the least good of all: one with the bad value, or
// else one that is not set, or else the last.
func weakest(flags []*bool, bad bool) *bool {
	var last *bool
	unset := false
	for _, flag := range flags {
		switch {
		case flag == nil:
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

// Redefined reports whether two digests of a tool's definition show that the
// definition has changed.
func Redefined(one, other string) bool { return precedent.Comparable(one, other) && one != other }
