// Package sqlitestore keeps tasks in a SQLite file, for one process, or for several processes
// on one machine that share it. It needs no C compiler.
//
// A change that Create, Swap or WriteChunk has acknowledged is on disk. It survives a crash of
// the process and of the machine, if the disk keeps flushed data. Most of a large answer is in
// a separate file beside the database, which is flushed before the task completes. The files
// must be on a local disk, because network file systems lock and flush unreliably.
//
// The process that opens a file creates its tables or migrates them.
//
// # How changes are made
//
// SQLite has one writer at a time and a flush takes long, so changes are committed in groups:
// one goroutine takes all waiting changes, makes them in one transaction, and answers every
// caller. It checks limits inside that transaction, one change after the other. A process drops
// its cached counts when another process has changed the file. Notes for the journal are
// written in the transaction of their change.
//
// A change that is being written is not undone when its context ends. The caller gets the
// outcome, if it is known within five seconds.
//
// # How watchers are notified
//
// After each commit, a process writes to a signal file that all processes watch. A process
// that sees the write asks the database whether another process has changed it, and then
// notifies all its watchers.
package sqlitestore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/vfs/memdb"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Options configure a store. File is required. Other zero fields mean their default.
type Options struct {
	File     string // created with its directory if it does not exist; [Memory] for none
	MaxBytes int64  // the largest size of the file and its answers; no limit
	Readers  int    // connections for reading; 4
	Shared   bool   // other processes may use the file too, if all of them share it

	vfs        string // the file system to use, for tests
	allInFiles bool   // keep every chunk in a file, for tests
}

// Memory is the name of a file that exists only in memory, until Close. Each store has its own.
const Memory = ":memory:"

// Errors of a file that only a person can fix.
var (
	ErrInUse    = errors.New("another process uses the file")
	ErrReplaced = errors.New("the file was removed or replaced")
	ErrSchema   = sqlcore.ErrSchema
	ErrDamaged  = errors.New("the database is damaged")
)

// errNewer is the error of writes after a newer program has migrated the tables.
var errNewer = errors.New("a newer program has updated the tables")

//go:embed migrations
var embedded embed.FS

// A Store is a [gatestore.Store] in a file. Its lock lasts until Close or the end of the
// process.
type Store struct {
	reader
	recordWriter

	db       *sqlcore.Database
	lock     *fileLock
	writer   *writer
	notifier storekit.Notifier
	signal   *changeSignal // nil unless the file is shared
	source   string        // the data source for further connections
	memory   string        // the name of a file in memory

	results results
}

// Aliases, so that the embedded fields are unexported.
type (
	reader       = sqlcore.Reader
	recordWriter = sqlcore.RecordWriter
)

var _ gatestore.Store = (*Store)(nil)

// Open opens the store in a file. It returns [ErrInUse] if the file is open, in this or another
// process, unless both share it. It returns [ErrSchema] if a newer or a different program
// created the tables, and [ErrDamaged] if the file is not a valid database. Only the owner of
// the file can read it.
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open task store %s: %w", o.File, explain(err))
	}
	return s, nil
}

func open(ctx context.Context, o Options) (*Store, error) {
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
	memory := o.File == Memory
	if memory {
		if o.Shared {
			return nil, errors.New("processes cannot share memory")
		}
		file, o.vfs = "/"+rand.Text(), memoryVFS
		memdb.Create(file, nil)
	}
	s := &Store{db: &sqlcore.Database{Name: o.File, Prepared: make(sqlcore.Prepared), Explain: explain}}
	s.reader, s.recordWriter = sqlcore.NewReader(s.db), sqlcore.NewRecordWriter(s.db.Dialect, s.changeRecords)
	if memory {
		s.memory = file
	} else if s.lock, err = lockDatabase(file, lockMode(o.Shared)); err != nil {
		return nil, err
	}
	done, err := s.lock.waitForTurn()
	if err == nil {
		err = errors.Join(s.connect(ctx, file, o), done())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) connect(ctx context.Context, file string, o Options) error {
	s.source = dataSource(file, o.vfs)
	writes, err := driver.Open(dataSource(file, o.vfs,
		"synchronous(full)", // flush at every commit
		"foreign_keys(on)",  // deleting a task deletes its chunks
		"cache_size(-16000)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)"))
	if err != nil {
		return err
	}
	writes.SetMaxOpenConns(1)
	s.writer = &writer{ctx: context.WithoutCancel(ctx), db: writes, maxBytes: o.MaxBytes, notifier: &s.notifier, check: s.lock.check}
	s.writer.start()
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return err
	}
	if s.db.Migration, err = migrate(ctx, writes, files); err != nil {
		return err
	}
	s.writer.tables = s.db.Migration.To
	if o.Shared {
		if s.signal, err = startSignal(file+signalSuffix, s.writer); err != nil {
			return err
		}
	}
	if s.db.DB, err = driver.Open(dataSource(file, o.vfs, "query_only(on)")); err != nil {
		return err
	}
	s.db.DB.SetMaxOpenConns(o.Readers)
	s.db.DB.SetMaxIdleConns(o.Readers)
	for _, query := range []string{sqlcore.GetTask, sqlcore.GetChunk, sqlcore.GetRecord, sqlcore.ListRecords, findChunk} {
		if err := s.db.Prepared.Add(ctx, s.db.DB, query); err != nil {
			return err
		}
	}
	if err := s.findResults(ctx, file, o); err != nil {
		return err
	}
	return s.lock.check() // SQLite opened the file by its name, which may refer to another file now
}

// findResults finds the directory with answers, and deletes the files without a task.
func (s *Store) findResults(ctx context.Context, file string, o Options) error {
	var name string
	if err := s.db.Row(ctx, findDirectory).Scan(&name); err != nil {
		return err
	}
	if _, err := hex.DecodeString(name); err != nil || name == "" {
		return fmt.Errorf("%w: invalid name of the results directory: %q", ErrDamaged, name)
	}
	s.results.dir = filepath.Join(file+resultsSuffix, name)
	s.results.flush = (*os.File).Sync
	s.results.flushErrors = make(map[string]error)
	s.results.inDatabase, s.results.minChunk = chunksInDatabase, minFileChunk
	switch {
	case o.allInFiles:
		s.results.inDatabase, s.results.minChunk = 0, 1
	case s.memory != "":
		s.results.inDatabase = task.MaxChunks
	}
	return s.results.sweep(func() ([]task.ID, error) {
		return sqlcore.Select(ctx, s.db, func(rows *sql.Rows) (id task.ID, err error) {
			err = rows.Scan(&id)
			return id, err
		}, listResults)
	})
}

// memoryVFS is the file system of files in memory.
const memoryVFS = "memdb"

// dataSource returns the name of the file with the settings of each connection.
func dataSource(file, vfs string, pragmas ...string) string {
	query := url.Values{"_pragma": append([]string{"busy_timeout(5000)", "journal_mode(wal)"}, pragmas...), "modeof": {file}}
	if vfs != "" {
		query.Set("vfs", vfs)
	}
	if vfs == memoryVFS {
		query.Del("modeof")
	}
	path := filepath.ToSlash(file)
	if path[0] != '/' {
		path = "/" + path // a drive
	}
	parameters := strings.ReplaceAll(query.Encode(), "+", "%20") // SQLite does not decode a plus
	return (&url.URL{Scheme: "file", Path: path, RawQuery: parameters}).String()
}

func migrate(ctx context.Context, db *sql.DB, files fs.FS) (sqlcore.Migration, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return sqlcore.Migration{}, err
	}
	s := sqlcore.Schema{Files: files, Names: "SELECT name FROM sqlite_schema WHERE type = 'table'"}
	m, err := s.Migrate(ctx, tx)
	if err != nil {
		return m, errors.Join(err, tx.Rollback())
	}
	return m, tx.Commit()
}

// Close implements [gatestore.Store]. It waits for the changes under way.
func (s *Store) Close() error {
	if s.db.MarkClosed() {
		return nil
	}
	s.notifier.Close()
	err := errors.Join(s.closeInTurn(), s.lock.release())
	if s.memory != "" {
		memdb.Delete(s.memory)
	}
	return err
}

// closeInTurn closes the file while no other process opens it. After a time limit, it closes
// the file in any case.
func (s *Store) closeInTurn() error {
	done, err := s.lock.waitForTurn()
	if err != nil {
		return s.disconnect()
	}
	return errors.Join(s.disconnect(), done())
}

func (s *Store) disconnect() error {
	var errs []error
	if s.signal != nil {
		errs = append(errs, s.signal.close())
	}
	if s.db.DB != nil {
		errs = append(errs, s.db.DB.Close())
	}
	errs = append(errs, s.results.close())
	// The writer closes last: the last connection merges the log into the file.
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	return errors.Join(errs...)
}

// Check reads the whole file and returns [ErrDamaged] if it is corrupt. It does not block other
// calls.
func (s *Store) Check(ctx context.Context) error {
	var verdict string
	err := s.db.DB.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = fmt.Errorf("%w: %s", ErrDamaged, verdict)
	}
	return s.db.Fault(ctx, "check", err)
}

// Vacuum returns unused space in the file to the disk. It temporarily needs as much space
// again, and blocks writes.
func (s *Store) Vacuum(ctx context.Context) error {
	if err := s.db.Usable(ctx, sqlcore.ActionVacuum); err != nil {
		return err
	}
	db, err := driver.Open(s.source)
	if err != nil {
		return s.db.Fault(ctx, sqlcore.ActionVacuum, err)
	}
	for _, statement := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if err == nil {
			_, err = db.ExecContext(ctx, statement)
		}
	}
	return s.db.Fault(ctx, sqlcore.ActionVacuum, errors.Join(err, db.Close()))
}

// Probe returns nil if the store can be written to and read. It writes as much as a large
// change, and deletes it.
func (s *Store) Probe(ctx context.Context) error {
	// The version does not occur, and the table always exists.
	for _, statement := range []string{
		fmt.Sprintf("INSERT OR REPLACE INTO schema_version (version, applied_at) VALUES (-1, zeroblob(%d))", task.ChunkSize),
		"DELETE FROM schema_version WHERE version = -1",
	} {
		err := s.write(ctx, sqlcore.ActionProbe, &change{
			size: task.ChunkSize,
			do: func(ctx context.Context, tx *session) error {
				_, err := tx.exec(ctx, statement)
				return err
			},
		})
		if err != nil {
			return err
		}
	}
	_, err := s.Overdue(ctx, time.Time{}, 1)
	return err
}

// Exclusive reports whether no other process can use the file; see [storekit.IsExclusive].
func (s *Store) Exclusive() bool { return s.signal == nil }

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.notifier.Watch(ctx, ref)
}

// explain converts some errors of the database to errors of this package.
func explain(err error) error {
	switch {
	case errors.Is(err, sqlite3.NOTADB), errors.Is(err, sqlite3.CORRUPT):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case errors.Is(err, errNewer):
		return &task.Error{Kind: task.ErrOutdated, Err: err}
	case errors.Is(err, sqlite3.FULL):
		return &task.Error{Kind: task.ErrCapacityExceeded, StoreFull: true, Err: err}
	default:
		return err
	}
}
