package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	getRecord    = "SELECT version, expires, value FROM records WHERE name = $1"
	listRecords  = "SELECT name, version, expires, value FROM records WHERE name > $1 AND name >= $2 AND name < $3 ORDER BY name LIMIT $4"
	insertRecord = "INSERT INTO records (version, expires, value, name) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING"
	updateRecord = "UPDATE records SET version = $1, expires = $2, value = $3 WHERE name = $4 AND version + 1 = $1"
	deleteRecord = "DELETE FROM records WHERE name = $1"
	sweepRecords = `DELETE FROM records WHERE name IN
		(SELECT name FROM records WHERE expires < $1 ORDER BY expires LIMIT $2)`
)

// A statement is what changes records.
type statement struct {
	query string
	args  []any
}

// putting returns the statement that keeps r: it changes one row, or none if
// there is another version.
func putting(r task.Record) (statement, error) {
	if err := r.Check(); err != nil {
		return statement{}, err
	}
	query := updateRecord
	if r.Version == 1 {
		query = insertRecord
	}
	var expires any
	if !r.Expires.IsZero() {
		expires = r.Expires.UnixMicro()
	}
	return statement{query, []any{r.Version, expires, bytes.Clone(r.Value), r.Name}}, nil
}

// GetRecord implements [task.Records].
func (r *reader) GetRecord(ctx context.Context, name string) (task.Record, error) {
	if err := r.usable(ctx, task.ActionGetRecord); err != nil {
		return task.Record{}, err
	}
	found := task.Record{Name: name}
	var expires sql.NullInt64
	switch err := r.row(ctx, getRecord, name).Scan(&found.Version, &expires, &found.Value); {
	case errors.Is(err, sql.ErrNoRows):
		return task.Record{}, task.NoRecord(name)
	case err != nil:
		return task.Record{}, r.fault(ctx, task.ActionGetRecord, err)
	}
	found.Expires = expiry(expires)
	return found, nil
}

func expiry(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return time.UnixMicro(micros.Int64).UTC()
}

// ListRecords implements [task.Records].
func (r *reader) ListRecords(ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
	if err := r.usable(ctx, task.ActionListRecords); err != nil {
		return nil, err
	}
	after, from, to := q.Bounds()
	rows, err := r.db.QueryContext(ctx, listRecords, after, from, to, max(0, q.Limit))
	if err != nil {
		return nil, r.fault(ctx, task.ActionListRecords, err)
	}
	defer rows.Close()
	var found []task.Record
	for rows.Next() {
		var one task.Record
		var expires sql.NullInt64
		if err := rows.Scan(&one.Name, &one.Version, &expires, &one.Value); err != nil {
			return nil, r.fault(ctx, task.ActionListRecords, err)
		}
		one.Expires = expiry(expires)
		found = append(found, one)
	}
	return found, r.fault(ctx, task.ActionListRecords, rows.Err())
}

// A recordWriter is the half of a store that changes records.
type recordWriter struct {
	// apply runs a statement and returns how many records it changed.
	apply func(ctx context.Context, a task.Action, s statement) (int, error)
}

// PutRecord implements [task.Records].
func (w recordWriter) PutRecord(ctx context.Context, r task.Record) error {
	put, err := putting(r)
	if err != nil {
		return err
	}
	changed, err := w.apply(ctx, task.ActionPutRecord, put)
	if err == nil && changed == 0 {
		return r.Overtaken()
	}
	return err
}

// DeleteRecord implements [task.Records].
func (w recordWriter) DeleteRecord(ctx context.Context, name string) error {
	_, err := w.apply(ctx, task.ActionDeleteRecord, statement{deleteRecord, []any{name}})
	return err
}

// SweepRecords implements [task.Records].
func (w recordWriter) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return w.apply(ctx, task.ActionSweepRecords, statement{sweepRecords, []any{micros(before), max(0, limit)}})
}

// changeRecords has the writer run a statement.
func (s *SQLite) changeRecords(ctx context.Context, a task.Action, made statement) (int, error) {
	if err := s.usable(ctx, a); err != nil {
		return 0, err
	}
	c := &change{
		size: task.MaxRecordValue,
		do: func(ctx context.Context, tx *session) (outcome, error) {
			result, err := tx.exec(ctx, made.query, made.args...)
			if err != nil {
				return outcome{}, err
			}
			n, err := result.RowsAffected()
			return outcome{records: int(n)}, err
		},
	}
	if err := s.write(ctx, a, c); err != nil {
		return 0, err
	}
	return c.result.records, nil
}

// changeRecords runs a statement on a connection of the pool.
func (s *Postgres) changeRecords(ctx context.Context, a task.Action, c statement) (int, error) {
	if err := s.usable(ctx, a); err != nil {
		return 0, err
	}
	var changed int64
	err := s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, c.query, c.args...)
		changed = tag.RowsAffected()
		return err
	})
	return int(changed), s.fault(ctx, a, err)
}
