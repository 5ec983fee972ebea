package sqltest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// RunOutlinesWithoutDocuments checks that a list of outlines only reads the documents of tasks
// whose outline is missing or has another version.
func RunOutlinesWithoutDocuments(t *testing.T, empty Empty) {
	p := empty(t)
	if p == nil {
		return
	}
	s := p.Open(t)
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
}

// RunOutlinesOfEarlierVersion checks that a list of outlines includes tasks from a version
// without outlines.
func RunOutlinesOfEarlierVersion(t *testing.T, empty Empty) {
	p := empty(t)
	if p == nil {
		return
	}
	p.Load(t, p.Versions[5])
	s := p.Open(t)
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100})
	Must(t, err)
	var want []task.Task
	for _, whole := range page.Tasks {
		want = append(want, whole.Outline())
	}
	if diff := cmp.Diff(want, outlines(t, s)); diff != "" || len(want) == 0 {
		t.Errorf("%d tasks: %s", len(want), diff)
	}
}

func outlines(t *testing.T, s gatestore.Store) []task.Task {
	t.Helper()
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100, Outlines: true})
	Must(t, err)
	return page.Tasks
}

// change changes the tables without the store.
func (p *Place) change(t *testing.T, statement string) {
	t.Helper()
	conn, err := p.DB.Conn(t.Context())
	Must(t, err)
	defer conn.Close()
	p.announce(t, conn, len(p.Versions))
	_, err = conn.ExecContext(t.Context(), statement)
	Must(t, err)
}
