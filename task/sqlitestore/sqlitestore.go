// Package sqlitestore keeps tasks in a SQLite file, for one process, or for several
// on the same machine that share it. It needs no C compiler and no other store's
// driver.
//
// A change that Create, Swap or WriteChunk has acknowledged is on disk. It survives a
// crash of the process and of the machine, if the disk keeps what it was asked to
// flush. Most of a large answer is in a file of its own, beside the database,
// which is on disk before the task can be completed with it. The file must be on a
// local disk, since network file systems lock and flush unreliably.
//
// The process that opens a file makes its tables, or brings them up to date.
//
// # How changes are made
//
// SQLite has one writer at a time and a flush takes long, so changes are
// committed in groups: one goroutine takes all that have come in meanwhile,
// makes them in one transaction and lets every caller know. Limits are checked
// inside that transaction, one change after the other. What a process remembers
// of the file, it forgets when another process has changed it. Notes for the journal
// are written in the transaction of the change that they tell of.
//
// A context that ends while a change is being written does not undo it: the
// caller is told what became of it, if that is known within five seconds.
//
// # How changes are told
//
// A process rings a bell after each commit: it writes to a file that
// all processes watch. A process that hears the bell asks the database whether
// another process has changed it, and then wakes everybody who watches.
package sqlitestore

import (
	"context"
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

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// Options say where tasks are kept. Zero fields but File mean their
// default.
type Options struct {
	File     string // made, with its directory, if it is not there
	MaxBytes int64  // how large the file and the answers beside it may become; no limit
	Readers  int    // connections for reading; 4
	Shared   bool   // other processes may use the file too, if all of them share it

	vfs     string // the file system to use, for tests
	outside bool   // keep every chunk in a file, for tests
}

// The reasons for which a database cannot be used until somebody sees to it.
var (
	ErrInUse    = errors.New("another process uses the file")
	ErrReplaced = errors.New("the file was removed or replaced")
	ErrSchema   = sqlcore.ErrSchema
	ErrDamaged  = errors.New("the database is damaged")
)

//go:embed migrations
var embedded embed.FS

// A Store is a [task.GateStore] in a file. Close it, or its lock is held for as
// long as the process lives.
type Store struct {
	reader
	recordWriter

	db     *sqlcore.Database
	claim  *claim
	writer *writer
	hub    task.Hub
	bell   *bell  // nil unless the file is shared
	source string // names the file for a connection of its own

	results results
}

// Parts of a store that its users do not see as fields.
type (
	reader       = sqlcore.Reader
	recordWriter = sqlcore.RecordWriter
)

var _ task.GateStore = (*Store)(nil)

// Open opens the store in a file. It returns [ErrInUse] if it is open
// already, here or in another process, unless both share it, [ErrSchema] if it was made by a newer
// program or by a different one, and [ErrDamaged] if it is not, or no longer,
// a database. The file can be read by nobody but its owner.
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open task store %s: %w", o.File, legible(err))
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
	s := &Store{db: &sqlcore.Database{Name: o.File, Prepared: make(sqlcore.Prepared), Explain: legible}}
	s.reader, s.recordWriter = sqlcore.NewReader(s.db), sqlcore.NewRecordWriter(s.changeRecords)
	if s.claim, err = claimFile(file, sharing(o.Shared)); err != nil {
		return nil, err
	}
	done, err := s.claim.turn()
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
		"foreign_keys(on)",  // chunks go with their task
		"cache_size(-16000)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)"))
	if err != nil {
		return err
	}
	writes.SetMaxOpenConns(1)
	s.writer = newWriter(context.WithoutCancel(ctx), writes, o.MaxBytes, &s.hub)
	s.writer.check = s.claim.check
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return err
	}
	if s.db.Migration, err = migrate(ctx, writes, files); err != nil {
		return err
	}
	s.writer.tables = s.db.Migration.To
	if err := s.findResults(ctx, writes, file, o); err != nil {
		return err
	}
	if o.Shared {
		if s.bell, err = hangBell(file+bellSuffix, s.writer); err != nil {
			return err
		}
	}
	if s.db.DB, err = driver.Open(dataSource(file, o.vfs, "query_only(on)")); err != nil {
		return err
	}
	s.db.DB.SetMaxOpenConns(o.Readers)
	s.db.DB.SetMaxIdleConns(o.Readers)
	for _, query := range []string{sqlcore.GetTask, sqlcore.GetChunk, findChunk} {
		if err := s.db.Prepared.Add(ctx, s.db.DB, query); err != nil {
			return err
		}
	}
	return s.claim.check() // SQLite has opened the file by its name
}

// findResults finds the directory with answers, and deletes those whose task is not
// there any more.
func (s *Store) findResults(ctx context.Context, db *sql.DB, file string, o Options) error {
	var name string
	if err := db.QueryRowContext(ctx, findDirectory).Scan(&name); err != nil {
		return err
	}
	if _, err := hex.DecodeString(name); err != nil || name == "" {
		return fmt.Errorf("%w: no directory is called %q", ErrDamaged, name)
	}
	s.results.dir = filepath.Join(file+resultsSuffix, name)
	s.results.flush = (*os.File).Sync
	s.results.unsynced = make(map[string]error)
	s.results.inside, s.results.least = chunksInside, chunkOutside
	if o.outside {
		s.results.inside, s.results.least = 0, 1
	}
	return s.results.sweep(func() (ids []task.ID, err error) {
		rows, err := db.QueryContext(ctx, listResults)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id task.ID
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	})
}

// dataSource names the file and how each connection to it is set up.
func dataSource(file, vfs string, pragmas ...string) string {
	query := url.Values{"_pragma": append([]string{"busy_timeout(5000)", "journal_mode(wal)"}, pragmas...), "modeof": {file}}
	if vfs != "" {
		query.Set("vfs", vfs)
	}
	path := filepath.ToSlash(file)
	if path[0] != '/' {
		path = "/" + path // a drive
	}
	parameters := strings.ReplaceAll(query.Encode(), "+", "%20") // to SQLite a plus is a plus
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

// Close implements [task.GateStore]. It waits for the changes under way.
func (s *Store) Close() error {
	if s.db.MarkClosed() {
		return nil
	}
	s.hub.Close()
	return errors.Join(s.closeInTurn(), s.claim.release())
}

// closeInTurn closes the file while no other process opens it, or after a while
// in any case.
func (s *Store) closeInTurn() error {
	done, err := s.claim.turn()
	if err != nil {
		return s.disconnect()
	}
	return errors.Join(s.disconnect(), done())
}

func (s *Store) disconnect() error {
	var errs []error
	if s.bell != nil {
		errs = append(errs, s.bell.close())
	}
	if s.db.DB != nil {
		errs = append(errs, s.db.DB.Close())
	}
	errs = append(errs, s.results.close())
	// The writer closes last: whoever does folds the log into the file.
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	return errors.Join(errs...)
}

// Check reads the whole file and returns [ErrDamaged] if it is not as it must
// be. It takes the longer the larger the file is, and holds up nobody.
func (s *Store) Check(ctx context.Context) error {
	var verdict string
	err := s.db.DB.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = fmt.Errorf("%w: %s", ErrDamaged, verdict)
	}
	return s.db.Fault(ctx, "check", err)
}

// Vacuum gives room in the file that is not used any more back to the disk, for
// which it needs as much again for a while. Nothing can be written meanwhile.
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

// Probe returns nil if the store can be written to and read. To find out it
// writes as much as a large change does, and takes it away again.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.db.Usable(ctx, sqlcore.ActionProbe); err != nil {
		return err
	}
	// A version that none has, in a table that is always there.
	for _, statement := range []string{
		fmt.Sprintf("INSERT OR REPLACE INTO schema_version (version, applied_at) VALUES (-1, zeroblob(%d))", task.ChunkSize),
		"DELETE FROM schema_version WHERE version = -1",
	} {
		err := s.write(ctx, sqlcore.ActionProbe, &change{
			size: task.ChunkSize,
			do: func(ctx context.Context, tx *session) (outcome, error) {
				_, err := tx.exec(ctx, statement)
				return outcome{}, err
			},
		})
		if err != nil {
			return err
		}
	}
	_, err := s.Overdue(ctx, time.Time{}, 1)
	return err
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return s.hub.Watch(ctx, ref)
}

// legible adds what it means to some errors of the database.
func legible(err error) error {
	switch {
	case errors.Is(err, sqlite3.NOTADB), errors.Is(err, sqlite3.CORRUPT):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case errors.Is(err, sqlite3.FULL):
		return &task.Error{Kind: task.KindCapacityExceeded, Err: err}
	default:
		return err
	}
}
