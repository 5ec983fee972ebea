package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// PostgresOptions say where tasks are kept. Zero fields but URL mean their
// default.
type PostgresOptions struct {
	// URL names the server, the database and the user, as libpq has it. The
	// tables are made in the first schema of the search path, which must not
	// have other tables: postgres://gate@db/prod?search_path=thoughtgate.
	URL string

	MaxConns int           // connections, but for the one that listens; 16
	Timeout  time.Duration // how long a connection may take to be made, unless the URL says so; 5 s
}

// Postgres is a [task.Store] in a PostgreSQL database, for any number of
// replicas.
type Postgres struct {
	reader
	recordWriter

	pool     *pgxpool.Pool
	relay    *relay
	chaining *chaining
}

var _ task.Store = (*Postgres)(nil)

// OpenPostgres connects to a database, and makes or updates its tables if need
// be. It returns [ErrSchema] if they were made by a newer program or by a
// different one.
func OpenPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	s, err := openPostgres(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open task store in PostgreSQL: %w", err)
	}
	return s, nil
}

func openPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, err
	}
	if config.MaxConns = 16; o.MaxConns > 0 {
		config.MaxConns = int32(min(o.MaxConns, 10_000))
	}
	files, err := fs.Sub(embedded, "migrations/postgres")
	if err != nil {
		return nil, err
	}
	tables := schema{
		files: files,
		lock:  "SELECT pg_advisory_xact_lock(4951032817645)", // any number that others are unlikely to use
		names: tableNames,
	}
	newest, err := tables.newest()
	if err != nil {
		return nil, err
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return introduce(ctx, conn, newest) }
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = cmp.Or(o.Timeout, patience)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Postgres{
		reader: reader{name: "in PostgreSQL", db: stdlib.OpenDBFromPool(pool), explain: legiblePostgres},
		pool:   pool,
	}
	s.apply = s.changeRecords
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
func introduce(ctx context.Context, conn *pgx.Conn, version int) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("SET thoughtgate.schema = %d; SET idle_in_transaction_session_timeout = %d",
		version, patience.Milliseconds()))
	return err
}

func (s *Postgres) start(ctx context.Context, tables schema, config *pgx.ConnConfig) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if s.migration, err = tables.migrate(ctx, tx); err != nil {
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

// Close implements [task.Store]. It waits for what is under way.
func (s *Postgres) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if s.relay != nil {
		s.relay.close()
	}
	if s.chaining != nil {
		s.chaining.close()
	}
	err := s.db.Close()
	s.pool.Close()
	return err
}

// Vacuum has the server clean up after what was deleted, and look at how much
// there is. The server does so by itself now and then.
func (s *Postgres) Vacuum(ctx context.Context) error {
	if err := s.usable(ctx, actionVacuum); err != nil {
		return err
	}
	rows, err := s.pool.Query(ctx, tableNames)
	if err != nil {
		return s.fault(ctx, actionVacuum, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		if err == nil {
			_, err = s.pool.Exec(ctx, "VACUUM (ANALYZE) "+pgx.Identifier{name}.Sanitize())
		}
	}
	return s.fault(ctx, actionVacuum, err)
}

// Probe returns nil if the store can be written to and read. What it writes is
// what is there.
func (s *Postgres) Probe(ctx context.Context) error {
	if err := s.usable(ctx, actionProbe); err != nil {
		return err
	}
	err := s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, "UPDATE slots SET pending = pending WHERE slot = 0")
		return err
	})
	return s.fault(ctx, actionProbe, err)
}

// Watch implements [task.Watcher].
func (s *Postgres) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	if err := s.usable(ctx, task.ActionWatch); err != nil {
		return nil, err
	}
	return s.relay.hub.Watch(ctx, ref)
}

// An admission is a way to count what is pending while others do so too.
type admission struct {
	room      string // locks the room of the task, if rooms are counted
	roommates int    // how many other tasks of the room may be created at the same time
	slots     string // locks slots, one of which is the task's
	others    int    // how many other tasks may be created at the same time
}

// slots is how many rows the pending tasks are counted in.
const slots = 16

// admissions returns the ways to try, in turn. With one slot locked, no more
// than one task can be on its way in each of the others: if there is room for
// those too, nobody need wait. Otherwise those of the same room wait for each
// other, and at last all slots are locked. The lock of the room always comes
// before those of slots, so that nobody waits in a circle.
func admissions(t task.Task, l task.Limits) []admission {
	const (
		share = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 1))"
		alone = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"
		one   = "SELECT pending FROM slots WHERE slot = $1 FOR UPDATE"
		all   = "SELECT pending FROM slots WHERE slot >= 0 OR slot = $1 ORDER BY slot FOR UPDATE"
	)
	ways := []admission{{room: share, roommates: slots - 1, slots: one, others: slots - 1}}
	if l.CountsRooms(t) {
		ways = append(ways, admission{room: alone, slots: one, others: slots - 1})
	}
	return append(ways, admission{room: alone, slots: all})
}

// slot returns where a task is counted.
func slot(id task.ID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % slots)
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
	// deleteTasks has an array, because the server takes a list whose length it
	// does not know for long enough to read the whole table.
	deleteTasks = `DELETE FROM tasks WHERE id = ANY (ARRAY
		(SELECT id FROM tasks WHERE pending = FALSE AND due < $1 ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED))
		RETURNING id, owner`
)

// errCrowded says that there may or may not be room for one more task.
var errCrowded = errors.New("too many at the same time")

// Create implements [task.Tasks].
func (s *Postgres) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionCreate); err != nil {
		return err
	}
	r, err := newRecord(t, notes, task.ActionCreate)
	if err != nil {
		return err
	}
	for _, a := range admissions(t, limits) {
		err = s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			return creation{record: &r, limits: limits, conn: conn.Conn()}.attempt(ctx, a)
		})
		if !errors.Is(err, errCrowded) {
			break
		}
	}
	if err == nil {
		s.chaining.wake(len(notes))
		s.relay.notify(touched{t.ID, t.Owner})
		return nil
	}
	if _, refused := errors.AsType[*task.Error](err); refused {
		return err
	}
	return s.fault(ctx, task.ActionCreate, err)
}

// A creation adds a task, in two round trips.
type creation struct {
	record *record
	limits task.Limits
	conn   *pgx.Conn
}

func (c creation) attempt(ctx context.Context, a admission) error {
	exists := &task.Error{Kind: task.KindExists, ID: c.record.ID, Action: task.ActionCreate}
	load, there, err := c.load(ctx, a)
	if err == nil && there {
		err = exists
	}
	if err == nil {
		err = c.admit(a, load)
	}
	if err == nil {
		err = c.insert(ctx)
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == uniqueViolation {
		err = exists
	}
	if err != nil && !c.conn.IsClosed() {
		bounded, cancel := finishing(ctx)
		defer cancel()
		_, _ = c.conn.Exec(bounded, "ROLLBACK") // if it fails the pool gives up the connection
	}
	return err
}

// load begins a transaction, takes the locks and returns what is pending then,
// as far as limits need to know, and whether there is a task with the ID.
func (c creation) load(ctx context.Context, a admission) (load task.Load, there bool, err error) {
	same := 0
	if c.limits.Unique {
		same = 1
	}
	var b pgx.Batch
	b.Queue("BEGIN")
	if c.limits.PerOwner > 0 || c.limits.Unique {
		b.Queue(lockOwner, c.record.Owner)
	}
	rooms := c.limits.CountsRooms(c.record.Task)
	if rooms {
		b.Queue(a.room, c.record.Room)
	}
	b.Queue(a.slots, slot(c.record.ID))
	if rooms { // with the slot locked, or more tasks could be on their way than the admission says
		b.Queue(countRooms, c.record.Room).QueryRow(func(row pgx.Row) error { return row.Scan(&load.Room, &load.Rooms) })
	}
	b.Queue(loadTasks, c.record.Owner, c.limits.PerOwner, c.record.Digest[:], same, string(c.record.ID)).QueryRow(
		func(row pgx.Row) error { return row.Scan(&load.Total, &load.Owner, &load.Same, &there) })
	err = c.conn.SendBatch(ctx, &b).Close()
	return load, there, err
}

// admit returns nil if the task may be added, whatever else is on its way. It
// returns errCrowded if that is not known.
func (c creation) admit(a admission, load task.Load) error {
	if err := c.limits.Check(c.record.Task, load); err != nil {
		return err
	}
	load.Total += a.others
	load.Rooms += a.others
	load.Room += a.roommates
	if c.limits.Check(c.record.Task, load) != nil {
		return errCrowded
	}
	return nil
}

// insert adds the task and ends the transaction.
func (c creation) insert(ctx context.Context) error {
	r := c.record
	var b pgx.Batch
	b.Queue(addTask, string(r.ID), r.Owner, string(r.State), r.pending(), r.Digest[:],
		r.CreatedAt.UnixMicro(), r.due, r.Version, r.document, r.Room, r.Owes())
	b.Queue(putOutline, string(r.ID), r.Version, r.outline)
	if r.pending() {
		b.Queue(countTask, slot(r.ID))
	}
	if len(r.remarks) > 0 {
		b.Queue(addNotes, documents(r.remarks))
	}
	b.Queue("COMMIT")
	bounded, cancel := finishing(ctx)
	defer cancel()
	return c.conn.SendBatch(bounded, &b).Close()
}

// finishing returns a context for what must not be left in the middle: it goes
// on for a while when ctx ends, so that its outcome is known.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// Swap implements [task.Tasks].
func (s *Postgres) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionSwap); err != nil {
		return err
	}
	r, err := newRecord(t, notes, task.ActionSwap)
	if err != nil {
		return err
	}
	var owner string
	err = s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, replaceTask, string(r.ID), r.Version-1, slot(r.ID), r.pending(),
			string(r.State), r.due, r.Version, r.document, documents(r.remarks), r.Owes(), r.outline).Scan(&owner)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.overtaken(ctx, t.ID)
	case err != nil:
		return s.fault(ctx, task.ActionSwap, err)
	}
	s.chaining.wake(len(notes))
	s.relay.notify(touched{t.ID, owner})
	return nil
}

// overtaken returns why a task could not be replaced.
func (s *Postgres) overtaken(ctx context.Context, id task.ID) error {
	var state task.State
	err := s.row(ctx, findState, string(id)).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return task.AnyOwner().Ref(id).NotFound(task.ActionSwap)
	case err != nil:
		return s.fault(ctx, task.ActionSwap, err)
	}
	return overtaken(id, state)
}

// change runs f on a connection. The context ends the wait for one, but not f.
func (s *Postgres) change(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		bounded, cancel := finishing(ctx)
		defer cancel()
		return f(bounded, conn)
	})
}

// Sweep implements [task.Tasks].
func (s *Postgres) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.usable(ctx, task.ActionSweep); err != nil {
		return 0, err
	}
	var swept []touched
	err := s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, deleteTasks, micros(before), max(0, limit))
		if err != nil {
			return err
		}
		swept, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t touched, err error) {
			err = row.Scan(&t.id, &t.owner)
			return t, err
		})
		return err
	})
	if err != nil {
		return 0, s.fault(ctx, task.ActionSweep, err)
	}
	s.relay.notify(swept...)
	return len(swept), nil
}

// WriteChunk implements [task.Blobs].
func (s *Postgres) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.usable(ctx, task.ActionWriteChunk); err != nil {
		return err
	}
	var old row
	err := s.row(ctx, findTask, string(ref.ID)).Scan(&old.owner, &old.state, &old.version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s.fault(ctx, task.ActionWriteChunk, err)
	}
	c := chunk{ref: ref, n: n, data: data}
	if err := c.refusal(old); err != nil {
		return err
	}
	err = s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, putChunk, string(ref.ID), n, data)
		return err
	})
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == foreignKeyViolation {
		return ref.NotFound(task.ActionWriteChunk) // it was deleted in between
	}
	return s.fault(ctx, task.ActionWriteChunk, err)
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

// legiblePostgres adds what it means to some errors of the database.
func legiblePostgres(err error) error {
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
