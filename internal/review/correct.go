package review

import (
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// MaxCorrection is how many bytes corrected arguments can have. The model of the agent reads them.
const MaxCorrection = 8 << 10

// A NoCorrectionError is the reason why a call cannot be rejected with a correction.
type NoCorrectionError struct{ Reason string }

// Error implements error.
func (e *NoCorrectionError) Error() string { return "no correction: " + e.Reason }

// MayCorrect returns nil if t can be rejected with corrected arguments, and otherwise a
// [*NoCorrectionError]. A correction approves one call, by one approver, who sees all of it.
func (v *Viewer) MayCorrect(t task.Task) error {
	w, known := v.cfg.Workflow(t)
	f := ReadFacts(t)
	switch {
	case !known:
		return &NoCorrectionError{"the workflow is not known"}
	case t.Call.Method != mcpname.ToolsCall:
		return &NoCorrectionError{"only single calls of tools can be corrected"}
	//mutate:swap "w.Quorum > 1 || t.Approval != nil && t.Approval.Quorum > 1" "w.Quorum > 999" internal/approval.TestCorrectionIsRefused a correction replaces several approvals
	case w.Quorum > 1 || t.Approval != nil && t.Approval.Quorum > 1:
		return &NoCorrectionError{"the call needs more than one approval; reject it with a reason"}
	case f.SharedOwner || !f.Principal.Anonymous && f.Principal.ID == "":
		return &NoCorrectionError{"the gate cannot distinguish the agent from others"}
	case len(t.Call.Arguments) > MaxCorrection:
		return &NoCorrectionError{"the arguments are too long"}
	//mutate:false internal/approval.TestCorrectionIsRefused an approver corrects a call of which a part is hidden
	case v.hidesPart(t):
		return &NoCorrectionError{"a part of the call is hidden from approvers"}
	}
	return nil
}

// hidesPart reports whether approvers do not see all of t.
func (v *Viewer) hidesPart(t task.Task) bool {
	arguments, also := v.copies(neverEnds, t, 0)
	return arguments.hides() || also.hides()
}

func (c redactedJSON) hides() bool { return len(c.hidden) > 0 || c.parts || c.cut || c.err != nil }

// correctionForm returns the arguments of t for an approver who corrects them, or nil if that is
// not possible.
func (v *Viewer) correctionForm(t task.Task) jsontext.Value {
	if v.MayCorrect(t) != nil {
		return nil
	}
	text := jsontext.Value(t.Call.Arguments)
	if len(text) == 0 {
		return jsontext.Value("{}")
	}
	text = jsontext.Value(safetext.Escape(string(text)))
	form := slices.Clone(text)
	if len(text) > MaxCorrection || form.Indent(jsontext.WithIndent("  ")) != nil {
		return nil
	}
	if len(form) > maxCorrectionForm {
		return text
	}
	return form
}

// maxCorrectionForm is the size of the largest indented arguments in a form. The form has other fields too.
const maxCorrectionForm = MaxCorrection * 3 / 2

// shownRejection returns a rejection of t with its correction as approvers see it.
func (v *Viewer) shownRejection(t task.Task) *gatetask.Decision {
	d := t.Approval.Rejection
	if d == nil || d.Correction == nil || len(d.Correction.Arguments) == 0 {
		return d
	}
	shown, c := *d, *d.Correction
	//mutate:swap "v.redactions(t)" "nil" internal/approval.TestCorrectionIsRedactedLater a value that is hidden now is shown in a correction
	text, _ := withoutRedacted(neverEnds, string(c.Arguments), v.redactions(t), 0).shown(MaxShown)
	c.Arguments = json.RawMessage(text)
	shown.Correction = &c
	return &shown
}
