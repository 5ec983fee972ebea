// Package sqlcore holds what the stores in SQL databases have in common: the
// statements that read tasks, the journal and records, the form in which they are
// stored, and the migration of tables.
//
// A task is stored as one document, as [task.Encode] makes it. A few columns
// beside it repeat what queries select and order by; nothing here knows what
// a task may become.
package sqlcore

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// ErrSchema is the error of a store whose tables this program cannot use.
var ErrSchema = errors.New("the schema is not one that this program knows")

// Patience is how long to wait for the outcome of a change whose caller has given up.
const Patience = 5 * time.Second

// A Row is a task as a row of the table, and what is told of it. All that may be shared with the
// caller has been read from the task: it is written later.
type Row struct {
	task.Task

	DueMicros   int64
	Document    string
	OutlineText string
	Remarks     []Remark
}

// NewRow returns what is stored of a task and of the notes on its change.
func NewRow(t task.Task, notes []task.Note, a task.Action) (Row, error) {
	document, err := task.Encode(t)
	if err != nil {
		return Row{}, &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: a, Err: err}
	}
	outline, err := task.Encode(t.Outline())
	if err != nil {
		return Row{}, &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: a, Err: err}
	}
	remarks, err := NewRemarks(notes, a)
	return Row{Task: t, DueMicros: t.Due().UnixMicro(), Document: string(document), OutlineText: string(outline), Remarks: remarks}, err
}

// Size returns about how many bytes are written.
func (r *Row) Size() int { return len(r.Document) + len(r.OutlineText) + SizeOf(r.Remarks) }

// Pending reports whether the task counts as pending.
func (r *Row) Pending() bool { return !r.State.Terminal() }

// Micros returns the first whole microsecond that is not before t, so that
// comparing whole microseconds with it is the same as comparing times.
func Micros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

// tasksOf returns the tasks whose place and documents are the columns of rows.
// Of one that cannot be read it returns the place alone, and with all others an
// error about it.
func tasksOf(rows *sql.Rows) (found []task.Task, unreadable, err error) {
	defer rows.Close()
	for rows.Next() {
		var created int64
		var id string
		var document sql.RawBytes
		if err := rows.Scan(&created, &id, &document); err != nil {
			return nil, nil, err
		}
		t, err := task.Decode(document)
		if err != nil {
			unreadable = errors.Join(unreadable, err)
			t = task.Task{ID: task.ID(id), CreatedAt: time.UnixMicro(created)}
		}
		found = append(found, t)
	}
	return found, unreadable, rows.Err()
}

// headsOf reads the heads of tasks from rows, and closes them.
func headsOf(rows *sql.Rows) (found []task.Task, err error) {
	defer rows.Close()
	for rows.Next() {
		var created int64
		var t task.Task
		if err := rows.Scan(&created, &t.ID, &t.Owner, &t.State, &t.Version); err != nil {
			return nil, err
		}
		t.CreatedAt = time.UnixMicro(created).UTC()
		found = append(found, t)
	}
	return found, rows.Err()
}

// outlinesFrom reads outlines from rows, and closes them. A task without one, or
// with one that cannot be read, has no version.
func outlinesFrom(rows *sql.Rows) (found []task.Task, err error) {
	defer rows.Close()
	for rows.Next() {
		var created int64
		var t task.Task
		var document sql.RawBytes
		if err := rows.Scan(&created, &t.ID, &document); err != nil {
			return nil, err
		}
		t.CreatedAt = time.UnixMicro(created).UTC()
		if outline, err := task.Decode(document); err == nil {
			t = outline
		}
		found = append(found, t)
	}
	return found, rows.Err()
}

// readable returns the tasks that could be read, in the place of all.
func readable(found []task.Task) []task.Task {
	return slices.DeleteFunc(found, func(t task.Task) bool { return t.Version == 0 })
}

// A selection is the query for a page. Its parameters are numbered in the
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

// outlinesOf adds the outlines, if they are those of the same version, to the
// statement that selects heads.
const outlinesOf = `SELECT h.created_at, h.id, o.document FROM (%s) AS h
	LEFT JOIN outlines AS o ON o.task = h.id AND o.version = h.version ORDER BY h.created_at DESC, h.id`

// statement asks for pending and terminal tasks apart, so that the few of one
// kind are found among any number of the other. The digest of a call is rare
// enough to ask for both at once, and tasks that owe something have an index of
// their own.
func (s *selection) statement(q task.Query) string {
	pending := len(q.States) == 0 || slices.ContainsFunc(q.States, func(s task.State) bool { return !s.Terminal() })
	terminal := len(q.States) == 0 || slices.ContainsFunc(q.States, task.State.Terminal)
	switch {
	case q.Owing:
		return s.half("owing")
	case q.Digest != task.Digest{}:
		return s.half()
	case pending && !terminal:
		return s.half("pending = TRUE")
	case terminal && !pending:
		return s.half("pending = FALSE")
	}
	return "SELECT * FROM (SELECT * FROM (" + s.half("pending = TRUE") +
		") AS p UNION ALL SELECT * FROM (" + s.half("pending = FALSE") + ") AS t) AS halves" + s.order()
}

// columns returns what tasksOf reads, or headsOf.
func (s *selection) columns() string {
	if s.heads {
		return "created_at, id, owner, state, version"
	}
	return "created_at, id, document"
}

func (s *selection) half(and ...string) string {
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

// pageOf makes a page of q from one task more than it has, if there is one.
// Those that could not be read keep their place and are not shown.
func pageOf(q task.Query, found []task.Task) task.Page {
	page := task.Page{Tasks: found}
	if size := q.PageSize(); len(found) > size {
		page.Tasks = found[:size]
		page.Next = q.CursorAfter(page.Tasks[size-1].Position())
	}
	page.Tasks = readable(page.Tasks)
	return page
}
