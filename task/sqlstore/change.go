package sqlstore

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	insertTask = `INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING`
	findTask   = "SELECT owner, state, version FROM tasks WHERE id = $1"
	updateTask = "UPDATE tasks SET state = $1, pending = $2, due = $3, version = $4, document = $5, owing = $6 WHERE id = $7"
	sweepTasks = `DELETE FROM tasks WHERE id IN
		(SELECT id FROM tasks WHERE pending = FALSE AND due < $1 ORDER BY due LIMIT $2) RETURNING id, owner`
	putOutline = `INSERT INTO outlines (task, version, document) VALUES ($1, $2, $3)
		ON CONFLICT (task) DO UPDATE SET version = excluded.version, document = excluded.document`
	putChunk = `INSERT INTO chunks (task, n, data) VALUES ($1, $2, $3)
		ON CONFLICT (task, n) DO UPDATE SET data = excluded.data`
)

// Create implements [task.Tasks].
func (s *SQLite) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionCreate); err != nil {
		return err
	}
	r, err := newRecord(t, notes, task.ActionCreate)
	if err != nil {
		return err
	}
	return s.write(ctx, task.ActionCreate, &change{
		size: r.size(),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return tx.create(ctx, &r, limits) },
	})
}

func (s *session) create(ctx context.Context, r *record, limits task.Limits) (outcome, error) {
	exists := &task.Error{Kind: task.KindExists, ID: r.ID, Action: task.ActionCreate}
	load, err := s.load(ctx, &r.Task, limits)
	if err != nil {
		return outcome{}, err
	}
	if refusal := limits.Check(r.Task, load); refusal != nil {
		old, err := s.present(ctx, r.ID)
		if old.there() {
			refusal = exists
		}
		return outcome{refused: refusal}, err
	}
	result, err := s.exec(ctx, insertTask, string(r.ID), r.Owner, string(r.State), r.pending(), r.Digest[:],
		r.CreatedAt.UnixMicro(), r.due, r.Version, r.document, r.Room, r.Owes())
	if err != nil {
		return outcome{}, err
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return outcome{refused: exists}, err
	}
	if _, err := s.exec(ctx, putOutline, string(r.ID), r.Version, r.outline); err != nil {
		return outcome{}, err
	}
	if r.pending() {
		s.pending.add(r.Owner, 1)
	}
	return outcome{changed: []touched{{r.ID, r.Owner}}}, s.note(ctx, r.remarks)
}

// A row is what a change needs to know of a task that is stored.
type row struct {
	owner   string
	state   task.State
	version int64 // zero if there is no such task
}

func (r row) there() bool { return r.version != 0 }

func (s *session) present(ctx context.Context, id task.ID) (row, error) {
	var r row
	err := s.find(ctx, lookup{findTask, []any{string(id)}}, &r.owner, &r.state, &r.version)
	return r, err
}

// Swap implements [task.Tasks].
func (s *SQLite) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionSwap); err != nil {
		return err
	}
	r, err := newRecord(t, notes, task.ActionSwap)
	if err != nil {
		return err
	}
	if r.answer, err = s.flush(&t); err != nil {
		return s.fault(ctx, task.ActionSwap, full(err))
	}
	return s.write(ctx, task.ActionSwap, &change{
		size: r.size(),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return tx.swap(ctx, &r) },
	})
}

// flush makes sure that the answer to t, if it has one, is on disk, and returns how
// large its file is.
func (s *SQLite) flush(t *task.Task) (int64, error) {
	if t.Result == nil || t.Result.Chunks <= s.results.inside {
		return 0, nil
	}
	return s.results.sync(t.ID)
}

func (s *session) swap(ctx context.Context, r *record) (outcome, error) {
	old, err := s.present(ctx, r.ID)
	switch {
	case err != nil:
		return outcome{}, err
	case !old.there():
		return outcome{refused: task.AnyOwner().Ref(r.ID).NotFound(task.ActionSwap)}, nil
	case old.version != r.Version-1:
		return outcome{refused: overtaken(r.ID, old.state)}, nil
	}
	if _, err := s.exec(ctx, updateTask, string(r.State), r.pending(), r.due, r.Version, r.document, r.Owes(), string(r.ID)); err != nil {
		return outcome{}, err
	}
	if _, err := s.exec(ctx, putOutline, string(r.ID), r.Version, r.outline); err != nil {
		return outcome{}, err
	}
	if r.State.Terminal() && !old.state.Terminal() {
		s.pending.add(old.owner, -1)
	}
	if r.answer > 0 {
		if err := s.resize(ctx, r.ID, r.answer); err != nil {
			return outcome{}, err
		}
	}
	return outcome{changed: []touched{{r.ID, old.owner}}}, s.note(ctx, r.remarks)
}

// overtaken is the error of a swap that came second.
func overtaken(id task.ID, state task.State) error {
	return &task.Error{
		Kind: task.KindConcurrentModification, ID: id, State: state, Actual: state, Action: task.ActionSwap,
	}
}

// Sweep implements [task.Tasks].
func (s *SQLite) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.usable(ctx, task.ActionSweep); err != nil {
		return 0, err
	}
	c := &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		return tx.sweep(ctx, before, max(0, limit))
	}}
	if err := s.write(ctx, task.ActionSweep, c); err != nil {
		return 0, err
	}
	for _, swept := range c.result.changed {
		s.results.remove(swept.id)
	}
	return len(c.result.changed), nil
}

func (s *session) sweep(ctx context.Context, before time.Time, limit int) (outcome, error) {
	if err := s.prepared.add(ctx, s.conn, sweepTasks); err != nil {
		return outcome{}, err
	}
	rows, err := s.prepared[sweepTasks].QueryContext(ctx, micros(before), limit)
	if err != nil {
		return outcome{}, err
	}
	defer rows.Close()
	var swept outcome
	for rows.Next() {
		var t touched
		if err := rows.Scan(&t.id, &t.owner); err != nil {
			return outcome{}, err
		}
		swept.changed = append(swept.changed, t)
	}
	if err := rows.Err(); err != nil {
		return outcome{}, err
	}
	return swept, s.limit(ctx)
}

// write has a change made.
func (s *SQLite) write(ctx context.Context, a task.Action, c *change) error {
	c.ctx = ctx
	if err := s.writer.make(c); err != nil {
		return s.fault(ctx, a, err)
	}
	return c.result.refused
}
