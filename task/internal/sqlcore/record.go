package sqlcore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"time"

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

// A Statement is what changes records.
type Statement struct {
	Query string
	Args  []any
}

// putting returns the statement that keeps r: it changes one row, or none if
// there is another version.
func putting(r task.Record) (Statement, error) {
	if err := r.Check(); err != nil {
		return Statement{}, err
	}
	query := updateRecord
	if r.Version == 1 {
		query = insertRecord
	}
	var expires any
	if !r.Expires.IsZero() {
		expires = r.Expires.UnixMicro()
	}
	return Statement{query, []any{r.Version, expires, bytes.Clone(r.Value), r.Name}}, nil
}

// GetRecord implements [task.Records].
func (r Reader) GetRecord(ctx context.Context, name string) (task.Record, error) {
	if err := r.db.Usable(ctx, task.ActionGetRecord); err != nil {
		return task.Record{}, err
	}
	found := task.Record{Name: name}
	var expires sql.NullInt64
	switch err := r.db.Row(ctx, getRecord, name).Scan(&found.Version, &expires, &found.Value); {
	case errors.Is(err, sql.ErrNoRows):
		return task.Record{}, task.NoRecord(name)
	case err != nil:
		return task.Record{}, r.db.Fault(ctx, task.ActionGetRecord, err)
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
func (r Reader) ListRecords(ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
	if err := r.db.Usable(ctx, task.ActionListRecords); err != nil {
		return nil, err
	}
	after, from, to := q.Bounds()
	rows, err := r.db.DB.QueryContext(ctx, listRecords, after, from, to, max(0, q.Limit))
	if err != nil {
		return nil, r.db.Fault(ctx, task.ActionListRecords, err)
	}
	defer rows.Close()
	var found []task.Record
	for rows.Next() {
		var one task.Record
		var expires sql.NullInt64
		if err := rows.Scan(&one.Name, &one.Version, &expires, &one.Value); err != nil {
			return nil, r.db.Fault(ctx, task.ActionListRecords, err)
		}
		one.Expires = expiry(expires)
		found = append(found, one)
	}
	return found, r.db.Fault(ctx, task.ActionListRecords, rows.Err())
}

// A RecordWriter is the half of a store that changes records.
type RecordWriter struct{ apply Apply }

// An Apply runs a statement and returns how many records it changed.
type Apply func(ctx context.Context, a task.Action, s Statement) (int, error)

// NewRecordWriter returns the writer of a store that runs statements with apply.
func NewRecordWriter(apply Apply) RecordWriter { return RecordWriter{apply: apply} }

// PutRecord implements [task.Records].
func (w RecordWriter) PutRecord(ctx context.Context, r task.Record) error {
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
func (w RecordWriter) DeleteRecord(ctx context.Context, name string) error {
	_, err := w.apply(ctx, task.ActionDeleteRecord, Statement{deleteRecord, []any{name}})
	return err
}

// SweepRecords implements [task.Records].
func (w RecordWriter) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return w.apply(ctx, task.ActionSweepRecords, Statement{sweepRecords, []any{Micros(before), max(0, limit)}})
}
