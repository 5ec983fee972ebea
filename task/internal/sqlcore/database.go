package sqlcore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// Actions that are not part of the contract of a store.
const (
	ActionProbe   action.Name = "probe"
	ActionVacuum  action.Name = "vacuum"
	actionReadAll action.Name = "visit"
)

// A Database is where a store keeps its tables.
type Database struct {
	Name      string // in error messages
	DB        *sql.DB
	Dialect   Dialect
	Prepared  Prepared          // frequent statements
	Explain   func(error) error // adds a meaning to errors of the database
	Migration Migration

	closed atomic.Bool
}

// MarkClosed makes [Database.Usable] fail. It reports whether the database was closed
// before.
func (d *Database) MarkClosed() (already bool) { return d.closed.Swap(true) }

// Usable returns an error if ctx has ended or the database is closed.
func (d *Database) Usable(ctx context.Context, a action.Name) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.closed.Load() {
		return &task.Error{Kind: task.ErrClosed, Action: a}
	}
	return nil
}

// Fault returns the error for the caller. A [*task.Error] with an action comes from the
// store itself, and stays as it is.
func (d *Database) Fault(ctx context.Context, a action.Name, err error) error {
	if known, ok := errors.AsType[*task.Error](err); err == nil || ok && known.Action != "" {
		return err
	}
	if refusal := d.Usable(ctx, a); refusal != nil {
		return refusal
	}
	err = d.Explain(err)
	if refusal, ok := errors.AsType[*task.Error](err); ok {
		refusal.Action, refusal.Detail = a, d.Name
		return err
	}
	return fmt.Errorf("task store %s: %s: %w", d.Name, a, err)
}

// Row runs a query for one row.
func (d *Database) Row(ctx context.Context, query string, args ...any) *sql.Row {
	query, args = d.Dialect.Text(query, args...)
	if statement := d.Prepared[query]; statement != nil {
		return statement.QueryRowContext(ctx, args...)
	}
	return d.DB.QueryRowContext(ctx, query, args...)
}

// request runs a read if the database is usable.
func request[T any](ctx context.Context, d *Database, a action.Name, run func() (T, error)) (T, error) {
	if err := d.Usable(ctx, a); err != nil {
		var nothing T
		return nothing, err
	}
	found, err := run()
	return found, d.Fault(ctx, a, err)
}

// A Querier is a database, or a connection to one.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// QueryContext runs a query for any number of rows.
func (d *Database) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	query, args = d.Dialect.Text(query, args...)
	if statement := d.Prepared[query]; statement != nil {
		return statement.QueryContext(ctx, args...)
	}
	return d.DB.QueryContext(ctx, query, args...)
}

// Select runs a query and returns the results of scan for its rows.
func Select[T any](ctx context.Context, on Querier, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, rows.Err()
}

// A Preparer is a connection, or a pool of them.
type Preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// A Prepared has prepared statements by their text.
type Prepared map[string]*sql.Stmt

// Add prepares the query, unless it is prepared.
func (p Prepared) Add(ctx context.Context, on Preparer, query string) error {
	if p[query] != nil {
		return nil
	}
	statement, err := on.PrepareContext(ctx, query) //nolint:sqlclosecheck // lives as long as its connection
	if err != nil {
		return err
	}
	p[query] = statement
	return nil
}
