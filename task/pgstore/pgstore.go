// Package pgstore keeps tasks in a PostgreSQL database, for any number of replicas.
//
// An acknowledged change is as durable as the server's commits are. The server must
// run with fsync on, which is the default, and with
// synchronous replication if a standby is to take over without a loss. The
// replica that opens the database first makes the tables, or brings them up to date.
//
// # How changes are made
//
// PostgreSQL has many writers. Those of one owner wait for each other, since
// the owner's limit must be exact. How many tasks there are of all owners is
// counted in sixteen rows, so that others do not, unless the limit is near.
//
// Notes for the journal are written in the transaction of the change that they
// tell of. If they got their place in the journal there and then, all writers would
// wait for each other: notes are put into an inbox, and chained in groups, a moment
// later or when somebody reads.
//
// A context that ends while a change is being written does not undo it: the
// caller is told what became of it, if that is known within five seconds.
//
// # How changes are told
//
// Replicas tell each other with NOTIFY, after the fact. A replica
// that has lost its connection wakes everybody who watches once it is back.
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
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// ErrSchema is the error of tables that were made by a newer program or by a
// different one.
var ErrSchema = sqlcore.ErrSchema

//go:embed migrations
var embedded embed.FS

// Options say where tasks are kept. Zero fields but URL mean their
// default.
type Options struct {
	// URL names the server, the database and the user, as libpq has it. The
	// tables are made in the first schema of the search path, which must not
	// have other tables: postgres://gate@db/prod?search_path=thoughtgate.
	URL string

	MaxConns int           // connections, but for the one that listens; 16
	Timeout  time.Duration // how long a connection may take to be made, unless the URL says so; 5 s
}

// A Store is a [task.GateStore] in a PostgreSQL database, for any number of
// replicas.
type Store struct {
	reader
	recordWriter

	db       *sqlcore.Database
	pool     *pgxpool.Pool
	relay    *relay
	chaining *chaining
}

// Parts of a store that its users do not see as fields.
type (
	reader       = sqlcore.Reader
	recordWriter = sqlcore.RecordWriter
)

var _ task.GateStore = (*Store)(nil)

// Open connects to a database, and makes or updates its tables if need
// be. It returns [ErrSchema] if they were made by a newer program or by a
// different one.
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
		Lock:  "SELECT pg_advisory_xact_lock(4951032817645)", // any number that others are unlikely to use
		Names: tableNames,
	}
	newest, err := tables.Newest()
	if err != nil {
		return nil, err
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return introduce(ctx, conn, newest) }
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = cmp.Or(o.Timeout, sqlcore.Patience)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db:   &sqlcore.Database{Name: "in PostgreSQL", DB: stdlib.OpenDBFromPool(pool), Explain: legible},
		pool: pool,
	}
	s.reader, s.recordWriter = sqlcore.NewReader(s.db), sqlcore.NewRecordWriter(s.changeRecords)
	if err := s.start(ctx, tables, config.ConnConfig); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// introduce sets up a connection. It tells which version of the tables this
// program knows: once a newer program has changed them, the server refuses what
// this one writes. And it has the server end a transaction that is left in the
// middle: a replica that the network has cut off would keep others from what it
// has locked until the server finds out that nobody is there, which takes hours.
//
// Two settings must not be those of the role or the database. At another isolation level
// a transaction does not see what the one before it, for which it waited, has written. And
// a commit that is not synchronous may be lost after it was acknowledged.
func introduce(ctx context.Context, conn *pgx.Conn, version int) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("SET thoughtgate.schema = %d; SET idle_in_transaction_session_timeout = %d; "+
		"SET default_transaction_isolation = 'read committed'; "+
		"SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
		version, sqlcore.Patience.Milliseconds()))
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
	s.chaining = newChaining(ctx, s.pool)
	return nil
}

const tableNames = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"

// Close implements [task.GateStore]. It waits for what is under way.
func (s *Store) Close() error {
	if s.db.MarkClosed() {
		return nil
	}
	if s.relay != nil {
		s.relay.close()
	}
	if s.chaining != nil {
		s.chaining.close()
	}
	err := s.db.DB.Close()
	s.pool.Close()
	return err
}

// Vacuum has the server clean up after what was deleted, and look at how much
// there is. The server does so by itself now and then.
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

// Probe returns nil if the store can be written to and read. What it writes is
// what is there.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.db.Usable(ctx, sqlcore.ActionProbe); err != nil {
		return err
	}
	err := s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, "UPDATE slots SET pending = pending WHERE slot = 0")
		return err
	})
	return s.db.Fault(ctx, sqlcore.ActionProbe, err)
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	if err := s.db.Usable(ctx, task.ActionWatch); err != nil {
		return nil, err
	}
	return s.relay.hub.Watch(ctx, ref)
}

const (
	lockOwner = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
	loadTasks = `SELECT (SELECT sum(pending) FROM slots)::bigint,
		(SELECT count(*) FROM (SELECT FROM tasks WHERE owner = $1 AND pending = TRUE LIMIT $2) AS mine),
		coalesce((SELECT id FROM tasks WHERE digest = $3 AND owner = $1 AND pending = TRUE LIMIT $4), ''),
		EXISTS (SELECT FROM tasks WHERE id = $5)`
	addNotes = "INSERT INTO journal_inbox (note) SELECT note FROM unnest($1::text[]) WITH ORDINALITY AS n (note, i) ORDER BY i"
	addTask  = `INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	findState = "SELECT state FROM tasks WHERE id = $1"
	countTask = "UPDATE slots SET pending = pending + 1 WHERE slot = $1"
	// replaceTask also takes a task that ends from its slot, and adds notes.
	replaceTask = `WITH old AS (SELECT id, owner, pending FROM tasks WHERE id = $1 AND version = $2 FOR UPDATE),
		freed AS (UPDATE slots SET pending = pending - 1
			WHERE slot = $3 AND NOT $4::boolean AND EXISTS (SELECT FROM old WHERE old.pending)),
		noted AS (INSERT INTO journal_inbox (note)
			SELECT note FROM unnest($9::text[]) WITH ORDINALITY AS n (note, i) WHERE EXISTS (SELECT FROM old) ORDER BY i),
		outlined AS (INSERT INTO outlines (task, version, document) SELECT old.id, $7, $11 FROM old
			ON CONFLICT (task) DO UPDATE SET version = excluded.version, document = excluded.document)
		UPDATE tasks SET state = $5, pending = $4, due = $6, version = $7, document = $8, owing = $10
		FROM old WHERE tasks.id = old.id RETURNING old.owner`
	// deleteChunks and deleteTasks have arrays, because the server takes a list whose
	// length it does not know for long enough to read the whole table.
	deleteChunks = `DELETE FROM chunks WHERE ctid = ANY (ARRAY (SELECT ctid FROM chunks WHERE task = ANY (ARRAY
		(SELECT id FROM tasks WHERE pending = FALSE AND due < $1 ORDER BY due LIMIT $2)) LIMIT $3))`
	deleteTasks = `DELETE FROM tasks WHERE id = ANY (ARRAY
		(SELECT id FROM tasks WHERE pending = FALSE AND due < $1 ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED))
		AND NOT EXISTS (SELECT FROM chunks WHERE task = id) RETURNING id, owner`
)

// chunksAtOnce is how many chunks one statement deletes. Those of one task alone can
// be so many that to delete them takes longer than a statement may.
const chunksAtOnce = 100

// finishing returns a context for what must not be left in the middle: it goes
// on for a while when ctx ends, so that its outcome is known.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), sqlcore.Patience)
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := s.db.Usable(ctx, task.ActionSwap); err != nil {
		return err
	}
	r, err := sqlcore.NewRow(t, notes, task.ActionSwap)
	if err != nil {
		return err
	}
	var owner string
	err = s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, replaceTask, string(r.ID), r.Version-1, slot(r.ID), r.Pending(),
			string(r.State), r.DueMicros, r.Version, r.Document, documents(r.Remarks), r.Owes(), r.OutlineText).Scan(&owner)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.overtaken(ctx, t.ID)
	case err != nil:
		return s.db.Fault(ctx, task.ActionSwap, err)
	}
	s.chaining.wake(len(notes))
	s.relay.notify(sqlcore.Touched{ID: t.ID, Owner: owner})
	return nil
}

// overtaken returns why a task could not be replaced.
func (s *Store) overtaken(ctx context.Context, id task.ID) error {
	var state task.State
	err := s.db.Row(ctx, findState, string(id)).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return task.AnyOwner().Ref(id).NotFound(task.ActionSwap)
	case err != nil:
		return s.db.Fault(ctx, task.ActionSwap, err)
	}
	return sqlcore.Overtaken(id, state)
}

// change runs f on a connection. The context ends the wait for one, but not f.
func (s *Store) change(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		bounded, cancel := finishing(ctx)
		defer cancel()
		return f(bounded, conn)
	})
}

// Sweep implements [task.Store]. If ctx ends while there are chunks left, the next
// Sweep goes on with them.
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.db.Usable(ctx, task.ActionSweep); err != nil {
		return 0, err
	}
	done, err := s.sweepChunks(ctx, before, limit)
	if err != nil || !done {
		return 0, s.db.Fault(ctx, task.ActionSweep, err)
	}
	var swept []sqlcore.Touched
	err = s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, deleteTasks, sqlcore.Micros(before), max(0, limit))
		if err != nil {
			return err
		}
		swept, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t sqlcore.Touched, err error) {
			err = row.Scan(&t.ID, &t.Owner)
			return t, err
		})
		return err
	})
	if err != nil {
		return 0, s.db.Fault(ctx, task.ActionSweep, err)
	}
	s.relay.notify(swept...)
	return len(swept), nil
}

// sweepChunks deletes the chunks of tasks that are about to be deleted, some at a
// time. It reports whether it was done before ctx ended.
func (s *Store) sweepChunks(ctx context.Context, before time.Time, limit int) (bool, error) {
	for ctx.Err() == nil {
		var deleted int64
		err := s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			done, err := conn.Exec(ctx, deleteChunks, sqlcore.Micros(before), max(0, limit), chunksAtOnce)
			deleted = done.RowsAffected()
			return err
		})
		if err != nil || deleted < chunksAtOnce {
			return true, err
		}
	}
	return false, nil
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.db.Usable(ctx, task.ActionWriteChunk); err != nil {
		return err
	}
	var old sqlcore.Found
	err := s.db.Row(ctx, sqlcore.FindTask, string(ref.ID)).Scan(old.Columns()...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s.db.Fault(ctx, task.ActionWriteChunk, err)
	}
	c := sqlcore.Chunk{Ref: ref, N: n, Data: data}
	if err := c.Refusal(old); err != nil {
		return err
	}
	err = s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, sqlcore.PutChunk, string(ref.ID), n, data)
		return err
	})
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == foreignKeyViolation {
		return ref.NotFound(task.ActionWriteChunk) // it was deleted in between
	}
	return s.db.Fault(ctx, task.ActionWriteChunk, err)
}

// The codes of errors that mean something here.
const (
	uniqueViolation     = "23505"
	foreignKeyViolation = "23503"
	invalidText         = "22021" // such as a zero byte
	tooLarge            = "54000" // such as a name that no index can hold
	diskFull            = "53100"
	outdated            = "TG001" // of the migration 0003_writers
)

// legible adds what it means to some errors of the database.
func legible(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && e.Code == diskFull:
		return &task.Error{Kind: task.KindCapacityExceeded, Err: err}
	case ok && e.Code == outdated:
		return &task.Error{Kind: task.KindOutdated, Err: fmt.Errorf("%w: %w", ErrSchema, err)}
	case ok && (e.Code == invalidText || e.Code == tooLarge):
		return &task.Error{Kind: task.KindInvalid, Err: err}
	default:
		return err
	}
}
