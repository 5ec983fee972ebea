package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// SQLiteOptions say where tasks are kept. Zero fields but File mean their
// default.
type SQLiteOptions struct {
	File     string // made, with its directory, if it is not there
	MaxBytes int64  // how large the file may become; no limit
	Readers  int    // connections for reading; 4

	vfs string // the file system to use, for tests
}

// SQLite is a [task.Store] in a file. Close it, or its lock is held for as
// long as the process lives.
type SQLite struct {
	file   string
	lock   *os.File
	reads  *sql.DB
	get    *sql.Stmt
	chunk  *sql.Stmt
	due    *sql.Stmt
	writer *writer
	hub    task.Hub
	closed atomic.Bool
}

var _ task.Store = (*SQLite)(nil)

const (
	getTask      = "SELECT document FROM tasks WHERE id = $1"
	getChunk     = "SELECT owner, data FROM tasks LEFT JOIN chunks ON task = id AND n = $1 WHERE id = $2"
	overdueTasks = "SELECT document FROM tasks WHERE pending = TRUE AND due < $1 ORDER BY due LIMIT $2"
)

// OpenSQLite opens the store in a file. It returns [ErrInUse] if it is open
// already, here or in another process, [ErrSchema] if it was made by a newer
// program or by a different one, and [ErrDamaged] if it is not, or no longer,
// a database. The file can be read by nobody but its owner.
func OpenSQLite(ctx context.Context, o SQLiteOptions) (*SQLite, error) {
	s, err := openSQLite(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open task store %s: %w", o.File, legible(err))
	}
	return s, nil
}

func openSQLite(ctx context.Context, o SQLiteOptions) (*SQLite, error) {
	if o.File == "" {
		return nil, errors.New("no file named")
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	file, err := filepath.Abs(o.File)
	if err != nil {
		return nil, err
	}
	s := &SQLite{file: o.File}
	if s.lock, err = claim(file); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, file, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// claim makes the file, if it is not there, and locks it.
func claim(file string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	lock, err := lockFile(file + ".lock")
	if err != nil {
		return nil, err
	}
	// SQLite gives the files beside it the same mode.
	db, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(db.Chmod(0o600), db.Close())
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func (s *SQLite) connect(ctx context.Context, file string, o SQLiteOptions) error {
	writes, err := driver.Open(dataSource(file, o.vfs, "synchronous(full)", "foreign_keys(on)", "cache_size(-16000)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)"))
	if err != nil {
		return err
	}
	writes.SetMaxOpenConns(1)
	s.writer = newWriter(context.WithoutCancel(ctx), writes, o.MaxBytes, &s.hub)
	if err := migrateSQLite(ctx, writes); err != nil {
		return err
	}
	if s.reads, err = driver.Open(dataSource(file, o.vfs, "query_only(on)")); err != nil {
		return err
	}
	s.reads.SetMaxOpenConns(o.Readers)
	s.reads.SetMaxIdleConns(o.Readers)
	for statement, query := range map[**sql.Stmt]string{&s.get: getTask, &s.chunk: getChunk, &s.due: overdueTasks} {
		if *statement, err = s.reads.PrepareContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// dataSource names the file and how each connection to it is set up.
func dataSource(file, vfs string, pragmas ...string) string {
	query := url.Values{"_pragma": append([]string{"busy_timeout(5000)", "journal_mode(wal)"}, pragmas...)}
	if vfs != "" {
		query.Set("vfs", vfs)
	}
	path := filepath.ToSlash(file)
	if path[0] != '/' {
		path = "/" + path // a drive
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

func migrateSQLite(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(embedded, "migrations/sqlite")
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return err
	}
	s := schema{files: files, names: "SELECT name FROM sqlite_schema WHERE type = 'table'"}
	if err := s.migrate(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close implements [task.Store]. It waits for the changes under way.
func (s *SQLite) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.hub.Close()
	var errs []error
	if s.reads != nil {
		errs = append(errs, s.reads.Close())
	}
	// The writer closes last: whoever does folds the log into the file.
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// Check reads the whole file and returns [ErrDamaged] if it is not as it must
// be. It takes the longer the larger the file is, and holds up nobody.
func (s *SQLite) Check(ctx context.Context) error {
	var verdict string
	err := s.reads.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = fmt.Errorf("%w: %s", ErrDamaged, verdict)
	}
	return s.fault(ctx, "check", err)
}

// Watch implements [task.Watcher]. There is one process, so that all changes
// are made here.
func (s *SQLite) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.hub.Watch(ctx, ref)
}

// Get implements [task.Tasks].
func (s *SQLite) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if err := s.usable(ctx, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	var document []byte
	switch err := s.get.QueryRowContext(ctx, string(ref.ID)).Scan(&document); {
	case errors.Is(err, sql.ErrNoRows):
		return task.Task{}, ref.NotFound(task.ActionGet)
	case err != nil:
		return task.Task{}, s.fault(ctx, task.ActionGet, err)
	}
	t, err := task.Decode(document)
	if err != nil {
		return task.Task{}, s.fault(ctx, task.ActionGet, err)
	}
	if err := ref.Check(t.Owner, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	return t, nil
}

// List implements [task.Tasks].
func (s *SQLite) List(ctx context.Context, q task.Query) (task.Page, error) {
	if err := s.usable(ctx, task.ActionList); err != nil {
		return task.Page{}, err
	}
	after, err := q.Position()
	if err != nil {
		return task.Page{}, err
	}
	if owner, limited := q.Scope.Owner(); limited && owner == "" {
		return task.Page{}, nil
	}
	statement, args := selectPage(q, after)
	rows, err := s.reads.QueryContext(ctx, statement, args...)
	if err != nil {
		return task.Page{}, s.fault(ctx, task.ActionList, err)
	}
	found, err := tasksOf(rows)
	if err != nil {
		return task.Page{}, s.fault(ctx, task.ActionList, err)
	}
	return pageOf(q, found), nil
}

// Overdue implements [task.Tasks].
func (s *SQLite) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	if err := s.usable(ctx, task.ActionList); err != nil {
		return nil, err
	}
	rows, err := s.due.QueryContext(ctx, micros(at), max(0, limit))
	if err != nil {
		return nil, s.fault(ctx, task.ActionList, err)
	}
	found, err := tasksOf(rows)
	return found, s.fault(ctx, task.ActionList, err)
}

// ReadChunk implements [task.Blobs].
func (s *SQLite) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	if err := s.usable(ctx, task.ActionReadChunk); err != nil {
		return nil, err
	}
	var owner string
	var data []byte
	switch err := s.chunk.QueryRowContext(ctx, n, string(ref.ID)).Scan(&owner, &data); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ref.NotFound(task.ActionReadChunk)
	case err != nil:
		return nil, s.fault(ctx, task.ActionReadChunk, err)
	}
	if err := ref.Check(owner, task.ActionReadChunk); err != nil {
		return nil, err
	}
	if data == nil {
		return nil, ref.ChunkMissing(n)
	}
	return data, nil
}

func (s *SQLite) usable(ctx context.Context, a task.Action) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return &task.Error{Kind: task.KindClosed, Action: a}
	}
	return nil
}

// fault returns what to tell of an error of the database.
func (s *SQLite) fault(ctx context.Context, a task.Action, err error) error {
	if err == nil {
		return nil
	}
	if refusal := s.usable(ctx, a); refusal != nil {
		return refusal
	}
	err = legible(err)
	if errors.Is(err, sqlite3.FULL) {
		return &task.Error{Kind: task.KindCapacityExceeded, Action: a, Detail: "no room for " + s.file, Err: err}
	}
	return fmt.Errorf("task store %s: %s: %w", s.file, a, err)
}

// legible adds what it means to some errors of the database.
func legible(err error) error {
	if errors.Is(err, sqlite3.NOTADB) || errors.Is(err, sqlite3.CORRUPT) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}
