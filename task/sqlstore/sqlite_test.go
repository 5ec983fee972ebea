package sqlstore_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

// TestSQLite covers STOR-01, and F-003, F-005, F-007 and F-009 of GOV-001 as
// far as they concern a store.
func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) task.Store { return open(t, inDir(t)) })
}

// A file that is opened again has all that was kept.
func TestSQLiteReopen(t *testing.T) {
	o := inDir(t)
	storetest.RunReopen(t, func() task.Tasks {
		s, err := sqlstore.OpenSQLite(t.Context(), o)
		must(t, err)
		return s
	})
}

func inDir(t testing.TB) sqlstore.SQLiteOptions {
	t.Helper()
	return sqlstore.SQLiteOptions{File: filepath.Join(t.TempDir(), "state #1?", "tasks 100%.db")}
}

func open(t testing.TB, o sqlstore.SQLiteOptions) *sqlstore.SQLite {
	t.Helper()
	s, err := sqlstore.OpenSQLite(t.Context(), o)
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

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const ttl = time.Hour

// add makes the i-th of many different tasks and has the store keep it.
func add(t testing.TB, s task.Store, i int) task.Task {
	t.Helper()
	made := build(t, i)
	must(t, s.Create(t.Context(), made, task.Limits{}))
	return made
}

func build(t testing.TB, i int) task.Task {
	t.Helper()
	made, err := task.New(draft(i), epoch.Add(time.Duration(i)*time.Microsecond))
	must(t, err)
	return made
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

// mustHave checks that the store has exactly what was created.
func mustHave(t testing.TB, s task.Store, want task.Task) {
	t.Helper()
	got, err := s.Get(t.Context(), task.AnyOwner().Ref(want.ID))
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func mustNotHave(t testing.TB, s task.Store, id task.ID) {
	t.Helper()
	_, err := s.Get(t.Context(), task.AnyOwner().Ref(id))
	mustBe(t, err, task.ErrNotFound)
}

func TestSQLiteReopened(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	first := add(t, s, 1)
	must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref(first.ID), 0, []byte("answer")))
	must(t, s.Close())

	s = open(t, o)
	mustHave(t, s, first)
	chunk, err := s.ReadChunk(t.Context(), task.AnyOwner().Ref(first.ID), 0)
	must(t, err)
	if string(chunk) != "answer" {
		t.Errorf("chunk = %q", chunk)
	}
	// Tasks that were pending before still count.
	limits := task.Limits{Total: 1}
	mustBe(t, s.Create(t.Context(), build(t, 2), limits), task.ErrCapacityExceeded)
	mustBe(t, s.Create(t.Context(), build(t, 101), task.Limits{PerOwner: 1}), task.ErrRateLimited)
}

// TestSQLiteModes checks that nobody else can read what agents ask for.
func TestSQLiteModes(t *testing.T) {
	o := inDir(t)
	must(t, os.Mkdir(filepath.Dir(o.File), 0o700))
	must(t, os.WriteFile(o.File, nil, 0o644))
	add(t, open(t, o), 1)

	got := make(map[string]fs.FileMode)
	must(t, filepath.WalkDir(filepath.Dir(o.File), func(path string, entry fs.DirEntry, err error) error {
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

func TestSQLiteMakesDirectory(t *testing.T) {
	o := inDir(t)
	open(t, o)
	info, err := os.Stat(filepath.Dir(o.File))
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v", info.Mode())
	}
}

func TestSQLiteInUse(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	_, err := sqlstore.OpenSQLite(t.Context(), o)
	mustBe(t, err, sqlstore.ErrInUse)
	if !strings.Contains(err.Error(), o.File) {
		t.Errorf("err = %v; want the name of the file", err)
	}
	add(t, s, 1)
	must(t, s.Close())
	open(t, o)
}

// The lock is one of the database: removing the file beside it lets nobody in.
func TestSQLiteInUseWithoutLockFile(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	must(t, os.Remove(o.File+".lock"))
	for range 2 { // the first attempt makes the file anew
		_, err := sqlstore.OpenSQLite(t.Context(), o)
		mustBe(t, err, sqlstore.ErrInUse)
	}
	add(t, s, 1)
	must(t, s.Close())
	open(t, o)
}

// A file that is removed or replaced is not written to any more: what is written
// to a file without a name is lost. It is used again when it is back.
func TestSQLiteReplaced(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	add(t, s, 1)
	must(t, os.Rename(o.File, o.File+".aside"))
	mustBe(t, s.Create(t.Context(), build(t, 2), task.Limits{}), sqlstore.ErrReplaced)
	mustBe(t, s.Probe(t.Context()), sqlstore.ErrReplaced)
	must(t, os.WriteFile(o.File, nil, 0o600))
	mustBe(t, s.Create(t.Context(), build(t, 2), task.Limits{}), sqlstore.ErrReplaced)
	must(t, os.Rename(o.File+".aside", o.File))
	must(t, s.Probe(t.Context()))
	add(t, s, 2)
}

// raw opens the file without a store.
func raw(t *testing.T, o sqlstore.SQLiteOptions) *sql.DB {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(o.File), 0o700))
	db, err := driver.Open(o.File)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestSQLiteSchema(t *testing.T) {
	t.Run("newer", func(t *testing.T) {
		o := inDir(t)
		s := open(t, o)
		first := add(t, s, 1)
		must(t, s.Close())
		db := raw(t, o)
		if _, err := db.Exec("INSERT INTO schema_version (version) VALUES (99)"); err != nil {
			t.Fatal(err)
		}
		_, err := sqlstore.OpenSQLite(t.Context(), o)
		mustBe(t, err, sqlstore.ErrSchema)
		if !strings.Contains(err.Error(), "99") {
			t.Errorf("err = %v; want the version", err)
		}
		if _, err := db.Exec("DELETE FROM schema_version WHERE version = 99"); err != nil {
			t.Fatal(err)
		}
		mustHave(t, open(t, o), first)
	})
	t.Run("of another program", func(t *testing.T) {
		o := inDir(t)
		if _, err := raw(t, o).Exec("CREATE TABLE tasks (id)"); err != nil {
			t.Fatal(err)
		}
		_, err := sqlstore.OpenSQLite(t.Context(), o)
		mustBe(t, err, sqlstore.ErrSchema)
	})
}

func TestMigrate(t *testing.T) {
	db := raw(t, inDir(t))
	first := fstest.MapFS{"0001_a.sql": {Data: []byte("CREATE TABLE a (x); INSERT INTO a VALUES (1);")}}
	must(t, sqlstore.Migrate(t.Context(), db, first))
	must(t, sqlstore.Migrate(t.Context(), db, first))

	bad := fstest.MapFS{
		"0001_a.sql": first["0001_a.sql"],
		"0002_b.sql": {Data: []byte("UPDATE a SET x = x + 1;")},
		"0003_c.sql": {Data: []byte("UPDATE a SET x = x * 10; UPDATE nothing SET x = 1;")},
	}
	if err := sqlstore.Migrate(t.Context(), db, bad); err == nil || !strings.Contains(err.Error(), "0003_c.sql") {
		t.Errorf("err = %v; want the file that is wrong", err)
	}
	good := fstest.MapFS{
		"0001_a.sql": first["0001_a.sql"], "0002_b.sql": bad["0002_b.sql"],
		"0010_c.sql": {Data: []byte("UPDATE a SET x = x * 10;")},
	}
	must(t, sqlstore.Migrate(t.Context(), db, good))
	var x int
	must(t, db.QueryRow("SELECT x FROM a").Scan(&x))
	if x != 20 {
		t.Errorf("x = %d; want each file run once, in order, and nothing of the one that failed", x)
	}
}

func TestSQLiteUnopenable(t *testing.T) {
	inDirectory := sqlstore.SQLiteOptions{File: t.TempDir()}
	underFile := sqlstore.SQLiteOptions{File: filepath.Join(t.TempDir(), "file", "tasks.db")}
	must(t, os.WriteFile(filepath.Dir(underFile.File), nil, 0o600))
	for _, o := range []sqlstore.SQLiteOptions{{}, inDirectory, underFile} {
		if _, err := sqlstore.OpenSQLite(t.Context(), o); err == nil || !strings.Contains(err.Error(), o.File) {
			t.Errorf("open %q: err = %v; want one with the name of the file", o.File, err)
		}
	}
}

func TestSQLiteDamaged(t *testing.T) {
	t.Run("no database", func(t *testing.T) {
		o := inDir(t)
		must(t, os.Mkdir(filepath.Dir(o.File), 0o700))
		must(t, os.WriteFile(o.File, []byte(strings.Repeat("not a database\n", 1000)), 0o600))
		_, err := sqlstore.OpenSQLite(t.Context(), o)
		mustBe(t, err, sqlstore.ErrDamaged)
		must(t, os.Remove(o.File))
		add(t, open(t, o), 1)
	})
	t.Run("overwritten", func(t *testing.T) {
		o := inDir(t)
		s := open(t, o)
		for i := range 1000 {
			add(t, s, i)
		}
		must(t, s.Check(t.Context()))
		must(t, s.Close())

		data, err := os.ReadFile(o.File)
		must(t, err)
		for i := range data[len(data)/2:] {
			data[len(data)/2+i] = 0xa5
		}
		must(t, os.WriteFile(o.File, data, 0o600))
		s = open(t, o)
		mustBe(t, s.Check(t.Context()), sqlstore.ErrDamaged)
		_, err = s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100})
		mustBe(t, err, sqlstore.ErrDamaged)
		if !strings.Contains(err.Error(), o.File) {
			t.Errorf("err = %v; want the name of the file", err)
		}
	})
}
