// Package sqlstore keeps tasks in a SQL database, so that they outlive the
// process.
//
// [OpenSQLite] keeps them in a file, for one process, or for several on the same
// machine that share it. What Create, Swap and
// WriteChunk have acknowledged is on disk: it survives a crash of the process
// and of the machine, as far as the disk does what it says when it is told to
// flush. Most of a large answer is in a file of its own, beside the database, which is
// on disk before the task can be completed with it. The file must be on a local disk, since network file systems lock and
// flush unreliably.
//
// [OpenPostgres] keeps them in a PostgreSQL database, for any number of
// replicas. What is acknowledged is as durable as the server's commits are: it
// must run with fsync and synchronous_commit on, which are the defaults, and
// with synchronous replication if a standby is to take over without a loss.
//
// A task is stored as one document, as [task.Encode] makes it. A few columns
// beside it repeat what queries select and order by; nothing here knows what
// a task may become. The tables are made, and brought up to date, by whoever
// opens the database first.
//
// # How changes are made
//
// SQLite has one writer at a time and a flush takes long, so changes are
// committed in groups: one goroutine takes all that have come in meanwhile,
// makes them in one transaction and lets every caller know. Limits are checked
// inside that transaction, one change after the other. What a process remembers
// of the file, it forgets when another process has changed it.
//
// PostgreSQL has many writers. Those of one owner wait for each other, since
// the owner's limit must be exact. How many tasks there are of all owners is
// counted in sixteen rows, so that others do not, unless the limit is near.
//
// Notes for the journal are written in the transaction of the change that they
// tell of. With SQLite they get their place in it there and then. With
// PostgreSQL that would have all writers wait for each other: notes are put
// into an inbox, and chained in groups, a moment later or when somebody reads.
//
// A context that ends while a change is being written does not undo it: the
// caller is told what became of it, if that is known within five seconds.
//
// # How changes are told
//
// With SQLite a process rings a bell after each commit: it writes to a file that
// all processes watch. A process that hears the bell asks the database whether
// another process has changed it, and then wakes everybody who watches.
//
// With PostgreSQL replicas tell each other with NOTIFY, after the fact. A replica
// that has lost its connection wakes everybody who watches once it is back.
package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// The reasons for which a database cannot be used until somebody sees to it.
var (
	ErrInUse    = errors.New("another process uses the file")
	ErrReplaced = errors.New("the file was removed or replaced")
	ErrSchema   = errors.New("the schema is not one that this program knows")
	ErrDamaged  = errors.New("the database is damaged")
)

// A record is a task as a row of the table, and what is told of it. All that may be shared with the
// caller has been read from the task: it is written later.
type record struct {
	task.Task
	due      int64
	document string
	outline  string
	remarks  []remark
	answer   int64 // how large the file of its answer is; zero if there is none
}

func newRecord(t task.Task, notes []task.Note, a task.Action) (record, error) {
	document, err := task.Encode(t)
	if err != nil {
		return record{}, &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: a, Err: err}
	}
	outline, err := task.Encode(t.Outline())
	if err != nil {
		return record{}, &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: a, Err: err}
	}
	remarks, err := newRemarks(notes, a)
	return record{Task: t, due: t.Due().UnixMicro(), document: string(document), outline: string(outline), remarks: remarks}, err
}

func (r *record) size() int { return len(r.document) + len(r.outline) + sizeOf(r.remarks) }

func (r *record) pending() bool { return !r.State.Terminal() }

// micros returns the first whole microsecond that is not before t, so that
// comparing whole microseconds with it is the same as comparing times.
func micros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

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

// selectPage returns the statement that selects the page of q that follows a
// position, and its arguments.
func selectPage(q task.Query, after task.Position) (statement string, args []any) {
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
