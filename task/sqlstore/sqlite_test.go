package sqlstore_test

import (
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSQLite covers STOR-01, and F-003, F-005, F-007 and F-009 of GOV-001 as
// far as they concern a store.
func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) task.Store {
		return open(t, sqlstore.SQLiteOptions{File: filepath.Join(t.TempDir(), "state", "tasks.db")})
	})
}

func open(t testing.TB, o sqlstore.SQLiteOptions) *sqlstore.SQLite {
	t.Helper()
	s, err := sqlstore.OpenSQLite(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const ttl = time.Hour
