package sqlcore

import (
	"bytes"
	"context"
	"database/sql"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// The statements that read records.
const (
	GetRecord   = "SELECT name, version, expires, value FROM records WHERE name = $1"
	ListRecords = "SELECT name, version, expires, value FROM records WHERE name > $1 AND name >= $2 AND name < $3 ORDER BY name LIMIT $4"
)

const (
	listRecordsBack = "SELECT name, version, expires, value FROM records WHERE name > $1 AND name >= $2 AND name < $3 ORDER BY name DESC LIMIT $4"
	sizeRecords     = "SELECT COALESCE(SUM(LENGTH(value)), 0) FROM records WHERE name >= $1 AND name < $2"
	updateRecord    = "UPDATE records SET version = $1, expires = $2, value = $3 WHERE name = $4 AND version + 1 = $1"
	deleteRecord    = "DELETE FROM records WHERE name = $1"
	sweepRecords    = `DELETE FROM records WHERE name IN (SELECT name FROM
		(SELECT name FROM records WHERE expires < $1 ORDER BY expires LIMIT $2) AS gone)`
)

// A Statement is a statement with its arguments.
type Statement struct {
	Query string
	Args  []any
}

// GetRecord implements [gatestore.Records].
func (r Reader) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	return request(ctx, r.db, action.GetRecord, func() (gatestore.Record, error) {
		found, err := Select(ctx, r.db, scanRecord, GetRecord, name)
		if err != nil {
			return gatestore.Record{}, err
		}
		if len(found) == 0 {
			return gatestore.Record{}, gatestore.NoRecord(name)
		}
		return found[0], nil
	})
}

func scanRecord(rows *sql.Rows) (r gatestore.Record, err error) {
	var expires sql.NullInt64
	err = rows.Scan(&r.Name, &r.Version, &expires, &r.Value)
	if expires.Valid {
		r.Expires = time.UnixMicro(expires.Int64).UTC()
	}
	return r, err
}

// ListRecords implements [gatestore.Records].
func (r Reader) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	return request(ctx, r.db, action.ListRecords, func() ([]gatestore.Record, error) {
		after, from, to := q.Bounds()
		query := ListRecords
		if q.Descending {
			query = listRecordsBack
		}
		return Select(ctx, r.db, scanRecord, query, after, from, to, max(0, q.Limit))
	})
}

// SizeRecords implements [gatestore.Records]. Databases know the length of a long value without
// reading it.
func (r Reader) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	return request(ctx, r.db, action.SizeRecords, func() (int64, error) {
		_, from, to := gatestore.RecordQuery{Prefix: prefix}.Bounds()
		sizes, err := Select(ctx, r.db, func(rows *sql.Rows) (size int64, err error) { return size, rows.Scan(&size) }, sizeRecords, from, to)
		if err != nil {
			return 0, err
		}
		return sizes[0], nil
	})
}

// A RecordWriter has the methods of a store that change records.
type RecordWriter struct {
	dialect Dialect
	apply   Apply
}

// An Apply runs a statement and returns how many records it changed.
type Apply func(ctx context.Context, a action.Name, s Statement) (int, error)

// NewRecordWriter returns the writer of a store that runs statements with apply.
func NewRecordWriter(d Dialect, apply Apply) RecordWriter {
	return RecordWriter{dialect: d, apply: func(ctx context.Context, a action.Name, s Statement) (int, error) {
		s.Query, s.Args = d.Text(s.Query, s.Args...)
		return apply(ctx, a, s)
	}}
}

// PutRecord implements [gatestore.Records].
func (w RecordWriter) PutRecord(ctx context.Context, r gatestore.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	query := updateRecord // changes no row if the version differs
	if r.Version == 1 {
		query = w.dialect.insertRecord()
	}
	var expires any
	if !r.Expires.IsZero() {
		expires = r.Expires.UnixMicro()
	}
	changed, err := w.apply(ctx, action.PutRecord, Statement{query, []any{r.Version, expires, bytes.Clone(r.Value), r.Name}})
	if err == nil && changed == 0 {
		return r.VersionConflict()
	}
	return err
}

// DeleteRecord implements [gatestore.Records].
func (w RecordWriter) DeleteRecord(ctx context.Context, name string) error {
	_, err := w.apply(ctx, action.DeleteRecord, Statement{deleteRecord, []any{name}})
	return err
}

// SweepRecords implements [gatestore.Records].
func (w RecordWriter) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return w.apply(ctx, action.SweepRecords, Statement{sweepRecords, []any{Micros(before), max(0, limit)}})
}
