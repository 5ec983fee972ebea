package sqlitestore_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// TestStatementsUseIndexes checks that statements read only the necessary rows: each table is searched
// with an index, and at most two pages are sorted. The store does not analyse its tables, and
// neither does the test.
func TestStatementsUseIndexes(t *testing.T) {
	for _, name := range []string{"empty", "crowded"} {
		t.Run(name, func(t *testing.T) {
			o := inDir(t)
			sqltest.Add(t, open(t, o), 1)
			db := raw(t, o)
			if name == "crowded" {
				_, err := db.Exec(fmt.Sprintf(sqltest.Crowd, 4000, "randomblob(32)"))
				sqltest.Must(t, err)
			}
			for name, statement := range sqltest.WithPages(sqlitestore.Statements()) {
				steps := plan(t, db, statement)
				if strings.HasPrefix(name, "owing") && !strings.Contains(strings.Join(steps, "\n"), "tasks_owing") {
					t.Errorf("%s: %q\n%s", name, steps, statement)
				}
				for _, step := range steps {
					// The two halves of a page are merged in a third, short list.
					if step == "SCAN tasks USING INDEX tasks_owing" { // the index only has tasks that owe a cancellation
						continue
					}
					if strings.HasPrefix(step, "SCAN") && step != "SCAN CONSTANT ROW" && step != "SCAN p" && step != "SCAN t" && step != "SCAN halves" && step != "SCAN h" && step != "SCAN (subquery-1)" {
						t.Errorf("%s: %s\n%s", name, step, statement)
					}
					if strings.Contains(step, "TEMP B-TREE") && !strings.Contains(statement, "UNION") && !strings.Contains(statement, "digest") {
						t.Errorf("%s: %s\n%s", name, step, statement)
					}
				}
			}
		})
	}
}

func plan(t *testing.T, db *sql.DB, statement string) []string {
	t.Helper()
	args := make([]any, sqltest.Placeholders(statement))
	rows, err := db.Query("EXPLAIN QUERY PLAN "+statement, args...)
	sqltest.Must(t, err)
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		sqltest.Must(t, rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	sqltest.Must(t, rows.Err())
	if len(steps) == 0 {
		t.Errorf("no plan for %s", statement)
	}
	return steps
}

func TestAllPlansAreChecked(t *testing.T) {
	sqltest.RunAllPlansAreChecked(t, sqlitestore.Statements())
}
