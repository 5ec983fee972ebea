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

// A newer program updates the tables while a gate of this version runs. From
// then on nothing that this gate writes is taken, so that no call is held or run
// without what the newer version keeps of it. Even a gate that only keeps house
// notices. What is there can be read.
func TestPostgresOutdated(t *testing.T) {
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
	query(t, url, "INSERT INTO schema_version (version) VALUES (99) RETURNING 1") // as the newer program does
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

// Statements of the program of version 3, which knows nothing of this version
// and says nothing of itself.
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

// A gate of the version before goes on running while this one updates the
// tables. That one cannot be changed any more: the tables themselves refuse it,
// with words that tell its operator what to do.
func TestPostgresRefusesVersionBefore(t *testing.T) {
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
			t.Errorf("%s = %v; want it refused", what, err)
		}
	}
}

// tried returns the error of a statement whose effect is undone.
func tried(t *testing.T, conn *sql.Conn, statement string) error {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), nil)
	sqltest.Must(t, err)
	_, err = tx.Exec(statement)
	sqltest.Must(t, tx.Rollback())
	return err
}

// Every table that holds something refuses older programs; a new one must too.
func TestPostgresTablesRefuse(t *testing.T) {
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
