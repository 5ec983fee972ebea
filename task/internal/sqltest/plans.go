package sqltest

import (
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

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// Crowd is a statement that fills the tables with many tasks. One in fifty tasks is pending.
// Its placeholders are the number of tasks, and an expression for a digest that differs for
// each task.
const Crowd = `
	INSERT INTO tasks (id, owner, account, state, pending, digest, created_at, due, version, document)
	WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
	SELECT 'tg_' || i, 'owner' || (i %% 100), 'owner:owner' || (i %% 100), CASE WHEN i %% 50 = 0 THEN 'input_required' ELSE 'completed' END,
		i %% 50 = 0, %s, i, i, 1, '{}' FROM n;
	UPDATE tasks SET size = 1, disposable = TRUE WHERE pending = FALSE AND created_at %% 3 = 0;
	INSERT INTO chunks (task, n, data) SELECT id, 0, digest FROM tasks WHERE pending = FALSE;
	INSERT INTO journal (seq, task, prev, hash, note) SELECT created_at, id, digest, digest, '{}' FROM tasks;
	ANALYZE;`

// WithPages returns the statements, and those that select pages of tasks.
func WithPages(statements map[string]string) map[string]string {
	all := maps.Clone(statements)
	states := map[string][]task.State{
		"any": nil, "pending": task.Pending(), "ended": {task.Failed}, "mixed": {task.Working, task.Completed},
	}
	for _, scope := range []task.Scope{task.AnyOwner(), task.OwnedBy("ann")} {
		for name, states := range states {
			for _, digest := range []task.Digest{{}, {1}} {
				for _, after := range []task.Position{{}, {CreatedAt: Epoch, ID: "tg_x"}} {
					q := task.Query{Scope: scope, States: states, Digest: digest}
					statement, _ := sqlcore.SelectPage(q, after)
					all[fmt.Sprint("list ", scope, " ", name, digest[0], after.ID)] = statement
					q.Outlines = true
					all[fmt.Sprint("outlines ", scope, " ", name, digest[0], after.ID)], _ = sqlcore.SelectPage(q, after)
				}
			}
		}
	}
	for _, after := range []task.Position{{}, {CreatedAt: Epoch, ID: "tg_x"}} {
		all["owing "+string(after.ID)], _ = sqlcore.SelectPage(task.Query{Scope: task.AnyOwner(), OwesCancellation: true}, after)
	}
	return all
}

// Placeholders returns the number of parameters of a statement.
func Placeholders(statement string) int {
	n := 0
	for strings.Contains(statement, fmt.Sprintf("$%d", n+1)) {
		n++
	}
	return n
}

var finds = regexp.MustCompile(`(?s)^\s*(SELECT|UPDATE|DELETE|WITH)\b.*\b(tasks|chunks|journal)\b`)

// RunAllPlansAreChecked searches the source of the tested store and of package sqlcore for
// statements whose plans are not checked.
func RunAllPlansAreChecked(t *testing.T, statements map[string]string) {
	known := slices.Collect(maps.Values(statements))
	files, err := filepath.Glob("*.go")
	Must(t, err)
	shared, err := filepath.Glob("../internal/sqlcore/*.go")
	Must(t, err)
	files = append(files, shared...)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		Must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			Must(t, err)
			if finds.MatchString(text) {
				start, _, _ := strings.Cut(text, "%")
				if found++; !slices.ContainsFunc(known, func(s string) bool { return s == text || start != text && strings.HasPrefix(s, start) }) {
					t.Errorf("%s: no test checks the plan of %s", name, text)
				}
			}
			return true
		})
	}
	if found < 12 {
		t.Errorf("found only %d statements", found)
	}
}
