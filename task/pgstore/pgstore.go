// Package pgstore keeps tasks in a PostgreSQL database, for any number of replicas.
//
// An acknowledged change is as durable as the server's commits. The server must run with fsync
// on, which is the default. If a standby must take over without losses, it also needs
// synchronous replication. The first replica that opens the database creates the tables or
// migrates them.
//
// # How changes are made
//
// PostgreSQL has many concurrent writers. Creations for one owner wait for each other,
// because the owner's limit must be exact. The tasks of all owners are counted in sixteen
// rows, so that creations for different owners rarely wait for each other.
//
// Notes for the journal are written to an inbox in the transaction of their change.
// Chaining them there would make all writers wait for each other, so they are chained in
// groups, a moment later or when the journal is read.
//
// A change that is being written is not undone when its context ends. The caller gets the
// outcome, if it is known within five seconds.
//
// # How watchers are notified
//
// Replicas notify each other with NOTIFY after a change. A replica that has lost its connection
// notifies all its watchers when it has connected again.
package pgstore

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// ErrSchema is the error of tables that a newer or a different program created.
var ErrSchema = sqlcore.ErrSchema

//go:embed migrations
var embedded embed.FS

// Options configure a store. URL is required. Other zero fields mean their default.
type Options struct {
	// URL is the address of the database, with its user, in the form of libpq. The tables are
	// in the first schema of the search path, which must not contain other tables:
	// postgres://gate@db/prod?search_path=thoughtgate.
	URL string

	MaxConns int           // connections besides the listening one; 16
	Timeout  time.Duration // the time limit for connecting, unless the URL sets one; 5 s
}

// A Store is a [gatestore.Store] in a PostgreSQL database, for any number of replicas.
type Store struct {
	reader
	recordWriter

	db       *sqlcore.Database
	pool     *pgxpool.Pool
	relay    *relay
	chaining storekit.Worker
}

// Aliases, so that the embedded fields are unexported.
type (
	reader       = sqlcore.Reader
	recordWriter = sqlcore.RecordWriter
)

var _ gatestore.Store = (*Store)(nil)

// Open connects to a database, and creates or migrates its tables if necessary. It returns
// [ErrSchema] if a newer or a different program created them.
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open task store in PostgreSQL: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, err
	}
	if config.MaxConns = 16; o.MaxConns > 0 {
		config.MaxConns = int32(min(o.MaxConns, 10_000))
	}
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return nil, err
	}
	tables := sqlcore.Schema{
		Files: files,
		Lock:  "SELECT pg_advisory_xact_lock(4951032817645)", // an arbitrary number
		Names: tableNames,
	}
	newest, err := tables.Newest()
	if err != nil {
		return nil, err
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return configureConn(ctx, conn, newest) }
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = cmp.Or(o.Timeout, sqlcore.OutcomeTimeout)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db:   &sqlcore.Database{Name: "in PostgreSQL", DB: stdlib.OpenDBFromPool(pool), Explain: explain},
		pool: pool,
	}
	s.chaining.Before, s.chaining.Timeout, s.chaining.Work = chainDelay, sqlcore.OutcomeTimeout, s.chainNotes
	s.reader, s.recordWriter = sqlcore.NewReader(s.db), sqlcore.NewRecordWriter(s.db.Dialect, func(ctx context.Context, a action.Name, c sqlcore.Statement) (int, error) {
		return s.exec(ctx, a, c.Query, c.Args...)
	})
	if err := s.start(ctx, tables, config.ConnConfig); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// configureConn sets up a connection. It sends the version of the tables that this program
// knows: when a newer program has migrated them, the server refuses writes of this program.
// It makes the server abort idle transactions: a replica that has lost its network would
// otherwise hold its locks for hours.
//
// Two settings override those of the role or the database. At another isolation level, a
// transaction would not see the changes of the transaction for which it has waited. An
// asynchronous commit could be lost after it was acknowledged.
func configureConn(ctx context.Context, conn *pgx.Conn, version int) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("SET thoughtgate.schema = %d; SET idle_in_transaction_session_timeout = %d; "+
		"SET default_transaction_isolation = 'read committed'; "+
		"SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
		//mutate:swap "version" "version+1000" TestOutdatedGateOnlyReads an older program writes to newer tables
		version, sqlcore.OutcomeTimeout.Milliseconds()))
	return err
}

func (s *Store) start(ctx context.Context, tables sqlcore.Schema, config *pgx.ConnConfig) error {
	tx, err := s.db.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if s.db.Migration, err = tables.Migrate(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if s.relay, err = newRelay(ctx, s.pool, config); err != nil {
		return err
	}
	s.chaining.Start(ctx)
	return nil
}

const tableNames = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"

// Close implements [gatestore.Store]. It waits for running changes.
func (s *Store) Close() error {
	if s.db.MarkClosed() {
		return nil
	}
	if s.relay != nil {
		s.relay.close()
	}
	s.chaining.Close()
	err := s.db.DB.Close()
	s.pool.Close()
	return err
}

// Vacuum makes the server free deleted rows and update its statistics. The server also does
// this automatically.
func (s *Store) Vacuum(ctx context.Context) error {
	if err := s.db.Usable(ctx, sqlcore.ActionVacuum); err != nil {
		return err
	}
	rows, err := s.pool.Query(ctx, tableNames)
	if err != nil {
		return s.db.Fault(ctx, sqlcore.ActionVacuum, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		if err == nil {
			_, err = s.pool.Exec(ctx, "VACUUM (ANALYZE) "+pgx.Identifier{name}.Sanitize())
		}
	}
	return s.db.Fault(ctx, sqlcore.ActionVacuum, err)
}

// Probe returns nil if the store can be written to and read. It writes an unchanged value.
func (s *Store) Probe(ctx context.Context) error {
	_, err := s.exec(ctx, sqlcore.ActionProbe, "UPDATE slots SET pending = pending WHERE slot = 0")
	return err
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	if err := s.db.Usable(ctx, action.Watch); err != nil {
		return nil, err
	}
	return s.relay.notifier.Watch(ctx, ref)
}

const (
	addNotes  = "INSERT INTO journal_inbox (note) SELECT note FROM unnest($1::text[]) WITH ORDINALITY AS n (note, i) ORDER BY i"
	findState = "SELECT state FROM tasks WHERE id = $1"
	// replaceTask also decrements the slot of a task that ends, and adds notes.
	replaceTask = `WITH old AS (SELECT id, owner, pending FROM tasks WHERE id = $1 AND version = $2 FOR UPDATE),
		freed AS (UPDATE slots SET pending = pending - 1
			WHERE slot = $3 AND NOT $4::boolean AND EXISTS (SELECT FROM old WHERE old.pending)),
		noted AS (INSERT INTO journal_inbox (note)
			SELECT note FROM unnest($9::text[]) WITH ORDINALITY AS n (note, i) WHERE EXISTS (SELECT FROM old) ORDER BY i),
		outlined AS (INSERT INTO outlines (task, version, document) SELECT old.id, $7, $11 FROM old
			ON CONFLICT (task) DO UPDATE SET version = excluded.version, document = excluded.document)
		UPDATE tasks SET state = $5, pending = $4, due = $6, version = $7, document = $8, owing = $10, size = $12, disposable = $13
		FROM old WHERE tasks.id = old.id RETURNING old.owner`
	// deleteChunks and deleteTasks use arrays: otherwise the planner assumes a long list
	// and scans the table.
	deleteChunks = `DELETE FROM chunks WHERE ctid = ANY (ARRAY (SELECT ctid FROM chunks WHERE task = ANY (ARRAY
		(SELECT id FROM tasks WHERE %s ORDER BY due LIMIT %d)) LIMIT %d))`
	deleteTasks = `DELETE FROM tasks WHERE id = ANY (ARRAY
		(SELECT id FROM tasks WHERE %s ORDER BY due LIMIT %d FOR UPDATE SKIP LOCKED))
		AND NOT EXISTS (SELECT FROM chunks WHERE task = id) RETURNING id, owner`
)

// chunksAtOnce is the number of chunks that one statement deletes. Deleting all chunks of a
// task may take longer than the server allows for a statement.
const chunksAtOnce = 100

// finishing returns a context for an operation that should not be interrupted. When ctx ends,
// it continues for a limited time, so that the outcome becomes known.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), sqlcore.OutcomeTimeout)
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	r, err := storekit.NewRow(t, notes, action.Swap)
	if err != nil {
		return err
	}
	var owner string
	err = s.change(ctx, action.Swap, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, replaceTask, string(r.ID), r.Version-1, slot(r.ID), r.Pending(),
			string(r.State), r.Due().UnixMicro(), r.Version, r.Document, storekit.Documents(r.Notes), r.OwesCancellation(), r.OutlineText,
			r.Weight(), r.Disposable()).Scan(&owner)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return s.versionConflict(ctx, t.ID)
	}
	if err != nil {
		return err
	}
	if len(notes) > 0 {
		s.chaining.Schedule()
	}
	s.relay.notify(sqlcore.ChangedTask{ID: t.ID, Owner: owner})
	return nil
}

// versionConflict returns the error for a task that could not be replaced.
func (s *Store) versionConflict(ctx context.Context, id task.ID) error {
	var state task.State
	err := s.db.Row(ctx, findState, string(id)).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return task.AnyOwner().Ref(id).NotFound(action.Swap)
	case err != nil:
		return s.db.Fault(ctx, action.Swap, err)
	}
	return task.AnyOwner().Ref(id).VersionConflict(state)
}

// change runs f on a connection. When ctx ends, the wait for a connection ends, but not f.
func (s *Store) change(ctx context.Context, a action.Name, f func(context.Context, *pgxpool.Conn) error) error {
	if err := s.db.Usable(ctx, a); err != nil {
		return err
	}
	err := s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		bounded, cancel := finishing(ctx)
		defer cancel()
		return f(bounded, conn)
	})
	return s.db.Fault(ctx, a, err)
}

// exec is change for one statement. It returns the number of changed rows.
func (s *Store) exec(ctx context.Context, a action.Name, statement string, args ...any) (changed int, err error) {
	err = s.change(ctx, a, func(ctx context.Context, conn *pgxpool.Conn) error {
		done, err := conn.Exec(ctx, statement, args...)
		changed = int(done.RowsAffected())
		return err
	})
	return changed, err
}

// Sweep implements [task.Store]. If ctx ends before all chunks are deleted, the next Sweep
// continues.
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.deleteTasks(ctx, limit, sqlcore.Swept, sqlcore.Micros(before))
}

// Reclaim implements [gatestore.Reclaimer].
func (s *Store) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	where, args := sqlcore.Reclaim(account)
	return s.deleteTasks(ctx, limit, where, args...)
}

// deleteTasks deletes the first tasks that the condition selects, and their chunks before
// them. It returns the number of tasks.
func (s *Store) deleteTasks(ctx context.Context, limit int, where string, args ...any) (int, error) {
	for {
		deleted, err := s.exec(ctx, action.Sweep, fmt.Sprintf(deleteChunks, where, max(0, limit), chunksAtOnce), args...)
		if err != nil {
			return 0, err
		}
		if deleted < chunksAtOnce {
			break
		}
		select {
		case <-ctx.Done():
			return 0, nil // the next Sweep continues
		default:
		}
	}
	var swept []sqlcore.ChangedTask
	err := s.change(ctx, action.Sweep, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, fmt.Sprintf(deleteTasks, where, max(0, limit)), args...)
		if err != nil {
			return err
		}
		swept, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t sqlcore.ChangedTask, err error) {
			err = row.Scan(&t.ID, &t.Owner)
			return t, err
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	s.relay.notify(swept...)
	return len(swept), nil
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.db.Usable(ctx, action.WriteChunk); err != nil {
		return err
	}
	var old sqlcore.StoredTask
	err := s.db.Row(ctx, sqlcore.FindTask, string(ref.ID)).Scan(old.Columns()...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s.db.Fault(ctx, action.WriteChunk, err)
	}
	c := sqlcore.Chunk{Ref: ref, N: n, Data: data}
	if err := c.Refusal(old); err != nil {
		return err
	}
	_, err = s.exec(ctx, action.WriteChunk, putChunk, string(ref.ID), n, data)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == foreignKeyViolation {
		return ref.NotFound(action.WriteChunk) // the task was deleted concurrently
	}
	return err
}

// Error codes of PostgreSQL.
const (
	uniqueViolation     = "23505"
	foreignKeyViolation = "23503"
	invalidText         = "22021" // for example a zero byte
	tooLarge            = "54000" // for example a name that is too long for an index
	diskFull            = "53100"
	outdated            = "TG001" // raised by the migration 0003_writers
)

// explain converts some errors of the database to errors of this package.
func explain(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && e.Code == diskFull:
		return &task.Error{Kind: task.ErrCapacityExceeded, StoreFull: true, Err: err}
	case ok && e.Code == outdated:
		return &task.Error{Kind: task.ErrOutdated, Err: fmt.Errorf("%w: %w", ErrSchema, err)}
	case ok && (e.Code == invalidText || e.Code == tooLarge):
		return &task.Error{Kind: task.ErrInvalid, Err: err}
	default:
		return err
	}
}
