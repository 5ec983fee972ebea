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
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

var writeFixture = flag.Bool("fixture", false, "have TestVersions write what is missing for the newest version of the schema")

// A Place is an empty database and the differences of its dialect.
type Place struct {
	Versions []string // names of the migrations, in their order
	Open     func(t *testing.T) gatestore.Store
	DB       *sql.DB
	Tables   string // a query for the names of all tables
	Shape    string // a query that describes the schema, in comparable lines

	Announcement string // a format of a statement that announces the table version of a program, or empty
	Bytes        string // a format of a literal with bytes
}

// Empty returns an empty database, or nil if no server is available.
type Empty func(t *testing.T) *Place

// announce lets a connection announce the table version of its program.
func (p *Place) announce(t *testing.T, conn *sql.Conn, version int) {
	t.Helper()
	if p.Announcement != "" {
		_, err := conn.ExecContext(t.Context(), fmt.Sprintf(p.Announcement, version))
		Must(t, err)
	}
}

// Strings returns the only column of a query.
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

// Load fills the database with the fixture of a version.
func (p *Place) Load(t *testing.T, version string) {
	t.Helper()
	script, err := os.ReadFile(fixture(version))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("there is no fixture of version %s, which the test of the next version needs; make it with\n\tgo test . -run TestVersions -fixture", version)
	}
	Must(t, err)
	_, err = p.DB.Exec(string(script))
	Must(t, err)
}

// RunVersions migrates a database of each version to the newest version. The migration must
// keep all data and result in the schema of a new database. The test also fails when a released
// migration was changed.
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

// populate adds a task in each state, with the state as its id, an entry in the journal, and a
// record.
func populate(t *testing.T, s gatestore.Store) {
	t.Helper()
	submit := lifecycle.Submit{By: "gate", Quorum: 2, Deadline: Epoch.Add(TTL / 2)}
	admit, claim := lifecycle.Admit{By: "gate", Reason: "none needed"}, lifecycle.Claim{By: "gate 1", LeaseUntil: Epoch.Add(time.Minute)}
	whole := strings.Join(answerParts, "")
	for state, events := range map[task.State][]lifecycle.Event{
		task.Working:       nil,
		task.InputRequired: {submit, lifecycle.Approve{By: "bob", Reason: "fine"}},
		task.Approved:      {admit},
		task.Executing:     {admit, claim},
		task.Completed:     {admit, claim, lifecycle.Complete{By: "gate 1", Result: task.Result{Kind: task.ResultOK, Chunks: len(answerParts), Size: int64(len(whole))}}},
		task.Failed:        {admit, lifecycle.Fail{By: "gate 1", Failure: task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: "denied"}}},
		task.Rejected:      {submit, lifecycle.Reject{By: "bob", Reason: "it's wrong"}},
		task.Cancelled:     {lifecycle.Cancel{By: "ann"}},
	} {
		d := Draft(len(state))
		d.ID = task.ID("tg_" + string(state))
		made, err := task.New(d, Epoch)
		Must(t, err)
		Must(t, s.Create(t.Context(), made, task.Limits{}))
		for _, e := range events {
			_, err := lifecycle.Advance(t.Context(), s, task.AnyOwner().Ref(d.ID), e, Epoch)
			Must(t, err)
		}
	}
	for n, part := range answerParts {
		Must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref("tg_completed"), n, []byte(part)))
	}
	Must(t, s.Append(t.Context(), task.Note{At: Epoch, Step: "populated", Actor: "the test"}))
	Must(t, s.PutRecord(t.Context(), gatestore.Record{Name: "populated", Version: 1, Value: []byte("by the test"), Expires: Epoch}))
}

// GoOn continues to use the data of populate in a migrated database.
func GoOn(t *testing.T, s gatestore.Store, version string) {
	t.Helper()
	MustBe(t, s.Create(t.Context(), Build(t, 90), task.Limits{Total: 4}), task.ErrCapacityExceeded)
	Must(t, s.Create(t.Context(), Build(t, 91), task.Limits{Total: 5}))
	var answer bytes.Buffer
	for _, state := range task.States() {
		if state == task.Expired {
			continue // checked at the end
		}
		got, err := s.Get(t.Context(), task.AnyOwner().Ref(task.ID("tg_"+string(state))))
		Must(t, err)
		want := Draft(len(state)).Call
		if got.Abridged() {
			want.Message, want.Arguments = "", ""
		}
		if got.State != state || got.Call != want {
			t.Errorf("%s is %s: %+v", got.ID, got.State, got)
		}
		if state == task.Completed {
			Must(t, storekit.ReadResult(t.Context(), s, got, &answer))
		}
	}
	if answer.String() != strings.Join(answerParts, "") {
		t.Errorf("answer: %s", &answer)
	}
	for _, step := range []struct {
		id task.ID
		e  lifecycle.Event
	}{
		{"tg_input_required", lifecycle.Approve{By: "cara"}},
		{"tg_input_required", lifecycle.Claim{By: "gate 2", LeaseUntil: Epoch.Add(time.Minute)}},
		{"tg_executing", lifecycle.Complete{By: "gate 1", Result: task.Result{Kind: task.ResultOK}}},
		{"tg_completed", lifecycle.Deliver{}},
	} {
		_, err := lifecycle.Advance(t.Context(), s, task.AnyOwner().Ref(step.id), step.e, Epoch)
		Must(t, err)
	}
	Must(t, s.Append(t.Context(), task.Note{At: Epoch, Step: "went on"}))
	entries, err := s.Entries(t.Context(), auditlog.Query{})
	Must(t, err)
	var last auditlog.Link
	for _, e := range entries {
		Must(t, last.Verify(e))
		last = e.Link()
	}
	if n := len(entries); n == 0 || entries[n-1].Step != "went on" {
		t.Errorf("journal: %+v", entries)
	}
	keepRecords(t, s, version >= firstWithRecords)
	if ended, err := (lifecycle.Updater{Store: s}).SettleOverdue(t.Context(), "gate 3", Epoch.Add(2*TTL)); len(ended) != 4 || err != nil {
		t.Errorf("%d tasks are overdue, %v; want 4", len(ended), err)
	}
	if n, err := s.Sweep(t.Context(), Epoch.Add(3*TTL), 100); n != 9 || err != nil {
		t.Errorf("%d tasks are swept, %v; want 9", n, err)
	}
}

// keepRecords continues to use the record of populate, if it exists.
func keepRecords(t *testing.T, s gatestore.Store, kept bool) {
	t.Helper()
	next := gatestore.Record{Name: "populated", Version: 1, Value: []byte("again")}
	r, err := s.GetRecord(t.Context(), next.Name)
	switch {
	case !kept:
		MustBe(t, err, task.ErrNotFound)
	case string(r.Value) != "by the test" || !r.Expires.Equal(Epoch) || r.Version != 1 || err != nil:
		t.Errorf("record: %+v, %v", r, err)
	default:
		next.Version = 2
	}
	Must(t, s.PutRecord(t.Context(), next))
}

// firstWithRecords is the first version of the tables with records.
const firstWithRecords = "0003_records"

// write saves the database as the fixture of a version.
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

// dump writes statements that insert the rows of a table.
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
	t.Fatalf("stored values cannot have the type %T", value)
	return ""
}
