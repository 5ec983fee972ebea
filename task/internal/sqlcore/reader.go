package sqlcore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Reader has the methods of a store that only read.
type Reader struct{ db *Database }

// NewReader returns the reader of a database. db.DB may be set later.
func NewReader(db *Database) Reader { return Reader{db: db} }

// Migration returns the versions of the tables before and after the store was opened;
// see [Migration].
func (r Reader) Migration() (from, to int) { return r.db.Migration.From, r.db.Migration.To }

// NextDocuments reads a page of documents.
const NextDocuments = "SELECT id, document FROM tasks WHERE id > $1 ORDER BY id LIMIT 20"

// Documents calls visit with the stored document of every task, even if it is damaged.
func (r Reader) Documents(ctx context.Context, visit func(id task.ID, document []byte) error) error {
	for last := task.ID(""); ; {
		page, err := request(ctx, r.db, actionReadAll, func() ([]document, error) {
			return Select(ctx, r.db, scanDocument, NextDocuments, string(last))
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, d := range page {
			if err := visit(d.id, d.document); err != nil {
				return err
			}
			last = d.id
		}
	}
}

type document struct {
	id       task.ID
	document []byte
}

func scanDocument(rows *sql.Rows) (d document, err error) {
	err = rows.Scan(&d.id, &d.document)
	return d, err
}

// The statements that read tasks and chunks.
const (
	GetTask      = "SELECT document FROM tasks WHERE id = $1"
	GetChunk     = "SELECT owner, data FROM tasks LEFT JOIN chunks ON task = id AND n = $1 WHERE id = $2"
	OverdueTasks = "SELECT created_at, id, document FROM tasks WHERE pending = TRUE AND due < $1 ORDER BY due LIMIT $2"
)

// Get implements [task.Store].
func (r Reader) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	return request(ctx, r.db, action.Get, func() (task.Task, error) {
		var document []byte
		err := r.db.Row(ctx, GetTask, string(ref.ID)).Scan(&document)
		if errors.Is(err, sql.ErrNoRows) {
			return task.Task{}, ref.NotFound(action.Get)
		}
		if err != nil {
			return task.Task{}, err
		}
		return storekit.DecodeFor(ref, document)
	})
}

// List implements [task.Store].
func (r Reader) List(ctx context.Context, q task.Query) (task.Page, error) {
	return request(ctx, r.db, action.List, func() (task.Page, error) {
		after, err := q.Position()
		if err != nil {
			return task.Page{}, err
		}
		if owner, limited := q.Scope.Owner(); limited && owner == "" {
			return task.Page{}, nil
		}
		var unreadable error
		scan := scanTask(&unreadable)
		if q.Heads {
			scan = scanHead
		}
		statement, args := SelectPage(q, after)
		found, err := Select(ctx, r.db, scan, statement, args...)
		if err != nil {
			return task.Page{}, err
		}
		if q.Outlines {
			unreadable, err = r.completeOutlines(ctx, q, found)
		}
		if err != nil {
			return task.Page{}, err
		}
		return pageOf(q, found), unreadable
	})
}

// completeOutlines reads the documents of tasks whose outline is missing or damaged, such
// as tasks of earlier versions. Unreadable has the errors of tasks that it cannot read.
func (r Reader) completeOutlines(ctx context.Context, q task.Query, found []task.Task) (unreadable, err error) {
	for i, t := range found {
		if t.Version != 0 {
			continue
		}
		t, err := r.Get(ctx, task.AnyOwner().Ref(t.ID))
		switch {
		case errors.Is(err, task.ErrUnreadable):
			unreadable = errors.Join(unreadable, err)
		case err != nil && !errors.Is(err, task.ErrNotFound):
			return nil, err
		case err == nil && q.Matches(&t): // it may have changed since it was listed
			found[i] = t.Outline()
		}
	}
	return unreadable, nil
}

// Overdue implements [task.Store].
func (r Reader) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	return request(ctx, r.db, action.List, func() ([]task.Task, error) {
		var unreadable error
		found, err := Select(ctx, r.db, scanTask(&unreadable), OverdueTasks, Micros(at), max(0, limit))
		if err != nil {
			return nil, err
		}
		return withoutUnreadable(found), unreadable
	})
}

// ReadChunk implements [task.Blobs].
func (r Reader) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	return request(ctx, r.db, action.ReadChunk, func() ([]byte, error) {
		var owner string
		var data []byte
		err := r.db.Row(ctx, GetChunk, n, string(ref.ID)).Scan(&owner, &data)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, ref.NotFound(action.ReadChunk)
		}
		if err == nil {
			err = ref.Check(owner, action.ReadChunk)
		}
		if err != nil {
			return nil, err
		}
		if data == nil {
			return nil, ref.ChunkMissing(n)
		}
		return data, nil
	})
}
