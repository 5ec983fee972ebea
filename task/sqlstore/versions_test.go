package sqlstore_test

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
)

var writeFixture = flag.Bool("fixture", false, "have TestVersions write what is missing for the newest version of the schema")

// A place is an empty database.
type place struct {
	kind   string // of database, as the directories are called
	open   func(t *testing.T) task.Store
	db     *sql.DB
	tables string // finds the names of all tables
	shape  string // describes the schema, in lines that can be compared
}

func inFile(t *testing.T) *place {
	t.Helper()
	o := inDir(t)
	return &place{
		kind: "sqlite", db: raw(t, o), open: func(t *testing.T) task.Store { return open(t, o) },
		tables: "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
		shape:  "SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY type, name",
	}
}

// onServer returns nil if there is no server.
func onServer(t *testing.T) *place {
	t.Helper()
	server := postgres.start(t)
	if server == nil {
		return nil
	}
	url := server.Schema(t)
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return &place{
		kind: "postgres", db: db, open: func(t *testing.T) task.Store { return openPostgres(t, url) },
		tables: "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY oid",
		shape: `SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default, collation_name, identity_generation)
				FROM information_schema.columns WHERE table_schema = current_schema()
			UNION ALL SELECT replace(indexdef, current_schema(), '') FROM pg_indexes WHERE schemaname = current_schema()
			UNION ALL SELECT concat_ws(' ', event_object_table, trigger_name, event_manipulation, action_timing, action_orientation)
				FROM information_schema.triggers WHERE trigger_schema = current_schema() ORDER BY 1`,
	}
}

// strings returns the one column that a query selects.
func (p *place) strings(t *testing.T, query string) []string {
	t.Helper()
	rows, err := p.db.Query(query)
	must(t, err)
	defer rows.Close()
	var found []string
	for rows.Next() {
		var s string
		must(t, rows.Scan(&s))
		found = append(found, s)
	}
	must(t, rows.Err())
	return found
}

func (p *place) fixture(version string) string {
	return filepath.Join("testdata", "versions", p.kind, version+".sql")
}

// load makes the database what it was when a version was the newest.
func (p *place) load(t *testing.T, version string) {
	t.Helper()
	script, err := os.ReadFile(p.fixture(version))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("there is no database of version %s to try the next one on; make it with\n\tgo test ./task/sqlstore -run TestVersions -fixture", version)
	}
	must(t, err)
	_, err = p.db.Exec(string(script))
	must(t, err)
}

// TestVersions brings a database of every version there ever was up to date.
// Nothing in it may be lost, and it must be as good as a new one. It also fails
// when a migration that was released is changed.
func TestVersions(t *testing.T) {
	for name, empty := range map[string]func(*testing.T) *place{"SQLite": inFile, "PostgreSQL": onServer} {
		t.Run(name, func(t *testing.T) {
			fresh := empty(t)
			if fresh == nil {
				return
			}
			s := fresh.open(t)
			populate(t, s)
			must(t, s.Close())
			versions := sqlstore.Migrations(fresh.kind)
			if newest := versions[len(versions)-1]; *writeFixture {
				fresh.write(t, newest)
			}
			want := fresh.strings(t, fresh.shape)
			for _, version := range versions {
				t.Run(version, func(t *testing.T) {
					old := empty(t)
					old.load(t, version)
					goOn(t, old.open(t), version)
					if diff := cmp.Diff(want, old.strings(t, old.shape)); diff != "" {
						t.Errorf("the schema is not that of a new database: %s", diff)
					}
				})
			}
		})
	}
}

// TestPostgresUpdateTogether starts five replicas on a database of the first
// version.
func TestPostgresUpdateTogether(t *testing.T) {
	old := onServer(t)
	if old == nil {
		return
	}
	versions := sqlstore.Migrations(old.kind)
	old.load(t, versions[0])
	var stores [5]task.Store
	var starting sync.WaitGroup
	for i := range stores {
		starting.Go(func() { stores[i] = old.open(t) })
	}
	starting.Wait()
	var ran int
	must(t, old.db.QueryRow("SELECT count(*) FROM schema_version").Scan(&ran))
	if ran != len(versions) {
		t.Errorf("%d versions are noted; there are %d", ran, len(versions))
	}
	for _, s := range stores {
		if got, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_approved")); got.State != task.Approved || err != nil {
			t.Errorf("Get = %s, %v", got.State, err)
		}
	}
	goOn(t, stores[4], versions[0])
}

var answerParts = []string{`{"content":[{"type":"text",`, `"text":"done"}]}`}

// populate makes a task in each of the states, called after it, an entry in the
// journal, and a record.
func populate(t *testing.T, s task.Store) {
	t.Helper()
	submit := task.Submit{By: "gate", Quorum: 2, Deadline: epoch.Add(ttl / 2)}
	admit, claim := task.Admit{By: "gate", Reason: "none needed"}, task.Claim{By: "gate 1", LeaseUntil: epoch.Add(time.Minute)}
	whole := strings.Join(answerParts, "")
	for state, events := range map[task.State][]task.Event{
		task.Working:       nil,
		task.InputRequired: {submit, task.Approve{By: "bob", Reason: "fine"}},
		task.Approved:      {admit},
		task.Executing:     {admit, claim},
		task.Completed:     {admit, claim, task.Complete{By: "gate 1", Result: task.Result{Kind: task.ResultOK, Chunks: len(answerParts), Size: int64(len(whole))}}},
		task.Failed:        {admit, task.Fail{By: "gate 1", Failure: task.Failure{Stage: task.StagePolicyDrift, Reason: "denied"}}},
		task.Rejected:      {submit, task.Reject{By: "bob", Reason: "it's wrong"}},
		task.Cancelled:     {task.Cancel{By: "ann"}},
	} {
		d := draft(len(state))
		d.ID = task.ID("tg_" + string(state))
		made, err := task.New(d, epoch)
		must(t, err)
		must(t, s.Create(t.Context(), made, task.Limits{}))
		for _, e := range events {
			_, err := task.Advance(t.Context(), s, task.AnyOwner().Ref(d.ID), e, epoch)
			must(t, err)
		}
	}
	for n, part := range answerParts {
		must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref("tg_completed"), n, []byte(part)))
	}
	must(t, s.Append(t.Context(), task.Note{At: epoch, Step: "populated", Actor: "the test"}))
	must(t, s.PutRecord(t.Context(), task.Record{Name: "populated", Version: 1, Value: []byte("by the test"), Expires: epoch}))
}

// goOn goes on with what populate has made in a database of some version.
func goOn(t *testing.T, s task.Store, version string) {
	t.Helper()
	mustBe(t, s.Create(t.Context(), build(t, 90), task.Limits{Total: 4}), task.ErrCapacityExceeded)
	must(t, s.Create(t.Context(), build(t, 91), task.Limits{Total: 5}))
	var answer bytes.Buffer
	for _, state := range task.States() {
		if state == task.Expired {
			continue // what happens to the others in the end
		}
		got, err := s.Get(t.Context(), task.AnyOwner().Ref(task.ID("tg_"+string(state))))
		must(t, err)
		if got.State != state || got.Call != draft(len(state)).Call {
			t.Errorf("%s is %s: %+v", got.ID, got.State, got)
		}
		if state == task.Completed {
			must(t, task.ReadResult(t.Context(), s, got, &answer))
		}
	}
	if answer.String() != strings.Join(answerParts, "") {
		t.Errorf("the answer is %s", &answer)
	}
	for _, step := range []struct {
		id task.ID
		e  task.Event
	}{
		{"tg_input_required", task.Approve{By: "cara"}},
		{"tg_input_required", task.Claim{By: "gate 2", LeaseUntil: epoch.Add(time.Minute)}},
		{"tg_executing", task.Complete{By: "gate 1", Result: task.Result{Kind: task.ResultOK}}},
		{"tg_completed", task.Deliver{}},
	} {
		_, err := task.Advance(t.Context(), s, task.AnyOwner().Ref(step.id), step.e, epoch)
		must(t, err)
	}
	must(t, s.Append(t.Context(), task.Note{At: epoch, Step: "went on"}))
	entries, err := s.Entries(t.Context(), task.JournalQuery{})
	must(t, err)
	var last task.Link
	for _, e := range entries {
		must(t, last.Follow(e))
		last = e.Link()
	}
	if n := len(entries); n == 0 || entries[n-1].Step != "went on" {
		t.Errorf("the journal is %+v", entries)
	}
	keepRecords(t, s, version >= firstWithRecords)
	if ended, err := task.SettleOverdue(t.Context(), s, "gate 3", epoch.Add(2*ttl)); len(ended) != 4 || err != nil {
		t.Errorf("%d tasks are overdue, %v; want 4", len(ended), err)
	}
	if n, err := s.Sweep(t.Context(), epoch.Add(3*ttl), 100); n != 9 || err != nil {
		t.Errorf("%d tasks are swept, %v; want 9", n, err)
	}
}

// keepRecords goes on with the record of populate, if there is one.
func keepRecords(t *testing.T, s task.Store, kept bool) {
	t.Helper()
	next := task.Record{Name: "populated", Version: 1, Value: []byte("again")}
	r, err := s.GetRecord(t.Context(), next.Name)
	switch {
	case !kept:
		mustBe(t, err, task.ErrNotFound)
	case string(r.Value) != "by the test" || !r.Expires.Equal(epoch) || r.Version != 1 || err != nil:
		t.Errorf("the record is %+v, %v", r, err)
	default:
		next.Version = 2
	}
	must(t, s.PutRecord(t.Context(), next))
}

// firstWithRecords is the first version of the tables that keeps records.
const firstWithRecords = "0003_records"

// write keeps the database as that of a version.
func (p *place) write(t *testing.T, version string) {
	t.Helper()
	var script bytes.Buffer
	fmt.Fprintf(&script, "-- A database of version %s, as TestVersions made it when that was the newest.\n%s;\n", version, sqlstore.VersionTable)
	if p.kind == "postgres" {
		fmt.Fprintf(&script, "SET thoughtgate.schema = %d; -- as the program of this version does\n", len(sqlstore.Migrations(p.kind)))
	}
	for i, name := range sqlstore.Migrations(p.kind) {
		file, err := os.ReadFile(filepath.Join("migrations", p.kind, name+".sql"))
		must(t, err)
		fmt.Fprintf(&script, "%sINSERT INTO schema_version (version) VALUES (%d);\n", file, i+1)
	}
	for _, table := range p.strings(t, p.tables) {
		if table != "schema_version" {
			p.dump(t, table, &script)
		}
	}
	must(t, os.MkdirAll(filepath.Dir(p.fixture(version)), 0o750))
	must(t, os.WriteFile(p.fixture(version), script.Bytes(), 0o600))
}

// dump writes statements that make the rows of a table.
func (p *place) dump(t *testing.T, table string, to *bytes.Buffer) {
	t.Helper()
	rows, err := p.db.Query("SELECT * FROM " + table + " ORDER BY 1, 2")
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	fmt.Fprintf(to, "\nDELETE FROM %s;\n", table)
	for rows.Next() {
		values := make([]any, len(columns))
		pointers := make([]any, len(columns))
		for i := range values {
			pointers[i] = &values[i]
		}
		must(t, rows.Scan(pointers...))
		var literals []string
		for _, v := range values {
			literals = append(literals, p.literal(t, v))
		}
		fmt.Fprintf(to, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(columns, ", "), strings.Join(literals, ", "))
	}
	must(t, rows.Err())
}

func (p *place) literal(t *testing.T, value any) string {
	t.Helper()
	switch v := value.(type) {
	case int64, bool:
		return fmt.Sprint(v)
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	case []byte:
		if p.kind == "sqlite" {
			return "X'" + hex.EncodeToString(v) + "'"
		}
		return `'\x` + hex.EncodeToString(v) + `'`
	}
	t.Fatalf("%T is not a type that is stored", value)
	return ""
}

// TestMigrationNames keeps both kinds of database in step.
func TestMigrationNames(t *testing.T) {
	names := sqlstore.Migrations("sqlite")
	if diff := cmp.Diff(names, sqlstore.Migrations("postgres")); diff != "" {
		t.Error(diff)
	}
	for i, name := range names {
		if !regexp.MustCompile(fmt.Sprintf("^%04d_[a-z_]+$", i+1)).MatchString(name) {
			t.Errorf("the name of version %d is %s", i+1, name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("they are run as %v", names)
	}
}
