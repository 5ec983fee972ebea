package mcptask

import (
	"encoding/json"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Names in _meta of two drafts on how a server reports approvals: SEP-2643
// and SEP-2848. They may change, so [Dialect.Drafts] turns them on.
const (
	MetaAuthorization = "io.modelcontextprotocol/authorization"
	MetaToolApproval  = "io.modelcontextprotocol/tool-approval"
)

// A Remediation says whether something can be done about a denial.
type Remediation string

// The remediations of SEP-2643. A server may also leave it undisclosed.
const (
	RemediationAvailable   Remediation = "available"
	RemediationUnavailable Remediation = "unavailable"
)

// Denied returns the _meta of the result of a call that was not allowed to run, or not
// yet: why, whether something can be done about it, and
// in which task it is decided, if there is one. It is nil without d.Drafts and
// for clients of 2025-11-25.
func (d Dialect) Denied(reason string, r Remediation, decidedIn task.ID) Object {
	if !d.Drafts || d.Era == V2025 {
		return nil
	}
	envelope := Object{{"reason", quote(reason)}, {"remediation", quote(string(r))}}
	if decidedIn != "" {
		hint := Object{{"type", quote("task")}, {"taskId", quote(string(decidedIn))}}.text()
		envelope = append(envelope, Member{"remediationHints", slices.Concat(json.RawMessage("["), hint, json.RawMessage("]"))})
	}
	return Object{{MetaAuthorization, envelope.text()}}
}

// disposed returns meta with what became of t, if that was for people to decide
// and is over.
func (d Dialect) disposed(meta Object, t task.Task) Object {
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
	return meta.With(MetaToolApproval, Object{{"disposition", quote(disposition)}}.text())
}

// refusal returns the tool result that tells the model of a client that t was not
// allowed to run. Its metadata has meta as well.
func (d Dialect) refusal(t task.Task, meta Object) json.RawMessage {
	r := RemediationUnavailable
	if t.Failure != nil && t.Failure.Retriable {
		r = RemediationAvailable
	}
	e := endingOf(t)
	return d.toolError(d.endText(t), d.code(e.code, e.name), d.disposed(append(meta, d.Denied(e.name, r, "")...), t))
}
