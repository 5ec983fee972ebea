package sqlitestore

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

const (
	insertTask = `INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING`
	updateTask = "UPDATE tasks SET state = $1, pending = $2, due = $3, version = $4, document = $5, owing = $6 WHERE id = $7"
	sweepTasks = `DELETE FROM tasks WHERE id IN
		(SELECT id FROM tasks WHERE pending = FALSE AND due < $1 ORDER BY due LIMIT $2) RETURNING id, owner`
)

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := s.db.Usable(ctx, task.ActionCreate); err != nil {
		return err
	}
	r, err := sqlcore.NewRow(t, notes, task.ActionCreate)
	if err != nil {
		return err
	}
	return s.write(ctx, task.ActionCreate, &change{
		size: r.Size(),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return tx.create(ctx, &r, limits) },
	})
}

func (s *session) create(ctx context.Context, r *sqlcore.Row, limits task.Limits) (outcome, error) {
	exists := &task.Error{Kind: task.KindExists, ID: r.ID, Action: task.ActionCreate}
	load, err := s.load(ctx, &r.Task, limits)
	if err != nil {
		return outcome{}, err
	}
	if refusal := limits.Check(r.Task, load); refusal != nil {
		old, err := s.present(ctx, r.ID)
		if old.There() {
			refusal = exists
		}
		return outcome{refused: refusal}, err
	}
	result, err := s.exec(ctx, insertTask, string(r.ID), r.Owner, string(r.State), r.Pending(), r.Digest[:],
		r.CreatedAt.UnixMicro(), r.DueMicros, r.Version, r.Document, r.Room, r.Owes())
	if err != nil {
		return outcome{}, err
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return outcome{refused: exists}, err
	}
	if _, err := s.exec(ctx, sqlcore.PutOutline, string(r.ID), r.Version, r.OutlineText); err != nil {
		return outcome{}, err
	}
	if r.Pending() {
		s.pending.add(r.Owner, 1)
	}
	return outcome{changed: []sqlcore.Touched{{ID: r.ID, Owner: r.Owner}}}, s.note(ctx, r.Remarks)
}

// present returns what is stored of a task.
func (s *session) present(ctx context.Context, id task.ID) (sqlcore.Found, error) {
	var found sqlcore.Found
	err := s.find(ctx, lookup{sqlcore.FindTask, []any{string(id)}}, found.Columns()...)
	return found, err
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := s.db.Usable(ctx, task.ActionSwap); err != nil {
		return err
	}
	r, err := sqlcore.NewRow(t, notes, task.ActionSwap)
	if err != nil {
		return err
	}
	answer, err := s.flush(&t)
	if err != nil {
		return s.db.Fault(ctx, task.ActionSwap, full(err))
	}
	c := &change{
		size: r.Size(),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return tx.swap(ctx, &r, answer) },
	}
	if r.State.Terminal() {
		c.spare = spareToEnd
	}
	return s.write(ctx, task.ActionSwap, c)
}

// flush makes sure that the answer to t, if it has one, is on disk, and returns how
// large its file is.
func (s *Store) flush(t *task.Task) (int64, error) {
	if t.Result == nil || t.Result.Chunks <= s.results.inside {
		return 0, nil
	}
	return s.results.sync(t.ID)
}

// swap replaces a task. answer is how large the file of its answer is; zero if there is none.
func (s *session) swap(ctx context.Context, r *sqlcore.Row, answer int64) (outcome, error) {
	old, err := s.present(ctx, r.ID)
	switch {
	case err != nil:
		return outcome{}, err
	case !old.There():
		return outcome{refused: task.AnyOwner().Ref(r.ID).NotFound(task.ActionSwap)}, nil
	case old.Version != r.Version-1:
		return outcome{refused: sqlcore.Overtaken(r.ID, old.State)}, nil
	}
	if _, err := s.exec(ctx, updateTask, string(r.State), r.Pending(), r.DueMicros, r.Version, r.Document, r.Owes(), string(r.ID)); err != nil {
		return outcome{}, err
	}
	if _, err := s.exec(ctx, sqlcore.PutOutline, string(r.ID), r.Version, r.OutlineText); err != nil {
		return outcome{}, err
	}
	if r.State.Terminal() && !old.State.Terminal() {
		s.pending.add(old.Owner, -1)
	}
	if answer > 0 {
		if err := s.resize(ctx, r.ID, answer); err != nil {
			return outcome{}, err
		}
	}
	return outcome{changed: []sqlcore.Touched{{ID: r.ID, Owner: old.Owner}}}, s.note(ctx, r.Remarks)
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.db.Usable(ctx, task.ActionSweep); err != nil {
		return 0, err
	}
	c := &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		return tx.sweep(ctx, before, max(0, limit))
	}}
	if err := s.write(ctx, task.ActionSweep, c); err != nil {
		return 0, err
	}
	for _, swept := range c.result.changed {
		s.results.remove(swept.ID)
	}
	return len(c.result.changed), nil
}

func (s *session) sweep(ctx context.Context, before time.Time, limit int) (outcome, error) {
	if err := s.prepared.Add(ctx, s.conn, sweepTasks); err != nil {
		return outcome{}, err
	}
	rows, err := s.prepared[sweepTasks].QueryContext(ctx, sqlcore.Micros(before), limit)
	if err != nil {
		return outcome{}, err
	}
	defer rows.Close()
	var swept outcome
	for rows.Next() {
		var t sqlcore.Touched
		if err := rows.Scan(&t.ID, &t.Owner); err != nil {
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
func (s *Store) write(ctx context.Context, a task.Action, c *change) error {
	c.ctx = ctx
	switch a {
	case task.ActionSweep, task.ActionTrim, task.ActionDeleteRecord, task.ActionSweepRecords:
		c.spare = spareToDelete
	default:
	}
	if err := s.writer.make(c); err != nil {
		return s.db.Fault(ctx, a, err)
	}
	return c.result.refused
}
