package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// A session is the writer's connection.
type session struct {
	conn      *sql.Conn
	prepared  sqlcore.Prepared
	pending   *ledger
	chain     *chain
	seen      int64 // the version of the data that pending and chain are about; zero at first
	tables    int   // the version of the tables that this program knows
	maxBytes  int64 // how large the file and those beside it may become; no limit
	overdrawn bool  // the file is larger than that: there may be free room in it that must stay free
}

func newSession(ctx context.Context, db *sql.DB, maxBytes int64, pending *ledger, journal *chain) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, prepared: make(sqlcore.Prepared), pending: pending, chain: journal, maxBytes: maxBytes}
	if err := s.limit(ctx); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// limit sets how large the file may become beside the files with answers.
func (s *session) limit(ctx context.Context) error {
	if s.maxBytes == 0 {
		return nil
	}
	u, err := s.use(ctx)
	if err != nil {
		return err
	}
	most := max(1, (s.maxBytes-u.files)/u.pageSize)
	s.overdrawn = u.pages > most
	_, err = s.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count(%d)", most))
	return err
}

// excess returns how many bytes are taken beyond what may be. SQLite sees to it that
// there are none unless the file is larger than it may be.
func (s *session) excess(ctx context.Context) (int64, error) {
	if !s.overdrawn {
		return 0, nil
	}
	u, err := s.use(ctx)
	if err != nil {
		return 0, err
	}
	free, err := s.free(ctx)
	return max(0, u.files+u.pages*u.pageSize-free-s.maxBytes), err
}

// usage tells how much room is taken.
type usage struct{ files, pages, pageSize int64 }

func (s *session) use(ctx context.Context) (u usage, err error) {
	err = errors.Join(
		s.find(ctx, lookup{query: sumResults}, &u.files),
		s.find(ctx, lookup{query: "PRAGMA page_count"}, &u.pages),
		s.find(ctx, lookup{query: "PRAGMA page_size"}, &u.pageSize))
	return u, err
}

const (
	dataVersion   = "PRAGMA data_version" // is another one after a commit by another connection
	schemaVersion = "SELECT max(version) FROM schema_version"
)

// catchUp forgets what is remembered of the file if another process has changed
// it, and then calls changed. It returns [task.ErrOutdated] if a newer program has
// changed the tables: this one must not write to them.
func (s *session) catchUp(ctx context.Context, changed func()) error {
	var data int64
	if err := s.find(ctx, lookup{query: dataVersion}, &data); err != nil || data == s.seen {
		return err
	}
	s.seen = data
	s.pending.forget()
	s.chain.forget()
	changed()
	if err := s.limit(ctx); err != nil {
		return err
	}
	var found int
	err := s.find(ctx, lookup{query: schemaVersion}, &found)
	if err == nil && found > s.tables {
		err = &task.Error{Kind: task.KindOutdated, Err: fmt.Errorf(
			"%w: a newer program has updated them from version %d to version %d; restart this one as the newer version", ErrSchema, s.tables, found)}
	}
	return err
}

// close undoes a transaction that is open and gives the connection up for
// good, since nobody knows what is wrong with it.
func (s *session) close(ctx context.Context) {
	for _, statement := range s.prepared {
		_ = statement.Close()
	}
	_, _ = s.conn.ExecContext(ctx, "ROLLBACK") // fails if there is nothing to undo
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

func (s *session) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := s.prepared.Add(ctx, s.conn, query); err != nil {
		return nil, err
	}
	return s.prepared[query].ExecContext(ctx, args...)
}

// A lookup is a query for one row.
type lookup struct {
	query string
	args  []any
}

// find reads the row into the variables that to points to, if there is one.
func (s *session) find(ctx context.Context, l lookup, to ...any) error {
	if err := s.prepared.Add(ctx, s.conn, l.query); err != nil {
		return err
	}
	err := s.prepared[l.query].QueryRowContext(ctx, l.args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

const (
	countAll   = "SELECT count(*) FROM tasks WHERE pending = TRUE"
	countOwner = "SELECT count(*) FROM tasks WHERE owner = $1 AND pending = TRUE"
	findSame   = "SELECT id FROM tasks WHERE digest = $1 AND owner = $2 AND pending = TRUE LIMIT 1"
)

// load returns what is pending, as far as limits need to know.
func (s *session) load(ctx context.Context, t *task.Task, limits task.Limits) (load task.Load, err error) {
	if limits.Unique {
		err = s.find(ctx, lookup{findSame, []any{t.Digest[:], t.Owner}}, &load.Same)
	}
	if limits.PerOwner > 0 && err == nil {
		load.Owner, err = s.countOwner(ctx, t.Owner)
	}
	if limits.CountsRooms(*t) && err == nil {
		err = s.find(ctx, lookup{sqlcore.CountRooms, []any{t.Room}}, &load.Room, &load.Rooms)
	}
	if limits.Total > 0 && err == nil {
		load.Total, err = s.countAll(ctx)
	}
	return load, err
}

func (s *session) countOwner(ctx context.Context, owner string) (int, error) {
	n, known := s.pending.owners[owner]
	if known {
		return n, nil
	}
	err := s.find(ctx, lookup{countOwner, []any{owner}}, &n)
	if len(s.pending.owners) >= ownersKept {
		clear(s.pending.owners)
	}
	if err == nil {
		s.pending.owners[owner] = n
	}
	return n, err
}

func (s *session) countAll(ctx context.Context) (int, error) {
	if s.pending.total >= 0 {
		return s.pending.total, nil
	}
	err := s.find(ctx, lookup{query: countAll}, &s.pending.total)
	return s.pending.total, err
}
