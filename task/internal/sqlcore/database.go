package sqlcore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// How errors name what is done to a store beyond its contract.
const (
	ActionProbe  task.Action = "probe"
	ActionVacuum task.Action = "vacuum"
	actionVisit  task.Action = "visit"
)

// A Database is where a store keeps its tables.
type Database struct {
	Name      string // as errors call it
	DB        *sql.DB
	Prepared  Prepared          // statements that it pays to prepare once
	Explain   func(error) error // adds what it means to an error of the database
	Migration Migration

	closed atomic.Bool
}

// MarkClosed has everything refused from now on. It reports whether that was so already.
func (d *Database) MarkClosed() (already bool) { return d.closed.Swap(true) }

// Usable returns why nothing can be done, if that is so.
func (d *Database) Usable(ctx context.Context, a task.Action) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.closed.Load() {
		return &task.Error{Kind: task.KindClosed, Action: a}
	}
	return nil
}

// Fault returns what to tell of an error of the database.
func (d *Database) Fault(ctx context.Context, a task.Action, err error) error {
	if err == nil {
		return nil
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
	if statement := d.Prepared[query]; statement != nil {
		return statement.QueryRowContext(ctx, args...)
	}
	return d.DB.QueryRowContext(ctx, query, args...)
}

// A Preparer is a connection, or a pool of them.
type Preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// A Prepared holds statements by their text.
type Prepared map[string]*sql.Stmt

// Add makes sure that there is a statement for the query.
func (p Prepared) Add(ctx context.Context, on Preparer, query string) error {
	if p[query] != nil {
		return nil
	}
	statement, err := on.PrepareContext(ctx, query) //nolint:sqlclosecheck // lives as long as what it is prepared on
	if err != nil {
		return err
	}
	p[query] = statement
	return nil
}
