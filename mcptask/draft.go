package mcptask

import (
	"encoding/json"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Remediation is whether the caller can get permission after a denial.
type Remediation string

// The remediations of SEP-2643. A server may also leave it undisclosed.
const (
	RemediationAvailable   Remediation = "available"
	RemediationUnavailable Remediation = "unavailable"
)

// Denied returns the _meta of the result of a call that may not run, or not yet: the
// reason, the remediation, and the task in which people decide, or "". It is nil without
// d.Drafts and for clients of 2025-11-25.
func (d Dialect) Denied(reason string, r Remediation, decidedIn task.ID) schema.Object {
	if !d.Drafts || d.Era == V2025 {
		return nil
	}
	envelope := schema.Object{{Name: "reason", Value: quote(reason)}, {Name: "remediation", Value: quote(string(r))}}
	if decidedIn != "" {
		hint := schema.Object{{Name: "type", Value: quote("task")}, {Name: "taskId", Value: quote(string(decidedIn))}}.Text()
		envelope = append(envelope, schema.Member{Name: "remediationHints", Value: slices.Concat(json.RawMessage("["), hint, json.RawMessage("]"))})
	}
	return schema.Object{{Name: mcpname.MetaAuthorization, Value: envelope.Text()}}
}

// disposed returns meta with the disposition of t, if t was held for approval and has
// ended.
func (d Dialect) disposed(meta schema.Object, t task.Task) schema.Object {
	if !d.Drafts || d.Era == V2025 || t.Approval == nil {
		return meta
	}
	var disposition string
	switch {
	case !t.State.Terminal() || t.State == task.Cancelled:
		return meta
	case t.State == task.Completed && t.Result != nil && t.Result.Kind == task.ResultOK:
		disposition = "approved-executed"
	case endingOf(t).refusal && ran(t) == task.RanNo:
		disposition = "denied-not-executed"
	default:
		disposition = "execution-error"
	}
	return meta.With(mcpname.MetaToolApproval, schema.Object{{Name: "disposition", Value: quote(disposition)}}.Text())
}

// refusal returns the tool result that tells the model of a client that t was not
// allowed to run. Its metadata has meta as well.
func (d Dialect) refusal(t task.Task, meta schema.Object) json.RawMessage {
	r := RemediationUnavailable
	if t.Failure != nil && t.Failure.Retriable {
		r = RemediationAvailable
	}
	e := endingOf(t)
	return d.toolError(d.endText(t), append(d.code(e.code, e.name), expiredAt(t)...), d.disposed(append(meta, d.Denied(e.name, r, "")...), t))
}
