package storetest_test

import (
	"path/filepath"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

// A store that only keeps tasks passes the suite.
func TestRun(t *testing.T) {
	storetest.Run(t, func(t *testing.T) task.Store {
		t.Helper()
		s := memstore.New(memstore.Options{})
		t.Cleanup(func() { _ = s.Close() })
		return struct{ task.Store }{s} // without the optional parts
	})
}

func TestRunReopen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tasks.db")
	storetest.RunReopen(t, func() task.Store {
		s, err := sqlitestore.Open(t.Context(), sqlitestore.Options{File: file})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
