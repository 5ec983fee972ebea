package casefile

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Story returns what the journal has of one held call, in the order in which
// it happened. It is there longer than the task: see [Config.Retention]. The
// error is [task.ErrNotFound] if there is nothing.
func (v *Viewer) Story(ctx context.Context, id task.ID) ([]task.Entry, error) {
	if id == "" {
		return nil, task.AnyOwner().Ref(id).NotFound(task.ActionRead)
	}
	story, err := v.cfg.Store.Entries(ctx, task.JournalQuery{Task: id, Limit: maxStory})
	if err == nil && len(story) == 0 {
		err = task.AnyOwner().Ref(id).NotFound(task.ActionRead)
	}
	return story, err
}

// maxStory is far above the number of steps that a call has.
const maxStory = 1000
