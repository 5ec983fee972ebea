package sqlstore_test

import (
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
)

// crowd fills the tables with many tasks, of which one in fifty is pending. The
// gaps are for how many, and for a digest that is different for each.
const crowd = `
	INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document)
	WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
	SELECT 'tg_' || i, 'owner' || (i %% 100), CASE WHEN i %% 50 = 0 THEN 'input_required' ELSE 'completed' END,
		i %% 50 = 0, %s, i, i, 1, '{}' FROM n;
	INSERT INTO chunks (task, n, data) SELECT id, 0, digest FROM tasks WHERE pending = FALSE;
	INSERT INTO journal (seq, task, prev, hash, note) SELECT created_at, id, digest, digest, '{}' FROM tasks;
	ANALYZE;`

// crowdInbox is what nobody has put into the journal for a while.
const crowdInbox = "INSERT INTO journal_inbox (note) SELECT '{}' FROM tasks; ANALYZE;"

// withPages returns statements and those that select pages of tasks.
func withPages(statements map[string]string) map[string]string {
	all := maps.Clone(statements)
	states := map[string][]task.State{
		"any": nil, "pending": task.Pending(), "ended": {task.Failed}, "mixed": {task.Working, task.Completed},
	}
	for _, scope := range []task.Scope{task.AnyOwner(), task.OwnedBy("ann")} {
		for name, states := range states {
			for _, digest := range []task.Digest{{}, {1}} {
				for _, after := range []task.Position{{}, {CreatedAt: epoch, ID: "tg_x"}} {
					q := task.Query{Scope: scope, States: states, Digest: digest}
					statement, _ := sqlstore.SelectPage(q, after)
					all[fmt.Sprint("list ", scope, " ", name, digest[0], after.ID)] = statement
					q.Outlines = true
					all[fmt.Sprint("outlines ", scope, " ", name, digest[0], after.ID)], _ = sqlstore.SelectPage(q, after)
				}
			}
		}
	}
	for _, after := range []task.Position{{}, {CreatedAt: epoch, ID: "tg_x"}} {
		all["owing "+string(after.ID)], _ = sqlstore.SelectPage(task.Query{Scope: task.AnyOwner(), Owing: true}, after)
	}
	return all
}

// TestSQLitePlans checks that no statement reads more than it must: every
// table is searched by an index, and nothing is sorted but a page or two. The
// store does not analyse its tables, so that goes for tables that are not.
func TestSQLitePlans(t *testing.T) {
	for _, name := range []string{"empty", "crowded"} {
		t.Run(name, func(t *testing.T) {
			o := inDir(t)
			add(t, open(t, o), 1)
			db := raw(t, o)
			if name == "crowded" {
				_, err := db.Exec(fmt.Sprintf(crowd, 4000, "randomblob(32)"))
				must(t, err)
			}
			for name, statement := range withPages(sqlstore.Statements()) {
				steps := plan(t, db, statement)
				if strings.HasPrefix(name, "owing") && !strings.Contains(strings.Join(steps, "\n"), "tasks_owing") {
					t.Errorf("%s: %q\n%s", name, steps, statement)
				}
				for _, step := range steps {
					// The two halves of a page are put together in a third, short list.
					if step == "SCAN tasks USING INDEX tasks_owing" { // nothing else is in it
						continue
					}
					if strings.HasPrefix(step, "SCAN") && step != "SCAN p" && step != "SCAN t" && step != "SCAN halves" && step != "SCAN h" && step != "SCAN (subquery-1)" {
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
	args := make([]any, placeholders(statement))
	rows, err := db.Query("EXPLAIN QUERY PLAN "+statement, args...)
	must(t, err)
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		must(t, rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	must(t, rows.Err())
	if len(steps) == 0 {
		t.Errorf("no plan for %s", statement)
	}
	return steps
}

func placeholders(statement string) int {
	n := 0
	for strings.Contains(statement, fmt.Sprintf("$%d", n+1)) {
		n++
	}
	return n
}

var wholeTable = regexp.MustCompile(`Seq Scan on (tasks|chunks|journal|journal_inbox)\b`)

// TestPostgresPlans checks that every statement finds its rows by an index, in
// tables that are large enough for the server to have a choice.
func TestPostgresPlans(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	openPostgres(t, url)
	conn, err := pgconn.Connect(t.Context(), url+"&plan_cache_mode=force_generic_plan&thoughtgate.schema=1000")
	must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), fmt.Sprintf(crowd, 20_000, "sha256(i::text::bytea)")+crowdInbox).ReadAll()
	must(t, err)
	for name, statement := range withPages(sqlstore.PostgresStatements()) {
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
	if n := placeholders(statement); n > 0 {
		execute += " (NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	results, err := conn.Exec(t.Context(), "PREPARE it AS "+statement+"; EXPLAIN EXECUTE "+execute+"; DEALLOCATE it").ReadAll()
	must(t, err)
	var lines []string
	for _, row := range results[1].Rows {
		lines = append(lines, string(row[0]))
	}
	return strings.Join(lines, "\n")
}

var finds = regexp.MustCompile(`(?s)^\s*(SELECT|UPDATE|DELETE|WITH)\b.*\b(tasks|chunks|journal)\b`)

// TestAllPlansAreChecked looks for statements in the source that the other two
// do not know.
func TestAllPlansAreChecked(t *testing.T) {
	known := slices.Concat(
		slices.Collect(maps.Values(sqlstore.Statements())), slices.Collect(maps.Values(sqlstore.PostgresStatements())))
	files, err := filepath.Glob("*.go")
	must(t, err)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			must(t, err)
			if finds.MatchString(text) {
				if found++; !slices.Contains(known, text) {
					t.Errorf("%s: nobody checks the plan of %s", name, text)
				}
			}
			return true
		})
	}
	if found < 15 {
		t.Errorf("only %d statements were found", found)
	}
}
