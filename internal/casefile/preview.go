package casefile

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Preview is what lists show of the arguments of a call. It is stored with the
// facts of the call, so that lists need not read the call, which may be large.
type Preview struct {
	Arguments jsontext.Value `json:",omitzero"`
	Truncated bool           `json:",omitzero"`
	Also      jsontext.Value `json:",omitzero"`
	Redacted  string         `json:",omitzero"` // the paths that were redacted
}

// Preview returns the preview of a call that is held for a workflow.
func (v *Viewer) Preview(call task.Call, workflow string) *Preview {
	return v.preview(task.Task{Call: call, HeldCall: task.HeldCall{Workflow: workflow}}, maxListed)
}

// preview returns a preview with at most so many bytes of the arguments.
func (v *Viewer) preview(t task.Task, most int) *Preview {
	p := Preview{Redacted: v.redacted(t)}
	p.Arguments, p.Truncated = shown(t.Call.Arguments, v.redactions(t), most)
	p.Also, _ = shown(t.Call.Also, v.redactionsBeside(t), most)
	return &p
}

// An item is a held call as it stands in a list.
type item struct {
	Approval

	principal string // as it came
	owner     string // of the task
}

// item returns the item of the task that a list has the outline of, or nil if the
// task is gone or cannot be read. It reads the whole task if that has no preview,
// because an earlier version held it, or if something else is redacted now.
func (v *Viewer) item(ctx context.Context, t task.Task) (*item, error) {
	f := ReadFacts(t)
	if f.Preview != nil && f.Preview.Redacted == v.redacted(t) {
		return newItem(t, f, v.describe(t, f, f.Preview, maxListed)), nil
	}
	whole, err := v.cfg.Store.Get(ctx, task.AnyOwner().Ref(t.ID))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return nil, nil
	case errors.Is(err, task.ErrUnreadable):
		v.logUnreadable(ctx, err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	return newItem(t, f, v.view(whole, maxListed)), nil
}

// newItem returns the item of t, with the beginning of a description that is long, as that of
// a batch can be.
func newItem(t task.Task, f Facts, a Approval) *item {
	a.Description = plain.Text(a.Description, maxListed)
	return &item{a, f.Principal.ID, t.Owner}
}

// logUnreadable logs that calls are left out of lists.
func (v *Viewer) logUnreadable(ctx context.Context, err error) {
	v.cfg.Log.ErrorContext(ctx, "a held call cannot be read and is left out of lists", "error", err)
}
