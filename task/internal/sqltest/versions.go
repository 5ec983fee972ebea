package sqltest

import (
	"bytes"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

var writeFixture = flag.Bool("fixture", false, "have TestVersions write what is missing for the newest version of the schema")

// A Place is an empty database.
type Place struct {
	Versions []string // names of the migrations, in the order in which they are run
	Open     func(t *testing.T) task.GateStore
	DB       *sql.DB
	Tables   string // finds the names of all tables
	Shape    string // describes the schema, in lines that can be compared

	Announcement string // tells which version of the tables a program knows, if programs tell; a format
	Bytes        string // a literal with bytes; a format
}

// Empty returns an empty database, or nil if there is no server for it.
type Empty func(t *testing.T) *Place

// announce has a connection tell which version of the tables its program knows.
func (p *Place) announce(t *testing.T, conn *sql.Conn, version int) {
	t.Helper()
	if p.Announcement != "" {
		_, err := conn.ExecContext(t.Context(), fmt.Sprintf(p.Announcement, version))
		Must(t, err)
	}
}

// Strings returns the one column that a query selects.
func (p *Place) Strings(t *testing.T, query string) []string {
	t.Helper()
	rows, err := p.DB.Query(query)
	Must(t, err)
	defer rows.Close()
	var found []string
	for rows.Next() {
		var s string
		Must(t, rows.Scan(&s))
		found = append(found, s)
	}
	Must(t, rows.Err())
	return found
}

func fixture(version string) string {
	return filepath.Join("testdata", "versions", version+".sql")
}

// Load makes the database what it was when a version was the newest.
func (p *Place) Load(t *testing.T, version string) {
	t.Helper()
	script, err := os.ReadFile(fixture(version))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("there is no database of version %s to try the next one on; make it with\n\tgo test . -run TestVersions -fixture", version)
	}
	Must(t, err)
	_, err = p.DB.Exec(string(script))
	Must(t, err)
}

// RunVersions brings a database of every version there ever was up to date.
// Nothing in it may be lost, and it must be as good as a new one. It also fails
// when a migration that was released is changed.
func RunVersions(t *testing.T, empty Empty) {
	fresh := empty(t)
	if fresh == nil {
		return
	}
	s := fresh.Open(t)
	populate(t, s)
	Must(t, s.Close())
	if newest := fresh.Versions[len(fresh.Versions)-1]; *writeFixture {
		fresh.write(t, newest)
	}
	want := fresh.Strings(t, fresh.Shape)
	for _, version := range fresh.Versions {
		t.Run(version, func(t *testing.T) {
			old := empty(t)
			old.Load(t, version)
			GoOn(t, old.Open(t), version)
			if diff := cmp.Diff(want, old.Strings(t, old.Shape)); diff != "" {
				t.Errorf("the schema is not that of a new database: %s", diff)
			}
		})
	}
}

var answerParts = []string{`{"content":[{"type":"text",`, `"text":"done"}]}`}

// populate makes a task in each of the states, called after it, an entry in the
// journal, and a record.
func populate(t *testing.T, s task.GateStore) {
	t.Helper()
	submit := task.Submit{By: "gate", Quorum: 2, Deadline: Epoch.Add(TTL / 2)}
	admit, claim := task.Admit{By: "gate", Reason: "none needed"}, task.Claim{By: "gate 1", LeaseUntil: Epoch.Add(time.Minute)}
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
		d := Draft(len(state))
		d.ID = task.ID("tg_" + string(state))
		made, err := task.New(d, Epoch)
		Must(t, err)
		Must(t, s.Create(t.Context(), made, task.Limits{}))
		for _, e := range events {
			_, err := task.Advance(t.Context(), s, task.AnyOwner().Ref(d.ID), e, Epoch)
			Must(t, err)
		}
	}
	for n, part := range answerParts {
		Must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref("tg_completed"), n, []byte(part)))
	}
	Must(t, s.Append(t.Context(), task.Note{At: Epoch, Step: "populated", Actor: "the test"}))
	Must(t, s.PutRecord(t.Context(), task.Record{Name: "populated", Version: 1, Value: []byte("by the test"), Expires: Epoch}))
}

// GoOn goes on with what populate has made in a database of some version.
func GoOn(t *testing.T, s task.GateStore, version string) {
	t.Helper()
	MustBe(t, s.Create(t.Context(), Build(t, 90), task.Limits{Total: 4}), task.ErrCapacityExceeded)
	Must(t, s.Create(t.Context(), Build(t, 91), task.Limits{Total: 5}))
	var answer bytes.Buffer
	for _, state := range task.States() {
		if state == task.Expired {
			continue // what happens to the others in the end
		}
		got, err := s.Get(t.Context(), task.AnyOwner().Ref(task.ID("tg_"+string(state))))
		Must(t, err)
		if got.State != state || got.Call != Draft(len(state)).Call {
			t.Errorf("%s is %s: %+v", got.ID, got.State, got)
		}
		if state == task.Completed {
			Must(t, task.ReadResult(t.Context(), s, got, &answer))
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
		{"tg_input_required", task.Claim{By: "gate 2", LeaseUntil: Epoch.Add(time.Minute)}},
		{"tg_executing", task.Complete{By: "gate 1", Result: task.Result{Kind: task.ResultOK}}},
		{"tg_completed", task.Deliver{}},
	} {
		_, err := task.Advance(t.Context(), s, task.AnyOwner().Ref(step.id), step.e, Epoch)
		Must(t, err)
	}
	Must(t, s.Append(t.Context(), task.Note{At: Epoch, Step: "went on"}))
	entries, err := s.Entries(t.Context(), task.JournalQuery{})
	Must(t, err)
	var last task.Link
	for _, e := range entries {
		Must(t, last.Follow(e))
		last = e.Link()
	}
	if n := len(entries); n == 0 || entries[n-1].Step != "went on" {
		t.Errorf("the journal is %+v", entries)
	}
	keepRecords(t, s, version >= firstWithRecords)
	if ended, err := task.SettleOverdue(t.Context(), s, "gate 3", Epoch.Add(2*TTL)); len(ended) != 4 || err != nil {
		t.Errorf("%d tasks are overdue, %v; want 4", len(ended), err)
	}
	if n, err := s.Sweep(t.Context(), Epoch.Add(3*TTL), 100); n != 9 || err != nil {
		t.Errorf("%d tasks are swept, %v; want 9", n, err)
	}
}

// keepRecords goes on with the record of populate, if there is one.
func keepRecords(t *testing.T, s task.GateStore, kept bool) {
	t.Helper()
	next := task.Record{Name: "populated", Version: 1, Value: []byte("again")}
	r, err := s.GetRecord(t.Context(), next.Name)
	switch {
	case !kept:
		MustBe(t, err, task.ErrNotFound)
	case string(r.Value) != "by the test" || !r.Expires.Equal(Epoch) || r.Version != 1 || err != nil:
		t.Errorf("the record is %+v, %v", r, err)
	default:
		next.Version = 2
	}
	Must(t, s.PutRecord(t.Context(), next))
}

// firstWithRecords is the first version of the tables that keeps records.
const firstWithRecords = "0003_records"

// write keeps the database as that of a version.
func (p *Place) write(t *testing.T, version string) {
	t.Helper()
	var script bytes.Buffer
	fmt.Fprintf(&script, "-- A database of version %s, as TestVersions made it when that was the newest.\n%s;\n", version, sqlcore.VersionTable)
	if p.Announcement != "" {
		fmt.Fprintf(&script, p.Announcement+"; -- as the program of this version does\n", len(p.Versions))
	}
	for i, name := range p.Versions {
		file, err := os.ReadFile(filepath.Join("migrations", name+".sql"))
		Must(t, err)
		fmt.Fprintf(&script, "%sINSERT INTO schema_version (version) VALUES (%d);\n", file, i+1)
	}
	for _, table := range p.Strings(t, p.Tables) {
		if table != "schema_version" {
			p.dump(t, table, &script)
		}
	}
	Must(t, os.MkdirAll(filepath.Dir(fixture(version)), 0o750))
	Must(t, os.WriteFile(fixture(version), script.Bytes(), 0o600))
}

// dump writes statements that make the rows of a table.
func (p *Place) dump(t *testing.T, table string, to *bytes.Buffer) {
	t.Helper()
	rows, err := p.DB.Query("SELECT * FROM " + table + " ORDER BY 1, 2")
	Must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	Must(t, err)
	fmt.Fprintf(to, "\nDELETE FROM %s;\n", table)
	for rows.Next() {
		values := make([]any, len(columns))
		pointers := make([]any, len(columns))
		for i := range values {
			pointers[i] = &values[i]
		}
		Must(t, rows.Scan(pointers...))
		var literals []string
		for _, v := range values {
			literals = append(literals, p.literal(t, v))
		}
		fmt.Fprintf(to, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(columns, ", "), strings.Join(literals, ", "))
	}
	Must(t, rows.Err())
}

func (p *Place) literal(t *testing.T, value any) string {
	t.Helper()
	switch v := value.(type) {
	case int64, bool:
		return fmt.Sprint(v)
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	case []byte:
		return fmt.Sprintf(p.Bytes, v)
	}
	t.Fatalf("%T is not a type that is stored", value)
	return ""
}
