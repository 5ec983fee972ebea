package mcptask

import (
	"context"
	"encoding/json"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Follow sends a status notification with the present status of a task, and one for each
// change that the client can see, until the task or ctx has ended. Owner and Dialect are
// those of r. Subscription is the JSON of the id of the subscribing request; clients of
// 2025-11-25 have none.
func (s *Server) Follow(ctx context.Context, r Request, id string, subscription json.RawMessage, send func(message []byte) error) error {
	ref := task.OwnedBy(r.Owner).Ref(task.ID(id))
	var last task.Task
	for {
		_, err := storekit.Wait(ctx, s.Store, ref, func(t task.Task) bool {
			return t.State != last.State || !t.UpdatedAt.Equal(last.UpdatedAt) || s.overdue(t)
		})
		if err != nil {
			return err
		}
		if last, err = s.look(ctx, ref); err != nil {
			return err
		}
		message, err := s.notification(ctx, r.Dialect, last, subscription)
		if err != nil {
			return err
		}
		if err := send(message); err != nil || last.State.Terminal() {
			return err
		}
	}
}

func (s *Server) notification(ctx context.Context, d Dialect, t task.Task, subscription json.RawMessage) ([]byte, error) {
	text, err := d.StatusNotification(t, subscription)
	if err != nil {
		return nil, err
	}
	payload, err := s.payload(ctx, d.Era, t)
	if err != nil {
		return nil, err
	}
	return text.ComposeBytes(payload)
}
