package mcptask

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// UpdatedTTL returns how long a client wants its task to live, from the ttlMs of
// tasks/update: a positive whole number of milliseconds from the task's
// creation, as in the ttlMs of the task itself. It returns 0 if the member is
// absent or null. Like a task's variables, it is this package's addition to the
// params of tasks/update, which the schema of 2026-07-28 leaves open.
func UpdatedTTL(ttlMs json.RawMessage) (time.Duration, error) {
	ttl, err := task.ParseTTL(ttlMs)
	if err != nil {
		return 0, invalidParams("ttlMs must be a positive whole number of milliseconds")
	}
	return ttl, nil
}

// Extend extends the TTL of a task to ttl from its creation, or to [Server.MaxTTL] if that is
// less. It never shortens the TTL. A running task continues. The error is
// [task.ErrAlreadyTerminal] or [task.ErrExpired] if the task has ended.
func (s *Server) Extend(ctx context.Context, ref task.Ref, ttl time.Duration) (task.Task, error) {
	return s.extend(ctx, ref, s.runner(), ttl)
}

func (s *Server) extend(ctx context.Context, ref task.Ref, by string, ttl time.Duration) (task.Task, error) {
	most := task.TTLRules{Max: s.MaxTTL}.Longest()
	t, err := lifecycle.Advance(ctx, s.Store, ref, lifecycle.ExtendTTL{By: by, TTL: ttl, Max: most}, s.Now())
	if errors.Is(err, task.ErrInvalidTTL) {
		err = nil // t is the current task
	}
	return t, err
}
