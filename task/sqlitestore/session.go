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
	conn            *sql.Conn
	prepared        sqlcore.Prepared
	loads           loadCache
	tail            journalTail
	changed         []sqlcore.ChangedTask // by the changes of this transaction
	lastDataVersion int64                 // the version of the data for which loads and tail are valid; zero at first
	tables          int                   // the version of the tables that this program knows
	maxBytes        int64                 // the limit for the file and the files beside it; zero means no limit
	overLimit       bool                  // the file is larger than maxBytes, and must not use its free pages
}

func newSession(ctx context.Context, db *sql.DB, maxBytes int64, tables int) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, prepared: make(sqlcore.Prepared), maxBytes: maxBytes, tables: tables}
	s.loads.forget()
	if err := s.setLimit(ctx); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// setLimit limits the file to the space that the files with answers leave.
func (s *session) setLimit(ctx context.Context) error {
	if s.maxBytes == 0 {
		return nil
	}
	u, err := s.usage(ctx)
	if err != nil {
		return err
	}
	most := max(1, (s.maxBytes-u.files)/u.pageSize)
	s.overLimit = u.pages > most
	_, err = s.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count(%d)", most))
	return err
}

// excess returns the number of bytes by which the limit is exceeded. SQLite enforces the limit,
// unless the file is already larger.
func (s *session) excess(ctx context.Context) (int64, error) {
	if !s.overLimit {
		return 0, nil
	}
	u, err := s.usage(ctx)
	if err != nil {
		return 0, err
	}
	free, err := s.free(ctx)
	return max(0, u.files+u.pages*u.pageSize-free-s.maxBytes), err
}

// diskUsage is the space in use: bytes of answer files, and pages of the database.
type diskUsage struct{ files, pages, pageSize int64 }

func (s *session) usage(ctx context.Context) (u diskUsage, err error) {
	err = errors.Join(
		s.find(ctx, sumResults, nil, &u.files),
		s.find(ctx, "PRAGMA page_count", nil, &u.pages),
		s.find(ctx, "PRAGMA page_size", nil, &u.pageSize))
	return u, err
}

const (
	dataVersion   = "PRAGMA data_version" // changes after a commit by another connection
	schemaVersion = "SELECT max(version) FROM schema_version"
)

// catchUp drops the cached state if another process has changed the file, and then calls
// changed. It returns [errNewer] if a newer program has migrated the tables, because this
// program must not write to them.
func (s *session) catchUp(ctx context.Context, changed func()) error {
	var data int64
	if err := s.find(ctx, dataVersion, nil, &data); err != nil || data == s.lastDataVersion {
		return err
	}
	s.lastDataVersion = data
	s.loads.forget()
	s.tail.forget()
	changed()
	if err := s.setLimit(ctx); err != nil {
		return err
	}
	var found int
	err := s.find(ctx, schemaVersion, nil, &found)
	if err == nil && found > s.tables {
		err = fmt.Errorf("%w: %w from version %d to version %d; restart this one as the newer version", ErrSchema, errNewer, s.tables, found)
	}
	return err
}

// close rolls back an open transaction and discards the connection, whose state is unknown.
func (s *session) close(ctx context.Context) {
	for _, statement := range s.prepared {
		_ = statement.Close()
	}
	_, _ = s.conn.ExecContext(ctx, "ROLLBACK") // fails if there is no transaction
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// exec runs a statement and returns the number of changed rows.
func (s *session) exec(ctx context.Context, query string, args ...any) (int, error) {
	if err := s.prepared.Add(ctx, s.conn, query); err != nil {
		return 0, err
	}
	result, err := s.prepared[query].ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// find runs a query for one row and scans the row into to. Without a row, it does not change
// to.
func (s *session) find(ctx context.Context, query string, args []any, to ...any) error {
	if err := s.prepared.Add(ctx, s.conn, query); err != nil {
		return err
	}
	err := s.prepared[query].QueryRowContext(ctx, args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

const (
	countAll    = "SELECT count(*) FROM tasks WHERE pending = TRUE"
	countOwner  = "SELECT count(*) FROM tasks WHERE owner = $1 AND pending = TRUE"
	sumAccount  = "SELECT coalesce(sum(size), 0) FROM tasks WHERE account = $1"
	countGroups = "SELECT count(*) FILTER (WHERE room = $1), count(*) FROM tasks WHERE pending = TRUE AND room > ''"
	findSame    = "SELECT id FROM tasks WHERE digest = $1 AND owner = $2 AND pending = TRUE LIMIT 1"
)

// load returns the counts that the limits for t need.
func (s *session) load(ctx context.Context, t *task.Task, limits task.Limits) (load task.Load, err error) {
	if limits.Unique {
		err = s.find(ctx, findSame, []any{t.Digest[:], t.Owner}, &load.Duplicate)
	}
	if limits.PerOwner > 0 && err == nil {
		load.Owner, err = cached(ctx, s, s.loads.pending, countOwner, t.Owner)
	}
	if limits.AccountBytes > 0 && err == nil {
		load.AccountBytes, err = cached(ctx, s, s.loads.bytes, sumAccount, t.Account())
	}
	if limits.CountsGroups(*t) && err == nil {
		err = s.find(ctx, countGroups, []any{t.Group}, &load.Group, &load.Grouped)
	}
	if limits.Total > 0 && err == nil {
		load.Total, err = s.countAll(ctx)
	}
	return load, err
}

// cached returns a number for key from the cache, or else the result of a query.
func cached[N int | int64](ctx context.Context, s *session, cache map[string]N, query, key string) (N, error) {
	has, known := cache[key]
	if known {
		return has, nil
	}
	err := s.find(ctx, query, []any{key}, &has)
	if len(cache) >= loadsKept {
		clear(cache)
	}
	if err == nil {
		cache[key] = has
	}
	return has, err
}

func (s *session) countAll(ctx context.Context) (int, error) {
	if s.loads.total >= 0 {
		return s.loads.total, nil
	}
	err := s.find(ctx, countAll, nil, &s.loads.total)
	return s.loads.total, err
}
