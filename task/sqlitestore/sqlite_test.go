package sqlitestore_test

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// TestSQLite covers STOR-01, and the requirements on stores of F-003, F-005, F-007 and F-009 of
// GOV-001.
func TestSQLite(t *testing.T) {
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return open(t, inDir(t)) })
}

// A file that is opened again has all stored data.
func TestReopenedFileHasAllData(t *testing.T) {
	o := inDir(t)
	gatestoretest.RunReopen(t, func() task.Store {
		s, err := sqlitestore.Open(t.Context(), o)
		sqltest.Must(t, err)
		return s
	})
}

func inDir(t testing.TB) sqlitestore.Options {
	t.Helper()
	return sqlitestore.Options{File: filepath.Join(t.TempDir(), "state #1?", "tasks 100%.db")}
}

func open(t testing.TB, o sqlitestore.Options) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestReopenedFileKeepsLimits(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	first := sqltest.Add(t, s, 1)
	sqltest.Must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref(first.ID), 0, []byte("answer")))
	sqltest.Must(t, s.Close())

	s = open(t, o)
	sqltest.MustHave(t, s, first)
	chunk, err := s.ReadChunk(t.Context(), task.AnyOwner().Ref(first.ID), 0)
	sqltest.Must(t, err)
	if string(chunk) != "answer" {
		t.Errorf("chunk = %q", chunk)
	}
	// Earlier pending tasks still count.
	limits := task.Limits{Total: 1}
	sqltest.MustBe(t, s.Create(t.Context(), sqltest.Build(t, 2), limits), task.ErrCapacityExceeded)
	sqltest.MustBe(t, s.Create(t.Context(), sqltest.Build(t, 101), task.Limits{PerOwner: 1}), task.ErrRateLimited)
}

// TestFilesArePrivate checks that only the owner of the files can read them.
func TestFilesArePrivate(t *testing.T) {
	o := inDir(t)
	sqltest.Must(t, os.Mkdir(filepath.Dir(o.File), 0o700))
	sqltest.Must(t, os.WriteFile(o.File, nil, 0o644))
	sqltest.Add(t, open(t, o), 1)

	got := make(map[string]fs.FileMode)
	sqltest.Must(t, filepath.WalkDir(filepath.Dir(o.File), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		got[strings.TrimPrefix(path, filepath.Dir(o.File))] = info.Mode().Perm()
		return err
	}))
	want := map[string]fs.FileMode{
		"": 0o700, "/tasks 100%.db": 0o600, "/tasks 100%.db-wal": 0o600, "/tasks 100%.db-shm": 0o600, "/tasks 100%.db.lock": 0o600,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDirectoryIsCreated(t *testing.T) {
	o := inDir(t)
	open(t, o)
	info, err := os.Stat(filepath.Dir(o.File))
	sqltest.Must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v", info.Mode())
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	_, err := sqlitestore.Open(t.Context(), o)
	sqltest.MustBe(t, err, sqlitestore.ErrInUse)
	if !strings.Contains(err.Error(), o.File) {
		t.Errorf("err = %v; want the name of the file in it", err)
	}
	sqltest.Add(t, s, 1)
	sqltest.Must(t, s.Close())
	open(t, o)
}

// The lock is on the database: removing the file beside it does not allow a second process.
func TestSecondProcessIsRefusedWithoutLockFile(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	sqltest.Must(t, os.Remove(o.File+".lock"))
	for range 2 { // the first attempt creates the file again
		_, err := sqlitestore.Open(t.Context(), o)
		sqltest.MustBe(t, err, sqlitestore.ErrInUse)
	}
	sqltest.Add(t, s, 1)
	sqltest.Must(t, s.Close())
	open(t, o)
}

// The store refuses writes after its file was removed or replaced, because they would be lost.
// It works again when the file is back.
func TestReplacedFileIsNotWritten(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	sqltest.Add(t, s, 1)
	sqltest.Must(t, os.Rename(o.File, o.File+".aside"))
	sqltest.MustBe(t, s.Create(t.Context(), sqltest.Build(t, 2), task.Limits{}), sqlitestore.ErrReplaced)
	sqltest.MustBe(t, s.Probe(t.Context()), sqlitestore.ErrReplaced)
	sqltest.Must(t, os.WriteFile(o.File, nil, 0o600))
	sqltest.MustBe(t, s.Create(t.Context(), sqltest.Build(t, 2), task.Limits{}), sqlitestore.ErrReplaced)
	sqltest.Must(t, os.Rename(o.File+".aside", o.File))
	sqltest.Must(t, s.Probe(t.Context()))
	sqltest.Add(t, s, 2)
}

// raw opens the file without the store.
func raw(t *testing.T, o sqlitestore.Options) *sql.DB {
	t.Helper()
	sqltest.Must(t, os.MkdirAll(filepath.Dir(o.File), 0o700))
	db, err := driver.Open(o.File)
	sqltest.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestUnknownSchemaIsRefused(t *testing.T) {
	t.Run("newer", func(t *testing.T) {
		o := inDir(t)
		s := open(t, o)
		first := sqltest.Add(t, s, 1)
		sqltest.Must(t, s.Close())
		db := raw(t, o)
		if _, err := db.Exec("INSERT INTO schema_version (version) VALUES (99)"); err != nil {
			t.Fatal(err)
		}
		_, err := sqlitestore.Open(t.Context(), o)
		sqltest.MustBe(t, err, sqlitestore.ErrSchema)
		if !strings.Contains(err.Error(), "99") {
			t.Errorf("err = %v; want the version", err)
		}
		if _, err := db.Exec("DELETE FROM schema_version WHERE version = 99"); err != nil {
			t.Fatal(err)
		}
		sqltest.MustHave(t, open(t, o), first)
	})
	t.Run("of another program", func(t *testing.T) {
		o := inDir(t)
		if _, err := raw(t, o).Exec("CREATE TABLE tasks (id)"); err != nil {
			t.Fatal(err)
		}
		_, err := sqlitestore.Open(t.Context(), o)
		sqltest.MustBe(t, err, sqlitestore.ErrSchema)
	})
}

func TestFailedMigrationIsRolledBack(t *testing.T) {
	db := raw(t, inDir(t))
	first := fstest.MapFS{"0001_a.sql": {Data: []byte("CREATE TABLE a (x); INSERT INTO a VALUES (1);")}}
	sqltest.Must(t, sqlitestore.Migrate(t.Context(), db, first))
	sqltest.Must(t, sqlitestore.Migrate(t.Context(), db, first))

	bad := fstest.MapFS{
		"0001_a.sql": first["0001_a.sql"],
		"0002_b.sql": {Data: []byte("UPDATE a SET x = x + 1;")},
		"0003_c.sql": {Data: []byte("UPDATE a SET x = x * 10; UPDATE nothing SET x = 1;")},
	}
	if err := sqlitestore.Migrate(t.Context(), db, bad); err == nil || !strings.Contains(err.Error(), "0003_c.sql") {
		t.Errorf("err = %v; want the name of the wrong file", err)
	}
	good := fstest.MapFS{
		"0001_a.sql": first["0001_a.sql"], "0002_b.sql": bad["0002_b.sql"],
		"0010_c.sql": {Data: []byte("UPDATE a SET x = x * 10;")},
	}
	sqltest.Must(t, sqlitestore.Migrate(t.Context(), db, good))
	var x int
	sqltest.Must(t, db.QueryRow("SELECT x FROM a").Scan(&x))
	if x != 20 {
		t.Errorf("x = %d; want each migration run once, in order, and the failed one rolled back", x)
	}
}

func TestOpenErrorNamesFile(t *testing.T) {
	inDirectory := sqlitestore.Options{File: t.TempDir()}
	underFile := sqlitestore.Options{File: filepath.Join(t.TempDir(), "file", "tasks.db")}
	sqltest.Must(t, os.WriteFile(filepath.Dir(underFile.File), nil, 0o600))
	for _, o := range []sqlitestore.Options{{}, inDirectory, underFile} {
		if _, err := sqlitestore.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), o.File) {
			t.Errorf("open %q: err = %v; want one with the name of the file", o.File, err)
		}
	}
}

func TestDamageIsReported(t *testing.T) {
	t.Run("not a database", func(t *testing.T) {
		o := inDir(t)
		sqltest.Must(t, os.Mkdir(filepath.Dir(o.File), 0o700))
		sqltest.Must(t, os.WriteFile(o.File, []byte(strings.Repeat("not a database\n", 1000)), 0o600))
		_, err := sqlitestore.Open(t.Context(), o)
		sqltest.MustBe(t, err, sqlitestore.ErrDamaged)
		sqltest.Must(t, os.Remove(o.File))
		sqltest.Add(t, open(t, o), 1)
	})
	t.Run("overwritten", func(t *testing.T) {
		o := inDir(t)
		s := open(t, o)
		for i := range 1000 {
			sqltest.Add(t, s, i)
		}
		sqltest.Must(t, s.Check(t.Context()))
		sqltest.Must(t, s.Close())

		data, err := os.ReadFile(o.File)
		sqltest.Must(t, err)
		for i := range data[len(data)/2:] {
			data[len(data)/2+i] = 0xa5
		}
		sqltest.Must(t, os.WriteFile(o.File, data, 0o600))
		s = open(t, o)
		sqltest.MustBe(t, s.Check(t.Context()), sqlitestore.ErrDamaged)
		_, err = s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100})
		sqltest.MustBe(t, err, sqlitestore.ErrDamaged)
		if !strings.Contains(err.Error(), o.File) {
			t.Errorf("err = %v; want the name of the file in it", err)
		}
	})
}
