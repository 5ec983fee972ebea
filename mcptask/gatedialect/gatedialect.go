// Package gatedialect has the parts of the messages about tasks that only gateways need: those
// that hold calls for approval, and that stand in front of the servers with the tools.
package gatedialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Options determine how a gateway shows tasks to a client.
type Options struct {
	// PendingStatus is the status of a task that waits for its approvers. In
	// MCP, input_required asks the client itself to act, so anything but
	// InputRequired means Working. It does not apply to the answer that creates
	// a task.
	PendingStatus schema.Status

	// Proxy reports whether another server runs the tools. Messages of that server are then
	// quoted as foreign text.
	Proxy bool

	// Drafts adds the members of SEP-2643 and SEP-2848 to _meta, for clients of
	// 2026-07-28.
	Drafts bool

	// Errors answers a call of 2025-11-25 that was not allowed to run with a JSON-RPC
	// error. Otherwise the answer is a tool result, because many hosts do not show
	// errors to their models.
	Errors bool

	// Vendor is the prefix of members of _meta that no specification defines, such as
	// "example.com/": error, the error code of a call that was not allowed to run, and tool, the
	// tool of a listed task. If it is empty, they are left out.
	Vendor string

	// Correlation is the id of the request in logs, or empty. Results and errors that a
	// gateway makes have it.
	Correlation string

	// ApprovalURL returns the page on which people decide about a task. It may be nil.
	ApprovalURL func(task.ID) string

	// MinPoll is the shortest interval at which clients are asked to poll a new task.
	MinPoll time.Duration
}

// A Remediation is whether the caller can get permission after a denial.
type Remediation string

// The remediations of SEP-2643. A server may also leave it undisclosed.
const (
	RemediationAvailable   Remediation = "available"
	RemediationUnavailable Remediation = "unavailable"
)

// Denied returns the _meta of the result, for a client of 2026-07-28, of a call that may not run,
// or not yet: the reason, the remediation, and the task in which people decide, or "". It is nil
// without o.Drafts.
func (o Options) Denied(reason string, r Remediation, decidedIn task.ID) schema.Object {
	if !o.Drafts {
		return nil
	}
	envelope := schema.Object{{Name: "reason", Value: quote(reason)}, {Name: "remediation", Value: quote(string(r))}}
	if decidedIn != "" {
		hint := schema.Object{{Name: "type", Value: quote("task")}, {Name: "taskId", Value: quote(string(decidedIn))}}.Text()
		envelope = append(envelope, schema.Member{Name: "remediationHints", Value: slices.Concat(json.RawMessage("["), hint, json.RawMessage("]"))})
	}
	return schema.Object{{Name: mcpname.MetaAuthorization, Value: envelope.Text()}}
}

// Waiting returns the status message of a task that waits for its approvers: who they are, the
// time left, and the page on which they decide.
func (o Options) Waiting(t task.Task, now time.Time) string {
	text := "Waiting for approval by " + approvers(t) + " · " + string(t.ID.Short())
	if left := timeLeft(t, now); left != "" {
		text += " · " + left + " left"
	}
	if o.ApprovalURL != nil {
		text += " · " + o.ApprovalURL(t.ID)
	}
	return text
}

// Facts returns the approvers of t, its short id and the remaining time, such as "ops
// (tg_1m7h71t6x6pn4, 9m59s left)".
func Facts(t task.Task, now time.Time) string {
	text := approvers(t) + " (" + string(t.ID.Short())
	if left := timeLeft(t, now); left != "" {
		text += ", " + left + " left"
	}
	return text + ")"
}

// maxName is the largest number of characters of the name of a workflow.
const maxName = 200

func approvers(t task.Task) string {
	return safetext.Line(strings.ReplaceAll(cmp.Or(t.Workflow, "an approver"), `"`, "'"), maxName)
}

// timeLeft returns the remaining time for the approval of t, such as 9m59s. It is empty if the
// time is unknown.
func timeLeft(t task.Task, now time.Time) string {
	if now.IsZero() || t.Approval == nil || t.Approval.Deadline.IsZero() {
		return ""
	}
	left := max(0, t.Approval.Deadline.Sub(now))
	if left < time.Hour {
		return left.Truncate(time.Second).String()
	}
	return strings.TrimSuffix(left.Truncate(time.Minute).String(), "0s")
}

func quote(s string) json.RawMessage { return jsonrpc.AppendString(nil, s) }
