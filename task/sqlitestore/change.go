package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Statements in the dialect of SQLite.
var (
	upsertOutline = sqlcore.Dialect{}.PutOutline()
	upsertChunk   = sqlcore.Dialect{}.PutChunk()
)

const (
	insertTask = `INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (id) DO NOTHING`
	updateTask = `UPDATE tasks SET state = $1, pending = $2, due = $3, version = $4, document = $5, owing = $6, size = $7, disposable = $8
		WHERE id = $9`
	deleteTasks = "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE %s ORDER BY due LIMIT %d) RETURNING id, owner, account, size"
)

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	r, err := storekit.NewRow(t, notes, action.Create) // encoded now: do may run after Create has returned
	if err != nil {
		return err
	}
	return s.write(ctx, action.Create, &change{
		size: r.Size(),
		do:   func(ctx context.Context, tx *session) error { return tx.create(ctx, &r, limits) },
	})
}

func (s *session) create(ctx context.Context, r *storekit.Row, limits task.Limits) error {
	exists := task.AnyOwner().Ref(r.ID).Exists()
	load, err := s.load(ctx, &r.Task, limits)
	if err != nil {
		return err
	}
	if refusal := limits.Check(r.Task, load); refusal != nil {
		old, err := s.findTask(ctx, r.ID)
		switch {
		case err != nil:
			return err
		case old.Exists():
			return exists
		}
		return refusal
	}
	added, err := s.exec(ctx, insertTask, string(r.ID), r.Owner, string(r.State), r.Pending(), r.Digest[:],
		r.CreatedAt.UnixMicro(), r.Due().UnixMicro(), r.Version, r.Document, r.Group, r.OwesCancellation(), r.Weight(), r.Disposable(), r.Account())
	if err != nil {
		return err
	}
	if added == 0 {
		return exists
	}
	s.loads.addPending(r.Owner, pending(r.State))
	s.loads.addBytes(r.Account(), r.Weight())
	return s.putOutline(ctx, r)
}

// putOutline writes the outline and the notes of a changed task.
func (s *session) putOutline(ctx context.Context, r *storekit.Row) error {
	if _, err := s.exec(ctx, upsertOutline, string(r.ID), r.Version, r.OutlineText); err != nil {
		return err
	}
	s.changed = append(s.changed, sqlcore.ChangedTask{ID: r.ID, Owner: r.Owner})
	return s.addNotes(ctx, r.Notes)
}

// pending returns 1 if a task in state s is pending, and otherwise 0.
func pending(s task.State) int {
	if s.Terminal() {
		return 0
	}
	return 1
}

// findTask returns the columns of a task that changes compare.
func (s *session) findTask(ctx context.Context, id task.ID) (sqlcore.StoredTask, error) {
	var found sqlcore.StoredTask
	err := s.find(ctx, sqlcore.FindTask, []any{string(id)}, found.Columns()...)
	return found, err
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	r, err := storekit.NewRow(t, notes, action.Swap)
	if err != nil {
		return err
	}
	answer, err := s.flush(&t)
	if err != nil {
		return s.db.Fault(ctx, action.Swap, explainFull(err))
	}
	c := &change{
		size: r.Size(),
		do:   func(ctx context.Context, tx *session) error { return tx.swap(ctx, &r, answer) },
	}
	switch {
	case r.State.Terminal():
		c.reserve = reserveToEnd
	//mutate:false TestTaskInFullStoreCanBeApproved nobody can approve a call in a full store
	case r.State != task.InputRequired || len(notes) > 0: // not a change by the agent alone
		c.reserve = reserveToRun
	}
	return s.write(ctx, action.Swap, c)
}

// flush makes sure that the answer to t, if it has one, is on disk. It returns the size of its
// file.
func (s *Store) flush(t *task.Task) (int64, error) {
	if t.Result == nil || t.Result.Chunks <= s.results.inDatabase {
		return 0, nil
	}
	//mutate:swap "s.results.sync(t.ID)" "0, nil" TestTaskCompletesAfterFlush an answer is not on disk when its task has completed
	return s.results.sync(t.ID)
}

// swap replaces a task. answer is the size of the file of its answer, or zero.
func (s *session) swap(ctx context.Context, r *storekit.Row, answer int64) error {
	old, err := s.findTask(ctx, r.ID)
	switch {
	case err != nil:
		return err
	case !old.Exists():
		return task.AnyOwner().Ref(r.ID).NotFound(action.Swap)
	case old.Version != r.Version-1:
		return task.AnyOwner().Ref(r.ID).VersionConflict(old.State)
	}
	if _, err := s.exec(ctx, updateTask, string(r.State), r.Pending(), r.Due().UnixMicro(), r.Version, r.Document, r.OwesCancellation(),
		r.Weight(), r.Disposable(), string(r.ID)); err != nil {
		return err
	}
	s.loads.addPending(old.Owner, pending(r.State)-pending(old.State))
	s.loads.addBytes(old.Account, r.Weight()-old.Size)
	if answer > 0 {
		if err := s.resize(ctx, r.ID, answer); err != nil {
			return err
		}
	}
	return s.putOutline(ctx, r)
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.deleteTasks(ctx, limit, sqlcore.Swept, sqlcore.Micros(before))
}

// Reclaim implements [gatestore.Reclaimer].
func (s *Store) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	where, args := sqlcore.Reclaim(account)
	return s.deleteTasks(ctx, limit, where, args...)
}

// deleteTasks deletes the first tasks that the condition selects, and returns their number.
func (s *Store) deleteTasks(ctx context.Context, limit int, where string, args ...any) (int, error) {
	statement := fmt.Sprintf(deleteTasks, where, max(0, limit))
	var deleted []sqlcore.ChangedTask
	err := s.write(ctx, action.Sweep, &change{do: func(ctx context.Context, tx *session) (err error) {
		deleted, err = tx.delete(ctx, statement, args)
		return err
	}})
	if err != nil {
		return 0, err
	}
	for _, t := range deleted {
		//mutate:drop TestLargeAnswersArePrivateFiles the file of an answer outlives its task
		s.results.remove(t.ID)
	}
	return len(deleted), nil
}

func (s *session) delete(ctx context.Context, statement string, args []any) ([]sqlcore.ChangedTask, error) {
	deleted, err := sqlcore.Select(ctx, s.conn, func(rows *sql.Rows) (t sqlcore.ChangedTask, err error) {
		var account string
		var size int64
		err = rows.Scan(&t.ID, &t.Owner, &account, &size)
		s.loads.addBytes(account, -size)
		return t, err
	}, statement, args...)
	if err != nil {
		return nil, err
	}
	s.changed = append(s.changed, deleted...)
	return deleted, s.setLimit(ctx)
}

// write queues a change and waits for it.
func (s *Store) write(ctx context.Context, a action.Name, c *change) error {
	if err := s.db.Usable(ctx, a); err != nil {
		return err
	}
	c.ctx = ctx
	switch a {
	case action.Sweep, action.Trim, action.DeleteRecord, action.SweepRecords:
		c.reserve = reserveToDelete
	default:
	}
	return s.db.Fault(ctx, a, s.writer.make(c))
}

// changeRecords runs a statement in the writer.
func (s *Store) changeRecords(ctx context.Context, a action.Name, made sqlcore.Statement) (int, error) {
	changed := 0
	err := s.write(ctx, a, &change{size: gatestore.MaxRecordValue, do: func(ctx context.Context, tx *session) (err error) {
		changed, err = tx.exec(ctx, made.Query, made.Args...)
		return err
	}})
	if err != nil {
		return 0, err
	}
	return changed, nil
}
