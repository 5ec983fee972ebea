package conversation

import (
	"context"
	"log/slog"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// eventClients counts, for each task, the streams whose clients asked to be notified
// of it.
type eventClients struct {
	mu     sync.Mutex
	byTask map[task.ID]int
}

// add counts one more client of a task, and returns how many there are.
func (c *eventClients) add(id task.ID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTask == nil {
		c.byTask = make(map[task.ID]int)
	}
	c.byTask[id]++
	return c.byTask[id]
}

func (c *eventClients) remove(id task.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTask[id]--; c.byTask[id] == 0 {
		delete(c.byTask, id)
	}
}

// connect counts the client as one that is notified of tasks, and returns what counts
// it out again.
func (s *sender) connect(ctx context.Context, ids []task.ID) (leave func()) {
	for _, id := range ids {
		count := s.hub.eventClients.add(id)
		s.hub.cfg.Log.DebugContext(ctx, "SSE client connected", "task_id", id, "client_count", count)
	}
	return func() {
		for _, id := range ids {
			s.hub.eventClients.remove(id)
		}
	}
}

// notified counts and logs that a client was sent the status of a task.
func (h *Hub) notified(ctx context.Context, t task.Task, status mcptask.Status) {
	h.cfg.Metrics.Notified(metrics.FromGate)
	if h.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		h.cfg.Log.LogAttrs(approval.About(ctx, t), slog.LevelDebug, "SSE notification forwarded", slog.String("status", string(status)))
	}
}
