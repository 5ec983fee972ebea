package review

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Preview has the listed part of the arguments of a call. It is stored with the facts, so lists
// need not read large calls.
type Preview struct {
	Arguments jsontext.Value `json:",omitzero"`
	Truncated bool           `json:",omitzero"`
	Also      jsontext.Value `json:",omitzero"`
	Redacted  string         `json:",omitzero"` // the paths that were redacted

	alsoTruncated bool // not stored
}

// Preview returns the preview of a call held for a workflow.
func (v *Viewer) Preview(call task.Call, workflow string) *Preview {
	t := task.Task{Call: call, HeldCall: gatetask.HeldCall{Workflow: workflow}}
	p := v.preview(t, maxListed)
	p.Redacted = v.redacted(t)
	return p
}

// preview returns a preview with at most the given size of arguments. It is fast and cannot be
// canceled.
func (v *Viewer) preview(t task.Task, most int) *Preview {
	arguments, also := v.copies(neverEnds, t, most)
	return newPreview(arguments, also, most)
}

// neverEnds is for work that needs no cancellation.
func neverEnds() error { return nil }

// newPreview returns a preview with at most the given size of each part.
func newPreview(arguments, also redactedJSON, most int) *Preview {
	var p Preview
	p.Arguments, p.Truncated = arguments.shown(most)
	p.Also, p.alsoTruncated = also.shown(most)
	return &p
}

// An item is a held call in a list.
type item struct {
	Approval

	principal string // the exact name
	owner     string // of the task
}

// item returns the list item of an outline, or nil if the task is gone or unreadable. It reads the
// whole task if there is no preview, or if different paths are redacted now.
func (v *Viewer) item(ctx context.Context, t task.Task) (*item, error) {
	f := ReadFacts(t)
	if kept := v.keptPreview(t, f); kept != nil {
		return newItem(t, f, v.describe(t, f, kept, maxListed)), nil
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
	return newItem(t, f, v.View(whole)), nil
}

// newItem returns the item of t with a shortened description.
func newItem(t task.Task, f Facts, a Approval) *item {
	a.Description = safetext.Text(a.Description, maxListed)
	return &item{a, f.Principal.ID, t.Owner}
}

// logUnreadable logs that a call is left out of lists.
func (v *Viewer) logUnreadable(ctx context.Context, err error) {
	v.cfg.Log.ErrorContext(ctx, "a held call cannot be read and is left out of lists", "err", err)
}
