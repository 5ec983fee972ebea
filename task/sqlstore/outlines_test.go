package sqlstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
)

// A list of outlines reads no documents but those of tasks that have no outline of
// their version.
func TestOutlinesWithoutDocuments(t *testing.T) {
	for name, empty := range map[string]func(*testing.T) *place{"SQLite": inFile, "PostgreSQL": onServer} {
		t.Run(name, func(t *testing.T) {
			p := empty(t)
			if p == nil {
				return
			}
			s := p.open(t)
			populate(t, s)
			want := outlines(t, s)
			p.change(t, "UPDATE outlines SET version = version + 1")
			if diff := cmp.Diff(want, outlines(t, s)); diff != "" {
				t.Errorf("outlines of another version: %s", diff)
			}
			p.change(t, "UPDATE outlines SET version = version - 1")
			p.change(t, "UPDATE tasks SET document = '{'")
			if diff := cmp.Diff(want, outlines(t, s)); diff != "" {
				t.Errorf("without documents: %s", diff)
			}
			p.change(t, "DELETE FROM outlines")
			if _, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Outlines: true}); !errors.Is(err, task.ErrUnreadable) {
				t.Errorf("without documents and outlines: %v", err)
			}
		})
	}
}

// The tasks of a version without outlines are listed all the same.
func TestOutlinesOfEarlierVersion(t *testing.T) {
	for name, empty := range map[string]func(*testing.T) *place{"SQLite": inFile, "PostgreSQL": onServer} {
		t.Run(name, func(t *testing.T) {
			p := empty(t)
			if p == nil {
				return
			}
			p.load(t, sqlstore.Migrations(p.kind)[5])
			s := p.open(t)
			page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100})
			must(t, err)
			var want []task.Task
			for _, whole := range page.Tasks {
				want = append(want, whole.Outline())
			}
			if diff := cmp.Diff(want, outlines(t, s)); diff != "" || len(want) == 0 {
				t.Errorf("%d tasks: %s", len(want), diff)
			}
		})
	}
}

func outlines(t *testing.T, s task.Store) []task.Task {
	t.Helper()
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100, Outlines: true})
	must(t, err)
	return page.Tasks
}

// change changes tables by hand.
func (p *place) change(t *testing.T, statement string) {
	t.Helper()
	conn, err := p.db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	if p.kind == "postgres" {
		_, err = conn.ExecContext(t.Context(), fmt.Sprintf("SET thoughtgate.schema = %d", len(sqlstore.Migrations(p.kind))))
		must(t, err)
	}
	_, err = conn.ExecContext(t.Context(), statement)
	must(t, err)
}
