package pgstore_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
)

// onServer returns nil if no server is available.
func onServer(t *testing.T) *sqltest.Place {
	t.Helper()
	server := postgres.start(t)
	if server == nil {
		return nil
	}
	url := server.Schema(t)
	db, err := sql.Open("pgx", url)
	sqltest.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return &sqltest.Place{
		Versions: pgstore.Migrations(), DB: db, Open: func(t *testing.T) gatestore.Store { return openPostgres(t, url) },
		Tables: "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY oid",
		Shape: `SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default, collation_name, identity_generation)
				FROM information_schema.columns WHERE table_schema = current_schema()
			UNION ALL SELECT replace(indexdef, current_schema(), '') FROM pg_indexes WHERE schemaname = current_schema()
			UNION ALL SELECT concat_ws(' ', event_object_table, trigger_name, event_manipulation, action_timing, action_orientation)
				FROM information_schema.triggers WHERE trigger_schema = current_schema() ORDER BY 1`,
		Announcement: "SET thoughtgate.schema = %d",
		Bytes:        `'\x%x'`,
	}
}

func TestVersions(t *testing.T) { sqltest.RunVersions(t, onServer) }

func TestOwedCancellationsOfOlderVersions(t *testing.T) {
	sqltest.RunOwedCancellationsOfOlderVersions(t, onServer)
}

func TestOutlinesWithoutDocuments(t *testing.T) { sqltest.RunOutlinesWithoutDocuments(t, onServer) }

func TestBytesOfEarlierVersion(t *testing.T) { sqltest.RunBytesOfEarlierVersion(t, onServer) }

func TestOutlinesOfEarlierVersion(t *testing.T) { sqltest.RunOutlinesOfEarlierVersion(t, onServer) }

// TestReplicasMigrateTogether starts five replicas with a database of the first version.
func TestReplicasMigrateTogether(t *testing.T) {
	old := onServer(t)
	if old == nil {
		return
	}
	old.Load(t, old.Versions[0])
	var stores [5]gatestore.Store
	var starting sync.WaitGroup
	for i := range stores {
		starting.Go(func() { stores[i] = old.Open(t) })
	}
	starting.Wait()
	var ran int
	sqltest.Must(t, old.DB.QueryRow("SELECT count(*) FROM schema_version").Scan(&ran))
	if ran != len(old.Versions) {
		t.Errorf("%d versions are recorded; want %d", ran, len(old.Versions))
	}
	for _, s := range stores {
		if got, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_approved")); got.State != task.Approved || err != nil {
			t.Errorf("Get = %s, %v", got.State, err)
		}
	}
	sqltest.GoOn(t, stores[4], old.Versions[0])
}

// TestBothDatabasesHaveSameMigrations checks that both kinds of database have the same migrations.
func TestBothDatabasesHaveSameMigrations(t *testing.T) {
	names := pgstore.Migrations()
	others, err := filepath.Glob("../sqlitestore/migrations/*.sql")
	sqltest.Must(t, err)
	for i, name := range others {
		others[i] = strings.TrimSuffix(filepath.Base(name), ".sql")
	}
	if diff := cmp.Diff(names, others); diff != "" {
		t.Error(diff)
	}
	for i, name := range names {
		if !regexp.MustCompile(fmt.Sprintf("^%04d_[a-z_]+$", i+1)).MatchString(name) {
			t.Errorf("the name of version %d is %s", i+1, name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("their order is %v", names)
	}
}
