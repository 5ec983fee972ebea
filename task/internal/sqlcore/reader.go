package sqlcore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Reader is the half of a store that only reads: the same for every
// database.
type Reader struct{ db *Database }

// NewReader returns the reader of a database that is open, or will be before it is read.
func NewReader(db *Database) Reader { return Reader{db: db} }

// Migration returns which version the tables had when the store was opened, and
// which they have now. They are the same if there was nothing to do, and the first is
// 0 if there were no tables.
func (r Reader) Migration() (from, to int) { return r.db.Migration.From, r.db.Migration.To }

// NextDocuments reads some documents.
const NextDocuments = "SELECT id, document FROM tasks WHERE id > $1 ORDER BY id LIMIT 20"

// Documents calls visit with every task as it is stored, whether or not that
// can be read.
func (r Reader) Documents(ctx context.Context, visit func(id task.ID, document []byte) error) error {
	for last := ""; ; {
		if err := r.db.Usable(ctx, actionVisit); err != nil {
			return err
		}
		page, err := r.documents(ctx, last)
		if err != nil {
			return r.db.Fault(ctx, actionVisit, err)
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

func (r Reader) documents(ctx context.Context, after string) ([]document, error) {
	rows, err := r.db.DB.QueryContext(ctx, NextDocuments, after)
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

// The statements that read tasks and chunks.
const (
	GetTask      = "SELECT document FROM tasks WHERE id = $1"
	GetChunk     = "SELECT owner, data FROM tasks LEFT JOIN chunks ON task = id AND n = $1 WHERE id = $2"
	OverdueTasks = "SELECT created_at, id, document FROM tasks WHERE pending = TRUE AND due < $1 ORDER BY due LIMIT $2"
)

// Get implements [task.Store].
func (r Reader) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if err := r.db.Usable(ctx, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	var document []byte
	switch err := r.db.Row(ctx, GetTask, string(ref.ID)).Scan(&document); {
	case errors.Is(err, sql.ErrNoRows):
		return task.Task{}, ref.NotFound(task.ActionGet)
	case err != nil:
		return task.Task{}, r.db.Fault(ctx, task.ActionGet, err)
	}
	t, err := task.Decode(document)
	if err != nil {
		return task.Task{}, r.db.Fault(ctx, task.ActionGet, err)
	}
	if err := ref.Check(t.Owner, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	return t, nil
}

// List implements [task.Store].
func (r Reader) List(ctx context.Context, q task.Query) (task.Page, error) {
	if err := r.db.Usable(ctx, task.ActionList); err != nil {
		return task.Page{}, err
	}
	after, err := q.Position()
	if err != nil {
		return task.Page{}, err
	}
	if owner, limited := q.Scope.Owner(); limited && owner == "" {
		return task.Page{}, nil
	}
	statement, args := SelectPage(q, after)
	rows, err := r.db.DB.QueryContext(ctx, statement, args...)
	if err != nil {
		return task.Page{}, r.db.Fault(ctx, task.ActionList, err)
	}
	if q.Heads {
		heads, err := headsOf(rows)
		if err != nil {
			return task.Page{}, r.db.Fault(ctx, task.ActionList, err)
		}
		return pageOf(q, heads), nil
	}
	if q.Outlines {
		return r.outlines(ctx, q, rows)
	}
	found, unreadable, err := tasksOf(rows)
	if err != nil {
		return task.Page{}, r.db.Fault(ctx, task.ActionList, err)
	}
	return pageOf(q, found), r.db.Fault(ctx, task.ActionList, unreadable)
}

// outlines makes a page of outlines. It reads the documents of those tasks alone
// that have no outline, because an earlier version wrote them.
func (r Reader) outlines(ctx context.Context, q task.Query, rows *sql.Rows) (task.Page, error) {
	found, err := outlinesFrom(rows)
	if err != nil {
		return task.Page{}, r.db.Fault(ctx, task.ActionList, err)
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

// Overdue implements [task.Store].
func (r Reader) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	if err := r.db.Usable(ctx, task.ActionList); err != nil {
		return nil, err
	}
	rows, err := r.db.DB.QueryContext(ctx, OverdueTasks, Micros(at), max(0, limit))
	if err != nil {
		return nil, r.db.Fault(ctx, task.ActionList, err)
	}
	found, unreadable, err := tasksOf(rows)
	if err != nil {
		return nil, r.db.Fault(ctx, task.ActionList, err)
	}
	return readable(found), r.db.Fault(ctx, task.ActionList, unreadable)
}

// ReadChunk implements [task.Blobs].
func (r Reader) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	if err := r.db.Usable(ctx, task.ActionReadChunk); err != nil {
		return nil, err
	}
	var owner string
	var data []byte
	switch err := r.db.Row(ctx, GetChunk, n, string(ref.ID)).Scan(&owner, &data); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ref.NotFound(task.ActionReadChunk)
	case err != nil:
		return nil, r.db.Fault(ctx, task.ActionReadChunk, err)
	}
	if err := ref.Check(owner, task.ActionReadChunk); err != nil {
		return nil, err
	}
	if data == nil {
		return nil, ref.ChunkMissing(n)
	}
	return data, nil
}
