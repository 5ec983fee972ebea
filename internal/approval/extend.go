package approval

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Extend prolongs the life of a task to ttl from its creation, as its owner
// wants, or to the maximum if that is less. The approvers get no more time to
// decide than their workflow gives them. A task that lives that long already,
// or that has ended, is returned as it is.
func (d *Desk) Extend(ctx context.Context, ref task.Ref, ttl time.Duration) (task.Task, error) {
	t, err := d.tasks.get(ctx, ref)
	if err != nil || t.State.Terminal() {
		return d.withInterval(t), err
	}
	most := d.ttlRules().Longest()
	if ttl > most {
		d.ttlLimited(About(ctx, t), ttl, most)
	}
	after, err := d.updater().Advance(ctx, ref, task.ExtendTTL{By: t.Owner, TTL: ttl, Max: most}, d.cfg.Now())
	switch {
	case errors.Is(err, task.ErrInvalidTTL), errors.Is(err, task.ErrAlreadyTerminal):
		err = nil // after is the task as it stands
	case errors.Is(err, task.ErrExpired):
		after, err = d.tasks.get(ctx, ref)
	}
	return d.withInterval(after), err
}

// extendAttached gives the task that a call is attached to the time that the client
// asked for with this call, if it did. [holder.prepare] has logged a time that is too long.
func (d *Desk) extendAttached(ctx context.Context, t task.Task, asked time.Duration) (task.Task, error) {
	if asked <= t.TTL() {
		return t, nil
	}
	return d.Extend(ctx, task.OwnedBy(t.Owner).Ref(t.ID), min(asked, d.ttlRules().Longest()))
}

// ttlLimited logs that an owner asked for more time than there is.
func (c *core) ttlLimited(ctx context.Context, asked, given time.Duration) {
	c.cfg.Log.WarnContext(ctx, "time to live limited", "asked", asked, "given", given)
	c.observe(ctx, Event{Step: TTLLimited})
}
