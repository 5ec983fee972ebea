package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A census finds the workflows of the tasks that await a decision. It reads those that
// it does not know from the time before.
type census struct {
	before  map[task.ID]string
	known   map[task.ID]string
	missing map[task.ID]bool
}

func newCensus(before map[task.ID]string) *census {
	return &census{before: before, known: make(map[task.ID]string, len(before)), missing: map[task.ID]bool{}}
}

func (c *census) add(id task.ID) {
	if workflow, ok := c.before[id]; ok {
		c.known[id] = workflow
		return
	}
	c.missing[id] = true
}

// find reads the workflows that are missing. New tasks are listed first.
func (c *census) find(ctx context.Context, store task.Store) error {
	if len(c.missing) == 0 {
		return nil
	}
	q := task.Query{Scope: task.AnyOwner(), States: []task.State{task.InputRequired}, Limit: sweepBatch, Outlines: true}
	for t, err := range task.Each(ctx, store, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue
		}
		if err != nil {
			return err
		}
		if c.missing[t.ID] {
			c.known[t.ID] = t.Workflow
			delete(c.missing, t.ID)
		}
		if len(c.missing) == 0 {
			return nil
		}
	}
	return nil
}

func (c *census) count() map[string]int {
	n := map[string]int{}
	for _, workflow := range c.known {
		n[workflow]++
	}
	return n
}

// looks knows at which calls somebody has looked, as far as this desk saw it.
type looks struct {
	mu   sync.Mutex
	seen map[task.ID]bool
}

// maxLooks is how many calls are remembered. If there are more, the store says which
// looks were the first.
const maxLooks = 1000

func (l *looks) first(id task.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[id] {
		return false
	}
	if l.seen == nil || len(l.seen) >= maxLooks {
		l.seen = map[task.ID]bool{}
	}
	l.seen[id] = true
	return true
}

// lookPrefix begins the names of the records of first looks.
const lookPrefix = "look/"

// keepLook is how long the record of a look outlives the question.
const keepLook = time.Hour

// Looked notes that an approver looks at a call. The first look at one that awaits a
// decision is an event, on one replica.
func (d *decider) Looked(ctx context.Context, a casefile.Approval) {
	if a.State == task.InputRequired {
		d.looked(ctx, task.Task{ID: a.ID, HeldCall: task.HeldCall{Workflow: a.Workflow}, CreatedAt: a.CreatedAt, ExpiresAt: a.ExpiresAt})
	}
}

func (d *decider) looked(ctx context.Context, t task.Task) {
	if d.cfg.Observe == nil || !d.looks.first(t.ID) {
		return
	}
	now := d.cfg.Now()
	r := task.Record{Name: lookPrefix + string(t.ID), Version: 1, Value: []byte{'1'}, Expires: t.ExpiresAt.Add(keepLook)}
	switch err := d.cfg.Store.PutRecord(ctx, r); {
	case err == nil:
		d.observe(ctx, Event{Step: Looked, Task: task.Task{ID: t.ID, HeldCall: task.HeldCall{Workflow: t.Workflow}, CreatedAt: t.CreatedAt, UpdatedAt: now}})
	case errors.Is(err, task.ErrConcurrentModification): // somebody has looked before
	default:
		d.cfg.Log.DebugContext(ctx, "look not recorded", "error", err)
	}
}
