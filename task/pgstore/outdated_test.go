package pgstore_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
)

// A newer program migrates the tables while a gate of this version runs. After that the gate's
// writes are refused, because it would lose the new fields. Even a gate that only does
// housekeeping detects it. Reads still work.
func TestOutdatedGateOnlyReads(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	s := openPostgres(t, url)
	first := sqltest.Add(t, s, 1)
	for what, err := range sqltest.Writes(t.Context(), t, s, first) {
		if err != nil {
			t.Fatalf("%s before the update: %v", what, err)
		}
	}
	second := sqltest.Add(t, s, 2)
	query(t, url, "INSERT INTO schema_version (version) VALUES (99) RETURNING 1") // like the newer program
	for what, err := range sqltest.Writes(t.Context(), t, s, second) {
		if !errors.Is(err, task.ErrOutdated) || !errors.Is(err, pgstore.ErrSchema) {
			t.Errorf("%s = %v; want %v", what, err, task.ErrOutdated)
		}
	}
	got, err := s.Get(t.Context(), task.AnyOwner().Ref(second.ID))
	if sqltest.Must(t, err); got.Version != second.Version {
		t.Errorf("the task was changed to version %d", got.Version)
	}
}

// Statements of a program of table version 3, which does not announce its version.
var version3 = map[string]string{
	"create": `INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document)
		VALUES ('tg_x', 'ann', 'working', TRUE, '', 1, 2, 1, '{}')`,
	"swap": `WITH old AS (SELECT id, owner, pending FROM tasks WHERE id = 'tg_working' FOR UPDATE)
		UPDATE tasks SET state = 'cancelled', pending = FALSE FROM old WHERE tasks.id = old.id RETURNING old.owner`,
	"count":  "UPDATE slots SET pending = pending + 1 WHERE slot = 1",
	"probe":  "UPDATE slots SET pending = pending WHERE slot = 0",
	"note":   "INSERT INTO journal_inbox (note) VALUES ('{}')",
	"chunk":  "INSERT INTO chunks (task, n, data) VALUES ('tg_working', 0, '')",
	"sweep":  "DELETE FROM tasks WHERE due < 0",
	"chain":  "DELETE FROM journal_inbox WHERE id = 1",
	"entry":  "INSERT INTO journal (seq, task, prev, hash, note) VALUES (99, '', '', '', '')",
	"head":   "UPDATE journal_ends SET head_seq = 1",
	"delete": "DELETE FROM journal WHERE seq <= 1",
	"record": "INSERT INTO records (name, version, value) VALUES ('x', 1, '')",
}

// A gate of the previous version still runs while this one migrates the tables. The tables
// refuse its writes, with an error that tells its operator to update it.
func TestPreviousVersionIsRefused(t *testing.T) {
	old := onServer(t)
	if old == nil {
		return
	}
	old.Load(t, "0003_records")
	conn, err := old.DB.Conn(t.Context())
	sqltest.Must(t, err)
	defer conn.Close()
	for what, statement := range version3 {
		if err := tried(t, conn, statement); err != nil {
			t.Errorf("%s before the update: %v", what, err)
		}
	}
	old.Open(t)
	for what, statement := range version3 {
		err := tried(t, conn, statement)
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != "TG001" || !strings.Contains(refused.Message, "update it") {
			t.Errorf("%s = %v; want an error", what, err)
		}
	}
}

// tried returns the error of a statement and rolls it back.
func tried(t *testing.T, conn *sql.Conn, statement string) error {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), nil)
	sqltest.Must(t, err)
	_, err = tx.Exec(statement)
	sqltest.Must(t, tx.Rollback())
	return err
}

// Every table with data refuses older programs. This also applies to new tables.
func TestEveryTableRefusesOlderPrograms(t *testing.T) {
	p := onServer(t)
	if p == nil {
		return
	}
	p.Open(t)
	open := p.Strings(t, `SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
		AND relname <> 'schema_version' AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgname = 'refuse_older_writer')`)
	if len(open) > 0 {
		t.Errorf("programs of older versions can write to %v", open)
	}
}
