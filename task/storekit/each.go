package storekit

import (
	"context"
	"errors"
	"iter"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Each returns the tasks that q selects, the newest first, page by page. A page
// with tasks that cannot be read yields [task.ErrUnreadable] and then the others. Each
// ends after any other error.
func Each(ctx context.Context, s task.Store, q task.Query) iter.Seq2[task.Task, error] {
	return func(yield func(task.Task, error) bool) {
		for {
			page, err := s.List(ctx, q)
			if err != nil && (!yield(task.Task{}, err) || !errors.Is(err, task.ErrUnreadable)) {
				return
			}
			for _, t := range page.Tasks {
				if !yield(t, nil) {
					return
				}
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return
			}
		}
	}
}
