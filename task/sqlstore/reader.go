package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// How errors name what is done to a store beyond its contract.
const (
	actionProbe  task.Action = "probe"
	actionVacuum task.Action = "vacuum"
	actionVisit  task.Action = "visit"
)

// A reader is the half of a store that only reads: the same for every
// database.
type reader struct {
	name     string // of the database, as errors call it
	db       *sql.DB
	prepared prepared // statements that it pays to prepare once
	closed   atomic.Bool
	explain  func(error) error // adds what it means to an error of the database

	migration Migration
}

// Migration tells which version the tables had when the store was opened.
func (r *reader) Migration() Migration { return r.migration }

const nextDocuments = "SELECT id, document FROM tasks WHERE id > $1 ORDER BY id LIMIT 20"

// Documents calls visit with every task as it is stored, whether or not that
// can be read.
func (r *reader) Documents(ctx context.Context, visit func(id task.ID, document []byte) error) error {
	for last := ""; ; {
		if err := r.usable(ctx, actionVisit); err != nil {
			return err
		}
		page, err := r.documents(ctx, last)
		if err != nil {
			return r.fault(ctx, actionVisit, err)
		}
		for _, d := range page {
			if err := visit(task.ID(d.id), []byte(d.document)); err != nil {
				return err
			}
			last = d.id
		}
		if len(page) == 0 {
			return nil
		}
	}
}

type document struct{ id, document string }

func (r *reader) documents(ctx context.Context, after string) ([]document, error) {
	rows, err := r.db.QueryContext(ctx, nextDocuments, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page []document
	for rows.Next() {
		var d document
		if err := rows.Scan(&d.id, &d.document); err != nil {
			return nil, err
		}
		page = append(page, d)
	}
	return page, rows.Err()
}

const (
	getTask      = "SELECT document FROM tasks WHERE id = $1"
	getChunk     = "SELECT owner, data FROM tasks LEFT JOIN chunks ON task = id AND n = $1 WHERE id = $2"
	overdueTasks = "SELECT created_at, id, document FROM tasks WHERE pending = TRUE AND due < $1 ORDER BY due LIMIT $2"
)

// row runs a query for one row.
func (r *reader) row(ctx context.Context, query string, args ...any) *sql.Row {
	if statement := r.prepared[query]; statement != nil {
		return statement.QueryRowContext(ctx, args...)
	}
	return r.db.QueryRowContext(ctx, query, args...)
}

// Get implements [task.Tasks].
func (r *reader) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if err := r.usable(ctx, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	var document []byte
	switch err := r.row(ctx, getTask, string(ref.ID)).Scan(&document); {
	case errors.Is(err, sql.ErrNoRows):
		return task.Task{}, ref.NotFound(task.ActionGet)
	case err != nil:
		return task.Task{}, r.fault(ctx, task.ActionGet, err)
	}
	t, err := task.Decode(document)
	if err != nil {
		return task.Task{}, r.fault(ctx, task.ActionGet, err)
	}
	if err := ref.Check(t.Owner, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	return t, nil
}

// List implements [task.Tasks].
func (r *reader) List(ctx context.Context, q task.Query) (task.Page, error) {
	if err := r.usable(ctx, task.ActionList); err != nil {
		return task.Page{}, err
	}
	after, err := q.Position()
	if err != nil {
		return task.Page{}, err
	}
	if owner, limited := q.Scope.Owner(); limited && owner == "" {
		return task.Page{}, nil
	}
	statement, args := selectPage(q, after)
	rows, err := r.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return task.Page{}, r.fault(ctx, task.ActionList, err)
	}
	if q.Heads {
		heads, err := headsOf(rows)
		if err != nil {
			return task.Page{}, r.fault(ctx, task.ActionList, err)
		}
		return pageOf(q, heads), nil
	}
	if q.Outlines {
		return r.outlines(ctx, q, rows)
	}
	found, unreadable, err := tasksOf(rows)
	if err != nil {
		return task.Page{}, r.fault(ctx, task.ActionList, err)
	}
	return pageOf(q, found), r.fault(ctx, task.ActionList, unreadable)
}

// outlines makes a page of outlines. It reads the documents of those tasks alone
// that have no outline, because an earlier version wrote them.
func (r *reader) outlines(ctx context.Context, q task.Query, rows *sql.Rows) (task.Page, error) {
	found, err := outlinesFrom(rows)
	if err != nil {
		return task.Page{}, r.fault(ctx, task.ActionList, err)
	}
	var unreadable error
	for i, t := range found {
		if t.Version != 0 {
			continue
		}
		t, err := r.Get(ctx, task.AnyOwner().Ref(t.ID))
		switch {
		case errors.Is(err, task.ErrUnreadable):
			unreadable = errors.Join(unreadable, err)
		case err != nil && !errors.Is(err, task.ErrNotFound):
			return task.Page{}, err
		case err == nil && q.Matches(&t): // it may have changed since it was listed
			found[i] = t.Outline()
		}
	}
	return pageOf(q, found), unreadable
}

// Overdue implements [task.Tasks].
func (r *reader) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	if err := r.usable(ctx, task.ActionList); err != nil {
		return nil, err
	}
	rows, err := r.db.QueryContext(ctx, overdueTasks, micros(at), max(0, limit))
	if err != nil {
		return nil, r.fault(ctx, task.ActionList, err)
	}
	found, unreadable, err := tasksOf(rows)
	if err != nil {
		return nil, r.fault(ctx, task.ActionList, err)
	}
	return readable(found), r.fault(ctx, task.ActionList, unreadable)
}

// ReadChunk implements [task.Blobs].
func (r *reader) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	if err := r.usable(ctx, task.ActionReadChunk); err != nil {
		return nil, err
	}
	var owner string
	var data []byte
	switch err := r.row(ctx, getChunk, n, string(ref.ID)).Scan(&owner, &data); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ref.NotFound(task.ActionReadChunk)
	case err != nil:
		return nil, r.fault(ctx, task.ActionReadChunk, err)
	}
	if err := ref.Check(owner, task.ActionReadChunk); err != nil {
		return nil, err
	}
	if data == nil {
		return nil, ref.ChunkMissing(n)
	}
	return data, nil
}

func (r *reader) usable(ctx context.Context, a task.Action) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.closed.Load() {
		return &task.Error{Kind: task.KindClosed, Action: a}
	}
	return nil
}

// fault returns what to tell of an error of the database.
func (r *reader) fault(ctx context.Context, a task.Action, err error) error {
	if err == nil {
		return nil
	}
	if refusal := r.usable(ctx, a); refusal != nil {
		return refusal
	}
	err = r.explain(err)
	if refusal, ok := errors.AsType[*task.Error](err); ok {
		refusal.Action, refusal.Detail = a, r.name
		return err
	}
	return fmt.Errorf("task store %s: %s: %w", r.name, a, err)
}
