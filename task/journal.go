package task

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Note describes one step of a held call for the journal: the actor, the step, the
// time and the reason. It has no arguments, results or secrets. Fields that do not
// apply to the step are empty.
type Note struct {
	At        time.Time `json:"at"`
	Task      ID        `json:"task,omitzero"`
	Step      string    `json:"step"`
	Actor     string    `json:"actor,omitzero"`     // the person or the part of the gate that made the step
	Requester string    `json:"requester,omitzero"` // the agent that made the call
	Upstream  string    `json:"upstream,omitzero"`
	Method    string    `json:"method,omitzero"`
	Tool      string    `json:"tool,omitzero"` // the name of the tool or prompt, or the URI of the resource

	ArgumentDigest Digest `json:"argumentDigest,omitzero"` // [Task.CallDigest]
	ToolDigest     string `json:"toolDigest,omitzero"`     // of the tool's definition
	PolicySnapshot string `json:"policySnapshot,omitzero"` // the policy that was asked
	Verdict        string `json:"verdict,omitzero"`        // the rule or policy that decided
	Workflow       string `json:"workflow,omitzero"`

	Approver string `json:"approver,omitzero"`
	Reason   string `json:"reason,omitzero"` // the reason that the approver or actor gave
	From     State  `json:"from,omitzero"`
	To       State  `json:"to,omitzero"`
	Outcome  string `json:"outcome,omitzero"`
	Ran      Ran    `json:"ran,omitzero"` // whether the call reached the tool, if known

	// UnreadBytes is how many bytes of the call the approver did not read, according to
	// the approver.
	UnreadBytes int64 `json:"unreadBytes,omitzero"`

	Grant gatetask.GrantID `json:"grant,omitzero"` // the grant that was given, used or revoked
	Via   gatetask.Via     `json:"via,omitzero"`   // the way by which a decision came

	// Passkey is the signature of an approval, or a passkey that was added or removed.
	Passkey *gatetask.Signature `json:"passkey,omitzero"`

	PolicyBefore string `json:"policyBefore,omitzero"` // the policy that PolicySnapshot has replaced
}

// ViaText describes the way by which a decision came, and says whether a passkey has confirmed it.
func (n Note) ViaText() string {
	if n.Passkey != nil && n.Via.Kind != "" {
		return n.Via.Details() + ", with a passkey"
	}
	return n.Via.Details()
}

// MaxID is the size of the longest ID that a journal keeps: databases index entries by
// it.
const MaxID = 512
