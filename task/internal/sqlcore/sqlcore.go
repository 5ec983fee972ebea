// Package sqlcore is the common part of the stores in SQL databases: the statements that
// read tasks, the journal and records, their stored form, and the migration of tables.
//
// A task is stored as one document of [storekit.Encode]. A few columns repeat the fields
// that queries select and sort by.
package sqlcore

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// ErrSchema is the error of a store whose tables this program cannot use.
var ErrSchema = errors.New("the schema is not one that this program knows")

// OutcomeTimeout is how long a store waits for the outcome of a change after the caller's
// context has ended.
const OutcomeTimeout = 5 * time.Second

// Micros returns t in microseconds, rounded up, so that comparisons with stored times are
// exact.
func Micros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

// scanTask returns a function that reads a task from its position and document. For a task
// that cannot be read, the function returns only the position, with version 0, and adds the
// error to unreadable.
func scanTask(unreadable *error) func(*sql.Rows) (task.Task, error) {
	return func(rows *sql.Rows) (task.Task, error) {
		var created int64
		var place task.Task
		var document sql.RawBytes
		if err := rows.Scan(&created, &place.ID, &document); err != nil {
			return place, err
		}
		t, err := storekit.DecodeAs(place.ID, document)
		if err != nil {
			*unreadable = errors.Join(*unreadable, err)
			place.CreatedAt = time.UnixMicro(created).UTC()
			return place, nil
		}
		return t, nil
	}
}

// scanHead reads the head of a task.
func scanHead(rows *sql.Rows) (t task.Task, err error) {
	var created int64
	err = rows.Scan(&created, &t.ID, &t.Owner, &t.State, &t.Version)
	t.CreatedAt = time.UnixMicro(created).UTC()
	return t, err
}

// withoutUnreadable removes the tasks that could not be read.
func withoutUnreadable(found []task.Task) []task.Task {
	return slices.DeleteFunc(found, func(t task.Task) bool { return t.Version == 0 })
}

// A selection is the SQL query for a page. Its parameters are numbered in the
// order of their first use, which is how SQLite numbers them too.
type selection struct {
	where []string
	args  []any
	size  int // tasks to select: one more than the page has
	heads bool
}

func (s *selection) param(value any) string {
	s.args = append(s.args, value)
	return fmt.Sprintf("$%d", len(s.args))
}

// SelectPage returns the statement that selects the page of q that follows a
// position, and its arguments.
func SelectPage(q task.Query, after task.Position) (statement string, args []any) {
	s := selection{size: q.PageSize() + 1, heads: q.Heads || q.Outlines}
	if owner, limited := q.Scope.Owner(); limited {
		s.where = append(s.where, "owner = "+s.param(owner))
	}
	if (q.Digest != task.Digest{}) {
		s.where = append(s.where, "digest = "+s.param(q.Digest[:]))
	}
	if after.ID != "" || !after.CreatedAt.IsZero() {
		at, id := s.param(after.CreatedAt.UnixMicro()), s.param(string(after.ID))
		s.where = append(s.where, fmt.Sprintf("created_at <= %s AND (created_at < %[1]s OR id > %s)", at, id))
	}
	if len(q.States) > 0 {
		var states []string
		for _, state := range q.States {
			states = append(states, s.param(string(state)))
		}
		s.where = append(s.where, "state IN ("+strings.Join(states, ", ")+")")
	}
	if q.Outlines {
		return fmt.Sprintf(outlinesOf, s.statement(q)), s.args
	}
	return s.statement(q), s.args
}

// outlinesOf joins the statement that selects heads with the outlines of the same version.
const outlinesOf = `SELECT h.created_at, h.id, o.document FROM (%s) AS h
	LEFT JOIN outlines AS o ON o.task = h.id AND o.version = h.version ORDER BY h.created_at DESC, h.id`

// statement selects pending and terminal tasks separately, so that few tasks of one kind
// are found among many of the other. A digest selects few tasks of both kinds, and owed
// cancellations have their own index.
func (s *selection) statement(q task.Query) string {
	pending := len(q.States) == 0 || slices.ContainsFunc(q.States, func(s task.State) bool { return !s.Terminal() })
	terminal := len(q.States) == 0 || slices.ContainsFunc(q.States, task.State.Terminal)
	switch {
	case q.OwesCancellation:
		return s.selectWhere("owing")
	case q.Digest != task.Digest{}:
		return s.selectWhere()
	case pending && !terminal:
		return s.selectWhere("pending = TRUE")
	case terminal && !pending:
		return s.selectWhere("pending = FALSE")
	}
	return "SELECT * FROM (SELECT * FROM (" + s.selectWhere("pending = TRUE") +
		") AS p UNION ALL SELECT * FROM (" + s.selectWhere("pending = FALSE") + ") AS t) AS halves" + s.order()
}

// columns returns the columns that scanTask or scanHead reads.
func (s *selection) columns() string {
	if s.heads {
		return "created_at, id, owner, state, version"
	}
	return "created_at, id, document"
}

func (s *selection) selectWhere(and ...string) string {
	statement := "SELECT " + s.columns() + " FROM tasks"
	if where := slices.Concat(s.where, and); len(where) > 0 {
		statement += " WHERE " + strings.Join(where, " AND ")
	}
	return statement + s.order()
}

// order is the order of [task.Compare].
func (s *selection) order() string {
	return fmt.Sprintf(" ORDER BY created_at DESC, id LIMIT %d", s.size)
}

// pageOf makes a page of q from the tasks found, which are up to one more than a page.
// Tasks that could not be read count for the size of the page, and are removed.
func pageOf(q task.Query, found []task.Task) task.Page {
	page := task.Page{Tasks: found}
	if size := q.PageSize(); len(found) > size {
		page.Tasks = found[:size]
		page.Next = q.CursorAfter(page.Tasks[size-1].Position())
	}
	page.Tasks = withoutUnreadable(page.Tasks)
	return page
}
