package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A session is the writer's connection.
type session struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
	pending  *ledger
}

func newSession(ctx context.Context, db *sql.DB, maxBytes int64, pending *ledger) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, prepared: make(map[string]*sql.Stmt), pending: pending}
	if err := s.limit(ctx, maxBytes); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// limit sets how large the file may become.
func (s *session) limit(ctx context.Context, maxBytes int64) error {
	if maxBytes == 0 {
		return nil
	}
	var pageSize int64
	if err := s.conn.QueryRowContext(ctx, "PRAGMA page_size").Scan(&pageSize); err != nil {
		return err
	}
	_, err := s.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count(%d)", max(1, maxBytes/pageSize)))
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

func (s *session) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if statement := s.prepared[query]; statement != nil {
		return statement, nil
	}
	statement, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.prepared[query] = statement
	return statement, nil
}

func (s *session) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	statement, err := s.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return statement.ExecContext(ctx, args...)
}

// A lookup is a query for one row.
type lookup struct {
	query string
	args  []any
}

// find reads the row into the variables that to points to, if there is one.
func (s *session) find(ctx context.Context, l lookup, to ...any) (bool, error) {
	statement, err := s.statement(ctx, l.query)
	if err != nil {
		return false, err
	}
	err = statement.QueryRowContext(ctx, l.args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

const (
	countAll   = "SELECT count(*) FROM tasks WHERE pending = TRUE"
	countOwner = "SELECT count(*) FROM tasks WHERE owner = $1 AND pending = TRUE"
	findSame   = "SELECT id FROM tasks WHERE digest = $1 AND owner = $2 AND pending = TRUE LIMIT 1"
)

// load returns what is pending, as far as limits need to know.
func (s *session) load(ctx context.Context, t *task.Task, limits task.Limits) (task.Load, error) {
	var load task.Load
	if limits.Unique {
		if _, err := s.find(ctx, lookup{findSame, []any{t.Digest[:], t.Owner}}, &load.Same); err != nil {
			return load, err
		}
	}
	if limits.PerOwner > 0 {
		n, known := s.pending.owners[t.Owner]
		if !known {
			if _, err := s.find(ctx, lookup{countOwner, []any{t.Owner}}, &n); err != nil {
				return load, err
			}
			if len(s.pending.owners) >= ownersKept {
				clear(s.pending.owners)
			}
			s.pending.owners[t.Owner] = n
		}
		load.Owner = n
	}
	if limits.Total > 0 {
		if s.pending.total < 0 {
			if _, err := s.find(ctx, lookup{query: countAll}, &s.pending.total); err != nil {
				return load, err
			}
		}
		load.Total = s.pending.total
	}
	return load, nil
}
