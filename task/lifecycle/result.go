package lifecycle

import (
	"slices"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// keepResult sets the result of t to a copy of r. It returns an error if r is invalid.
func keepResult(t *task.Task, r task.Result) *task.Error {
	if !r.Sound() {
		return &task.Error{Kind: task.ErrInvalid, Detail: "the result is neither inline nor a blob"}
	}
	if r.Inline = slices.Clone(r.Inline); len(r.Inline) == 0 {
		r.Inline = nil // empty results are always stored as nil
	}
	t.Result = &r
	return nil
}
