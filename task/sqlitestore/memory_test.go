package sqlitestore_test

import (
	"os"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// A store in memory passes the suite, leaves no files, and is another one each time.
func TestMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	in := sqlitestore.Options{File: sqlitestore.Memory}
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return open(t, in) })
	one, two := open(t, in), open(t, in)
	sqltest.Add(t, one, 1)
	if page, err := two.List(t.Context(), task.Query{Scope: task.AnyOwner()}); err != nil || len(page.Tasks) != 0 {
		t.Errorf("another store has %d tasks, %v", len(page.Tasks), err)
	}
	if files, err := os.ReadDir("."); err != nil || len(files) != 0 {
		t.Errorf("files: %v, %v", files, err)
	}
	in.Shared = true
	if _, err := sqlitestore.Open(t.Context(), in); err == nil {
		t.Error("processes share memory")
	}
}
