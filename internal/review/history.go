package review

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// History returns the journal entries of one held call, oldest first. The journal is kept longer
// than the task. The error is [task.ErrNotFound] if there are no entries.
func (v *Viewer) History(ctx context.Context, id task.ID) ([]auditlog.Entry, error) {
	if id == "" {
		return nil, task.AnyOwner().Ref(id).NotFound(action.Read)
	}
	history, err := v.cfg.Store.Entries(ctx, auditlog.Query{Task: id, Limit: maxHistory})
	if err == nil && len(history) == 0 {
		err = task.AnyOwner().Ref(id).NotFound(action.Read)
	}
	return history, err
}

// maxHistory is far more entries than a call has.
const maxHistory = 1000
