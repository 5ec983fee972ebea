package mcptask

import (
	"encoding/json"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// disposed returns meta with the disposition of t, if t was held for approval and has
// ended.
func (d Dialect) disposed(meta schema.Object, t task.Task) schema.Object {
	if !d.Gate.Drafts || d.Era == V2025 || t.Approval == nil {
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

// denied returns the _meta of the result of a call that may not run.
func (d Dialect) denied(reason string, r gatedialect.Remediation) schema.Object {
	if d.Era == V2025 {
		return nil
	}
	return d.Gate.Denied(reason, r, "")
}

// refusal returns the tool result that tells the model of a client that t was not
// allowed to run. Its metadata has meta as well.
func (d Dialect) refusal(t task.Task, meta schema.Object) json.RawMessage {
	r := gatedialect.RemediationUnavailable
	if t.Failure != nil && t.Failure.Retriable {
		r = gatedialect.RemediationAvailable
	}
	e := endingOf(t)
	result := ToolText{Text: d.endText(t) + correctionText(t), Meta: d.disposed(append(meta, d.denied(e.name, r)...), t)}
	code := append(d.code(e.code, e.name), expiredAt(t)...)
	if c := correctionOf(t); c != nil {
		code = append(code, corrected(t)...)
		if c.Structured {
			result.Structured = corrected(t)
		}
	}
	return d.toolError(result, code)
}
