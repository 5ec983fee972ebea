package pgstore_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
)

// crowdInbox fills the inbox with notes that were not chained.
const crowdInbox = "INSERT INTO journal_inbox (note) SELECT '{}' FROM tasks; ANALYZE;"

var wholeTable = regexp.MustCompile(`Seq Scan on (tasks|chunks|journal|journal_inbox)\b`)

// TestStatementsUseIndexes checks that every statement finds its rows with an index, in tables that
// are large enough for the server to have a choice.
func TestStatementsUseIndexes(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	openPostgres(t, url)
	conn, err := pgconn.Connect(t.Context(), url+"&plan_cache_mode=force_generic_plan&thoughtgate.schema=1000")
	sqltest.Must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), fmt.Sprintf(sqltest.Crowd, 20_000, "sha256(i::text::bytea)")+crowdInbox).ReadAll()
	sqltest.Must(t, err)
	for name, statement := range sqltest.WithPages(pgstore.Statements()) {
		index := "Index"
		if strings.HasPrefix(name, "owing") {
			index = "tasks_owing"
		}
		if got := explain(t, conn, statement); wholeTable.MatchString(got) || !strings.Contains(got, index) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

func explain(t *testing.T, conn *pgconn.PgConn, statement string) string {
	t.Helper()
	execute := "it"
	if n := sqltest.Placeholders(statement); n > 0 {
		execute += " (NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	results, err := conn.Exec(t.Context(), "PREPARE it AS "+statement+"; EXPLAIN EXECUTE "+execute+"; DEALLOCATE it").ReadAll()
	sqltest.Must(t, err)
	var lines []string
	for _, row := range results[1].Rows {
		lines = append(lines, string(row[0]))
	}
	return strings.Join(lines, "\n")
}

func TestAllPlansAreChecked(t *testing.T) {
	sqltest.RunAllPlansAreChecked(t, pgstore.Statements())
}
